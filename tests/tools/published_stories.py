#!/usr/bin/env python3
"""The stories of tools with servers that others published, over all doors: the command line, the client package of each language, and
MCP in both of its lifecycles. What happens to the servers is done by a program between them and Relight (published/changer.py).

    clients/harness/run.sh FOLDER published_stories.py BINARY NODE_MODULES VENV    # which builds the packages

Arguments after these are words of the stories and doors to play, all without any.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import published
from published import BINARY, MODERN, SERVERS, Relight, child

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "harness"))
from drivers import drivers

CHANGER = pathlib.Path(__file__).with_name("published") / "changer.py"
BY_NAME = {server.name: server for server in SERVERS}


class Outcome:
    """What a caller holds after a call, whichever door it came through; `applied` is None if the door does not show it."""

    def __init__(self, texts, structured, applied, is_error=False, explanation=""):
        self.texts, self.structured, self.applied = texts, structured, applied
        self.is_error, self.explanation = is_error, explanation


def by_command_line(served, tool, arguments):
    called = subprocess.run(
        [BINARY, "invoke", "--tool", tool, "--arguments", "-", "--output", "json", "--address", f"http://{served.address}"],
        input=json.dumps(arguments), capture_output=True, text=True, timeout=120, check=False,
    )
    assert called.stdout, called.stderr
    response = json.loads(called.stdout)
    failure = response.get("failure")
    result = failure["tool_result"] if failure else response["completion"]["tool_output"]
    structured = result.get("structured_json")
    applied = [strategy.removeprefix("RECOVERY_STRATEGY_") for strategy in response["recovery_applied"]]
    texts = [part["text"]["text"] for part in result.get("content", []) if "text" in part]
    return Outcome(texts, structured and json.loads(structured), applied, bool(failure), failure["reasoning"] if failure else "")


def by_package(driver):
    """The door of a client package: its program for the specification, which throws what fails."""

    def door(served, tool, arguments):
        held = driver.run(served.address, {"method": "call_tool", "tool": {"name": tool, "arguments": arguments}})
        if held["ended"] == "result":
            return Outcome([held["text"]], held["structured"], None)
        assert held["ended"] == "failure" and held["thrown"], held
        # What the caller's conversation gets: the tool's own words, then the explanation.
        texts = [text for role, text in held["history"] if role == "ROLE_TOOL"]
        return Outcome(texts, None, None, True, texts[-1])

    door.__name__ = f"by_package_of_{driver.language}"
    return door


def of_mcp(message):
    result = message["result"]
    applied = result["_meta"].get("relight/recovery_applied", [])
    content = [part for part in result["content"] if part["type"] == "text"]
    own = [part for part in content if part.get("_meta", {}).get("relight/explanation")]
    texts = [part["text"] for part in content if part not in own]
    explanation = own[0]["text"] if own else ""
    return Outcome(texts, result.get("structuredContent"), applied, bool(result.get("isError")), explanation)


def by_mcp_with_handshake(served, tool, arguments):
    served.request("initialize", published.INITIALIZE)
    return of_mcp(served.request("tools/call", {"name": tool, "arguments": arguments}))


def by_mcp_without_handshake(served, tool, arguments):
    assert MODERN in served.request("server/discover", {}, MODERN)["result"]["supportedVersions"]
    return of_mcp(served.request("tools/call", {"name": tool, "arguments": arguments}, MODERN))


DOORS = [by_command_line, by_mcp_with_handshake, by_mcp_without_handshake]


class Changed:
    """A published server that changes while Relight has it."""

    def __init__(self, name, folder, tools=None, groups=None):
        self.folder, self.changes = folder, folder.with_name("changes")
        command, env = BY_NAME[name].fresh(folder)
        self.changes.mkdir()
        wrapped = [sys.executable, str(CHANGER), str(self.changes), *command]
        self.served = Relight({"s": {**child(wrapped, env), "trust_annotations": True, "refresh": "1s"}}, tools, groups)

    def change(self, what, words):
        (self.changes / what).write_text(words, encoding="utf-8")

    def calls(self):
        return [json.loads(line) for line in (self.changes / "calls").read_text(encoding="utf-8").splitlines()]


def many_files_are_read_in_parts(door, folder):
    tools = {"read_multiple_files": {"timeout": "2s", "chunk": [{"argument": "paths"}]}}
    changed = Changed("filesystem", folder, tools)
    try:
        changed.change("large", "4")
        paths = [str(folder / f"{number}.txt") for number in range(12)]
        for number, path in enumerate(paths):
            pathlib.Path(path).write_text(f"text {number}\n", encoding="utf-8")
        outcome = door(changed.served, "read_multiple_files", {"paths": paths})
        assert not outcome.is_error, outcome.texts
        text = "\n".join(outcome.texts)
        at = [text.index(f"text {number}\n") for number in range(12)]
        assert at == sorted(at), text
        assert outcome.applied in (None, ["CHUNK"]), outcome.applied
    finally:
        changed.served.close()


def a_refusal_is_explained_and_not_repeated(door, folder):
    changed = Changed("filesystem", folder)
    try:
        outcome = door(changed.served, "read_text_file", {"path": "/etc/passwd"})
        assert outcome.is_error and outcome.applied in (None, ["IMPOSSIBLE"]), outcome.applied
        assert "Access denied" in outcome.texts[0], outcome.texts
        assert "not allowed" in outcome.explanation, outcome.explanation
        assert len(changed.calls()) == 1, changed.calls()
    finally:
        changed.served.close()


def a_renamed_argument_is_sent_by_its_new_name(door, folder):
    changed = Changed("memory", folder)
    try:
        entity = {"name": "relight", "entityType": "service", "observations": ["lights again"]}
        assert not door(changed.served, "create_entities", {"entities": [entity]}).is_error
        before = door(changed.served, "search_nodes", {"query": "lights"})
        changed.change("renamed", "search_nodes query search_query")
        after = door(changed.served, "search_nodes", {"query": "lights"})
        assert not after.is_error, after.texts
        assert after.structured == before.structured and len(after.structured["entities"]) == 1, after.structured
        assert after.applied in (None, ["ADAPT"]), after.applied
        assert changed.calls()[-1] == ["search_nodes", {"search_query": "lights"}], changed.calls()
    finally:
        changed.served.close()


def an_equal_tool_takes_over(door, folder):
    groups = {"reading": ["s/read_file", "s/read_text_file"]}
    changed = Changed("filesystem", folder, groups=groups)
    try:
        changed.change("broken", "read_file")
        outcome = door(changed.served, "read_file", {"path": str(folder / "a.txt")})
        assert not outcome.is_error and outcome.texts == ["one\ntwo\n"], outcome.texts
        assert outcome.applied is None or "FALLBACK" in outcome.applied, outcome.applied
        assert changed.calls()[-1][0] == "read_text_file", changed.calls()
    finally:
        changed.served.close()


STORIES = [
    many_files_are_read_in_parts,
    a_refusal_is_explained_and_not_repeated,
    a_renamed_argument_is_sent_by_its_new_name,
    an_equal_tool_takes_over,
]


def main():
    packages = drivers()
    for story in STORIES:
        for door in [*DOORS, *map(by_package, packages)]:
            what = f"{story.__name__} {door.__name__}"
            if sys.argv[4:] and not any(word in what for word in sys.argv[4:]):
                continue
            with tempfile.TemporaryDirectory() as folder:
                story(door, pathlib.Path(folder) / "state")
            print(f"{what.replace('_', ' ')}: ok", flush=True)
    for driver in packages:
        driver.close()


if __name__ == "__main__":
    main()
