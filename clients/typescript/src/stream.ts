/** A stream that survives its connection, and the replica that serves it. */
import { create } from "@bufbuild/protobuf";
import type { ClientReadableStream } from "@grpc/grpc-js";
import type { Retry } from "./connection.js";
import { fromRpc, FailureError, lost, ProtocolError, RelightError, StatusError } from "./errors.js";
import { Fold, Misfit } from "./fold.js";
import { Answer, aroundOf, Failed, type Outcome } from "./outcome.js";
import {
  AnswerView,
  BlockKind,
  RewindMode,
  type StreamEvent,
  type StreamWithRecoveryRequest,
  StreamWithRecoveryRequestSchema,
  type StreamWithRecoveryResponse,
} from "./v1.js";

// How often events that do not fit are read again from the beginning.
const MAX_MISFITS = 3;

/** A change of the text that is shown: more of it, or all of it that remains after its end was taken back. */
export type Change = { kind: "text"; text: string } | { kind: "rewind"; kept: string };

/** Where another process can go on with an invocation: `client.resume(point)`. */
export interface ResumePoint {
  token: string;
  requestId: string;
}

export interface Calls {
  open(request: StreamWithRecoveryRequest, deadline: number | undefined): ClientReadableStream<StreamWithRecoveryResponse>;
  cancel(invocationId: string, requestId: string): Promise<void>;
}

/** Reads one invocation over as many connections as it takes, and finds out what of its text changes. */
export class Reader {
  fold = new Fold();
  /** Whether the service promises that nothing is taken back. */
  isAtomic = false;
  private token = "";
  private call: ClientReadableStream<StreamWithRecoveryResponse> | undefined;
  private left = false;
  private pieces: string[] = [];
  private lastText = 0;
  private misfits = 0;
  /** Whether events are read again that were shown already. */
  private catchingUp = false;

  constructor(
    private readonly calls: Calls,
    private readonly retry: Retry,
    private readonly request: StreamWithRecoveryRequest,
    private readonly signal: AbortSignal | undefined,
  ) {}

  async *changes(): AsyncGenerator<Change, void> {
    // Where a caller leaves a loop early, this function ends at a `yield` without an error.
    let running = true;
    const abort = (): void => void this.leave(true);
    this.signal?.addEventListener("abort", abort);
    try {
      while (!this.fold.terminal) {
        this.signal?.throwIfAborted();
        try {
          yield* this.follow();
        } catch (error) {
          if (error instanceof Misfit) await this.startOver(error);
          else await this.reconnect(error);
        }
      }
      running = false;
    } catch (error) {
      running = error instanceof ProtocolError;
      throw error;
    } finally {
      this.signal?.removeEventListener("abort", abort);
      if (running) await this.leave(true);
      this.call?.cancel();
    }
  }

  /** Ends the stream. A resumable invocation runs on for its grace unless it is cancelled. */
  async leave(cancel: boolean): Promise<void> {
    if (this.left || this.fold.terminal || !this.call) return;
    this.left = true;
    this.call.cancel();
    if (cancel) await this.calls.cancel(this.fold.invocationId, this.requestId());
  }

  resumePoint(): ResumePoint {
    if (!this.token) throw new RelightError("nothing was accepted yet, or nothing is kept, so that nothing can be resumed");
    // A token of a resumed stream stands for the place where that began, and not for the whole answer.
    const { start } = this.request;
    const asked = start.case === "resume" && start.value.invocation.case === "token" ? start.value.invocation.value : "";
    return { token: asked || this.token, requestId: this.requestId() };
  }

  outcome(): Outcome {
    const { terminal, invocationId } = this.fold;
    if (!terminal) throw new RelightError("the stream was not read to its end");
    const { outcome } = terminal;
    if (outcome.case === "failed") return new Failed(outcome.value, invocationId, terminal.historyPatch);
    if (outcome.case === "cancelled" && outcome.value.failure) {
      return new Failed(outcome.value.failure, invocationId, terminal.historyPatch);
    }
    if (outcome.case !== "completed") throw new ProtocolError("a Terminal without an outcome");
    const calls = this.fold.ofKind(BlockKind.TOOL_CALL).filter((call) => call.committed);
    return new Answer({
      text: this.fold.text(),
      toolCalls: calls.map((call) => ({ id: call.callId, name: call.toolName, argumentsJson: call.text })),
      historyPatch: outcome.value.historyPatch,
      historyReplaceTail: outcome.value.historyReplaceTail,
      invocationId,
      target: terminal.finalTarget,
      attempts: terminal.attempts,
      usage: terminal.usage,
      around: aroundOf(outcome.value),
    });
  }

  private requestId(): string {
    const { start } = this.request;
    if (start.case === "invocation") return start.value.requestId;
    return start.value?.invocation.case === "requestId" ? start.value.invocation.value : "";
  }

