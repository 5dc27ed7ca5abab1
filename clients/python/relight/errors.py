"""What can go wrong with a call: Relight itself, a model's failure, or a stream that does not fit together."""

from __future__ import annotations

from collections.abc import MutableSequence

import grpc
from google.rpc import error_details_pb2, status_pb2

from relight.outcome import Failed
from relight.v1 import failure_pb2, model_pb2

_DETAILS = "grpc-status-details-bin"
_PUSHBACK = "grpc-retry-pushback-ms"
# A status with one of these codes may be the transport's and not Relight's. Relight marks its own that must not be
# repeated with a negative pushback.
_TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.CANCELLED,
    }
)


class Error(Exception):
    """Base of all errors that this package raises."""


class StatusError(Error):
    """Relight refused the call, or could not be reached. Speaks of Relight, never of a model."""

    def __init__(self, code: grpc.StatusCode, message: str, reason: str = "", retry_after: float | None = None,
                 transient: bool = False) -> None:
        super().__init__(f"{code.name}{f' ({reason})' if reason else ''}: {message}")
        self.code = code
        self.message = message
        #: The `reason` of google.rpc.ErrorInfo (`ROUTE_NOT_FOUND`); empty where Relight could not be reached.
        self.reason = reason
        #: The least wait before it makes sense to call again, in seconds.
        self.retry_after = retry_after
        #: Whether the same call may succeed later. It was repeated already, as often as the client allows.
        self.transient = transient


class DeadlineExceeded(StatusError, TimeoutError):
    """The caller's `timeout` is over, and not even a failure could be reported in time."""


class FailureError(Error):
    """The invocation ended with a failure, which Relight judged; `failure` holds all of it."""

    def __init__(self, failed: Failed) -> None:
        failure = failed.failure
        name = failure_pb2.FailureClass.Name(failure.failure_class).removeprefix("FAILURE_CLASS_").lower()
        super().__init__(f"{name}: {failure.message or failure.user_message}")
        self.failure = failure
        self.failed = failed

    def apply_to(self, history: MutableSequence[model_pb2.Message]) -> None:
        """Appends the error of a tool to the caller's history, so that its model reads it. Call it once."""
        self.failed.apply_to(history)


class ProtocolError(Error):
    """The events of a stream do not fit together, also after they were fetched again."""


def from_rpc(error: grpc.RpcError) -> StatusError:
    """Reads what a status says about itself."""
    code: grpc.StatusCode = error.code()
    message = error.details() or ""
    trailers = {key: value for key, value in error.trailing_metadata() or ()}
    reason, retry_after = "", None
    status = status_pb2.Status()
    try:
        status.ParseFromString(trailers.get(_DETAILS, b""))
        for detail in status.details:
            info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
            if detail.Unpack(info):
                reason = info.reason
            elif detail.Unpack(retry):
                retry_after = retry.retry_delay.ToNanoseconds() / 1e9
    except ValueError:  # A proxy's own details; `message` says it all.
        pass
    never = str(trailers.get(_PUSHBACK, "")).startswith("-")
    kind = DeadlineExceeded if code is grpc.StatusCode.DEADLINE_EXCEEDED else StatusError
    return kind(code, message, reason, retry_after, transient=code in _TRANSIENT and not never)
