"""Plays every entry of the specification against every client package, and compares what their callers held.

CLIENT_DRIVERS names the drivers; arguments are names of entries, none for all.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml
from drivers import CLIENTS, Driver, drivers
from fault_server import FaultServer

_CANCEL_LIMIT = 30.0


def entries() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((CLIENTS / "spec").glob("*.yaml")):
        for name, entry in yaml.safe_load(path.read_text()).items():
            found[f"{path.stem}.{name}"] = entry
    return found


def held(driver: Driver, entry: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What the caller of one driver held, and what was wrong on the way."""
    server = FaultServer(entry["server"])
    try:
        result = driver.run(server.target, entry["call"])
        if entry.get("cancels") and not server.cancelled.wait(_CANCEL_LIMIT):
            server.problems.append("the invocation was not cancelled")
        if not entry.get("cancels") and server.cancelled.is_set():
            server.problems.append("the invocation was cancelled")
        if server.unplayed():
            server.problems.append(f"{server.unplayed()} steps were not played; calls: {server.calls}")
        if entry["call"].get("whole"):
            # Where a cut falls into a piece depends on the network, so that only the whole is compared.
            result["items"] = joined(result["items"])
        if "request_id" in entry["holds"]:
            result["request_id"] = server.request_id
        return result, server.problems
    finally:
        server.close()


def joined(items: list[list[str]]) -> list[list[str]]:
    whole: list[list[str]] = []
    for kind, text in items:
        if kind == "text" and whole and whole[-1][0] == "text":
            whole[-1][1] += text
        else:
            whole.append([kind, text])
    return whole


def main(names: list[str]) -> int:
    every, running = entries(), drivers()
    if unknown := set(names) - set(every):
        raise SystemExit(f"there are no entries {sorted(unknown)}")
    failed = 0
    for name in names or every:
        entry = every[name]
        first: dict[str, Any] | None = None
        for driver in running:
            result, problems = held(driver, entry)
            for key, expected in entry["holds"].items():
                if result.get(key) != expected:
                    problems.append(f"{key} is {result.get(key)!r}, not {expected!r}")
            first = result if first is None else first
            if result != first:
                problems.append(f"{result} is not what {running[0].language} held: {first}")
            failed += bool(problems)
            for problem in problems:
                print(f"FAILED {name} ({driver.language}): {problem}")
    for driver in running:
        driver.close()
    languages = ", ".join(driver.language for driver in running)
    print(f"specification: {len(names or every)} entries in {languages}; {failed} failed")
    return 1 if failed or not running else 0


sys.exit(main(sys.argv[1:]))
