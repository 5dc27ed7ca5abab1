"""The cluster of the tests, started once."""

import cluster as machine
import pytest


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    started = machine.Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield started.start()
    finally:
        started.stop()
