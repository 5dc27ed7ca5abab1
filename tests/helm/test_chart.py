"""What the chart promises of the objects that it installs."""

import base64
import copy
import json
import os
import re
import shutil
import subprocess
import sys

import generate_schema
import helm_python
import kubernetes_validate
import pytest
import render
import yaml
from conftest import EXAMPLES, ROOT

CHART = ROOT / "helm" / "relight"
KUBERNETES = [f"1.{minor}" for minor in range(27, 38)]
CUSTOM = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "GRPCRoute", "HTTPRoute", "Certificate", "ScaledObject"}


def of_kind(objects, kind, name=None):
    found = [item for item in objects if item["kind"] == kind and name in (None, item["metadata"]["name"])]
    assert len(found) == 1, f"{kind} {name}: {len(found)} of {[item['kind'] for item in objects]}"
    return found[0]


def pod_of(values):
    return of_kind(render.objects(values), "Deployment")["spec"]["template"]["spec"]


def container_of(values):
    return pod_of(values)["containers"][0]


def merged(base, over):
    result = copy.deepcopy(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


# === every example ===


def test_lint_finds_nothing_but_the_missing_icon(example):
    findings = helm_python.lint(str(CHART), example)
    messages = [finding["error"] for finding in findings["messages"]] + findings["errors"]
    assert [message for message in messages if "icon is recommended" not in message] == []


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_valid_in_every_supported_version_of_kubernetes(example, version):
    # The sleep action is unknown before 1.30, and must not be there then.
    values = merged(example, {"kubeVersionOverride": version})
    builtin = [item for item in render.objects(values) if item["kind"] not in CUSTOM]
    assert len(builtin) >= 4
    for item in builtin:
        kubernetes_validate.validate(item, version, strict=True)


def test_no_two_objects_have_one_name(example):
    names = [(item["kind"], item["metadata"]["name"]) for item in render.objects(example)]
    assert len(names) == len(set(names))


def test_only_server_pods_are_behind_the_services(example):
    objects = render.objects(example)
    server = of_kind(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    others = [item["metadata"]["labels"] for item in objects if item["kind"] == "Pod"]
    for service in (item for item in objects if item["kind"] == "Service"):
        selector = service["spec"]["selector"].items()
        assert selector <= server.items()
        assert not any(selector <= labels.items() for labels in others)


def test_every_pod_meets_the_restricted_standard(example):
    objects = render.objects(example)
    pods = [of_kind(objects, "Deployment")["spec"]["template"]["spec"]]
    pods += [item["spec"] for item in objects if item["kind"] == "Pod"]
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 65532
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        own = pod["containers"][0]["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}


def test_probes_ask_the_admin_port_for_three_different_things(example):
    container = container_of(example)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    config = yaml.safe_load(render.config_text(example))
    assert config["server"]["admin_listen"].endswith(f":{ports['admin']}")
    assert ports["admin"] != ports["grpc"]
    asked = {kind: container[f"{kind}Probe"]["grpc"] for kind in ("startup", "readiness", "liveness")}
    assert asked == {
        "startup": {"port": ports["admin"], "service": ""},
        "readiness": {"port": ports["admin"], "service": "relight.v1.RecoveryService"},
        "liveness": {"port": ports["admin"], "service": "liveness"},
    }


def test_the_file_says_what_the_values_say(example):
    def contains(inner, outer):
        if isinstance(inner, dict):
            return isinstance(outer, dict) and all(contains(value, outer.get(key)) for key, value in inner.items())
        return inner == outer and type(inner) is type(outer)

    written = yaml.safe_load(render.config_text(example))
    assert contains(example.get("config", {}), written)


def test_every_variable_that_the_file_needs_is_given_to_the_container(example):
    given = {variable["name"] for variable in container_of(example).get("env", [])}
    assert set(render.required_variables(render.config_text(example))) <= given


def test_every_file_that_the_file_names_is_mounted(example):
    mounts = [mount["mountPath"] for mount in container_of(example)["volumeMounts"]]
    for path in re.findall(r"/run/relight/\S+", render.config_text(example)):
        assert any(path.startswith(f"{mount}/") for mount in mounts), path


def test_helm_test_sees_the_configuration_as_the_server_does(example):
    objects = render.objects(example)
    pods = [item for item in objects if item["kind"] == "Pod"]
    assert bool(pods) is example.get("tests", {}).get("enabled", True)
    for pod in pods:
        tested, server = pod["spec"]["containers"][0], container_of(example)
        assert tested["args"] == ["config", "check", "/etc/relight/relight.yaml"]
        assert server["args"][:3] == ["serve", "--config", "/etc/relight/relight.yaml"]
        for same in ("image", "env", "envFrom", "volumeMounts"):
            assert tested.get(same) == server.get(same)


# === one promise each ===


def test_without_any_value_one_open_pod_listens_for_the_cluster():
    objects = render.objects()
    kinds = sorted(item["kind"] for item in objects)
    assert kinds == [
        "ConfigMap", "Deployment", "Pod", "PodDisruptionBudget", "Service", "Service", "ServiceAccount",
    ]  # fmt: skip
    server = yaml.safe_load(render.config_text())["server"]
    assert server == {"listen": "0.0.0.0:50051", "admin_listen": "0.0.0.0:9464", "auth": "none"}
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    assert container_of({})["image"] == f"relight:{version}"


def config_map_of(values):
    """The name of the ConfigMap that pods read."""
    volumes = {volume["name"]: volume for volume in pod_of(values)["volumes"]}
    return volumes["config"]["configMap"]["name"]


def test_pods_change_when_the_configuration_does_and_not_otherwise():
    plain = config_map_of({})
    assert re.fullmatch("relight-[0-9a-f]{8}", plain)
    assert config_map_of({"replicaCount": 2}) == plain
    assert config_map_of({"config": {"admission": {"max_in_flight": 7}}}) != plain
    assert config_map_of({"containerPorts": {"admin": 9999}}) != plain
    assert config_map_of({"restartOnConfigChange": False}) == "relight"
    for values in ({}, {"restartOnConfigChange": False}):
        found = of_kind(render.objects(values), "ConfigMap", config_map_of(values))
        assert found.get("immutable", False) == (values == {})


@pytest.fixture
def on_cluster(monkeypatch, tmp_path):
    """Renders as Helm does where it can ask a cluster that has these objects."""

    def rendered(values, deployment=None, replica_sets=(), config_maps=(), secrets=()):
        chart = tmp_path / "relight"
        shutil.copytree(CHART, chart, dirs_exist_ok=True)

        def by_name(items):
            known = {item["metadata"]["name"]: item for item in items}
            return f"{{{{- with get (fromJson {json.dumps(json.dumps(known))}) (index . 1) }}}}{{{{ toYaml . }}}}{{{{ end -}}}}"

        live = {
            "liveDeployment": json.dumps(deployment) if deployment else "",
            "liveReplicaSets": json.dumps(list(replica_sets)),
            "liveConfigMap": by_name(config_maps),
            "liveSecret": by_name(secrets),
        }
        text = "".join(f'{{{{- define "relight.{name}" -}}}}{body}{{{{- end -}}}}\n' for name, body in live.items())
        (chart / "templates" / "_live.tpl").write_text(text, encoding="utf-8")
        monkeypatch.setattr(render, "CHART", chart)
        return render.objects(values)

    return rendered


def replica_set(config_map, pods, owner="relight"):
    volumes = [{"name": "config", "configMap": {"name": config_map}}, {"name": "tls", "secret": {"secretName": "t"}}]
    return {
        "metadata": {"name": f"rs-{config_map}", "ownerReferences": [{"kind": "Deployment", "name": owner}]},
        "spec": {"replicas": pods, "template": {"spec": {"volumes": volumes}}},
    }


FLEET = {"replicaCount": 3, "journal": {"existingSecret": {"name": "relight-journal"}}}


@pytest.mark.parametrize(
    ("values", "is_one"),
    [
        (FLEET, True),
        ({"autoscaling": {"enabled": True}, "journal": {"existingSecret": {"name": "j"}}}, True),
        ({"replicaCount": 2, "config": {"fleet": {"store": "${STORE}"}}}, True),
        ({"replicaCount": 2, "config": {"journal": {"store": "postgres://db/relight"}}}, True),
        ({**FLEET, "replicaCount": 1}, False),
        ({"replicaCount": 3}, False),
        ({**FLEET, "config": {"fleet": {"store": "none"}}}, False),
    ],
)
def test_pods_that_share_a_database_know_where_they_are_and_have_one_key(values, is_one):
    given = {variable["name"]: variable for variable in container_of(values)["env"]}
    assert ("POD_IP" in given) is ("RELIGHT_FLEET_KEY" in given) is is_one
    secrets = [item for item in render.objects(values) if item["kind"] == "Secret"]
    assert len(secrets) == is_one
    file = yaml.safe_load(render.config_text(values))
    if is_one:
        assert given["POD_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
        assert given["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
        named = given["RELIGHT_FLEET_KEY"]["valueFrom"]["secretKeyRef"]
        assert named == {"name": secrets[0]["metadata"]["name"], "key": "key"}
        assert len(base64.b64decode(secrets[0]["data"]["key"])) == 48
        assert file["fleet"]["key"] == "${RELIGHT_FLEET_KEY}"
    else:
        assert "key" not in file.get("fleet", {})


def test_the_key_of_the_fleet_is_made_once_and_kept_or_taken_from_a_secret(on_cluster):
    kept = base64.b64encode(b"the key that the pods of before have").decode()
    secret = {"metadata": {"name": "relight-fleet"}, "data": {"key": kept}}
    assert of_kind(on_cluster(FLEET, secrets=[secret]), "Secret")["data"]["key"] == kept
    assert of_kind(on_cluster(FLEET), "Secret")["data"]["key"] != kept
    own = {**FLEET, "fleet": {"existingSecret": {"name": "mine", "key": "of-the-fleet"}}}
    assert not [item for item in render.objects(own) if item["kind"] == "Secret"]
    variable = next(item for item in container_of(own)["env"] if item["name"] == "RELIGHT_FLEET_KEY")
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "of-the-fleet"}
    with pytest.raises(Exception, match=r"config\.fleet\.key"):
        render.objects({**FLEET, "config": {"fleet": {"key": "a-key-in-plain-text"}}})


def test_replicas_verify_each_other_by_the_authority_of_their_certificate():
    tls = {**FLEET, "tls": {"existingSecret": "api-tls", "caKey": "ca.crt"}}
    assert yaml.safe_load(render.config_text(tls))["fleet"]["ca_file"] == "/run/relight/tls/ca.crt"
    assert "ca_file" not in yaml.safe_load(render.config_text(FLEET))["fleet"]


def test_helm_test_has_one_replica_respond_for_all_where_it_may_ask():
    def asked(values):
        pod = next(item for item in render.objects(values) if item["kind"] == "Pod")
        found = [item for item in pod["spec"]["containers"] if item["name"] == "fleet"]
        return found[0] if found else None

    args = asked(FLEET)["args"]
    assert args[:3] == ["status", "--replicas", "3"]
    assert args[4] == "http://relight.default.svc:50051"
    with_keys = merged(FLEET, {"config": {"server": {"auth": "api_key", "keys": [{"tenant": "t", "sha256": "0" * 64}]}}})
    assert asked(with_keys) is None
    with_key = asked({**with_keys, "tests": {"adminKey": {"name": "ops"}}})
    assert with_key["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "ops", "key": "key"}
    assert asked({"replicaCount": 3}) is None


def test_the_network_policy_lets_replicas_reach_each_other():
    def rules(values):
        policy = of_kind(render.objects(values), "NetworkPolicy")["spec"]
        return policy["ingress"], policy["egress"]

    closed = {"networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]}}
    ingress, egress = rules({**FLEET, **closed})
    pods = of_kind(render.objects(FLEET), "Deployment")["spec"]["selector"]["matchLabels"]
    to_peers = [rule for rule in egress if "to" in rule]
    assert [rule["ports"] for rule in to_peers] == [[{"port": "grpc", "protocol": "TCP"}]]
    assert to_peers[0]["to"] == [{"podSelector": {"matchLabels": pods}}]
    let_in = [peer["podSelector"]["matchLabels"] for rule in ingress for peer in rule.get("from", []) if "podSelector" in peer]
    assert let_in == [pods, {**pods, "app.kubernetes.io/component": "test"}]
    ingress, egress = rules(closed)
    assert not [rule for rule in egress if "to" in rule]
    assert len(ingress) == 2


def live_config_map(name, text):
    return {"metadata": {"name": name}, "immutable": True, "data": {"relight.yaml": text}}


def test_pods_that_serve_keep_their_configuration_until_they_are_replaced(on_cluster):
    new = config_map_of({})
    text = "server:\n  auth: none\n# \"quoted\" and {{ braces }}\n"
    names = ["relight-of-before", "relight-of-none", "relight-of-another", new]
    objects = on_cluster(
        {},
        replica_sets=[
            replica_set("relight-of-before", 2),
            replica_set("relight-of-none", 0),
            replica_set("relight-of-another", 1, owner="another"),
            replica_set(new, 1),
        ],
        config_maps=[live_config_map(name, text) for name in names],
    )
    found = [item for item in objects if item["kind"] == "ConfigMap"]
    assert [item["metadata"]["name"] for item in found] == [new, "relight-of-before"]
    assert found[1]["data"]["relight.yaml"] == text and found[1]["immutable"]


def test_switching_an_autoscaler_on_keeps_the_pods_that_are_there(on_cluster):
    def pods(live):
        objects = on_cluster({"autoscaling": {"enabled": True, "minReplicas": 2}}, deployment=live)
        return of_kind(objects, "Deployment")["spec"].get("replicas")

    assert pods({"spec": {"replicas": 7}}) == 7
    assert pods({"spec": {"replicas": 1}}) == 2
    assert pods(None) is None


def test_keys_reach_the_container_as_references_only(production):
    container = container_of(production)
    variables = {variable["name"]: variable for variable in container["env"]}
    assert variables["OPENAI_API_KEY"]["valueFrom"]["secretKeyRef"] == {"name": "openai", "key": "api-key"}
    assert variables["RELIGHT_JOURNAL_URL"]["valueFrom"]["secretKeyRef"]["name"] == "relight-journal"
    config = yaml.safe_load(render.config_text(production))
    assert config["providers"]["openai"]["api_key"] == "${OPENAI_API_KEY}"
    # The key of the fleet alone is made by the chart.
    secrets = [item["metadata"]["name"] for item in render.objects(production) if item["kind"] == "Secret"]
    assert secrets == ["relight-fleet"]


SECRET = "sk-in-the-clear"  # noqa: S105 (the test is that it goes nowhere)


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"providers": {"a": {"api_key": SECRET}}}, "config.providers.a.api_key"),
        ({"providers": {"a": {"credentials": {"b": {"api_key": SECRET}}}}}, "config.providers.a.credentials.b.api_key"),
        ({"providers": {"a": {"headers": {"X-Api-Key": SECRET}}}}, "config.providers.a.headers.X-Api-Key"),
        ({"tools": {"servers": {"a": {"api_key": SECRET}}}}, "config.tools.servers.a.api_key"),
        ({"tools": {"servers": {"a": {"headers": {"X-Api-Key": SECRET}}}}}, "config.tools.servers.a.headers.X-Api-Key"),
        ({"tools": {"servers": {"a": {"env": {"API_TOKEN": SECRET}}}}}, "config.tools.servers.a.env.API_TOKEN"),
        ({"telemetry": {"otlp_headers": {"x": SECRET}}}, "config.telemetry.otlp_headers.x"),
        ({"journal": {"store": f"postgres://me:{SECRET}@db/relight"}}, "config.journal.store"),
    ],
)
def test_a_secret_in_plain_text_is_refused_and_not_repeated(config, path):
    with pytest.raises(helm_python.HelmError) as refused:
        render.render({"config": config})
    assert path in str(refused.value)
    assert "ConfigMap" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_any_setting_may_be_a_reference_and_those_of_earlier_versions_are_taken():
    retry = {"max_retries": "${RETRIES}", "enabled": "${RETRY}", "stay": "1s"}
    config = {"policies": {"p": {"retry": retry}}, "circuit": {"mode": "${MODE}", "first_token_timeout": "9s"}, "seed": 7}
    assert render.objects({"config": config})


def test_a_reference_is_no_secret():
    config = {
        "providers": {"a": {"api_key": "${A}", "headers": {"authorization": "Bearer ${B}", "x-team": "agents"}}},
        "journal": {"store": "postgres://me:${PASSWORD}@db/relight"},
    }
    written = yaml.safe_load(render.config_text({"config": config}))
    assert written["providers"] == config["providers"]
    assert written["journal"] == config["journal"]


def test_a_key_in_a_file_is_mounted_and_never_a_variable():
    values = {
        "config": {"providers": {"in-house": {"base_url": "https://models.example.com"}}},
        "providers": {"in-house": {"as": "file", "existingSecret": {"name": "models", "key": "token"}}},
    }
    pod = pod_of(values)
    assert not any("secretKeyRef" in variable.get("valueFrom", {}) for variable in pod["containers"][0]["env"])
    volume = next(volume for volume in pod["volumes"] if volume["name"] == "key-in-house")
    assert volume["secret"]["items"] == [{"key": "token", "path": "token"}]
    provider = yaml.safe_load(render.config_text(values))["providers"]["in-house"]
    assert provider["api_key_file"] == "/run/relight/keys/in-house/token"
    assert "api_key" not in provider


@pytest.mark.parametrize(
    ("version", "sleeps"), [("1.27", False), ("v1.29.14-eks-1", False), ("1.30", True), ("v1.36.2+k3s1", True)]
)
def test_pods_sleep_before_they_end_where_kubernetes_can(version, sleeps):
    container = container_of({"kubeVersionOverride": version})
    assert container.get("lifecycle") == ({"preStop": {"sleep": {"seconds": 5}}} if sleeps else None)


@pytest.mark.parametrize(
    ("drain", "seconds"),
    [("30s", 45), ("2m", 135), ("1m30s", 105), ("1500ms", 17), ("0.5h", 1815), ("1 min", 75), ("0s", 15)],
)
def test_the_grace_period_covers_the_sleep_and_the_drain(drain, seconds):
    pod = pod_of({"config": {"server": {"drain_timeout": drain}}})
    assert pod["terminationGracePeriodSeconds"] == seconds


def test_a_longer_grace_period_is_taken_and_a_shorter_one_refused():
    assert pod_of({"terminationGracePeriodSeconds": 60})["terminationGracePeriodSeconds"] == 60
    with pytest.raises(helm_python.HelmError, match="would cut calls in flight.*is 45"):
        render.render({"terminationGracePeriodSeconds": 44})


def test_ports_of_the_services_lead_to_the_ports_that_relight_listens_on():
    objects = render.objects({"containerPorts": {"grpc": 6000}, "service": {"port": 443}})
    assert of_kind(objects, "Service", "relight")["spec"]["ports"][0]["port"] == 443
    headless = of_kind(objects, "Service", "relight-headless")["spec"]
    # Clients of a headless Service dial the pod's own port.
    assert (headless["clusterIP"], headless["ports"][0]["port"]) == ("None", 6000)


def test_gateways_are_told_of_plaintext_http2_unless_there_is_tls():
    def protocol(values):
        return of_kind(render.objects(values), "Service", "relight")["spec"]["ports"][0].get("appProtocol")

    assert protocol({}) == "kubernetes.io/h2c"
    assert protocol({"tls": {"existingSecret": "certificate"}}) is None
    assert protocol({"service": {"appProtocol": "grpc"}}) == "grpc"


def test_the_digest_wins_over_the_tag_and_the_global_registry_over_the_own():
    digest = f"sha256:{'0' * 64}"
    image = {"registry": "one.example.com", "repository": "a/relight", "tag": "x"}
    assert container_of({"image": image})["image"] == "one.example.com/a/relight:x"
    both = {"image": {**image, "digest": digest}, "global": {"imageRegistry": "two.example.com/"}}
    assert container_of(both)["image"] == f"two.example.com/a/relight@{digest}"


def test_an_autoscaler_decides_the_number_of_pods_alone():
    deployment = of_kind(render.objects({"autoscaling": {"enabled": True}, "replicaCount": 7}), "Deployment")
    assert "replicas" not in deployment["spec"]


def test_keda_asks_for_the_calls_in_flight_of_the_pods_of_this_release(gateway):
    objects = render.objects(gateway)
    assert "HorizontalPodAutoscaler" not in [item["kind"] for item in objects]
    spec = of_kind(objects, "ScaledObject")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 10)
    (trigger,) = spec["triggers"]
    namespace = of_kind(objects, "Deployment")["metadata"]["namespace"]
    assert trigger["metadata"]["query"] == f'sum(relight_inflight{{job="{namespace}/relight"}})'
    assert trigger["metadata"]["threshold"] == "50"


def test_routes_and_ingresses_lead_to_the_ports_of_the_service(gateway):
    objects = render.objects(gateway)
    ports = {port["name"]: port["port"] for port in of_kind(objects, "Service", "relight")["spec"]["ports"]}
    for kind, port in [("GRPCRoute", "grpc"), ("HTTPRoute", "openai")]:
        route = of_kind(objects, kind)["spec"]
        assert route["rules"][0]["backendRefs"] == [{"name": "relight", "port": ports[port]}]
        assert [parent["name"] for parent in route["parentRefs"]] == ["public"]
    assert of_kind(objects, "HTTPRoute")["spec"]["rules"][0]["timeouts"] == {"request": "10m"}
    for port in ("grpc", "openai"):
        rule = of_kind(objects, "Ingress", f"relight-{port}")["spec"]["rules"][0]
        assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "relight", "port": {"name": port}}


