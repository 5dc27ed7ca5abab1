"""How an invocation ended, as a unary call and a stream both return it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, MutableSequence, Sequence
from typing import Any

from relight.v1 import failure_pb2, invocation_pb2, model_pb2, stream_pb2, tool_pb2


@dataclasses.dataclass(frozen=True)
class Answer:
    """The invocation ended with an answer."""

    text: str
    #: Tools that the model wants called; each may be acted on.
    tool_calls: Sequence[model_pb2.ToolCallPart]
    history_patch: Sequence[model_pb2.Message]
    history_replace_tail: int
    invocation_id: str
    #: Id of the target that answered.
    target: str
    attempts: Sequence[failure_pb2.Attempt]
    #: Tokens of all attempts: what was spent.
    usage: model_pb2.Usage
    #: What the provider says around its answer and no other field has: `service_tier`, `system_fingerprint`, ….
    around: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def apply_to(self, history: MutableSequence[model_pb2.Message]) -> None:
        """Brings the caller's history to what the model saw and said. Call it once."""
        if self.history_replace_tail:
            del history[len(history) - self.history_replace_tail :]
        history.extend(self.history_patch)


@dataclasses.dataclass(frozen=True)
class ToolResult:
    """A tool returned a result."""

    #: All its texts, joined by line feeds.
    text: str
    #: The result word for word: `content`, `structured_json`, `mcp_json`, and what was done to get it.
    output: tool_pb2.ToolOutput
    history_patch: Sequence[model_pb2.Message]
    invocation_id: str
    #: Id of the target that returned it, `server/tool`.
    target: str
    attempts: Sequence[failure_pb2.Attempt]

    @property
    def structured(self) -> Any:
        """The result as data; `None` if the tool gave none."""
        return json.loads(self.output.structured_json) if self.output.HasField("structured_json") else None

    def apply_to(self, history: MutableSequence[model_pb2.Message]) -> None:
        """Appends the result to the caller's history, after its call if the caller named none. Call it once."""
        history.extend(self.history_patch)


@dataclasses.dataclass(frozen=True)
class Failed:
    """The invocation ended with a failure, or was cancelled."""

    failure: failure_pb2.Failure
    invocation_id: str
    history_patch: Sequence[model_pb2.Message] = ()

    def apply_to(self, history: MutableSequence[model_pb2.Message]) -> None:
        """Appends the error of a tool to the caller's history, so that its model reads it. Call it once.

        Nothing is appended for a call of a model.
        """
        history.extend(self.history_patch)


Outcome = Answer | Failed
ToolOutcome = ToolResult | Failed


def around(ended: invocation_pb2.Completion | stream_pb2.Completed) -> Mapping[str, Any]:
    return json.loads(ended.around.data) if ended.HasField("around") else {}


def tool_calls(messages: Sequence[model_pb2.Message]) -> list[model_pb2.ToolCallPart]:
    parts = (part for message in messages for part in message.parts)
    return [part.tool_call for part in parts if part.WhichOneof("content") == "tool_call"]
