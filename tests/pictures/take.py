#!/usr/bin/env python3
"""The pictures of the documentation, taken of real tools in a real browser: a recovered call in a tracing UI, and panels of the
dashboards over a run with faults.

    take.py RELIGHT PHOENIX CHROMIUM FOLDER

RELIGHT is the server, PHOENIX the command of Arize Phoenix, which takes traces over OTLP, FOLDER where the pictures go. They show
what a run came to, so that each run makes others.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / "rules"), str(ROOT / "helm")]

import faulty_run  # noqa: E402
import yaml  # noqa: E402

RELIGHT, PHOENIX, CHROMIUM, FOLDER = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
SECONDS = int(os.environ.get("PICTURE_SECONDS", "45"))
# The panel of each question of docs/on-call.md: its picture, dashboard and title.
PANELS = [
    ("failing", "targets", "Failed attempts by class"),
    ("waits", "recovery", "Wait before a recovery, p95"),
    ("cost", "recovery", "Tokens spent and delivered"),
    ("affected", "callers", "Calls by tenant"),
    ("amplified", "recovery", "Attempts per call"),
    ("circuits", "targets", "Circuits that moved"),
]


@contextlib.contextmanager
def phoenix(folder):
    web, grpc = faulty_run.free_ports(2)
    given = {
        **os.environ,
        "PHOENIX_PORT": str(web),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    with open(folder / "phoenix.log", "wb") as log:
        process = subprocess.Popen([PHOENIX, "serve"], env=given, stdout=log, stderr=log)
    try:
        faulty_run.wait_until(lambda: faulty_run.answers(f"http://127.0.0.1:{web}/healthz"), "Phoenix is ready", 120)
        yield f"http://127.0.0.1:{web}", f"http://127.0.0.1:{grpc}"
    finally:
        process.kill()
        process.wait()


def take(name, url, width, height, wait_ms=20_000):
    """One picture of a page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    picture = FOLDER / f"{name}.png"
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1",
             f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--virtual-time-budget={wait_ms}",
             f"--screenshot={picture}", url],
            check=True, timeout=180, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    assert picture.stat().st_size > 10_000, f"{picture}: nothing is on it"
    print(f"{picture}: {picture.stat().st_size >> 10} KiB")


def recovered_call(server):
    """The id of a trace that shows a recovery: a call with a failed attempt and one that succeeded."""
    given = {**os.environ, "RELIGHT_ADDRESS": f"http://127.0.0.1:{server.grpc}", "RELIGHT_API_KEY": faulty_run.KEY}

    def command(*words):
        words = [RELIGHT, *words, "--output", "json"]
        return subprocess.run(words, env=given, check=True, capture_output=True).stdout

    calls = [json.loads(line) for line in command("invocations", "--state", "succeeded", "--limit", "500").splitlines()]
    # The more attempts, the more there is to see.
    call = max(calls, key=lambda call: call["attempts"])
    assert call["attempts"] > 2, "no call was recovered"
    return json.loads(command("explain", call["invocation_id"]))["attempts"][0]["trace_id"]


def expressions(dashboard, title):
    dashboards = yaml.safe_load((ROOT / "helm" / "relight" / "files" / "dashboards.yaml").read_text(encoding="utf-8"))
    [panel] = [panel for panel in dashboards[dashboard]["panels"] if panel["title"] == title]
    return [expression.replace('job="relight"', 'job="ai/relight"').replace("$__rate_interval", "15s") for expression in panel["of"].values()]


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        with phoenix(folder) as (traces, otlp):
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = otlp
            with faulty_run.Server(RELIGHT, folder) as server:
                rules = folder / "rules.yaml"
                rules.write_text("groups: []\n", encoding="utf-8")
                with faulty_run.Prometheus(folder, server, rules) as prometheus:
                    server.load(SECONDS)
                    trace = recovered_call(server)
                    time.sleep(5)
                    take("trace", f"{traces}/redirects/traces/{trace}", 1400, 800)
                    for name, *panel in PANELS:
                        shown, query = expressions(*panel), {}
                        for number, expression in enumerate(shown):
                            query |= {f"g{number}.expr": expression, f"g{number}.tab": "0", f"g{number}.range_input": "1m"}
                        url = f"http://{prometheus.address}/graph?{urllib.parse.urlencode(query)}"
                        take(name, url, 1000, 280 + 700 * len(shown))


main()
