"""Alerts and dashboards: that they are right, and that the metrics they read are those of a real server.

Run by `.ci/run rules`; needs prometheus with promtool, and the binary of Relight by the variable RELIGHT.
"""

import json
import os
import re
import subprocess

import pytest
import render
import yaml
from conftest import CHART, HERE, ROOT
from faulty_run import KEY, Prometheus, Server

RELEASE = 'namespace="ai", job="ai/relight"'
CASES = yaml.safe_load((HERE / "alerts.yaml").read_text(encoding="utf-8"))


def rendered_rules():
    values = {"metrics": {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}}
    found = [item for item in render.objects(values, namespace="ai") if item["kind"] == "PrometheusRule"]
    return found[0]["spec"]


def rendered_panels():
    """(dashboard, panel, query, legend) of every query."""
    rendered = render.render({"dashboards": {"enabled": True}})["relight/templates/dashboards.yaml"]
    for dashboard in map(json.loads, yaml.safe_load(rendered)["data"].values()):
        for panel in dashboard["panels"]:
            for query in panel["targets"]:
                yield dashboard["title"], panel["title"], query["expr"], query["legendFormat"]


# Series that this run has not: it is one replica without a database, and no tenant has limits.
ELSEWHERE = {
    'relight_store_up{job="ai/relight", store="fleet"}',
    'relight_fleet_replicas{job="ai/relight"}',
    "relight_fleet_replicas",
    'relight_fleet_peer_up{job="ai/relight"}',
    "relight_fleet_peer_up",
    "relight_tenant_limited_total",
    "relight_tokens_cached_total",
}
RULES = [rule for group in rendered_rules()["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}


@pytest.fixture(scope="session")
def rules_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(yaml.safe_dump(rendered_rules()), encoding="utf-8")
    return path


def promtool(*words):
    run = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def labelled(text):
    """`x` as a label replaced by the labels of the release."""
    return re.sub(r"\bx\b(?!\d)", RELEASE, text, count=1)


def unit_test(series, expected):
    if not any(name.startswith("up{") for name in series):
        series = {"up{x}": "1x200", **series}
    return {
        "interval": "1m",
        "input_series": [{"series": labelled(name), "values": values} for name, values in series.items()],
        "promql_expr_test": expected,
    }


def firing(at, *alerts):
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts]
    return {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": at, "exp_samples": samples}


# === rules ===


def test_the_rules_are_rules(rules_file):
    promtool("check", "rules", rules_file)
    promtool("check", "rules", CHART / "files" / "rules.yaml")


def test_each_alert_fires_when_it_should_and_not_before(rules_file):
    healthy = [firing(f"{minute}m") for minute in range(6, 120, 3)]
    recorded = [
        {"expr": expr, "eval_time": "90m", "exp_samples": [{"labels": f"{{{labelled(labels)}}}", "value": value}]}
        for expr, (labels, value) in CASES["recorded"].items()
    ]
    tests = [unit_test(CASES["healthy"], healthy + recorded)]
    for case in CASES["alerts"]:
        tests.append(unit_test(case["series"], [firing(case["quiet"]), firing(case["fires"], case["alert"])]))
    file = rules_file.with_name("tests.yaml")
    file.write_text(yaml.safe_dump({"rule_files": [rules_file.name], "tests": tests}), encoding="utf-8")
    promtool("test", "rules", file)


def test_each_alert_and_each_recording_has_its_test():
    assert {case["alert"] for case in CASES["alerts"]} == set(ALERTS)
    for rule in RULES:
        assert "alert" in rule or any(rule["record"] in expr for expr in CASES["recorded"]), rule


def test_each_alert_leads_to_its_section_of_the_runbook_and_each_section_has_an_alert():
    runbook = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## (Relight\w+)$", runbook, re.MULTILINE)) == set(ALERTS)
    for name, alert in ALERTS.items():
        assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
        assert alert["labels"]["severity"] in ("critical", "warning", "info")


# === the metrics of a real server ===

LOAD_SECONDS = 30


@pytest.fixture(scope="session")
def run(tmp_path_factory, rules_file):
    """The server and its Prometheus, after a run with faults."""
    binary = os.environ["RELIGHT"]
    folder = tmp_path_factory.mktemp("run")
    with Server(binary, folder) as server, Prometheus(folder, server, rules_file) as prometheus:
        server.load(LOAD_SECONDS)
        yield server, prometheus


def test_each_panel_shows_something_with_the_labels_of_its_legend(run):
    empty = []
    for dashboard, panel, query, legend in rendered_panels():
        query = query.replace("$namespace", ".*").replace("$job", ".*").replace("$__rate_interval", "15s")
        if ELSEWHERE & set(re.findall(r"\w+", query)):
            continue
        labels = set(re.findall(r"\{\{(\w+)\}\}", legend))
        if not any(labels <= series.keys() for series in run[1].series(query, LOAD_SECONDS)):
            empty.append((dashboard, panel, query))
    assert not empty


def test_each_rule_is_evaluated_and_reads_series_that_exist(run):
    groups = run[1].ask("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(RULES)
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []
    missing = []
    for rule in RULES:
        for selector in re.findall(r"[a-zA-Z_:][\w:]*\{[^}]*\}", rule["expr"]):
            if selector not in ELSEWHERE and not run[1].series(selector, LOAD_SECONDS):
                missing.append((rule.get("alert") or rule["record"], selector))
    assert not missing


def test_the_faults_of_the_run_raise_alerts(run):
    active = {alert["labels"]["alertname"] for alert in run[1].ask("alerts")["alerts"]}
    assert {"RelightCallsFail", "RelightKeyRejected", "RelightSheds", "RelightConfigurationRejected"} <= active


def test_the_page_of_metrics_names_those_that_the_server_has(run):
    text = run[0].metrics()
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    described = dict(re.findall(r"^\| `(\w+)` \| \w+ \| (.*?) \|", page, re.MULTILINE))
    served = dict.fromkeys(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE), set())
    for name, labels in re.findall(r"^(\w+?)(?:_bucket|_sum|_count)?\{(.*)\} ", text, re.MULTILINE):
        name = name if name in served else f"{name}_count"
        served[name] = served[name] | set(re.findall(r'(\w+)="', labels)) - {"le"}
    described = {name: labels for name, labels in described.items() if name not in ELSEWHERE}
    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in described.items()} == served


# === the six questions of the page On call ===

# What the command prints after the faults of the run; an ID is that of a call that was retried.
ANSWERS = {
    "Which provider fails now?": [r"gate:revoked .*credential.*authentication.*check the key", r"gate:missing .*not_found"],
    "Why was this call slow?": [r"trace [0-9a-f]{32}", r"AFTER +FAILURE +DECISION", r"1 +limited +first", r"rate_limited +retry"],
    "What did it cost?": [r"spent (about )?\d+ tokens in, \d+ out"],
    "Who is affected?": [r"failed .*rate_limited.*agents|failed .*(overloaded|circuit_open).*agents"],
    "Do retries amplify?": [r"ATTEMPTS/S +FAILED +RETRIES/S", r"\nshaky "],
    "When and why did a circuit open?": [r"down +(open|half_open|half-open|probing)? ?.*\d\d:\d\d:\d\d"],
}


def questions():
    """(question, command, dashboard, panel) of the page."""
    page = (ROOT / "docs" / "on-call.md").read_text(encoding="utf-8")
    section = r"^## (.+\?)\n+```sh\nrelight (.+)\n```\n(?:.|\n)*?^Panel: `(.+?)`, `(.+?)`\.$"
    return re.findall(section, page, re.MULTILINE)


def said(server, *words):
    given = {**os.environ, "RELIGHT_ADDRESS": f"http://127.0.0.1:{server.grpc}", "RELIGHT_API_KEY": KEY}
    ran = subprocess.run([server.binary, *words], env=given, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_page_has_the_six_questions():
    assert [question for question, *_ in questions()] == list(ANSWERS)


@pytest.mark.parametrize("question", ANSWERS)
def test_each_question_is_answered_by_its_command_and_by_its_panel(run, question):
    server, prometheus = run
    [(command, dashboard, panel)] = [found for asked, *found in questions() if asked == question]
    # A call that was refused before it was read cost nothing.
    route = "default" if "cost" in question else "limited"
    listed = said(server, "invocations", "--route", route, "--limit", "500", "--output", "json").splitlines()
    calls = map(json.loads, filter(None, listed))
    retried = next(call for call in calls if call.get("attempts", 0) > 1 and (route == "limited" or "input_tokens" in call["usage"]))
    answer = said(server, *command.replace("ID", retried["invocation_id"]).split())
    for expected in ANSWERS[question]:
        assert re.search(expected, answer), f"{expected}\n{answer}"
    queries = [query for title, name, query, _ in rendered_panels() if (title, name) == (dashboard, panel)]
    assert queries, f"there is no panel {panel} on {dashboard}"
    for query in queries:
        query = query.replace("$namespace", ".*").replace("$job", ".*").replace("$__rate_interval", "15s")
        assert prometheus.series(query, LOAD_SECONDS + 60), query