  private async *follow(): AsyncGenerator<Change, void> {
    this.call = this.calls.open(this.nextRequest(), this.retry.deadline);
    for await (const { event } of this.call as AsyncIterable<StreamWithRecoveryResponse>) {
      if (!event) continue;
      if (event.body.case === "accepted") {
        this.token = event.body.value.resumeToken || this.token;
        this.isAtomic = event.body.value.rewindMode === RewindMode.ATOMIC;
      }
      if (!this.fold.apply(event)) continue;
      this.retry.progressed();
      yield* this.difference(event);
      if (this.fold.terminal) return;
    }
    throw lost("the stream ended without a Terminal");
  }

  private async reconnect(error: unknown): Promise<void> {
    this.signal?.throwIfAborted();
    const status = error instanceof StatusError ? error : fromRpc(error);
    if (this.left) throw status;
    await this.retry.wait(status);
  }

  /** The first request again, which its request id makes idempotent, or what is missing after the cursor. */
  private nextRequest(): StreamWithRecoveryRequest {
    const { cursor } = this.fold;
    if (!this.token || !cursor) return this.request;
    const invocation = { case: "token", value: this.token } as const;
    return create(StreamWithRecoveryRequestSchema, {
      start: { case: "resume", value: { invocation, cursor, answerView: AnswerView.REPEATED } },
    });
  }

  private async startOver(misfit: Misfit): Promise<void> {
    this.call?.cancel();
    this.misfits += 1;
    if (this.misfits > MAX_MISFITS) throw new ProtocolError(misfit.message);
    this.fold = new Fold();
    this.catchingUp = true;
    await this.retry.wait(lost(misfit.message));
  }

  /** What the event changed of the text. A delta at the end is passed on as it is; all else is compared. */
  private *difference({ body }: StreamEvent): Generator<Change, void> {
    if (body.case === "blockDelta" && body.value.blockId === this.lastText && !this.catchingUp) {
      yield this.show(body.value.text);
      return;
    }
    if (!["blockStart", "blockDelta", "rewind", "snapshot", "terminal"].includes(body.case ?? "")) return;
    const texts = [...this.fold.blocks].filter(([, block]) => block.kind === BlockKind.TEXT);
    this.lastText = Math.max(0, ...texts.map(([id]) => id));
    const now = this.fold.text();
    let shown = this.pieces.join("");
    if (this.catchingUp && shown.startsWith(now) && body.case !== "terminal") return;
    this.catchingUp = false;
    if (!now.startsWith(shown)) {
      shown = commonPrefix(shown, now);
      this.pieces = [shown];
      yield { kind: "rewind", kept: shown };
    }
    if (now.length > shown.length) yield this.show(now.slice(shown.length));
  }

  private show(text: string): Change {
    this.pieces.push(text);
    return { kind: "text", text };
  }
}

/** An async iterable over an answer, which is read once. Leaving its loop early cancels the invocation. */
export class Stream<T> implements AsyncIterable<T> {
  private readonly items: AsyncGenerator<T, void>;

  constructor(
    private readonly reader: Reader,
    items: AsyncGenerator<T, void>,
    throwFailure: boolean,
  ) {
    this.items = throwFailure ? throwing(items, reader) : items;
  }

  [Symbol.asyncIterator](): AsyncGenerator<T, void> {
    return this.items;
  }

  /** How the invocation ended; known once the stream was read to its end. */
  get outcome(): Outcome {
    return this.reader.outcome();
  }

  /** Ends the stream early and cancels the invocation. */
  async close(): Promise<void> {
    await this.reader.leave(true);
  }

  /** Ends the stream early and lets the invocation run for its grace, to be resumed. */
  detach(): ResumePoint {
    const point = this.reader.resumePoint();
    void this.reader.leave(false);
    return point;
  }
}

async function* throwing<T>(items: AsyncGenerator<T, void>, reader: Reader): AsyncGenerator<T, void> {
  yield* items;
  const outcome = reader.outcome();
  if (outcome.kind === "failed") throw new FailureError(outcome);
}

/** Only text that is never taken back: at once where the service promises that, else all of it at the end. */
export async function* finalText(reader: Reader): AsyncGenerator<string, void> {
  for await (const change of reader.changes()) {
    if (!reader.isAtomic) continue;
    if (change.kind === "rewind") throw new ProtocolError("final text was taken back");
    yield change.text;
  }
  if (!reader.isAtomic && reader.fold.text()) yield reader.fold.text();
}

/** The longest common beginning, which never ends inside a code point. */
function commonPrefix(one: string, other: string): string {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length += 1;
  if (length > 0 && /[\ud800-\udbff]/.test(one[length - 1] ?? "")) length -= 1;
  return one.slice(0, length);
}
