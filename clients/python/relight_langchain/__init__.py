"""LangChain's chat model over Relight's gRPC API: what HTTP cannot show is shown here.

>>> from relight_langchain import ChatRelight                   # doctest: +SKIP
>>> model = ChatRelight(target="127.0.0.1:50051")               # doctest: +SKIP
>>> print(model.invoke("Why is the sky blue?").text)            # doctest: +SKIP

Streams yield text that is final. With `live=True` they yield it as it comes; where an attempt failed after its text was
shown, a chunk without text has what remains of it as the last of `response_metadata["rewinds"]`. LangChain adds chunks up and
takes nothing back, so that live streams are for screens: the answer itself is in `response_metadata["text"]` of the last chunk.
A failure for good is raised as `relight.FailureError`.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import relight
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import ToolCallChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from relight.v1 import model_pb2

# Where a message of the model keeps itself as it came, so that nothing that its provider needs back is lost.
_KEPT = "relight"


class ChatRelight(BaseChatModel):
    """A route of Relight as a chat model."""

    #: A gRPC target: `host:port`, or `dns:///relight-headless:50051` for all replicas behind a name.
    target: str = "127.0.0.1:50051"
    api_key: str | None = None
    #: The route, and what the caller is doing; empty for the server's defaults.
    route: str = ""
    operation: str = ""
    #: Whether streams yield text before it is final.
    live: bool = False
    #: Seconds for a call.
    timeout: float | None = None

    @property
    def _llm_type(self) -> str:
        return "relight"

    @functools.cached_property
    def client(self) -> relight.Client:
        """The client that makes the calls."""
        return relight.Client(self.target, api_key=self.api_key, timeout=self.timeout)

    def bind_tools(self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], *,
                   tool_choice: str | None = None, **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=tool_choice, **kwargs)

    def _generate(self, messages: list[BaseMessage], stop: list[str] | None = None,
                  run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any) -> ChatResult:
        answer = self.client.invoke(_call(messages, stop, kwargs), route=self.route, operation=self.operation)
        calls = [{"name": call.name, "args": json.loads(call.arguments_json), "id": call.id} for call in answer.tool_calls]
        message = AIMessage(answer.text, tool_calls=calls, response_metadata=_metadata(answer), additional_kwargs=_kept(answer))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages: list[BaseMessage], stop: list[str] | None = None,
                run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        call = _call(messages, stop, kwargs)
        with self.client.stream(call, live=self.live, route=self.route, operation=self.operation) as stream:
            for piece in stream:
                if isinstance(piece, relight.Rewind):
                    yield _chunk("", response_metadata={"rewinds": [piece.kept]})
                    continue
                text = piece if isinstance(piece, str) else piece.text
                chunk = _chunk(text)
                if run_manager:
                    run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk
            answer = stream.outcome
        assert isinstance(answer, relight.Answer)
        calls = [
            ToolCallChunk(name=call.name, args=call.arguments_json, id=call.id, index=index, type="tool_call_chunk")
            for index, call in enumerate(answer.tool_calls)
        ]
        metadata = _metadata(answer) | {"text": answer.text}
        yield _chunk("", tool_call_chunks=calls, response_metadata=metadata, additional_kwargs=_kept(answer), chunk_position="last")


def _chunk(text: str, **more: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(text, **more))


def _metadata(answer: relight.Answer) -> dict[str, Any]:
    """What the provider says around the answer, and what recovery did."""
    attempts = len(answer.attempts)
    return {**answer.around, "invocation_id": answer.invocation_id, "target": answer.target, "attempts": attempts}


def _kept(answer: relight.Answer) -> dict[str, str]:
    if not answer.history_patch:
        return {}
    return {_KEPT: base64.b64encode(answer.history_patch[-1].SerializeToString()).decode()}


def _call(messages: list[BaseMessage], stop: list[str] | None, more: dict[str, Any]) -> model_pb2.ModelCall:
    call = model_pb2.ModelCall(messages=[_message(message) for message in messages], stop=stop or [])
    for tool in more.get("tools") or []:
        function = tool["function"]
        schema = json.dumps(function.get("parameters") or {"type": "object"})
        described = {"description": function.get("description", ""), "input_schema_json": schema}
        call.tools.add(name=function["name"], **described)
    choice = more.get("tool_choice")
    modes = {"auto": model_pb2.TOOL_CHOICE_MODE_AUTO, "none": model_pb2.TOOL_CHOICE_MODE_NONE,
             "any": model_pb2.TOOL_CHOICE_MODE_REQUIRED, "required": model_pb2.TOOL_CHOICE_MODE_REQUIRED}
    if choice in modes:
        call.tool_choice.mode = modes[choice]
    elif choice:
        call.tool_choice.mode, call.tool_choice.name = model_pb2.TOOL_CHOICE_MODE_NAMED, choice
    return call


def _message(message: BaseMessage) -> model_pb2.Message:
    if isinstance(message, AIMessage):
        if kept := message.additional_kwargs.get(_KEPT):
            return model_pb2.Message.FromString(base64.b64decode(kept))
        wire = model_pb2.Message(role=model_pb2.ROLE_ASSISTANT)
        if message.text:
            wire.parts.add().text.text = str(message.text)
        for call in message.tool_calls:
            part = wire.parts.add().tool_call
            part.id, part.name, part.arguments_json = call["id"] or "", call["name"], json.dumps(call["args"])
        return wire
    if isinstance(message, ToolMessage):
        wire = model_pb2.Message(role=model_pb2.ROLE_TOOL)
        result = wire.parts.add().tool_result
        result.call_id, result.is_error = message.tool_call_id, message.status == "error"
        result.content.add().text.text = str(message.text)
        return wire
    role = model_pb2.ROLE_SYSTEM if isinstance(message, SystemMessage) else model_pb2.ROLE_USER
    wire = model_pb2.Message(role=role)
    for block in [message.content] if isinstance(message.content, str) else message.content:
        if isinstance(block, dict) and block.get("type") != "text":
            raise ValueError(f"content of type {block.get('type')} is not carried; use the HTTP front")
        wire.parts.add().text.text = block if isinstance(block, str) else block["text"]
    return wire
