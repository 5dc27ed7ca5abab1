"""A gRPC server that plays the `server` part of a spec file: responses, cuts, statuses and resumed streams.

Each RPC takes the next step. What a client asks otherwise than the step expects is a problem that the test reports.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent import futures
from typing import Any

import grpc
from events import Expander
from google.protobuf import any_pb2, duration_pb2, json_format
from google.rpc import error_details_pb2, status_pb2
from proxy import Proxy
from relight.v1 import recovery_service_pb2 as pb
from relight.v1 import recovery_service_pb2_grpc, watch_pb2

# What was sent before a cut is let through for so long; what was not is sent again after the client's cursor.
_BEFORE_CUT = 0.2
_HANG_LIMIT = 60.0


class FaultServer(recovery_service_pb2_grpc.RecoveryServiceServicer):
    """Plays one spec file, once."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self._steps, self._expander = steps, Expander()
        self._lock = threading.Lock()
        #: The first request id that came.
        self.request_id = ""
        #: What the client did otherwise than expected.
        self.problems: list[str] = []
        #: Names of the RPCs that came, in order.
        self.calls: list[str] = []
        self.cancelled = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        recovery_service_pb2_grpc.add_RecoveryServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self._proxy = Proxy(port)
        self.target = f"127.0.0.1:{self._proxy.port}"

    def close(self) -> None:
        self._server.stop(0)
        self._proxy.close()

    def unplayed(self) -> int:
        return len(self._steps) - sum(call != "CancelInvocation" for call in self.calls)

    def InvokeWithRecovery(self, request: Any, context: grpc.ServicerContext) -> Any:
        step = self._next("InvokeWithRecovery", request, context)
        self._end(step, context)
        return json_format.ParseDict(step["respond"], pb.InvokeWithRecoveryResponse())

    def StreamWithRecovery(self, request: Any, context: grpc.ServicerContext) -> Any:
        step = self._next("StreamWithRecovery", request, context)
        known = request.resume.cursor.seq if step.get("after_cursor") else 0
        for short in step.get("send", []):
            event = self._expander.expand(short)
            if not short.get("hidden") and (not event.seq or event.seq > known):
                yield pb.StreamWithRecoveryResponse(event=event)
        self._end(step, context)

    def WatchRecovery(self, request: Any, context: grpc.ServicerContext) -> Any:
        step = self._next("WatchRecovery", request, context)
        for event in step.get("send", []):
            yield pb.WatchRecoveryResponse(event=json_format.ParseDict(event, watch_pb2.RecoveryEvent()))
        self._end(step, context)

    def CancelInvocation(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.calls.append("CancelInvocation")
        if request.invocation_id != "inv-1" and request.request_id != self.request_id:
            self.problems.append(f"another invocation was cancelled: {request}")
        self.cancelled.set()
        return pb.CancelInvocationResponse(invocation_id="inv-1", cancelled=True)

    def _next(self, name: str, request: Any, context: grpc.ServicerContext) -> dict[str, Any]:
        with self._lock:
            at = sum(call != "CancelInvocation" for call in self.calls)
            self.calls.append(name)
        if at >= len(self._steps):
            self.problems.append(f"{name} was called once more than expected: {request}")
            context.set_trailing_metadata((("grpc-retry-pushback-ms", "-1"),))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no step is left")
        step = self._steps[at]
        for key, expected in step.get("expect", {}).items():
            got = self._observed(key, request, context)
            if got != expected:
                self.problems.append(f"call {at + 1}: {key} is {got!r}, not {expected!r}")
        if step["rpc"] != name:
            self.problems.append(f"call {at + 1} is {name}, not {step['rpc']}")
        return step

    def _observed(self, key: str, request: Any, context: grpc.ServicerContext) -> Any:
        metadata = dict(context.invocation_metadata())
        if key == "request_id":
            request_id = request.invocation.request_id or request.resume.request_id
            first, self.request_id = self.request_id, self.request_id or request_id
            return "none" if not request_id else "new" if not first else "same" if request_id == first else "another"
        if key == "authorization":
            return metadata.get("authorization")
        if key == "deadline":
            # Without one, gRPC says a time that is far away.
            left = context.time_remaining()
            return left is not None and left < 1e6
        if key == "start":
            return request.WhichOneof("start")
        if key == "resume_by":
            return request.resume.WhichOneof("invocation")
        if key == "token":
            return request.resume.token
        if key == "cursor":
            cursor = request.resume.cursor
            return [cursor.epoch, cursor.seq] if request.resume.HasField("cursor") else None
        if key == "after":
            return request.after
        overrides = request.invocation.overrides
        if key == "resumable":
            return overrides.HasField("resumable")
        if key == "rewind_mode":
            return overrides.rewind_mode
        if key == "prompt":
            return [part.text.text for message in request.invocation.model.messages for part in message.parts]
        if key == "tool":
            tool = request.invocation.tool
            meta = json.loads(tool.meta_json) if tool.meta_json else None
            return [tool.name, json.loads(tool.arguments_json or "{}"), tool.goal, tool.call_id, meta]
        if key == "route":
            return request.invocation.route
        raise ValueError(f"nothing is known of {key}")

    def _end(self, step: dict[str, Any], context: grpc.ServicerContext) -> None:
        end = step.get("end", "ok")
        if end == "cut":
            time.sleep(_BEFORE_CUT)
            self._proxy.cut()
            context.cancel()
        elif end == "hang":
            gone = threading.Event()
            if context.add_callback(gone.set) and not gone.wait(_HANG_LIMIT):
                self.problems.append("the client never left")
        elif end != "ok":
            details = status_pb2.Status(code=grpc.StatusCode[end["code"]].value[0], message=end.get("message", ""))
            trailers = []
            if "reason" in end:
                _pack(details, error_details_pb2.ErrorInfo(reason=end["reason"], domain="relight.dev"))
            if "retry_after_ms" in end:
                delay = duration_pb2.Duration()
                delay.FromMilliseconds(end["retry_after_ms"])
                _pack(details, error_details_pb2.RetryInfo(retry_delay=delay))
            if details.details:
                trailers.append(("grpc-status-details-bin", details.SerializeToString()))
            if end.get("never_repeat"):
                trailers.append(("grpc-retry-pushback-ms", "-1"))
            context.set_trailing_metadata(tuple(trailers))
            context.abort(grpc.StatusCode[end["code"]], end.get("message", ""))


def _pack(status: status_pb2.Status, detail: Any) -> None:
    packed = any_pb2.Any()
    packed.Pack(detail)
    status.details.append(packed)
