"""The chart on a real Kubernetes, with callers that lose no call whatever happens to its pods."""

import collections
import json
import re

import pytest
from cluster import wait_until
from metrics import Metrics
from release import REPLICAS, Release


@pytest.fixture(scope="module")
def release(cluster):
    return Release(cluster, "full")


def drained(release, pods):
    """The calls that each of these pods still had when it was to end; all of them ended within its drain timeout."""
    logs = [release.log(pod) for pod in pods]
    for log in logs:
        assert "stopped: no call is left" in log and "the drain timeout is over" not in log, log[-2000:]
    return [int(re.search(r'"running":(\d+)', log).group(1)) for log in logs]


def test_pods_are_spread_over_the_nodes_and_the_test_of_the_chart_passes(cluster, release):
    assert {pod["spec"]["nodeName"] for pod in release.pods()} == {"node-a", "node-b"}
    tested = cluster.helm("test", "relight", "-n", release.namespace, "--timeout", "120s").stdout
    assert "Phase:          Succeeded" in tested, tested


def test_a_good_upgrade_exchanges_every_pod(release):
    before = release.ready()
    with release.called(), release.watched() as counts:
        release.upgrade("--set", "config.server.drain_timeout=25s")
        release.settle()
    assert not set(before) & set(release.ready())
    assert {pod["spec"]["terminationGracePeriodSeconds"] for pod in release.pods()} == {5 + 25 + 10}
    assert min(counts) >= REPLICAS
    assert len(drained(release, before)) == REPLICAS


BAD = {
    # A value, and what the cluster says of it.
    "the API server": ("podLabels.team=-none-", "Invalid value"),
    "admission": ("securityContext.allowPrivilegeEscalation=true", "violates PodSecurity"),
    "the registry": ("image.tag=absent", "ErrImagePull"),
    "Relight": ("config.targets.quick.provider=nobody", "CrashLoopBackOff"),
}


@pytest.mark.parametrize("by", BAD)
def test_a_bad_upgrade_leaves_the_pods_of_before_and_a_rollback_ends_it(release, by):
    value, why = BAD[by]
    before = release.ready()
    with release.called(), release.watched() as counts:
        refused = release.upgrade("--set", value, within=15, check=False)
        assert refused.returncode != 0
        seen = release.kubectl("get", "deployments,pods", "-o", "json")
        assert why in refused.stderr + seen
        assert set(before) <= set(release.ready())
        release.rollback()
        release.settle()
    assert release.ready() == before
    assert min(counts) >= REPLICAS


def test_an_autoscaler_adds_pods_under_load_and_takes_them_away_after_it(cluster):
    Metrics(cluster).start()
    release = Release(cluster, "scaled")

    def load():
        """The use of CPU that the autoscaler sees, in percent of the request."""
        status = cluster.get("-n", release.namespace, "hpa", "relight").get("status", {})
        return [each["resource"]["current"].get("averageUtilization") for each in status.get("currentMetrics") or [] if "resource" in each]

    # A pod more or less every few seconds: by default the way down begins after 5 minutes.
    scaling = {"enabled": True, "minReplicas": REPLICAS, "maxReplicas": REPLICAS + 2,
               "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}  # fmt: skip
    with release.called(calls=1, streams=1), release.watched() as counts:
        release.upgrade("--set-json", f"autoscaling={json.dumps(scaling)}")
        wait_until(load, "the autoscaler sees a load")
    # Switched on, it takes no pod away.
    assert min(counts) >= REPLICAS
    with release.called(calls=60, streams=1):
        wait_until(lambda: len(release.ready()) == REPLICAS + 2, f"there are more pods; the autoscaler sees {load()} %")
    # What it takes away has calls.
    with release.called(calls=1, streams=4):
        wait_until(lambda: len(release.pods()) == REPLICAS, f"there are fewer pods; the autoscaler sees {load()} %")
        release.settle()


def test_a_drained_node_loses_its_pods_one_by_one_as_the_budget_allows(cluster, release):
    places = collections.Counter(pod["spec"]["nodeName"] for pod in release.pods())
    [(node, count)] = places.most_common(1)
    assert count == 2, places
    before = [pod["metadata"]["name"] for pod in release.pods() if pod["spec"]["nodeName"] == node]
    try:
        with release.called(), release.watched() as counts:
            drain = cluster.run("kubectl", "drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "180s")
            release.settle()
        assert node not in {pod["spec"]["nodeName"] for pod in release.pods()}
        # Both were to go at once, and one had to wait.
        assert "disruption budget" in drain.stderr
        assert min(counts) >= REPLICAS - 1
        assert len(drained(release, before)) == count
    finally:
        cluster.kubectl("uncordon", node)


def test_three_pods_are_restarted_under_200_calls_and_streams(release):
    before = release.ready()
    with release.called(calls=100, streams=100), release.watched() as counts:
        release.kubectl("rollout", "restart", "deployment/relight")
        release.kubectl("rollout", "status", "deployment/relight", "--timeout", "180s")
        release.settle()
    assert not set(before) & set(release.ready())
    assert min(counts) >= REPLICAS
    # At the first signal the callers know no other pods than these.
    assert max(drained(release, before)) >= 20
