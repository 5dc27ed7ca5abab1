"""Recovery events, live, over as many connections as it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from relight import errors
from relight.connection import Retry
from relight.v1 import recovery_service_pb2, watch_pb2

Open = Callable[[recovery_service_pb2.WatchRecoveryRequest, "float | None"], Any]


class Watch:
    """An iterator over events that goes on after its cursor when a connection is lost.

    It ends only by `close`, by its timeout, or by an error. `Missed` is an event like any other; bookmarks only move
    the cursor.
    """

    def __init__(self, open_call: Open, retry: Retry, request: recovery_service_pb2.WatchRecoveryRequest) -> None:
        self._open, self._retry, self._request = open_call, retry, request
        self._call: Any = None
        self._closed = False
        self._events = self._read()
        #: Place in the feed after the last event: give it to `Client.watch` as `after` to go on from there.
        self.cursor = request.after

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> watch_pb2.RecoveryEvent:
        return next(self._events)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration. Any thread may call it."""
        self._closed = True
        if self._call is not None:
            self._call.cancel()

    def _read(self) -> Iterator[watch_pb2.RecoveryEvent]:
        while not self._closed:
            try:
                self._call = self._open(self._request, self._retry.time_left())
                for message in self._call:
                    self._retry.progressed()
                    self.cursor = self._request.after = message.event.cursor
                    if message.event.WhichOneof("body") not in ("bookmark", None):
                        yield message.event
                lost = errors.StatusError(grpc.StatusCode.UNAVAILABLE, "the feed ended", transient=True)
            except grpc.RpcError as error:
                lost = errors.from_rpc(error)
            if not self._closed:
                self._retry.wait(lost)
