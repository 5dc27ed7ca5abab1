"""One upstream that counts, one Relight before it, and what each framework made of every scenario."""

import contextlib
import functools
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

import drivers  # noqa: E402
from upstream import Upstream  # noqa: E402

KEY = "sk-relight"
# Adapters over gRPC, which test_adapters.py tries.
ADAPTERS = ["langchain-grpc", "pydantic-grpc", "ai-grpc"]
# Coding agents, which test_coding_agents.py tries.
AGENTS = ["claude", "codex", "opencode"]
# What happens, and the targets of its route.
SCENARIOS = {
    "call": ["call"],
    "stream": ["stream"],
    "tools": ["tools"],
    "limited": ["limited"],
    "cut": ["cut"],
    "outage": ["down", "spare"],
    "dead": ["dead"],
}


def config(upstream, port, admin, front):
    names = [*drivers.FRAMEWORKS, *ADAPTERS, *AGENTS, "raw"]
    targets = "".join(
        f"  {kind}-{name}: {{ provider: models, model: {kind}-{name} }}\n"
        for name in names
        for kinds in SCENARIOS.values()
        for kind in kinds
    )
    routes = "".join(
        f"  {scenario}-{name}: {{ targets: [{', '.join(f'{kind}-{name}' for kind in kinds)}] }}\n"
        for name in names
        for scenario, kinds in SCENARIOS.items()
    )
    return f"""
server:
  listen: "127.0.0.1:{port}"
  admin_listen: "127.0.0.1:{admin}"
  openai_front: {{ listen: "127.0.0.1:{front}" }}
journal: {{ store: memory }}
# Each scenario has its own target; what one attempt costs is what is counted here.
circuit: {{ mode: "off" }}
policies:
  standard: {{ retry: {{ backoff: {{ base: 20ms }} }} }}
providers:
  models: {{ dialect: openai_chat, base_url: "{upstream.base_url}", api_key: key, allow_plaintext: true }}
targets:
{targets}routes:
{routes}"""


def free_ports(count):
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture(scope="session")
def upstream():
    upstream = Upstream()
    yield upstream
    upstream.stop()


@pytest.fixture(scope="session")
def ports(upstream, tmp_path_factory):
    """A server's ports: gRPC, administration, front."""
    folder = tmp_path_factory.mktemp("relight")
    ports = free_ports(3)
    (folder / "relight.yaml").write_text(config(upstream, *ports))
    with (folder / "log").open("w") as log:
        command = [os.environ["RELIGHT"], "serve", "--config", str(folder / "relight.yaml")]
        server = subprocess.Popen(command, stderr=log)
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ports[2]), timeout=1):
            break
        if server.poll() is not None:
            pytest.fail((folder / "log").read_text())
        time.sleep(0.1)
    yield ports
    server.kill()
    server.wait()


@pytest.fixture(scope="session")
def front(ports):
    """The front's address."""
    return f"http://127.0.0.1:{ports[2]}"


@pytest.fixture(scope="session")
def grpc(ports):
    """The gRPC target."""
    return f"127.0.0.1:{ports[0]}"


@pytest.fixture(scope="session")
def outcomes(front):
    """What a framework made of all scenarios, run once: `{"text": …}` or `{"error": …}` by scenario."""

    @functools.cache
    def tried(framework):
        try:
            return drivers.run(framework, front, list(SCENARIOS)), None
        except Exception as error:  # noqa: BLE001  it is the same for every test of this framework
            return None, error

    def of(framework):
        outcomes, error = tried(framework)
        if error:
            pytest.fail(f"{framework} was not run: {error}")
        return outcomes

    return of
