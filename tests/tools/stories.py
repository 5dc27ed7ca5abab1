#!/usr/bin/env python3
"""The stories of tools, end to end: the real server, MCP servers on the official SDKs, calls over gRPC and by an MCP client.

    stories.py BINARY PYTHON SERVER_PY SERVER_MJS

BINARY is relight, PYTHON one with the Python SDK. Each story is played against the Python and the TypeScript server.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import mcp

BINARY, PYTHON, SERVER_PY, SERVER_MJS = sys.argv[1:5]
SERVERS = {"python": [PYTHON, SERVER_PY], "typescript": ["node", SERVER_MJS]}
FOLDER = pathlib.Path(SERVER_MJS).parent
GO = FOLDER / "mcp-go"
HALF_A_YEAR = {"after": "2024-01-01", "before": "2024-06-30"}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Relight:
    """A server of its own, with one MCP server as a child."""

    def __init__(self, program, env=None, tools=None, extra=None, releases=None):
        self.folder = tempfile.TemporaryDirectory()
        self.notes = pathlib.Path(self.folder.name) / "notes"
        ports = [free_port() for _ in range(3)]
        self.address, self.front = f"127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[2]}/mcp"
        child = {
            "command": program[0],
            "args": program[1:],
            "env": {"NOTES": str(self.notes), **(env or {})},
            "trust_annotations": True,
        }
        config = {
            "server": {"listen": self.address, "admin_listen": f"127.0.0.1:{ports[1]}"},
            "journal": {"store": "memory"},
            "policies": {"standard": {"retry": {"backoff": {"base": "20ms"}}}},
            "tools": {
                "servers": {"s": child, **(extra or {})},
                "mcp_front": {"listen": f"127.0.0.1:{ports[2]}"},
                "tools": {
                    "get_activities": {
                        "timeout": "3s",
                        "chunk": [{"from": "after", "to": "before", "sum": ["/total"]}],
                    },
                    **(tools or {}),
                },
                "groups": {"activity": ["s/get_activity", "s/get_activity_on"]},
            },
            "releases": {"subjects": releases or {}},
        }
        file = pathlib.Path(self.folder.name) / "relight.json"
        file.write_text(json.dumps(config))
        self.log = open(pathlib.Path(self.folder.name) / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen([BINARY, "serve", "--config", str(file)], stderr=self.log)

    def __enter__(self):
        for _ in range(200):
            if self.cli("health", check=False).returncode == 0:
                return self
            time.sleep(0.1)
        raise SystemExit("the server did not begin to serve:\n" + self.told())

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        self.folder.cleanup()

    def told(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text(encoding="utf-8")[-4000:]

    def cli(self, *arguments, check=True, stdin=None):
        return subprocess.run(
            [BINARY, *arguments, "--address", f"http://{self.address}"], check=check, capture_output=True, text=True, input=stdin, timeout=120
        )

    def invoke(self, tool, arguments, goal="", *more):
        """Calls a tool over gRPC and returns the whole response."""
        called = self.cli(
            "invoke", "--tool", tool, "--arguments", "-", "--output", "json", *(["--goal", goal] if goal else []), *more,
            check=False, stdin=json.dumps(arguments),
        )
        if not called.stdout.strip():
            raise AssertionError(called.stderr)
        return json.loads(called.stdout)

    def executions(self, *more):
        listed = self.cli("executions", "--output", "json", "--limit", "500", *more).stdout
        return [json.loads(line) for line in listed.splitlines()]


def field(message, name):
    """A field of a message in JSON, whichever way its name is written."""
    camel = "".join(word.title() if at else word for at, word in enumerate(name.split("_")))
    return message.get(camel, message.get(name))


def applied(response):
    return [strategy.removeprefix("RECOVERY_STRATEGY_") for strategy in field(response, "recovery_applied")]


def output(response):
    assert response.get("completion"), response.get("failure")
    return field(response["completion"], "tool_output")


def six_months_are_merged(program):
    with Relight(program) as relight:
        response = relight.invoke("get_activities", HALF_A_YEAR, "summarize half a year")
        result = output(response)
        assert applied(response) == ["CHUNK"], response
        coverage = result["coverage"]
        assert (coverage["done"], coverage["total"]) == (6, 6), coverage
        merged = json.loads(field(result, "structured_json"))
        days = [activity["day"] for activity in merged["activities"]]
        assert days == sorted(set(days)) and days[0] == "2024-01-01" and days[-1] == "2024-06-24", days
        assert merged["total"] == len(days) == 26, merged
        executed = relight.executions("--tool", "s/get_activities")
        assert len(executed) == 7 and executed[-1]["cause"] == "initial", executed


def refusal_is_explained(program):
    with Relight(program) as relight:
        response = relight.invoke("get_private_activities", {"athlete": "X"}, "Get competitor X's private training data")
        failure = response["failure"]
        assert applied(response) == ["IMPOSSIBLE"], response
        assert len(response["attempts"]) == 1, response
        assert field(failure, "failure_class") == "FAILURE_CLASS_PERMISSION_DENIED", failure
        assert failure["code"] == "FAILURE_CODE_TOOL_ERROR", failure
        assert "competitor X" in failure["reasoning"] and failure["alternatives"], failure


def mistake_is_learnt(program):
    with Relight(program) as relight:
        # One case proves nothing; after a few, the tool that was meant is called at once.
        made = []
        for day in ("2024-01-08", "2024-01-15", "2024-01-08", "2024-01-15", "2024-01-08"):
            response = relight.invoke("get_activity", {"id": day})
            assert output(response)["tool"] == "get_activity_on", response
            made.append(len(response["attempts"]))
        assert made[:2] == [2, 2] and made[-1] == 1, made
        learnt = json.loads(relight.cli("learning", "--output", "json").stdout)
        assert learnt["confusions"][0]["right"] == "s/get_activity_on", learnt
        relight.cli("learning", "--forget")
        response = relight.invoke("get_activity", {"id": "2024-01-22"})
        assert len(response["attempts"]) == 2, "what was forgotten is not used"


def argument_is_adapted(program):
    with Relight(program, tools={"control": {"read_only": True}}) as relight:
        assert output(relight.invoke("search", {"query": "runs", "limit": 2}))
        relight.invoke("control", {"action": "rename"})
        response = relight.invoke("search", {"query": "runs", "limit": 2})
        sent = json.loads(field(output(response), "arguments_json"))
        assert sent == {"query": "runs", "max_results": 2}, response
        assert "ADAPT" in applied(response), response
        response = relight.invoke("search", {"query": "runs", "limit": 3})
        assert len(response["attempts"]) == 1, "the next call is adapted before it fails"


def new_version_is_rolled_back(program):
    new = {"command": program[0], "args": program[1:], "env": {"RENAMED": "1"}, "trust_annotations": True}
    releases = {"s": {"candidate": "s2", "share": 1.0}}
    with Relight(program, tools={"control": {"read_only": True}}, extra={"s2": new}, releases=releases) as relight:
        until(lambda: "s2@" in relight.cli("releases").stdout, "the new version is on trial")
        response = relight.invoke("search", {"query": "runs", "limit": 2})
        sent = json.loads(field(output(response), "arguments_json"))
        assert sent == {"query": "runs", "max_results": 2} and len(response["attempts"]) == 1, response
        relight.invoke("s2/control", {"action": "break"})
        for _ in range(6):
            assert output(relight.invoke("search", {"query": "runs", "limit": 2})), "the old version takes over"
            time.sleep(0.2)
        failed = [one for one in relight.executions("--tool", "s2/search") if one["state"].endswith("FAILED")]
        assert 2 <= len(failed) <= 3, failed
        response = relight.invoke("search", {"query": "runs", "limit": 2})
        assert len(response["attempts"]) == 1, response


def until(holds, what, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def not_idempotent_is_executed_at_most_once(program):
    rounds = int(os.environ.get("ROUNDS", "40"))
    with Relight(program, tools={"add_comment": {"timeout": "300ms"}}) as relight:
        faults = ["respond", "crash", "hang"]
        for number in range(rounds):
            fault = faults[(number * 7 + number // 3) % 3]
            response = relight.invoke("add_comment", {"text": f"n{number}", "then": fault})
            if fault == "respond":
                # A child that has just ended may not be there again yet; then nothing was sent.
                continue
            unknown = field(response.get("failure", {}), "failure_class")
            assert unknown in ("FAILURE_CLASS_OUTCOME_UNKNOWN", "FAILURE_CLASS_CRASH", "FAILURE_CLASS_NETWORK"), response
        lines = relight.notes.read_text(encoding="utf-8").splitlines()
        assert len(lines) == len(set(lines)), "a comment was added twice"
        assert len(lines) >= rounds // 3, lines


def supervisor_goes_on(program):
    with Relight(program) as relight:
        thread = ["--thread", "t-1"]
        relight.invoke("get_private_activities", {"athlete": "X"}, "compare with X", *thread)
        relight.invoke("get_activity", {"id": "nothing"}, "show it", *thread)
        response = relight.invoke("get_activity", {"id": "a-7"}, "show mine", *thread)
        assert output(response)["tool"] == "get_activity", response
        executed = relight.executions("--thread", "t-1")
        assert [one["state"].rsplit("_", 1)[1] for one in executed][-1] == "FAILED", executed


def goal_is_remembered(program):
    with Relight(program) as relight:
        for _ in range(2):
            response = relight.invoke("get_private_activities", {"athlete": "X"}, "compare with X")
        reasoning = response["failure"]["reasoning"]
        assert "Previous attempts:" in reasoning and "what should be tried differently?" in reasoning, reasoning


def bad_input_has_one_clear_error(program):
    extra = {"gone": {"command": "/no/such/program"}}
    with Relight(program, env={"TOOLS": "500"}, extra=extra) as relight:
        assert output(relight.invoke("extra_499", {}))["tool"] == "extra_499"
        refused = relight.cli("invoke", "--tool", "get_activty", "--arguments", "{}", check=False)
        assert refused.returncode != 0 and "get_activty" in refused.stderr, refused.stderr
        refused = relight.cli("invoke", "--tool", "gone/anything", "--arguments", "{}", check=False)
        assert refused.returncode != 0 and "gone" in refused.stderr, refused.stderr
        long = relight.cli(
            "invoke", "--tool", "extra_1", "--arguments", "-", "--output", "json",
            check=False, stdin=json.dumps({"text": "x" * (4 << 20)}),
        )
        assert long.returncode != 0, "arguments beyond the limit are refused"
        assert output(relight.invoke("get_activity", {"id": "a-7"})), "nobody else is affected"


async def by_an_mcp_client(program):
    with Relight(program, extra={"other": {"command": program[0], "args": program[1:]}}) as relight:
        for mode in ("auto", "legacy"):
            async with mcp.Client(relight.front, mode=mode) as client:
                # A server that is slow to start is listed once it has.
                async with asyncio.timeout(60):
                    while "other_get_activity" not in (names := [tool.name for tool in (await client.list_tools()).tools]):
                        await asyncio.sleep(0.2)
                assert "s_get_activity" in names, names
                result = await client.call_tool("s_get_activities", HALF_A_YEAR)
                assert not result.is_error, result
                assert len(result.structured_content["activities"]) == 26, result
                result = await client.call_tool("s_get_private_activities", {"athlete": "X"})
                assert result.is_error and "not allowed" in result.content[-1].text, result


def by_clients_of_other_sdks(program):
    with Relight(program) as relight:
        for mode in ("auto", "legacy"):
            answered = ran("node", FOLDER / "client.mjs", relight.front, mode, "get_activity", '{"id": "a-7"}')
            assert "get_activity" in answered["tools"], answered
            assert answered["result"]["structuredContent"]["id"] == "a-7", answered
        if GO.exists():
            answered = ran(GO, relight.front, "get_activity", '{"id": "a-7"}')
            assert answered["result"]["structuredContent"]["id"] == "a-7", answered


def servers_of_other_sdks_are_called(program):
    kinds = {"modern": (["node", str(FOLDER / "modern.mjs")], ("http", "strict"), "/mcp")}
    if GO.exists():
        kinds["go"] = ([str(GO)], ("http", "stateless"), "")
    with contextlib.ExitStack() as stack:
        servers = {}
        for language, (command, over_http, path) in kinds.items():
            servers[f"{language}stdio"] = {"command": command[0], "args": [*command[1:], "stdio"]}
            for kind in over_http:
                server = stack.enter_context(subprocess.Popen([*command, kind], stderr=subprocess.PIPE, text=True))
                stack.callback(server.kill)
                port = server.stderr.readline().split()[-1]
                servers[f"{language}{kind}"] = {"url": f"http://127.0.0.1:{port}{path}"}
        relight = stack.enter_context(Relight(program, extra=servers))
        for server in servers:
            response = relight.invoke(f"{server}/echo", {"text": "hi"})
            assert json.loads(field(output(response), "structured_json")) == {"text": "hi"}, response


def ran(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


STORIES = [
    six_months_are_merged,
    refusal_is_explained,
    mistake_is_learnt,
    argument_is_adapted,
    new_version_is_rolled_back,
    not_idempotent_is_executed_at_most_once,
    supervisor_goes_on,
    goal_is_remembered,
    bad_input_has_one_clear_error,
    by_an_mcp_client,
    by_clients_of_other_sdks,
    servers_of_other_sdks_are_called,
]


def main():
    only = sys.argv[5:]
    for language, program in SERVERS.items():
        for story in STORIES:
            if only and story.__name__ not in only:
                continue
            began = time.monotonic()
            played = story(program)
            if asyncio.iscoroutine(played):
                asyncio.run(played)
            print(f"{language}: {story.__name__.replace('_', ' ')}: ok, {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
