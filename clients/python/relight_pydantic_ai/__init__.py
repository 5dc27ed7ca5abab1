"""Pydantic AI's model over Relight's gRPC API: a stream shows each rewind as what it is.

>>> from pydantic_ai import Agent                               # doctest: +SKIP
>>> from relight_pydantic_ai import RelightModel                # doctest: +SKIP
>>> agent = Agent(RelightModel(target="127.0.0.1:50051"))       # doctest: +SKIP
>>> print(agent.run_sync("Why is the sky blue?").output)        # doctest: +SKIP

Streams yield text as it comes. Where an attempt failed after its text was shown, the part begins anew with what remains of it,
as a `PartStartEvent` of the same index: Pydantic AI then replaces the part. With `live=False` only text that is final is yielded.
A failure for good is raised as `ModelAPIError`, whose cause is `relight.FailureError`.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from typing import Any

import relight
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage
from relight.v1 import model_pb2

# Where a message of the model keeps itself as it came, so that nothing that its provider needs back is lost.
_KEPT = "relight"
_END = object()


class RelightModel(Model[Any]):
    """A route of Relight as a model. `target` is a gRPC target: `host:port`, or `dns:///name:port` for all replicas behind
    a name; `route` and `operation` are empty for the server's defaults; `timeout` is in seconds."""

    def __init__(self, target: str = "127.0.0.1:50051", *, api_key: str | None = None, route: str = "", operation: str = "",
                 live: bool = True, timeout: float | None = None, settings: ModelSettings | None = None) -> None:
        super().__init__(settings=settings)
        self.client = relight.Client(target, api_key=api_key, timeout=timeout)
        self._fields, self._live = {"route": route, "operation": operation}, live

    @property
    def model_name(self) -> str:
        return self._fields["route"] or "relight"

    @property
    def system(self) -> str:
        return "relight"

    async def request(self, messages: list[ModelMessage], model_settings: ModelSettings | None,
                      model_request_parameters: ModelRequestParameters) -> ModelResponse:
        model_settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        call = self._call(messages, model_settings, parameters)
        try:
            answer = await asyncio.to_thread(self.client.invoke, call, **self._fields)
        except relight.Error as error:
            raise ModelAPIError(self.model_name, str(error)) from error
        parts: list[ModelResponsePart] = [TextPart(answer.text)] if answer.text else []
        parts += [ToolCallPart(call.name, call.arguments_json, call.id) for call in answer.tool_calls]
        return ModelResponse(parts, usage=_usage(answer), model_name=answer.target, provider_name=self.system,
                             provider_response_id=answer.invocation_id, provider_details=_details(answer))

    @asynccontextmanager
    async def request_stream(self, messages: list[ModelMessage], model_settings: ModelSettings | None,
                             model_request_parameters: ModelRequestParameters,
                             run_context: Any = None) -> AsyncGenerator[StreamedResponse]:
        model_settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        call = self._call(messages, model_settings, parameters)
        stream: Any = self.client.stream(call, live=self._live, **self._fields)
        try:
            yield RelightStreamedResponse(model_request_parameters=parameters, _name=self.model_name, _stream=stream)
        finally:
            await asyncio.to_thread(stream.close)

    def _call(self, messages: list[ModelMessage], settings: ModelSettings | None,
              parameters: ModelRequestParameters) -> model_pb2.ModelCall:
        call = model_pb2.ModelCall(messages=_messages(messages, parameters))
        for tool in [*parameters.function_tools, *parameters.output_tools]:
            schema = json.dumps(tool.parameters_json_schema)
            call.tools.add(name=tool.name, description=tool.description or "", input_schema_json=schema)
        if parameters.output_tools and not parameters.allow_text_output:
            call.tool_choice.mode = model_pb2.TOOL_CHOICE_MODE_REQUIRED
        settings = settings or {}
        if (temperature := settings.get("temperature")) is not None:
            call.sampling.temperature = temperature
        if (top_p := settings.get("top_p")) is not None:
            call.sampling.top_p = top_p
        if most := settings.get("max_tokens"):
            call.max_output_tokens = most
        call.stop.extend(settings.get("stop_sequences") or [])
        return call


