"""Alerts and recording rules: that they are rules, that they fire in time, and that each has its page.

Run by `.ci/run rules`; needs promtool.
"""

import re
import subprocess

import pytest
import render
import yaml
from conftest import CHART, HERE, ROOT

RELEASE = 'namespace="ai", job="ai/relight"'
CASES = yaml.safe_load((HERE / "alerts.yaml").read_text(encoding="utf-8"))


def rendered_rules():
    values = {"metrics": {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}}
    found = [item for item in render.objects(values, namespace="ai") if item["kind"] == "PrometheusRule"]
    return found[0]["spec"]


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
