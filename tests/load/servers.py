"""Servers as processes of their own: replicas of Relight, and a PostgreSQL."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("RELIGHT", str(ROOT / "target" / "debug" / "relight"))
PATIENCE = 60.0


def free_ports(count):
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_until(ready, what, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def get(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def answers(url):
    try:
        return bool(get(url))
    except OSError:
        return False


@contextlib.contextmanager
def running(command, log):
    """A program for as long as the block lasts; what it says is in a file."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, cwd=log.parent, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


# === replicas ===


class Replica:
    """One process of `relight serve`."""

    def __init__(self, folder, config, binary=BINARY):
        self.port, self.admin = free_ports(2)
        self.binary = binary
        listen = {"listen": f"127.0.0.1:{self.port}", "admin_listen": f"127.0.0.1:{self.admin}"}
        config = {**config, "server": {**listen, "drain_timeout": "20s", **config.get("server", {})}}
        self.file = pathlib.Path(folder, f"{self.port}.yaml")
        self.file.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.log = self.file.with_suffix(".log")
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.binary, "serve", "--config", str(self.file)], stdout=log, stderr=log)
        wait_until(lambda: answers(f"http://127.0.0.1:{self.admin}/readyz"), f"{self.file} is ready")

    def stop(self, within=PATIENCE):
        """Ends it in order, as Kubernetes does; returns how long that took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(within) == 0, self.log.read_text()[-2000:]
        return time.monotonic() - began

    def kill(self):
        """Ends it as a crash does."""
        self.process.kill()
        self.process.wait()

    def metric(self, name):
        """The sum of a metric over its series."""
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", get(f"http://127.0.0.1:{self.admin}/metrics"), re.MULTILINE)
        return sum(map(float, found))

    def messages(self):
        return [json.loads(line).get("message", "") for line in self.log.read_text().splitlines() if line.startswith("{")]


def target(replicas):
    """All of them, for a client that balances."""
    return "ipv4:" + ",".join(f"127.0.0.1:{replica.port}" for replica in replicas)


# === PostgreSQL ===


class Postgres:
    """A server of its own, which may be stopped, paused and started again."""

    def __init__(self, folder):
        [binaries] = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
        self.binaries, self.folder = binaries, folder
        [self.port] = free_ports(1)
        self.run("initdb", "-D", str(folder / "data"), "-U", "relight", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        self.start()

    def run(self, command, *words):
        # Root may not run it.
        somebody = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.geteuid() == 0 else []
        command = [*somebody, str(self.binaries / command), *words]
        ran = subprocess.run(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        assert ran.returncode == 0, ran.stderr

    def control(self, *words):
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), *words)

    def start(self):
        self.control("-o", f"-h 127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off -c max_connections=200", "start")

    def stop(self):
        self.control("-m", "immediate", "stop")

    def restart(self):
        self.stop()
        self.start()

    def signal(self, number):
        """To every process of it: a paused server holds its connections open and says nothing."""
        [main] = (self.folder / "data" / "postmaster.pid").read_text().splitlines()[:1]
        children = pathlib.Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for process in [main, *children]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), number)

    @contextlib.contextmanager
    def paused(self):
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    @property
    def url(self):
        return f"postgres://relight@127.0.0.1:{self.port}/postgres"


@contextlib.contextmanager
def private_postgres(folder):
    """A server whose files are in this folder of pytest."""
    # pytest makes its folders for one user alone.
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.geteuid() and each != pathlib.Path("/"):
            each.chmod(each.stat().st_mode | 0o055)
        if each == pathlib.Path("/tmp"):
            break
    if os.geteuid() == 0:
        subprocess.run(["chown", "postgres:postgres", folder], check=True)
    server = Postgres(folder)
    try:
        yield server
    finally:
        with contextlib.suppress(AssertionError):
            server.stop()
