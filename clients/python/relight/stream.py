"""A stream that survives its connection, and the replica that serves it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator
from typing import Any, Generic, TypeVar

import grpc

from relight import errors
from relight.connection import Retry
from relight.fold import Fold, Misfit
from relight.outcome import Answer, Failed, Outcome, around
from relight.v1 import invocation_pb2, model_pb2, recovery_service_pb2, stream_pb2

# How often events that do not fit are read again from the beginning.
_MAX_MISFITS = 3

Item = TypeVar("Item")
Cancel = Callable[[str, str], Any]
Open = Callable[[recovery_service_pb2.StreamWithRecoveryRequest, float | None], Any]


@dataclasses.dataclass(frozen=True)
class Text:
    """More of the answer's text."""

    text: str


@dataclasses.dataclass(frozen=True)
class Rewind:
    """The end of what was shown is taken back: `kept` is the text that remains, all of it."""

    kept: str


@dataclasses.dataclass(frozen=True)
class ResumePoint:
    """Where another process can go on with an invocation: `client.resume(point)`."""

    token: str
    request_id: str = ""


class Reader:
    """Reads one invocation over as many connections as it takes, and finds out what of its text changes."""

    def __init__(self, open_call: Open, cancel: Cancel, retry: Retry,
                 request: recovery_service_pb2.StreamWithRecoveryRequest) -> None:
        self._open, self._cancel, self._retry = open_call, cancel, retry
        self._request = request
        self._request_id = request.invocation.request_id or request.resume.request_id
        self._token = ""
        self._call: Any = None
        self._left = False
        self._pieces: list[str] = []
        self._last_text = 0
        self._misfits = 0
        # Whether events are read again that were shown already.
        self._catching_up = False
        self.fold = Fold()
        #: Whether the service promises that nothing is taken back.
        self.is_atomic = False

    def changes(self) -> Generator[Text | Rewind, None, None]:
        try:
            while self.fold.terminal is None:
                try:
                    yield from self._follow()
                except grpc.RpcError as error:
                    status = errors.from_rpc(error)
                    if self._left:
                        raise status from None
                    self._retry.wait(status)
                except Misfit as misfit:
                    self._start_over(misfit)
        except (GeneratorExit, errors.ProtocolError):
            # Also when the caller just forgets the stream: nobody waits for an answer then.
            self.leave(cancel=True, wait=False)
            raise
        except errors.StatusError:
            # Left running, as it may be resumed by its request id until its deadline.
            self._left = True
            raise
        finally:
            if self._call is not None:
                self._call.cancel()

    def leave(self, cancel: bool, wait: bool) -> None:
        """Ends the stream. A resumable invocation runs on for its grace unless it is cancelled."""
        if self._left or self.fold.terminal is not None:
            return
        self._left = True
        if self._call is None:
            return
        # First the cancellation, as whoever reads may close the client as soon as the stream ends.
        cancelling = self._cancel(self.fold.invocation_id, self._request_id) if cancel else None
        self._call.cancel()
        if wait and cancelling is not None:
            cancelling.exception()

    def resume_point(self) -> ResumePoint:
        if not self._token:
            raise errors.Error("nothing was accepted yet, or nothing is kept, so that nothing can be resumed")
        # A token of a resumed stream stands for the place where that began, and not for the whole answer.
        return ResumePoint(self._request.resume.token or self._token, self._request_id)

    def _follow(self) -> Iterator[Text | Rewind]:
        self._call = self._open(self._next_request(), self._retry.time_left())
        for message in self._call:
            event = message.event
            if event.WhichOneof("body") == "accepted":
                self._token = event.accepted.resume_token or self._token
                self.is_atomic = event.accepted.rewind_mode == invocation_pb2.REWIND_MODE_ATOMIC
            if not self.fold.apply(event):
                continue
            self._retry.progressed()
            yield from self._difference(event)
            if self.fold.terminal is not None:
                return
        self._retry.wait(_lost("the stream ended without a Terminal"))

    def _next_request(self) -> recovery_service_pb2.StreamWithRecoveryRequest:
        """The first request again, which its request id makes idempotent, or what is missing after the cursor."""
        if not self._token or self.fold.cursor is None:
            return self._request
        epoch, seq = self.fold.cursor
        cursor = stream_pb2.StreamCursor(epoch=epoch, seq=seq)
        view = invocation_pb2.ANSWER_VIEW_REPEATED
        resume = stream_pb2.Resume(token=self._token, cursor=cursor, answer_view=view)
        return recovery_service_pb2.StreamWithRecoveryRequest(resume=resume)

    def _start_over(self, misfit: Misfit) -> None:
        self._call.cancel()
        self._misfits += 1
        if self._misfits > _MAX_MISFITS:
            raise errors.ProtocolError(str(misfit))
        self.fold = Fold()
        self._catching_up = True
        self._retry.wait(_lost(str(misfit)))

    def _difference(self, event: stream_pb2.StreamEvent) -> Iterator[Text | Rewind]:
        """What the event changed of the text. A delta at the end is passed on as it is; all else is compared."""
        body = event.WhichOneof("body")
        if body == "block_delta" and event.block_delta.block_id == self._last_text and not self._catching_up:
            yield self._show(event.block_delta.text)
            return
        if body not in ("block_start", "block_delta", "rewind", "snapshot", "terminal"):
            return
        texts = [number for number, block in self.fold.blocks.items() if block.kind == stream_pb2.BLOCK_KIND_TEXT]
        self._last_text = max(texts, default=0)
        now, shown = self.fold.text(), "".join(self._pieces)
        if self._catching_up and shown.startswith(now) and body != "terminal":
            return
        self._catching_up = False
        if not now.startswith(shown):
            shown = _common_prefix(shown, now)
            self._pieces = [shown]
            yield Rewind(shown)
        if len(now) > len(shown):
            yield self._show(now[len(shown) :])

    def _show(self, text: str) -> Text:
        self._pieces.append(text)
        return Text(text)

    def outcome(self) -> Outcome:
        terminal, identity = self.fold.terminal, self.fold.invocation_id
        if terminal is None:
            raise errors.Error("the stream was not read to its end")
        kind = terminal.WhichOneof("outcome")
        if kind == "failed":
            return Failed(terminal.failed, identity, terminal.history_patch)
        if kind == "cancelled":
            return Failed(terminal.cancelled.failure, identity, terminal.history_patch)
        calls = [block for block in self.fold.of_kind(stream_pb2.BLOCK_KIND_TOOL_CALL) if block.committed]
        return Answer(
            text=self.fold.text(),
            tool_calls=[
                model_pb2.ToolCallPart(id=call.call_id, name=call.tool_name, arguments_json=call.text)
                for call in calls
            ],
            history_patch=terminal.completed.history_patch,
            history_replace_tail=terminal.completed.history_replace_tail,
            invocation_id=identity,
            target=terminal.final_target,
            attempts=terminal.attempts,
            usage=terminal.usage,
            around=around(terminal.completed),
        )


