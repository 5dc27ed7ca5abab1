"""Folds the events of a stream into what the caller holds, and checks every one of them.

The rules are those at the head of `stream.proto`. What does not fit raises `Misfit` and is never shown.
"""

from __future__ import annotations

import dataclasses
import hashlib

from relight.v1 import stream_pb2


class Misfit(Exception):
    """An event does not fit what is held; the invocation has to be read again from its beginning."""


@dataclasses.dataclass(slots=True)
class Block:
    """A piece of the answer."""

    kind: int
    call_id: str = ""
    tool_name: str = ""
    content: bytearray = dataclasses.field(default_factory=bytearray)
    stopped: bool = False
    #: Whether a tool call may be acted on.
    committed: bool = False

    @property
    def text(self) -> str:
        return self.content.decode()


class Fold:
    """What the caller holds of one invocation. It outlives connections."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self.invocation_id = ""
        #: Epoch and number of the last event; None before the first.
        self.cursor: tuple[int, int] | None = None
        self.terminal: stream_pb2.Terminal | None = None

    def apply(self, event: stream_pb2.StreamEvent) -> bool:
        """Folds one event. True when it was new and numbered, or a snapshot."""
        if self.invocation_id and event.invocation_id != self.invocation_id:
            raise Misfit("an event of another invocation")
        self.invocation_id = event.invocation_id
        body = event.WhichOneof("body")
        if body in ("accepted", "heartbeat"):
            return False
        if body == "snapshot":
            self._restore(event.snapshot)
            self.cursor = (event.epoch, event.seq) if event.seq else None
            self.terminal = None
            return True
        if not self._is_next(event):
            return False
        if body == "block_start":
            self._start(event.block_start)
        elif body == "block_delta":
            self._append(event.block_delta)
        elif body == "block_stop":
            self._stop(event.block_stop)
        elif body == "rewind":
            self._rewind(event.rewind)
        elif body == "terminal":
            if event.terminal.result_hash != self.hash():
                raise Misfit("the hash of the result differs")
            self.terminal = event.terminal
        # Any other body tells of the way to the answer, and changes nothing that is held.
        self.cursor = (event.epoch, event.seq)
        return True

    def of_kind(self, kind: int) -> list[Block]:
        return [block for _, block in sorted(self.blocks.items()) if block.kind == kind]

    def text(self) -> str:
        """All text of the answer, as `Completion.text` has it."""
        return "\n".join(block.text for block in self.of_kind(stream_pb2.BLOCK_KIND_TEXT))

    def hash(self) -> bytes:
        whole = hashlib.sha256()
        for number, block in sorted(self.blocks.items()):
            whole.update(number.to_bytes(4, "big") + block.kind.to_bytes(4, "big"))
            whole.update(len(block.content).to_bytes(8, "big") + hashlib.sha256(block.content).digest())
        return whole.digest()

    def _is_next(self, event: stream_pb2.StreamEvent) -> bool:
        epoch, last = self.cursor or (event.epoch, 0)
        if event.epoch < epoch:
            raise Misfit(f"an event of epoch {event.epoch} after one of epoch {epoch}")
        if event.epoch == epoch and event.seq <= last:
            return False
        if event.seq != last + 1:
            raise Misfit(f"event {event.seq} after event {last}")
        if self.terminal is not None:
            raise Misfit("an event after the Terminal")
        return True

    def _open(self, number: int) -> Block:
        block = self.blocks.get(number)
        if block is None or block.stopped:
            raise Misfit(f"block {number} is not open")
        return block

    def _start(self, start: stream_pb2.BlockStart) -> None:
        if start.block_id in self.blocks:
            raise Misfit(f"block {start.block_id} begins twice")
        self.blocks[start.block_id] = Block(start.kind, start.call_id, start.tool_name)

    def _append(self, delta: stream_pb2.BlockDelta) -> None:
        block = self._open(delta.block_id)
        if len(block.content) != delta.start_offset_bytes:
            raise Misfit(f"a delta at {delta.start_offset_bytes} where {len(block.content)} bytes are held")
        block.content += delta.text.encode()

    def _stop(self, stop: stream_pb2.BlockStop) -> None:
        block = self._open(stop.block_id)
        if len(block.content) != stop.length_bytes or hashlib.sha256(block.content).digest() != stop.hash:
            raise Misfit(f"block {stop.block_id} is not what was sent")
        if stop.committed and (not stop.HasField("arguments_json") or stop.arguments_json != block.text):
            raise Misfit(f"the arguments of block {stop.block_id} are not what was sent")
        block.stopped, block.committed = True, stop.committed

    def _rewind(self, rewind: stream_pb2.Rewind) -> None:
        kept: dict[int, Block] = {}
        for keep in rewind.keep:
            block = self.blocks.get(keep.block_id)
            if block is None or len(block.content) < keep.length_bytes:
                raise Misfit(f"block {keep.block_id} is to be kept and is not held")
            kept[keep.block_id] = block
            if keep.length_bytes < len(block.content):
                cut = block.content[: keep.length_bytes]
                kept[keep.block_id] = dataclasses.replace(block, content=cut, stopped=False, committed=False)
        earlier, self.blocks = self.blocks, kept
        if self.hash() != rewind.hash:
            self.blocks = earlier
            raise Misfit("the hash of what a rewind keeps differs")

    def _restore(self, snapshot: stream_pb2.Snapshot) -> None:
        fresh = Fold()
        for held in snapshot.blocks:
            fresh._start(held.start)
            fresh.blocks[held.start.block_id].content += held.text.encode()
            if held.HasField("stop"):
                fresh._stop(held.stop)
        if fresh.hash() != snapshot.hash:
            raise Misfit("the hash of a snapshot differs")
        self.blocks = fresh.blocks
