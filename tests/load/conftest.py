"""What the tests under load stand on: replicas with scripted models, and a PostgreSQL of their own."""

import sys

import pytest
from callers import scripted
from servers import ROOT, Replica, private_postgres

sys.path.insert(0, str(ROOT / "clients" / "harness"))


@pytest.fixture
def replicas(tmp_path):
    """Starts as many as are asked for, and ends them."""
    started = []

    def start(count, store, **server):
        config = {"server": server, "journal": {"store": store}, **scripted()}
        started.extend(Replica(tmp_path, config) for _ in range(count))
        return started

    yield start
    for replica in started:
        replica.kill()


@pytest.fixture
def postgres(tmp_path_factory):
    with private_postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server
