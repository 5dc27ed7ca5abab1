"""A real server, callers that meet every fault of `faults.yaml`, and a Prometheus that scrapes it."""

import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import yaml
from conftest import HERE

KEY = "stand-in"
ROUTES = ("default", "default", "default", "fallback", "alone", "limited", "revoked", "missing", "hedged", "hedged")


def free_ports(count):
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_until(ready, what, seconds=30):
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.1)


def get(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def answers(url):
    try:
        return bool(get(url))
    except OSError:
        return False


class Server:
    """`relight serve` with the faults, its files in `folder`."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, pathlib.Path(folder)
        self.grpc, self.admin, self.front = free_ports(3)
        self.config = yaml.safe_load((HERE / "faults.yaml").read_text(encoding="utf-8"))
        self.config["journal"] = {"store": f"sqlite:{self.folder}/journal.db"}
        self.config["server"] |= {
            "listen": f"127.0.0.1:{self.grpc}",
            "admin_listen": f"127.0.0.1:{self.admin}",
            "openai_front": {"listen": f"127.0.0.1:{self.front}"},
        }
        self.file = self.folder / "relight.yaml"

    def __enter__(self):
        self.write(self.config)
        with open(self.folder / "server.log", "wb") as log:
            self.process = subprocess.Popen([self.binary, "serve", "--config", str(self.file)], stdout=log, stderr=log)
        wait_until(lambda: answers(f"http://127.0.0.1:{self.admin}/readyz"), "the server is ready")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def write(self, config):
        self.file.write_text(yaml.safe_dump(config), encoding="utf-8")

    def metrics(self):
        return get(f"http://127.0.0.1:{self.admin}/metrics")

    def chat(self, route, key=KEY):
        """One streamed call of the HTTP front; how it ends is not asked, that is what the metrics tell."""
        body = {"model": route, "stream": True, "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.front}/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json", "authorization": f"Bearer {key}"},
        )
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=10) as response:
            response.read()

    def command(self, *words, key=KEY):
        """Starts a command of the binary against this server."""
        given = {**os.environ, "RELIGHT_ADDRESS": f"http://127.0.0.1:{self.grpc}", "RELIGHT_API_KEY": key}
        silent = subprocess.DEVNULL
        return subprocess.Popen([self.binary, *words], env=given, stdin=silent, stdout=silent, stderr=silent)

    def load(self, seconds):
        """Calls on every route, by few callers and then by too many; two reloads, refused callers, a watcher."""
        watcher = self.command("watch")
        # A tool server is up or away once it was asked.
        self.command("invoke", "--tool", "anything").wait()
        began = time.monotonic()
        try:
            with concurrent.futures.ThreadPoolExecutor(64) as callers:
                turn = 0
                while time.monotonic() < began + seconds:
                    many = 64 if turn % 8 == 7 else 6
                    list(callers.map(self.chat, [ROUTES[(turn + n) % len(ROUTES)] for n in range(many)]))
                    if turn == 2:
                        self.write({**self.config, "targets": {}, "budgett": {}})
                        self.chat("default", key="wrong")
                        self.command("invoke", "--route", "default", "Hello", key="wrong").wait()
                    if turn == 5:
                        self.write({**self.config, "circuit": {"slow_threshold": "2s"}})
                    if turn % 3 == 0:
                        self.command("invoke", "--route", ROUTES[turn % len(ROUTES)], "Hello").wait()
                    turn += 1
        finally:
            watcher.kill()
            watcher.wait()



class Prometheus:
    """Prometheus with the rules, scraping one server every second as the operator would have it."""

    def __init__(self, folder, server, rules):
        self.folder = pathlib.Path(folder)
        [port] = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        labels = {"namespace": "ai", "instance": "relight-0"}
        target = {"targets": [f"127.0.0.1:{server.admin}"], "labels": labels}
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "ai/relight", "static_configs": [target]}],
        }
        self.file = self.folder / "prometheus.yaml"
        self.file.write_text(yaml.safe_dump(config), encoding="utf-8")

    def __enter__(self):
        with open(self.folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={self.file}", f"--storage.tsdb.path={self.folder}/data",
                 f"--web.listen-address={self.address}"], stdout=log, stderr=log,
            )  # fmt: skip
        wait_until(lambda: answers(f"http://{self.address}/-/ready"), "Prometheus is ready")
        wait_until(lambda: self.series("up == 1", 5), "Prometheus has scraped the server")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, path, **parameters):
        return json.loads(get(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]

    def series(self, query, seconds):
        """The labels of every series that the query had within the last seconds, numbers that are none left out."""
        now = time.time()
        found = self.ask("query_range", query=query, start=now - seconds, end=now, step="1s")["result"]
        return [one["metric"] for one in found if any(math.isfinite(float(value)) for _, value in one["values"])]