class Stream(Generic[Item]):
    """An iterator over an answer. Use it in a `with` statement where it may be left early."""

    def __init__(self, reader: Reader, items: Generator[Item, None, None], raise_failure: bool) -> None:
        self._reader, self._items, self._raise_failure = reader, items, raise_failure

    def __iter__(self) -> Stream[Item]:
        return self

    def __next__(self) -> Item:
        try:
            return next(self._items)
        except StopIteration:
            if self._raise_failure and isinstance(failed := self._reader.outcome(), Failed):
                raise errors.FailureError(failed) from None
            raise

    def __enter__(self) -> Stream[Item]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def outcome(self) -> Outcome:
        """How the invocation ended; known once the stream was read to its end."""
        return self._reader.outcome()

    def close(self) -> None:
        """Ends the stream early and cancels the invocation. Any thread may call it."""
        self._reader.leave(cancel=True, wait=True)

    def detach(self) -> ResumePoint:
        """Ends the stream early and lets the invocation run for its grace, to be resumed."""
        point = self._reader.resume_point()
        self._reader.leave(cancel=False, wait=False)
        return point


def final_text(reader: Reader) -> Generator[str, None, None]:
    """Only text that is never taken back: at once where the service promises that, else all of it at the end."""
    for change in reader.changes():
        if reader.is_atomic:
            if isinstance(change, Rewind):
                raise errors.ProtocolError("final text was taken back")
            yield change.text
    if not reader.is_atomic and reader.fold.text():
        yield reader.fold.text()


def _lost(message: str) -> errors.StatusError:
    return errors.StatusError(grpc.StatusCode.UNAVAILABLE, message, transient=True)


def _common_prefix(one: str, other: str) -> str:
    length = next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return one[:length]
