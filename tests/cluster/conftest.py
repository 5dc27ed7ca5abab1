"""The cluster of the tests, started once: the small one, or with CLUSTER=full the full one, which has all tests."""

import os

import cluster as machine
import pytest

FULL = os.environ["CLUSTER"] == "full"
collect_ignore = [] if FULL else ["test_full.py"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    return machine.Cluster(tmp_path_factory.mktemp("cluster"), FULL).start()
