"""The programs that run calls with the client packages, one process for each, which takes jobs and returns results as JSON."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import threading
from typing import Any

CLIENTS = pathlib.Path(__file__).resolve().parents[1]
PATIENCE = 120.0


class Driver:
    def __init__(self, language: str, command: list[str]) -> None:
        self.language = language
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, target: str, call: dict[str, Any]) -> dict[str, Any]:
        """What the caller held at the end. A driver that says nothing for too long is ended."""
        assert self._process.stdin and self._process.stdout
        alarm = threading.Timer(PATIENCE, self._process.kill)
        alarm.start()
        try:
            self._process.stdin.write(json.dumps({"target": target, "call": call}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            raise SystemExit(f"FAILED: the driver of {self.language} ended or hung with {call}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(30)


def drivers() -> list[Driver]:
    """One for each `language=command` in CLIENT_DRIVERS, which are separated by line feeds."""
    pairs = [line.split("=", 1) for line in os.environ["CLIENT_DRIVERS"].splitlines() if line]
    return [Driver(language, command.split()) for language, command in pairs]
