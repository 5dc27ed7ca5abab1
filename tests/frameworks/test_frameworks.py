"""Every framework, as docs/frameworks.md has it, with nothing changed but its address: what the user holds, and what it cost.

Calls are counted at the upstream: a framework that retries by itself would multiply Relight's attempts with its own.
"""

import json
import urllib.error
import urllib.request

import drivers
import pytest
from conftest import SCENARIOS
from upstream import TEXT, WEATHER

ALL = list(drivers.FRAMEWORKS)


def raw(front, route):
    """One call with no framework: what Relight itself asks of the upstream."""
    body = {"model": route, "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{front}/v1/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("framework", ALL)
@pytest.mark.parametrize("scenario", ["call", "stream", "limited", "cut", "outage"])
def test_the_answer_comes_whole(outcomes, framework, scenario):
    assert outcomes(framework)[scenario] == {"text": TEXT}


@pytest.mark.parametrize("framework", ALL)
def test_a_tool_loop_ends_with_an_answer(outcomes, framework):
    assert outcomes(framework)["tools"] == {"text": WEATHER}


@pytest.mark.parametrize("framework", ALL)
def test_a_failure_is_an_error_of_the_framework(outcomes, framework):
    assert outcomes(framework)["dead"].get("error")


@pytest.mark.parametrize("framework", ALL)
def test_no_framework_multiplies_the_calls(outcomes, upstream, front, framework):
    if not upstream.calls["dead-raw"]:
        assert raw(front, "outage-raw") == TEXT
        assert raw(front, "dead-raw") in (502, 503)
    outcomes(framework)
    expected = {"call": 1, "stream": 1, "tools": 2, "limited": 2, "cut": 2, "spare": 1}
    expected |= {kind: upstream.calls[f"{kind}-raw"] for kind in ("down", "dead")}
    kinds = [kind for kinds in SCENARIOS.values() for kind in kinds]
    assert {kind: upstream.calls[f"{kind}-{framework}"] for kind in kinds} == expected
