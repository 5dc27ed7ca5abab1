"""The chart against a real API server, with its admission; `helm test` runs the binary in a pod."""

import pytest
import yaml
from cluster import CHART, VERSION

EXAMPLES = sorted((CHART / "ci").glob("*-values.yaml"))
CUSTOM = ("PodMonitor", "ServiceMonitor", "PrometheusRule", "GRPCRoute", "HTTPRoute", "Certificate", "ScaledObject")


@pytest.fixture(scope="module")
def installed(cluster):
    namespace = cluster.namespace("small")
    cluster.helm("install", "relight", str(CHART), "-n", namespace)
    return namespace


def test_the_chart_is_installed_and_its_test_passes(cluster, installed):
    tested = cluster.helm("test", "relight", "-n", installed, "--timeout", "120s").stdout
    assert "Phase:          Succeeded" in tested, tested


def test_a_configuration_that_relight_does_not_take_fails_the_test_of_the_chart_and_not_the_api_server(cluster):
    namespace = cluster.namespace("wrong")
    # Right by the schema, wrong for Relight: the target is of no provider.
    wrong = "config.targets.gpt.provider=nobody,config.targets.gpt.model=m"
    cluster.helm("install", "relight", str(CHART), "-n", namespace, "--set", wrong)
    tested = cluster.helm("test", "relight", "-n", namespace, "--timeout", "120s", check=False)
    assert tested.returncode != 0
    assert "nobody" in "".join(log.read_text() for log in cluster.folder.glob("node-*/*.log"))


def test_values_that_relight_does_not_know_are_refused_before_anything_is_changed(cluster, installed):
    before = cluster.get("-n", installed, "deployment", "relight")["metadata"]["resourceVersion"]
    refused = cluster.helm("upgrade", "relight", str(CHART), "-n", installed, "--set", "config.routs.default.targets={a}", check=False)
    assert refused.returncode != 0 and "routs" in refused.stderr
    assert cluster.get("-n", installed, "deployment", "relight")["metadata"]["resourceVersion"] == before


def test_an_upgrade_and_a_rollback_change_the_configuration_in_a_configmap_of_its_own(cluster, installed):
    def mounted():
        volumes = cluster.get("-n", installed, "deployment", "relight")["spec"]["template"]["spec"]["volumes"]
        return next(volume["configMap"]["name"] for volume in volumes if volume["name"] == "config")

    first = mounted()
    cluster.helm("upgrade", "relight", str(CHART), "-n", installed, "--set", "config.server.drain_timeout=45s")
    second = mounted()
    assert second != first
    text = cluster.get("-n", installed, "configmap", second)["data"]["relight.yaml"]
    assert yaml.safe_load(text)["server"]["drain_timeout"] == "45s"
    cluster.helm("rollback", "relight", "-n", installed)
    assert mounted() == first
    assert cluster.get("-n", installed, "configmap", first)


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem.removesuffix("-values"))
def test_the_api_server_takes_every_example_under_the_restricted_standard(cluster, values):
    namespace = cluster.namespace("ci-" + values.stem.removesuffix("-values"))
    rendered = cluster.helm("template", "r", str(CHART), "-n", namespace, "-f", str(values), "--kube-version", VERSION,
                            "--api-versions", "monitoring.coreos.com/v1").stdout  # fmt: skip
    objects = [item for item in yaml.safe_load_all(rendered) if item and item["kind"] not in CUSTOM]
    # A dry run keeps nothing, and the admission of a pod looks its account up.
    for account in {item["spec"]["serviceAccountName"] for item in objects if item["kind"] == "Pod"} - {"default"}:
        cluster.kubectl("-n", namespace, "create", "serviceaccount", account)
    applied = cluster.run("kubectl", "apply", "-n", namespace, "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", given=yaml.safe_dump_all(objects))
    assert len(applied.stdout.splitlines()) == len(objects)
    assert "would violate" not in applied.stderr, applied.stderr


def test_a_pod_without_the_charts_security_context_is_named_as_a_violation(cluster, installed):
    rendered = cluster.helm("template", "bad", str(CHART), "-n", installed, "--kube-version", VERSION, "--set", "securityContext=null").stdout
    cluster.kubectl("label", "namespace", installed, "pod-security.kubernetes.io/warn=restricted", "--overwrite")
    applied = cluster.run("kubectl", "apply", "-n", installed, "--server-side", "--dry-run=server", "-f", "-", given=rendered, check=False)
    assert "allowPrivilegeEscalation" in applied.stderr, applied.stderr
