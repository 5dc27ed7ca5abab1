#!/usr/bin/env python3
"""MCP servers that others published, run as they are: the same client with and without Relight, and with faults between.

    published.py BINARY NODE_MODULES VENV

BINARY is relight; NODE_MODULES and VENV have the servers of tests/tools/published. A client that speaks plain JSON-RPC sees
everything that comes, also what an SDK would drop. With and without Relight it must hold the same, but for what Relight says of
itself in `_meta` and the explanation behind an error.
"""

import collections
import http.client
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

BINARY, NODE, VENV = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
ROUNDS = int(os.environ.get("ROUNDS", "60"))
PROTOCOL, MODERN = "2025-11-25", "2026-07-28"
BREAKER = pathlib.Path(__file__).with_name("published") / "breaker.py"
INITIALIZE = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}}


def npm(name):
    return ["node", str(NODE / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js")]


class Server:
    """A published server, how it is started, and calls whose results depend on nothing but its folder."""

    def __init__(self, name, command, calls, env=None, prepare=None):
        self.name, self.command, self.calls, self.env, self.prepare = name, command, calls, env or {}, prepare

    def fresh(self, folder):
        """The command with its folder as it is at the beginning."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if self.prepare:
            self.prepare(folder)
        place = lambda text: text.replace("{folder}", str(folder))
        return [place(part) for part in self.command], {key: place(value) for key, value in self.env.items()}


def files(folder):
    (folder / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    (folder / "ü").mkdir()


def repository(folder):
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    when = {**os.environ, "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z"}
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    (folder / "a.txt").write_text("one\n", encoding="utf-8")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True, env=when)


ENTITY = {"name": "ü", "entityType": "letter", "observations": ["has two dots"]}
SERVERS = [
    Server("everything", [*npm("everything"), "stdio"], [
        ("echo", {"message": "hello ü 🚀"}), ("get-sum", {"a": 1, "b": 2.5}), ("get-sum", {"a": "x"}), ("get-tiny-image", {}),
        ("get-annotated-message", {"messageType": "error", "includeImage": True}),
        ("get-structured-content", {"location": "Chicago"}), ("get-resource-links", {"count": 3}),
    ]),
    Server("filesystem", [*npm("filesystem"), "{folder}"], [
        ("list_allowed_directories", {}), ("list_directory", {"path": "{folder}"}), ("read_text_file", {"path": "{folder}/a.txt"}),
        ("write_file", {"path": "{folder}/ü/b.txt", "content": "three"}), ("read_text_file", {"path": "{folder}/ü/b.txt"}),
        ("read_text_file", {"path": "{folder}/nothing"}), ("read_text_file", {"path": "/etc/passwd"}), ("read_text_file", {}),
    ], prepare=files),
    Server("memory", npm("memory"), [
        ("read_graph", {}), ("create_entities", {"entities": [ENTITY]}), ("read_graph", {}), ("search_nodes", {"query": "dots"}),
        ("add_observations", {"observations": [{"entityName": "nobody", "contents": ["x"]}]}),
    ], env={"MEMORY_FILE_PATH": "{folder}/memory.jsonl"}),
    Server("time", [str(VENV / "bin" / "mcp-server-time"), "--local-timezone", "UTC"], [
        ("convert_time", {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
        ("convert_time", {"source_timezone": "Nowhere/Else", "time": "12:30", "target_timezone": "UTC"}),
    ]),
    Server("git", [str(VENV / "bin" / "mcp-server-git"), "--repository", "{folder}"], [
        ("git_log", {"repo_path": "{folder}"}), ("git_status", {"repo_path": "{folder}"}),
        ("git_show", {"repo_path": "{folder}", "revision": "HEAD"}), ("git_show", {"repo_path": "{folder}", "revision": "nothing"}),
    ], prepare=repository),
]


class Direct:
    """The client on the server's own pipes."""

    def __init__(self, command, env):
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **env}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        self.id = 0
        self.request("initialize", INITIALIZE)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def request(self, method, params):
        self.id += 1
        self.send({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params})
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") == self.id and "method" not in message:
                return message
            if "id" in message and "method" in message:
                no = {"code": -32601, "message": "no"}
                self.send({"jsonrpc": "2.0", "id": message["id"], "error": no})
        raise AssertionError(f"{method}: the server ended")

    def close(self):
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait(20)


class Relight:
    """The client through Relight's MCP front."""

    def __init__(self, servers, tools=None, groups=None):
        self.folder = tempfile.TemporaryDirectory()
        ports = [free_port() for _ in range(3)]
        self.address, self.front, self.id = f"127.0.0.1:{ports[0]}", ports[2], 0
        config = {
            "server": {"listen": self.address, "admin_listen": f"127.0.0.1:{ports[1]}"},
            "journal": {"store": "memory"},
            "circuit": {"mode": "off"},
            "policies": {"standard": {"retry": {"max_retries": 5, "backoff": {"base": "20ms"}}}},
            "tools": {
                "servers": servers, "tools": tools or {}, "groups": groups or {}, "recovery": {"max_retries": 5},
                "mcp_front": {"listen": f"127.0.0.1:{ports[2]}"},
            },
        }
        file = pathlib.Path(self.folder.name) / "relight.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        self.log = (pathlib.Path(self.folder.name) / "log").open("w+", encoding="utf-8")
        self.process = subprocess.Popen([BINARY, "serve", "--config", str(file)], stderr=self.log)
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", self.front)).close()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit("relight did not begin to serve")

    def request(self, method, params, version=None):
        """One request; `version` is that of 2026-07-28, in which each one stands alone."""
        self.id += 1
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if version:
            about = {f"io.modelcontextprotocol/{name}": value for name, value in of_client(version).items()}
            params = {**params, "_meta": about}
            headers |= {"mcp-protocol-version": version, "mcp-method": method}
            headers |= {"mcp-name": params["name"]} if "name" in params else {}
        body = json.dumps({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params})
        connection = http.client.HTTPConnection("127.0.0.1", self.front, timeout=120)
        connection.request("POST", "/mcp", body, headers)
        text = connection.getresponse().read().decode()
        connection.close()
        lines = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
        messages = [json.loads(line) for line in lines if line.strip()] or [json.loads(text)]
        return next(message for message in messages if message.get("id") == self.id)

    def listed(self, version=None):
        """The tools, once the server has started: the first list waits for it for seconds only."""
        for _ in range(60):
            listed = self.request("tools/list", {}, version)
            if "result" in listed:
                return listed["result"]["tools"]
            time.sleep(1)
        raise AssertionError(listed)

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        self.folder.cleanup()


def of_client(version):
    return {"protocolVersion": version, "clientCapabilities": {}, "clientInfo": INITIALIZE["clientInfo"]}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def child(command, env):
    return {"command": command[0], "args": command[1:], "env": env}


# What a result of 2026-07-28 has of its own connection.
OF_CONNECTION = "io.modelcontextprotocol/serverInfo"


def without_own(result):
    """A result without what Relight says of itself, and what only one revision has."""
    meta = {key: value for key, value in result.get("_meta", {}).items() if not key.startswith("relight/") and key != OF_CONNECTION}
    rest = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    content = rest.get("content")
    if content and content[-1].get("_meta", {}).get("relight/explanation"):
        rest["content"] = content[:-1]
    return {**rest, **({"_meta": meta} if meta else {})}


def as_result(message):
    """The result; an error of the protocol as Relight passes it on."""
    if "error" not in message:
        return message["result"]
    return {"content": [{"type": "text", "text": message["error"]["message"]}], "isError": True}


def difference(server, folder):
    """What a client holds, with and without Relight."""
    command, env = server.fresh(folder)
    calls = [(tool, json.loads(json.dumps(arguments).replace("{folder}", str(folder)))) for tool, arguments in server.calls]
    direct = Direct(command, env)
    try:
        listed = direct.request("tools/list", {})["result"]["tools"]
        held = [as_result(direct.request("tools/call", {"name": tool, "arguments": arguments})) for tool, arguments in calls]
    finally:
        direct.close()
    problems = []
    for version in (None, MODERN):
        command, env = server.fresh(folder)
        relight = Relight({"s": child(command, env)})
        try:
            through = {tool["name"]: tool for tool in relight.listed(version)}
            for tool in listed:
                if through.get(tool["name"]) != tool:
                    problems.append(f"tools/list has {through.get(tool['name'])}, not {tool}")
            for (tool, arguments), expected in zip(calls, held, strict=True):
                message = relight.request("tools/call", {"name": tool, "arguments": arguments}, version)
                got = without_own(as_result(message))
                if got != expected:
                    problems.append(f"{version}: {tool} {arguments} returns {got}, not {expected}")
        finally:
            relight.close()
    return problems


def broken_pipes(server, folder):
    """A child that ends at any moment of a call: what may be repeated always comes, what may not is sent at most once."""
    command, env = server.fresh(folder)
    seen = folder / "seen"
    wrapped = [sys.executable, str(BREAKER), str(seen), *command]
    relight = Relight({"s": child(wrapped, env)}, {"read_graph": {"read_only": True}})
    problems = []
    try:
        for number in range(ROUNDS):
            result = relight.request("tools/call", {"name": "read_graph", "arguments": {}})["result"]
            if result.get("isError"):
                problems.append(f"a call that may be repeated failed: {result}")
            entity = {"name": f"n{number}", "entityType": "t", "observations": []}
            relight.request("tools/call", {"name": "create_entities", "arguments": {"entities": [entity]}})
    finally:
        relight.close()
    requests = [json.loads(line) for line in seen.read_text(encoding="utf-8").splitlines()]
    sent = collections.Counter(
        json.dumps(request["params"]["arguments"]) for request in requests if request["params"]["name"] == "create_entities"
    )
    problems += [f"{arguments} was sent {times} times" for arguments, times in sent.items() if times > 1]
    if len(sent) < ROUNDS // 2:
        problems.append(f"only {len(sent)} of {ROUNDS} calls were sent at all")
    return problems


class Cutter(threading.Thread):
    """Between Relight and a server: passes bytes on, and cuts each connection after a random number of them."""

    def __init__(self, port, seed):
        super().__init__(daemon=True)
        self.upstream, self.dice, self.cuts = port, random.Random(seed), 0
        # What came from the client, by connection.
        self.sent = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def run(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.upstream))
            left = self.dice.randrange(200, 12_000)
            self.sent.append(bytearray())
            for source, target, noted in ((client, server, self.sent[-1]), (server, client, bytearray())):
                threading.Thread(target=self.relay, args=(source, target, left, noted), daemon=True).start()

    def relay(self, source, target, left, noted):
        try:
            while left > 0 and (piece := source.recv(min(left, 4096))):
                noted.extend(piece)
                target.sendall(piece)
                left -= len(piece)
            self.cuts += left <= 0
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def cut_connections(_server, _folder):
    """A server behind a URL whose connections are cut at any byte: every call that may be repeated comes as it is, and no other is
    sent twice."""
    port = free_port()
    env = {**os.environ, "PORT": str(port)}
    everything = subprocess.Popen([*npm("everything"), "streamableHttp"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    problems = []
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        cutter = Cutter(port, 7)
        cutter.start()
        relight = Relight({"s": {"url": f"http://127.0.0.1:{cutter.port}/mcp"}}, {"echo": {"read_only": True}})
        try:
            for number in range(ROUNDS):
                result = relight.request("tools/call", {"name": "echo", "arguments": {"message": f"m{number}"}})["result"]
                expected = {"content": [{"type": "text", "text": f"Echo: m{number}"}]}
                if without_own(result) != expected:
                    problems.append(f"m{number}: {result}")
                relight.request("tools/call", {"name": "get-sum", "arguments": {"a": 10_000_000 + number, "b": 1}})
        finally:
            relight.close()
        times = [sum(noted.count(b"%d" % (10_000_000 + number)) for noted in cutter.sent) for number in range(ROUNDS)]
        problems += [f"get-sum {number} was sent {count} times" for number, count in enumerate(times) if count > 1]
        if sum(times) < ROUNDS // 2:
            problems.append(f"only {sum(times)} of {ROUNDS} calls were sent at all")
        if cutter.cuts < ROUNDS // 10:
            problems.append(f"only {cutter.cuts} connections were cut")
    finally:
        everything.terminate()
        everything.wait(20)
    return problems


def main():
    by_name = {server.name: server for server in SERVERS}
    plays = [(f"{server.name}, with and without Relight", difference, server) for server in SERVERS]
    plays.append(("memory, whose process ends at any moment of a call", broken_pipes, by_name["memory"]))
    plays.append(("everything, whose connections are cut", cut_connections, None))
    failed = 0
    for what, play, server in plays:
        if sys.argv[4:] and not any(word in what for word in sys.argv[4:]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            problems = play(server, pathlib.Path(folder) / "state")
        failed += bool(problems)
        print(f"{what}: {'ok' if not problems else f'{len(problems)} problems'}", flush=True)
        for problem in problems:
            print(f"  {problem[:1500]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
