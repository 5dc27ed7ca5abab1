"""A name server on loopback that knows one name with several addresses, as a headless service of Kubernetes has."""

from __future__ import annotations

import socket
import struct
import threading

_A = 1


class NameServer:
    def __init__(self, addresses: list[str]) -> None:
        self._addresses = [socket.inet_aton(address) for address in addresses]
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                query, client = self._socket.recvfrom(4096)
            except OSError:
                return
            self._socket.sendto(self._response(query), client)

    def _response(self, query: bytes) -> bytes:
        end = query.index(b"\0", 12) + 5
        (kind,) = struct.unpack("!H", query[end - 4 : end - 2])
        # Every name is the one; other types than A have no records.
        addresses = self._addresses if kind == _A else []
        header = query[:2] + struct.pack("!HHHHH", 0x8580, 1, len(addresses), 0, 0)
        record = b"\xc0\x0c" + struct.pack("!HHIH", _A, 1, 5, 4)
        return header + query[12:end] + b"".join(record + address for address in addresses)
