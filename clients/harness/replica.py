"""The real server, started with a configuration, killed and started again."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import time

BINARY = os.environ.get("RELIGHT_BINARY", "target/debug/relight")
_PATIENCE = 60.0


class Replica:
    """One process of `relight serve` on an address of loopback."""

    def __init__(self, folder: pathlib.Path, config: str, host: str = "127.0.0.1", port: int = 0) -> None:
        self.host, self.port = host, port or free_port(host)
        self._config = folder / f"{host}-{self.port}.yaml"
        self._config.write_text(config)
        self._log = (folder / f"{host}-{self.port}.log").open("ab")
        self.start()

    def start(self) -> None:
        command = [BINARY, "serve", "--config", str(self._config), "--listen", f"{self.host}:{self.port}"]
        self._process = subprocess.Popen([*command, "--admin-listen", "127.0.0.1:0"], stderr=self._log)
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    log = pathlib.Path(self._log.name).read_text()[-2000:]
                    raise SystemExit(f"FAILED: the server did not start:\n{log}") from None
                time.sleep(0.02)

    def kill(self) -> None:
        """Ends it as a crash does."""
        self._process.kill()
        self._process.wait()


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
