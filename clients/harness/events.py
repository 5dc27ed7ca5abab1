"""Expands the events of a spec file to those of the contract, and works out the hashes that a server sends with them.

It folds by itself, and shares nothing with the clients that are tried.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from google.protobuf import json_format
from relight.v1 import stream_pb2

INVOCATION = "inv-1"
_KINDS = {"text": 1, "reasoning": 2, "call": 3, "refusal": 4}
_NUMBERED = ("begin", "delta", "stop", "rewind", "recovery", "usage", "completed", "failed", "cancelled", "attempt", "response", "later")

State = dict[int, tuple[int, bytes]]


class Expander:
    """Keeps what a client must hold after each number, so that hashes can be filled in."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {0: {}}
        self._last = 0
        self._tools: dict[int, dict[str, str]] = {}
        self._stopped: dict[int, stream_pb2.BlockStop] = {}

    def expand(self, short: dict[str, Any]) -> stream_pb2.StreamEvent:
        event = stream_pb2.StreamEvent(invocation_id=short.get("invocation", INVOCATION), epoch=short.get("epoch", 1))
        name = next(key for key in short if key not in ("invocation", "epoch", "seq", "wrong_hash", "hidden"))
        value = short[name]
        if name in _NUMBERED:
            event.seq = short.get("seq", self._last + 1)
            self._last = event.seq
            state = dict(self._states.get(event.seq - 1, {}))
            getattr(self, f"_{name}")(event, value, state)
            self._states[event.seq] = state
        elif name == "snapshot":
            event.seq = short.get("seq", self._last)
            self._last = event.seq
            self._snapshot(event.snapshot, self._states[event.seq])
        else:
            json_format.ParseDict({name: value}, event)
        if short.get("wrong_hash"):
            body = getattr(event, event.WhichOneof("body"))
            field = "result_hash" if name in ("completed", "failed", "cancelled") else "hash"
            setattr(body, field, bytes(32))
        return event

    def _begin(self, event: stream_pb2.StreamEvent, value: dict[str, Any], state: State) -> None:
        kind = _KINDS[value.get("kind", "text")]
        tool = {"call_id": value.get("id", ""), "tool_name": value.get("name", "")}
        event.block_start.CopyFrom(stream_pb2.BlockStart(block_id=value["block"], kind=kind, **tool))
        self._tools[value["block"]] = tool
        state[value["block"]] = (kind, b"")

    def _delta(self, event: stream_pb2.StreamEvent, value: dict[str, Any], state: State) -> None:
        kind, held = state[value["block"]]
        event.block_delta.block_id = value["block"]
        event.block_delta.start_offset_bytes = value.get("at", len(held))
        event.block_delta.text = value["text"]
        state[value["block"]] = (kind, held + value["text"].encode())

    def _stop(self, event: stream_pb2.StreamEvent, value: dict[str, Any], state: State) -> None:
        kind, held = state[value["block"]]
        stop = event.block_stop
        stop.block_id, stop.length_bytes, stop.hash = value["block"], len(held), hashlib.sha256(held).digest()
        if kind == _KINDS["call"]:
            stop.arguments_json, stop.committed = held.decode(), value.get("committed", True)
        self._stopped[value["block"]] = stop

    def _rewind(self, event: stream_pb2.StreamEvent, value: dict[int, int], state: State) -> None:
        kept = {block: (state[block][0], state[block][1][:length]) for block, length in value.items()}
        for block, length in value.items():
            event.rewind.keep.add(block_id=block, length_bytes=length)
            if length < len(state[block][1]):
                self._stopped.pop(block, None)
        event.rewind.failed_attempt = 1
        event.rewind.hash = digest(kept)
        state.clear()
        state.update(kept)

    def _snapshot(self, snapshot: stream_pb2.Snapshot, state: State) -> None:
        for number, (kind, held) in sorted(state.items()):
            block = snapshot.blocks.add(text=held.decode())
            block.start.CopyFrom(stream_pb2.BlockStart(block_id=number, kind=kind, **self._tools[number]))
            if number in self._stopped:
                block.stop.CopyFrom(self._stopped[number])
        snapshot.hash = digest(state)

    def _recovery(self, event: stream_pb2.StreamEvent, value: str, _: State) -> None:
        event.recovery.display_text = value

    def _usage(self, event: stream_pb2.StreamEvent, value: int, _: State) -> None:
        event.usage.output_tokens = value

    def _response(self, event: stream_pb2.StreamEvent, value: dict[str, Any], _: State) -> None:
        event.response_started.around.kind = "openai_chat.fields"
        event.response_started.around.data = json.dumps(value).encode()

    def _attempt(self, event: stream_pb2.StreamEvent, value: str, _: State) -> None:
        event.attempt_started.target = value

    def _later(self, event: stream_pb2.StreamEvent, value: bool, _: State) -> None:
        """A body of a later version of the contract: field 99, which nobody knows."""
        event.MergeFromString(bytes([0x9A, 0x06, 0x00]))

    def _completed(self, event: stream_pb2.StreamEvent, value: dict[str, Any], state: State) -> None:
        self._terminal(event, {"completed": value}, state)

    def _failed(self, event: stream_pb2.StreamEvent, value: dict[str, Any], state: State) -> None:
        self._terminal(event, {"failed": value}, state)

    def _cancelled(self, event: stream_pb2.StreamEvent, value: dict[str, Any], state: State) -> None:
        self._terminal(event, {"cancelled": value}, state)

    def _terminal(self, event: stream_pb2.StreamEvent, outcome: dict[str, Any], state: State) -> None:
        json_format.ParseDict({**outcome, "final_target": "main"}, event.terminal)
        event.terminal.result_hash = digest(state)


def digest(state: State) -> bytes:
    """The hash over blocks, as the head of stream.proto has it."""
    parts = [
        number.to_bytes(4, "big") + kind.to_bytes(4, "big") + len(held).to_bytes(8, "big") + hashlib.sha256(held).digest()
        for number, (kind, held) in sorted(state.items())
    ]
    return hashlib.sha256(b"".join(parts)).digest()
