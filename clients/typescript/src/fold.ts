/**
 * Folds the events of a stream into what the caller holds, and checks every one of them.
 *
 * The rules are those at the head of `stream.proto`. What does not fit throws `Misfit` and is never shown.
 */
import { createHash } from "node:crypto";
import {
  type BlockDelta,
  BlockKind,
  type BlockStart,
  type BlockStop,
  type Rewind,
  type Snapshot,
  type StreamEvent,
  type Terminal,
} from "./v1.js";

/** An event does not fit what is held; the invocation has to be read again from its beginning. */
export class Misfit extends Error {}

/** A piece of the answer. */
export interface Block {
  kind: BlockKind;
  callId: string;
  toolName: string;
  text: string;
  bytes: number;
  stopped: boolean;
  /** Whether a tool call may be acted on. */
  committed: boolean;
}

/** What the caller holds of one invocation. It outlives connections. */
export class Fold {
  blocks = new Map<number, Block>();
  invocationId = "";
  /** The last event; undefined before the first. */
  cursor: { epoch: bigint; seq: bigint } | undefined;
  terminal: Terminal | undefined;

  /** Folds one event. True when it was new and numbered, or a snapshot. */
  apply(event: StreamEvent): boolean {
    if (this.invocationId && event.invocationId !== this.invocationId) throw new Misfit("an event of another invocation");
    this.invocationId = event.invocationId;
    const body = event.body;
    if (body.case === "accepted" || body.case === "heartbeat") return false;
    if (body.case === "snapshot") {
      this.restore(body.value);
      this.cursor = event.seq > 0n ? { epoch: event.epoch, seq: event.seq } : undefined;
      this.terminal = undefined;
      return true;
    }
    if (!this.isNext(event)) return false;
    if (body.case === "blockStart") this.start(body.value);
    else if (body.case === "blockDelta") this.append(body.value);
    else if (body.case === "blockStop") this.stop(body.value);
    else if (body.case === "rewind") this.rewind(body.value);
    else if (body.case === "terminal") {
      if (!same(body.value.resultHash, this.hash())) throw new Misfit("the hash of the result differs");
      this.terminal = body.value;
    }
    // Any other body tells of the way to the answer, and changes nothing that is held.
    this.cursor = { epoch: event.epoch, seq: event.seq };
    return true;
  }

  ofKind(kind: BlockKind): Block[] {
    return this.ordered().flatMap(([, block]) => (block.kind === kind ? [block] : []));
  }

  /** All text of the answer, as `Completion.text` has it. */
  text(): string {
    return this.ofKind(BlockKind.TEXT).map((block) => block.text).join("\n");
  }

  hash(): Buffer {
    const whole = createHash("sha256");
    for (const [id, block] of this.ordered()) {
      const head = Buffer.alloc(16);
      head.writeUInt32BE(id, 0);
      head.writeUInt32BE(block.kind, 4);
      head.writeBigUInt64BE(BigInt(block.bytes), 8);
      whole.update(head).update(sha256(block.text));
    }
    return whole.digest();
  }

  private ordered(): [number, Block][] {
    return [...this.blocks].sort(([one], [other]) => one - other);
  }

  private isNext(event: StreamEvent): boolean {
    const { epoch, seq: last } = this.cursor ?? { epoch: event.epoch, seq: 0n };
    if (event.epoch < epoch) throw new Misfit(`an event of epoch ${event.epoch} after one of epoch ${epoch}`);
    if (event.epoch === epoch && event.seq <= last) return false;
    if (event.seq !== last + 1n) throw new Misfit(`event ${event.seq} after event ${last}`);
    if (this.terminal) throw new Misfit("an event after the Terminal");
    return true;
  }

  private open(id: number): Block {
    const block = this.blocks.get(id);
    if (!block || block.stopped) throw new Misfit(`block ${id} is not open`);
    return block;
  }

  private start(start: BlockStart): Block {
    if (this.blocks.has(start.blockId)) throw new Misfit(`block ${start.blockId} begins twice`);
    const { kind, callId, toolName } = start;
    const block = { kind, callId, toolName, text: "", bytes: 0, stopped: false, committed: false };
    this.blocks.set(start.blockId, block);
    return block;
  }

  private append(delta: BlockDelta): void {
    const block = this.open(delta.blockId);
    if (BigInt(block.bytes) !== delta.startOffsetBytes) {
      throw new Misfit(`a delta at ${delta.startOffsetBytes} where ${block.bytes} bytes are held`);
    }
    block.text += delta.text;
    block.bytes += Buffer.byteLength(delta.text);
  }

  private stop(stop: BlockStop): void {
    const block = this.open(stop.blockId);
    if (BigInt(block.bytes) !== stop.lengthBytes || !same(stop.hash, sha256(block.text))) {
      throw new Misfit(`block ${stop.blockId} is not what was sent`);
    }
    if (stop.committed && stop.argumentsJson !== block.text) {
      throw new Misfit(`the arguments of block ${stop.blockId} are not what was sent`);
    }
    block.stopped = true;
    block.committed = stop.committed;
  }

  private rewind(rewind: Rewind): void {
    const kept = new Map<number, Block>();
    for (const { blockId, lengthBytes } of rewind.keep) {
      const block = this.blocks.get(blockId);
      const length = Number(lengthBytes);
      if (!block || block.bytes < length) throw new Misfit(`block ${blockId} is to be kept and is not held`);
      const text = length < block.bytes ? Buffer.from(block.text).subarray(0, length).toString() : block.text;
      kept.set(blockId, length < block.bytes ? { ...block, text, bytes: length, stopped: false, committed: false } : block);
    }
    const earlier = this.blocks;
    this.blocks = kept;
    if (same(rewind.hash, this.hash())) return;
    this.blocks = earlier;
    throw new Misfit("the hash of what a rewind keeps differs");
  }

  private restore(snapshot: Snapshot): void {
    const fresh = new Fold();
    for (const held of snapshot.blocks) {
      if (!held.start) throw new Misfit("a block of a snapshot has no start");
      const block = fresh.start(held.start);
      block.text = held.text;
      block.bytes = Buffer.byteLength(held.text);
      if (held.stop) fresh.stop(held.stop);
    }
    if (!same(snapshot.hash, fresh.hash())) throw new Misfit("the hash of a snapshot differs");
    this.blocks = fresh.blocks;
  }
}

function sha256(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function same(one: Uint8Array, other: Uint8Array): boolean {
  return Buffer.compare(one, other) === 0;
}
