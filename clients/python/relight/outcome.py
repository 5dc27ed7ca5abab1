"""How an invocation ended, as a unary call and a stream both return it."""

from __future__ import annotations

import dataclasses
from collections.abc import MutableSequence, Sequence

from relight.v1 import failure_pb2, model_pb2


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

    def apply_to(self, history: MutableSequence[model_pb2.Message]) -> None:
        """Brings the caller's history to what the model saw and said. Call it once."""
        if self.history_replace_tail:
            del history[len(history) - self.history_replace_tail :]
        history.extend(self.history_patch)


@dataclasses.dataclass(frozen=True)
class Failed:
    """The invocation ended with a failure, or was cancelled."""

    failure: failure_pb2.Failure
    invocation_id: str


Outcome = Answer | Failed


def tool_calls(messages: Sequence[model_pb2.Message]) -> list[model_pb2.ToolCallPart]:
    parts = (part for message in messages for part in message.parts)
    return [part.tool_call for part in parts if part.WhichOneof("content") == "tool_call"]
