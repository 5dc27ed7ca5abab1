"""A TCP proxy on loopback that cuts its connections on demand, without a word to either side."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading


class Proxy:
    """Passes bytes to `port` until it is told to cut."""

    def __init__(self, port: int = 0) -> None:
        #: Where connections go; may be changed for later ones.
        self.upstream = port
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._budget: int | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        #: Connections that were cut.
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Resets every open connection."""
        with self._lock:
            doomed, self._open = self._open, set()
            self.cuts += len(doomed) // 2
        for each in doomed:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def cut_after(self, count: int) -> None:
        """Resets every open connection once so many more bytes came from the server."""
        self._budget = count

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.upstream), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._copy, args=(server, client, True), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while data := source.recv(65536):
                if counted and self._budget is not None:
                    if len(data) >= self._budget:
                        data, self._budget = data[: self._budget], None
                        sink.sendall(data)
                        self.cut()
                        return
                    self._budget -= len(data)
                sink.sendall(data)
        except OSError:
            pass
        with self._lock:
            self._open -= {source, sink}
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