def test_the_certificate_is_for_every_name_of_the_services_and_is_what_pods_mount(gateway):
    objects = render.objects(gateway)
    spec = of_kind(objects, "Certificate")["spec"]
    namespace = of_kind(objects, "Deployment")["metadata"]["namespace"]
    for service in ("relight", "relight-headless"):
        assert f"{service}.{namespace}.svc.cluster.local" in spec["dnsNames"]
    assert "relight.example.com" in spec["dnsNames"] and spec["duration"] == "720h"
    mounted = {volume["name"]: volume for volume in pod_of(gateway)["volumes"]}["tls"]["secret"]["secretName"]
    assert mounted == spec["secretName"]


def test_the_url_of_the_journal_comes_from_its_secret(gateway):
    file = yaml.safe_load(render.config_text(gateway))
    assert file["journal"]["store"] == "${RELIGHT_JOURNAL_URL}"
    assert file["server"]["openai_front"]["hold_back"] == "whole"
    variable = next(item for item in container_of(gateway)["env"] if item["name"] == "RELIGHT_JOURNAL_URL")
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "relight-journal", "key": "url"}


def test_a_disruption_budget_has_one_limit():
    def spec(values):
        return of_kind(render.objects({"podDisruptionBudget": values}), "PodDisruptionBudget")["spec"]

    assert spec({})["maxUnavailable"] == 1
    assert "maxUnavailable" not in spec({"minAvailable": "50%"})
    assert spec({"minAvailable": 0})["minAvailable"] == 0