@dataclasses.dataclass
class RelightStreamedResponse(StreamedResponse):
    """A streamed answer; a rewind replaces the part that was shown."""

    _name: str = ""
    _stream: Any = None
    _timestamp: datetime = dataclasses.field(default_factory=lambda: datetime.now(timezone.utc))

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        try:
            while (piece := await asyncio.to_thread(next, self._stream, _END)) is not _END:
                if isinstance(piece, relight.Rewind):
                    yield self._parts_manager.handle_part(vendor_part_id="text", part=TextPart(piece.kept))
                    continue
                text = piece if isinstance(piece, str) else piece.text
                for event in self._parts_manager.handle_text_delta(vendor_part_id="text", content=text):
                    yield event
        except relight.Error as error:
            raise ModelAPIError(self._name, str(error)) from error
        answer = self._stream.outcome
        for number, call in enumerate(answer.tool_calls):
            part = ToolCallPart(call.name, call.arguments_json, call.id)
            yield self._parts_manager.handle_part(vendor_part_id=number, part=part)
        self._usage = _usage(answer)
        self._name, self.provider_response_id, self.provider_details = answer.target, answer.invocation_id, _details(answer)

    async def close_stream(self) -> None:
        await asyncio.to_thread(self._stream.close)

    @property
    def model_name(self) -> str:
        return self._name

    @property
    def provider_name(self) -> str:
        return "relight"

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self._timestamp


def _usage(answer: relight.Answer) -> RequestUsage:
    usage = answer.usage
    return RequestUsage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens,
                        cache_read_tokens=usage.cached_input_tokens, cache_write_tokens=usage.cache_write_tokens)


def _details(answer: relight.Answer) -> dict[str, Any]:
    """What the provider says around the answer, what recovery did, and the message as it came."""
    details: dict[str, Any] = {**answer.around, "attempts": len(answer.attempts)}
    if answer.history_patch:
        details[_KEPT] = base64.b64encode(answer.history_patch[-1].SerializeToString()).decode()
    return details


def _messages(messages: list[ModelMessage], parameters: ModelRequestParameters) -> Iterable[model_pb2.Message]:
    if instructions := "\n\n".join(part.content for part in parameters.instruction_parts or []):
        yield relight.system(instructions)
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                yield _of_request(part)
            continue
        if kept := (message.provider_details or {}).get(_KEPT):
            yield model_pb2.Message.FromString(base64.b64decode(kept))
            continue
        wire = model_pb2.Message(role=model_pb2.ROLE_ASSISTANT)
        for part in message.parts:
            if isinstance(part, TextPart):
                wire.parts.add().text.text = part.content
            elif isinstance(part, ToolCallPart):
                call = wire.parts.add().tool_call
                call.id, call.name, call.arguments_json = part.tool_call_id, part.tool_name, part.args_as_json_str()
        yield wire


def _of_request(part: Any) -> model_pb2.Message:
    if isinstance(part, SystemPromptPart):
        return relight.system(part.content)
    if isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and part.tool_name):
        wire = model_pb2.Message(role=model_pb2.ROLE_TOOL)
        result = wire.parts.add().tool_result
        result.call_id, result.is_error = part.tool_call_id, isinstance(part, RetryPromptPart)
        text = part.model_response() if isinstance(part, RetryPromptPart) else part.model_response_str()
        result.content.add().text.text = text
        return wire
    if isinstance(part, RetryPromptPart):
        return relight.user(part.model_response())
    if isinstance(part, UserPromptPart):
        pieces = [part.content] if isinstance(part.content, str) else part.content
        if not all(isinstance(piece, str) for piece in pieces):
            raise ValueError("content other than text is not carried; use the HTTP front")
        return relight.user("\n".join(piece for piece in pieces if isinstance(piece, str)))
    raise ValueError(f"a part of kind {part.part_kind} is not carried; use the HTTP front")
