"""The client: invoke, call tools, stream, resume and watch."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import grpc

from relight import errors
from relight.connection import Reconnect, Retry, Tls, open_channel
from relight.outcome import Answer, Failed, Outcome, ToolOutcome, ToolResult, around, tool_calls
from relight.stream import Reader, ResumePoint, Rewind, Stream, Text, final_text
from relight.v1 import (
    invocation_pb2,
    model_pb2,
    recovery_service_pb2,
    recovery_service_pb2_grpc,
    stream_pb2,
    tool_pb2,
    watch_pb2,
)
from relight.watch import Watch

# How long the cancellation of an abandoned invocation may take, in seconds.
_CANCEL_TIMEOUT = 5.0

Prompt = str | Sequence[model_pb2.Message] | model_pb2.ModelCall


class Client:
    """Calls Relight. Threads may share one; close it, or use it in a `with` statement.

    `target` is a gRPC target: `host:port`, or `dns:///relight-headless:50051` for all replicas behind a name.
    """

    def __init__(self, target: str = "127.0.0.1:50051", *, api_key: str | None = None, tls: Tls | bool = False,
                 timeout: float | None = None, reconnect: Reconnect = Reconnect()) -> None:
        self._channel = open_channel(target, tls)
        self._metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()
        self._timeout, self._reconnect = timeout, reconnect
        # Calls that nobody else refers to would be taken back.
        self._cancelling: set[Any] = set()
        #: The generated stub, for every other RPC.
        self.stub: Any = recovery_service_pb2_grpc.RecoveryServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for call in list(self._cancelling):
            call.exception()
        self._channel.close()

    def invoke(self, prompt: Prompt, *, timeout: float | None = None, **fields: Any) -> Answer:
        """Invokes a model and returns its answer; raises `FailureError` where the invocation failed for good.

        `fields` are those of `relight.v1.Invocation`: `route`, `operation`, `thread_id`, `labels`, `overrides`, and
        `request_id`, which is made where it is not given. `timeout` is in seconds.
        """
        outcome = self.try_invoke(prompt, timeout=timeout, **fields)
        if isinstance(outcome, Failed):
            raise errors.FailureError(outcome)
        return outcome

    def try_invoke(self, prompt: Prompt, *, timeout: float | None = None, **fields: Any) -> Outcome:
        """The same, with a failure returned as `Failed`."""
        invocation = _invocation(prompt, fields)
        # However long the answer is, its turn in the history is whole.
        invocation.answer_view = invocation_pb2.ANSWER_VIEW_REPEATED
        return _outcome(self._invoke(invocation, timeout))

    def call_tool(self, tool: str | model_pb2.ToolCallPart, arguments: Mapping[str, Any] | str = "", *,
                  goal: str = "", call_id: str = "", meta: Mapping[str, Any] | None = None,
                  side_effects: tool_pb2.SideEffects | None = None, timeout: float | None = None,
                  **fields: Any) -> ToolResult:
        """Calls a tool of a tool server and returns its result; raises `FailureError` if it failed for good.

        `tool` is its name (`server/tool` if several servers have it), or a call that a model wants, which brings its
        arguments and its id: `client.call_tool(call).apply_to(history)`. `goal` says what the call is for, `meta` is
        what an MCP server gets as `_meta`; `fields` are those of `relight.v1.Invocation`.
        """
        outcome = self.try_call_tool(tool, arguments, goal=goal, call_id=call_id, meta=meta, side_effects=side_effects,
                                     timeout=timeout, **fields)
        if isinstance(outcome, Failed):
            raise errors.FailureError(outcome)
        return outcome

    def try_call_tool(self, tool: str | model_pb2.ToolCallPart, arguments: Mapping[str, Any] | str = "", *,
                      goal: str = "", call_id: str = "", meta: Mapping[str, Any] | None = None,
                      side_effects: tool_pb2.SideEffects | None = None, timeout: float | None = None,
                      **fields: Any) -> ToolOutcome:
        """The same, with a failure returned as `Failed`."""
        if isinstance(tool, model_pb2.ToolCallPart):
            name, arguments, call_id = tool.name, arguments or tool.arguments_json, call_id or tool.id
        else:
            name = tool
        call = tool_pb2.ToolCall(
            name=name,
            arguments_json=arguments if isinstance(arguments, str) else json.dumps(arguments),
            goal=goal,
            call_id=call_id,
            meta_json="" if meta is None else json.dumps(meta),
            side_effects=side_effects,
        )
        invocation = _identified(invocation_pb2.Invocation(tool=call, **fields))
        return _tool_outcome(self._invoke(invocation, timeout))

    def _invoke(self, invocation: invocation_pb2.Invocation,
                timeout: float | None) -> recovery_service_pb2.InvokeWithRecoveryResponse:
        request = recovery_service_pb2.InvokeWithRecoveryRequest(invocation=invocation)
        retry = self._retry(timeout)
        while True:
            try:
                response: recovery_service_pb2.InvokeWithRecoveryResponse = self.stub.InvokeWithRecovery(
                    request, timeout=retry.time_left(), metadata=self._metadata)
            except grpc.RpcError as error:
                # The same request id: it joins what still runs, or gets the outcome once more.
                retry.wait(errors.from_rpc(error))
            else:
                return response

    @overload
    def stream(self, prompt: Prompt, *, live: Literal[False] = False, resumable: bool = True,
               raise_failure: bool = True, timeout: float | None = None, **fields: Any) -> Stream[str]: ...

    @overload
    def stream(self, prompt: Prompt, *, live: Literal[True], resumable: bool = True,
               raise_failure: bool = True, timeout: float | None = None,
               **fields: Any) -> Stream[Text | Rewind]: ...

    def stream(self, prompt: Prompt, *, live: bool = False, resumable: bool = True, raise_failure: bool = True,
               timeout: float | None = None, **fields: Any) -> Any:
        """Streams an answer: text that is final, or, with `live`, text as it comes and `Rewind` where it is taken back.

        Read on after a lost connection or replica unless `resumable` is off. At its end a failure is raised as
        `FailureError`, unless `raise_failure` is off; `Stream.outcome` has it either way.
        """
        invocation = _invocation(prompt, fields)
        mode = invocation_pb2.REWIND_MODE_REWIND if live else invocation_pb2.REWIND_MODE_ATOMIC
        if not live or not invocation.overrides.rewind_mode:
            invocation.overrides.rewind_mode = mode
        if resumable:
            invocation.overrides.resumable.SetInParent()
        invocation.answer_view = invocation_pb2.ANSWER_VIEW_REPEATED
        request = recovery_service_pb2.StreamWithRecoveryRequest(invocation=invocation)
        return self._stream(request, live, raise_failure, timeout)

    @overload
    def resume(self, point: ResumePoint, *, live: Literal[False] = False, raise_failure: bool = True,
               timeout: float | None = None) -> Stream[str]: ...

    @overload
    def resume(self, point: ResumePoint, *, live: Literal[True], raise_failure: bool = True,
               timeout: float | None = None) -> Stream[Text | Rewind]: ...

    def resume(self, point: ResumePoint, *, live: bool = False, raise_failure: bool = True,
               timeout: float | None = None) -> Any:
        """Streams the whole answer of an earlier stream that was detached, here or in another process."""
        resume = stream_pb2.Resume(token=point.token)
        if point.request_id:
            resume = stream_pb2.Resume(request_id=point.request_id)
        resume.answer_view = invocation_pb2.ANSWER_VIEW_REPEATED
        request = recovery_service_pb2.StreamWithRecoveryRequest(resume=resume)
        return self._stream(request, live, raise_failure, timeout)

    def watch(self, filter: watch_pb2.RecoveryEventFilter | None = None, *, after: str = "",
              from_start: bool = False, timeout: float | None = None) -> Watch:
        """Iterates over recovery events: what happens from now on, or after a cursor, or all that is kept."""
        request = recovery_service_pb2.WatchRecoveryRequest(filter=filter)
        if after:
            request.after = after
        elif from_start:
            request.from_start = True
        else:
            request.live = True
        retry = Retry(self._reconnect, timeout)
        return Watch(lambda it, left: self.stub.WatchRecovery(it, timeout=left, metadata=self._metadata), retry, request)

    def _stream(self, request: recovery_service_pb2.StreamWithRecoveryRequest, live: bool, raise_failure: bool,
                timeout: float | None) -> Stream[Any]:
        def open_call(request: recovery_service_pb2.StreamWithRecoveryRequest, left: float | None) -> Any:
            return self.stub.StreamWithRecovery(request, timeout=left, metadata=self._metadata)

        reader = Reader(open_call, self._cancel, self._retry(timeout), request)
        return Stream(reader, reader.changes() if live else final_text(reader), raise_failure)

    def _retry(self, timeout: float | None) -> Retry:
        return Retry(self._reconnect, self._timeout if timeout is None else timeout)

    def _cancel(self, invocation_id: str, request_id: str) -> Any:
        """Cancels what nobody waits for any more. What cannot be reached ends by its own deadline."""
        request = recovery_service_pb2.CancelInvocationRequest(reason="the caller left its stream")
        if invocation_id:
            request.invocation_id = invocation_id
        elif request_id:
            request.request_id = request_id
        else:
            return None
        call = self.stub.CancelInvocation.future(request, timeout=_CANCEL_TIMEOUT, metadata=self._metadata)
        self._cancelling.add(call)
        call.add_done_callback(self._cancelling.discard)
        return call


def _invocation(prompt: Prompt, fields: Mapping[str, Any]) -> invocation_pb2.Invocation:
    invocation = invocation_pb2.Invocation(**fields)
    if isinstance(prompt, str):
        prompt = [user(prompt)]
    if isinstance(prompt, model_pb2.ModelCall):
        invocation.model.CopyFrom(prompt)
    else:
        invocation.model.messages.extend(prompt)
    return _identified(invocation)


def _identified(invocation: invocation_pb2.Invocation) -> invocation_pb2.Invocation:
    if not invocation.request_id:
        invocation.request_id = str(uuid.uuid4())
    return invocation


def _tool_outcome(response: recovery_service_pb2.InvokeWithRecoveryResponse) -> ToolOutcome:
    if response.WhichOneof("outcome") == "failure":
        return Failed(response.failure, response.invocation_id, response.history_patch)
    return ToolResult(
        text=response.completion.text,
        output=response.completion.tool_output,
        history_patch=response.history_patch,
        invocation_id=response.invocation_id,
        target=response.final_target,
        attempts=response.attempts,
    )


def _outcome(response: recovery_service_pb2.InvokeWithRecoveryResponse) -> Outcome:
    if response.WhichOneof("outcome") == "failure":
        return Failed(response.failure, response.invocation_id, response.history_patch)
    return Answer(
        text=response.completion.text,
        tool_calls=tool_calls([response.completion.message]),
        history_patch=response.history_patch,
        history_replace_tail=response.history_replace_tail,
        invocation_id=response.invocation_id,
        target=response.final_target,
        attempts=response.attempts,
        usage=response.usage,
        around=around(response.completion),
    )


def user(text: str) -> model_pb2.Message:
    """A message of the user, or of the agent in its place."""
    return _message(model_pb2.ROLE_USER, text)


def system(text: str) -> model_pb2.Message:
    """The operator's instructions."""
    return _message(model_pb2.ROLE_SYSTEM, text)


def _message(role: model_pb2.Role, text: str) -> model_pb2.Message:
    return model_pb2.Message(role=role, parts=[model_pb2.Part(text=model_pb2.TextPart(text=text))])