def test_the_network_policy_lets_out_to_providers_and_names_only():
    policy = of_kind(render.objects({"networkPolicy": {"enabled": True}}), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    out = {(port["port"], port["protocol"]) for rule in policy["egress"] for port in rule["ports"]}
    assert out == {(53, "UDP"), (53, "TCP"), (443, "TCP"), (4317, "TCP")}


@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
def test_a_monitor_finds_the_admin_port(kind):
    monitor = kind[0].lower() + kind[1:]
    objects = render.objects({"metrics": {monitor: {"enabled": True, "labels": {"release": "prometheus"}}}})
    found = of_kind(objects, kind)
    endpoint = found["spec"]["endpoints" if kind == "ServiceMonitor" else "podMetricsEndpoints"][0]
    assert (endpoint["port"], endpoint["path"]) == ("admin", "/metrics")
    assert found["metadata"]["labels"]["release"] == "prometheus"
    selector = found["spec"]["selector"]["matchLabels"].items()
    if kind == "PodMonitor":
        assert selector <= of_kind(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    else:
        services = [item["metadata"] for item in objects if item["kind"] == "Service"]
        assert [own["name"] for own in services if selector <= own["labels"].items()] == ["relight-metrics"]


@pytest.mark.parametrize(
    ("values", "job"),
    [
        ({"podMonitor": {"enabled": True}}, 'job="ai/relight"'),
        ({"serviceMonitor": {"enabled": True}}, 'job="relight-metrics", namespace="ai"'),
        ({"job": "mine"}, 'job="mine"'),
    ],
)
def test_rules_look_at_the_pods_of_this_release_alone(values, job):
    objects = render.objects(merged({"metrics": {"prometheusRule": {"enabled": True}}}, {"metrics": values}), namespace="ai")
    rules = [rule for group in of_kind(objects, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    assert len(rules) > 20
    assert all(f"{{{job}" in rule["expr"] for rule in rules)


def test_an_alert_can_be_left_out(production):
    groups = of_kind(render.objects(production), "PrometheusRule")["spec"]["groups"]
    alerts = {rule.get("alert") for group in groups for rule in group["rules"]}
    assert "RelightCallsFail" in alerts
    assert "RelightCircuitForced" not in alerts


def test_dashboards_are_found_by_the_sidecar_and_have_no_panel_over_another(production):
    found = of_kind(render.objects(production), "ConfigMap", "relight-dashboards")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"]["grafana_folder"] == "Relight"
    dashboards = {name: json.loads(text) for name, text in found["data"].items()}
    assert len({dashboard["uid"] for dashboard in dashboards.values()}) == len(dashboards) == 6
    for dashboard in dashboards.values():
        cells = set()
        for place in (panel["gridPos"] for panel in dashboard["panels"]):
            own = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            assert not own & cells
            assert all(x < 24 for x, _ in own)
            cells |= own


def test_notes_say_what_is_open_and_what_is_missing(production):
    def notes(values):
        return next(text for path, text in render.render(values).items() if path.endswith("NOTES.txt"))

    plain = notes({})
    assert "NO AUTHENTICATION" in plain
    assert "NO MODEL YET" in plain
    assert "SEVERAL PODS" not in plain
    assert "SEVERAL PODS" in notes({"replicaCount": 2})
    assert not any(word in notes(production) for word in ("NO AUTHENTICATION", "NO MODEL YET", "SEVERAL PODS"))


def test_a_configuration_of_ones_own_takes_the_place_of_the_charts():
    values = {"existingConfigMap": "mine"}
    assert not any(item["kind"] == "ConfigMap" for item in render.objects(values))
    assert pod_of(values)["volumes"][0]["configMap"]["name"] == "mine"


# === what is refused ===


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"replicas": 2}, "replicas"),
        ({"image": {"name": "x"}}, "name"),
        ({"config": {"provider": {}}}, "provider"),
        ({"replicaCount": "2"}, "replicaCount"),
        ({"service": {"type": "Clusterip"}}, "type"),
        ({"extraEnv": {"A": "b"}}, "extraEnv"),
        ({"livenessProbe": {"httpGet": {"path": "/"}}}, "httpGet"),
        ({"containerPorts": {"grpc": 80}}, "grpc"),
        ({"providers": {"openai": {"existingSecret": "openai"}}}, "existingSecret"),
        ({"providers": {"openai": {"apiKey": "sk-1"}}}, "apiKey"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"config": {"server": {"auth": "nobody"}}}, "auth"),
        ({"listenAddress": "localhost"}, "listenAddress"),
        ({"config": {"routes": {"default": {"target": ["gpt"]}}}}, "target"),
        ({"config": {"targets": {"gpt": {"provider": "openai", "model": 4}}}}, "model"),
        ({"config": {"circuit": {"mode": "sometimes"}}}, "mode"),
        ({"config": {"policies": {"p": {"retry": {"max_retries": "three"}}}}}, "max_retries"),
        ({"config": {"server": {"openai_front": {"hold_back": 3}}}, "openaiFront": {"enabled": True}}, "hold_back"),
    ],
)
def test_the_schema_refuses_what_is_unknown_or_of_the_wrong_kind_and_names_it(values, reason):
    with helm_python.Chart.load(CHART) as chart, pytest.raises(helm_python.HelmValuesError) as refused:
        chart.validate_schema(chart.merge_values(values))
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"config": {"server": {"listen": "0.0.0.0:1"}}}, "set listenAddress and containerPorts.grpc"),
        ({"config": {"server": {"admin_listen": "0.0.0.0:1"}}}, "set listenAddress and containerPorts.admin"),
        ({"config": {"server": {"tls": {}}}}, "set tls.existingSecret"),
        ({"config": {"server": {"openai_front": {}}}}, "set openaiFront.enabled"),
        ({"config": {"server": {"keys": [{"tenant": "a"}]}}}, "set config.server.auth to api_key"),
        ({"config": {"server": {"auth": "api_key"}}}, "admits no caller"),
        ({"config": {"server": {"auth": "client_certificate"}}}, "admits no caller"),
        ({"config": {"server": {"drain_timeout": "30"}}}, "write a duration with its unit"),
        ({"tls": {"clientCaKey": "ca.crt"}}, "tls.existingSecret, which is not set"),
        ({"providers": {"acme": {"existingSecret": {"name": "a", "key": "b"}}}}, "needs config.providers.acme"),
        (
            {
                "config": {"providers": {"openai": {"api_key": "${KEY}"}}},
                "providers": {"openai": {"existingSecret": {"name": "a", "key": "b"}}},
            },
            "two keys for one provider",
        ),
        ({"autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": 0}}, "autoscaling needs"),
        ({"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 4}}, "at most autoscaling.maxReplicas"),
        (
            {"metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}},
            "scrape every pod twice",
        ),
        ({"metrics": {"prometheusRule": {"enabled": True}}}, "what Prometheus calls the pods"),
        ({"grpcRoute": {"enabled": True}}, "grpcRoute.parentRefs names no Gateway"),
        ({"httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}]}}, "set openaiFront.enabled"),
        ({"ingress": {"openai": {"enabled": True}}}, "set openaiFront.enabled"),
        ({"tls": {"existingSecret": "a", "certificate": {"enabled": True}}}, "two certificates for one port"),
        ({"tls": {"certificate": {"enabled": True}}}, "issuerRef names no Issuer"),
        (
            {"journal": {"existingSecret": {"name": "a"}}, "config": {"journal": {"store": "memory"}}},
            "two journals; keep one",
        ),
        (
            {"autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": 0, "keda": {"enabled": True}}},
            "needs prometheusAddress or triggers",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused_with_the_way_out(values, reason):
    with pytest.raises(helm_python.HelmError) as refused:
        render.render(values)
    assert reason in str(refused.value)


# === what is written in two places ===


def test_the_chart_and_the_binary_have_one_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    cargo = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"$', cargo, re.MULTILINE)[1]
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_schema_of_the_values_has_that_of_the_configuration():
    binary = os.environ.get("RELIGHT", str(ROOT / "target" / "debug" / "relight"))
    schema = subprocess.run([binary, "config", "schema"], check=True, capture_output=True, text=True).stdout
    values = (CHART / "values.schema.json").read_text(encoding="utf-8")
    fresh = generate_schema.text(generate_schema.with_configuration(json.loads(values), json.loads(schema)))
    assert values == fresh, "run: relight config schema | python3 helm/generate_schema.py"


def test_the_chart_knows_the_providers_that_relight_finds():
    source = (ROOT / "src" / "config" / "discover.rs").read_text(encoding="utf-8")
    table = re.search(r"const WELL_KNOWN.*?\n\];", source, re.DOTALL)[0]
    found = dict(re.findall(r'(?:name: |chart\(|chat\(\s*)"(\w+)",\s*(?:variable: )?"(\w+)"', table))
    template = (CHART / "templates" / "_config.tpl").read_text(encoding="utf-8")
    named = re.search(r'define "relight.wellKnownProviders" -\}\}\n(.*?)\n', template)[1].split()
    assert named == list(found)
    assert {name: f"{name.upper()}_API_KEY" for name in named} == found


def test_every_value_in_the_schema_has_a_default():
    def missing(properties, values, path):
        for name, schema in properties.items():
            if name not in values:
                yield f"{path}{name}"
            elif "properties" in schema and name not in ("config", "global") and not name.endswith("Probe"):
                yield from missing(schema["properties"], values[name], f"{path}{name}.")

    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    # `enabled` is for a parent chart.
    assert list(missing(schema["properties"], values, "")) == ["enabled"]


def test_the_table_in_the_readme_is_not_stale():
    run = subprocess.run(
        [sys.executable, str(ROOT / "helm" / "generate_readme.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


# === the renderer for other checks ===


def test_stand_ins_make_every_named_file(tmp_path):
    values = yaml.safe_load((CHART / "ci" / "mutual-tls-values.yaml").read_text(encoding="utf-8"))
    server = yaml.safe_load(render.with_stand_ins(render.config_text(values), tmp_path))["server"]
    for name in ("cert_file", "key_file", "client_ca_file"):
        assert server["tls"][name].startswith(str(tmp_path))
        with open(server["tls"][name], encoding="utf-8") as file:
            assert file.read() == "stand-in\n"


def test_the_examples_are_found():
    assert len(EXAMPLES) >= 5


def test_stand_ins_of_variables_are_of_the_kind_that_the_name_promises():
    assert render.required_variables("a: ${KEY}\nb: ${URL:-none}\nc: $${NOT_ONE}\nd: ${KEY}/${A_URL}") == ["A_URL", "KEY"]
    assert render.stand_in("KEY") == "stand-in"
    assert render.stand_in("A_URL").startswith("postgres://")
