"""LiteLLM before and behind Relight, and Relight inside steps of DBOS, Temporal and Restate: the examples of the page."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/frameworks"))

from upstream import TEXT, Upstream  # noqa: E402

PAGE = (ROOT / "docs/behind-and-in-front.md").read_text()
# What the page names, and what stands there in a test.
GATEWAY_KEY = f"sk-{secrets.token_hex(32)}"
GATEWAY, FRONT = "http://127.0.0.1:4000/v1", "http://127.0.0.1:8080/v1"


def example(language, first):
    """The example of the page that begins with this line."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    return next(block for block in blocks if block.startswith(first))


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@contextlib.contextmanager
def running(arguments, port, log, env=None, ending=signal.SIGTERM):
    """A program that listens on this port, and is ended by this signal."""
    with log.open("wb") as output:
        program = subprocess.Popen(
            arguments, stdout=output, stderr=output, env={**os.environ, **(env or {})}, start_new_session=True
        )
    try:
        end = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert program.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, ending)
        program.wait(30)


def relight(folder, settings):
    front = free_port()
    server = f"""
server: {{ listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", openai_front: {{ listen: "127.0.0.1:{front}" }} }}
journal: {{ store: memory }}
policies: {{ standard: {{ retry: {{ backoff: {{ base: 20ms }} }} }} }}
"""
    file = folder / "relight.yaml"
    file.write_text(server + settings)
    program = [os.environ["RELIGHT"], "serve", "--config", str(file)]
    env = {"GATEWAY_KEY": GATEWAY_KEY}
    return front, running(program, front, folder / "relight.log", env)


def before_provider(upstream, model):
    return f"""
providers: {{ p: {{ dialect: openai_chat, base_url: "{upstream.base_url}", api_key: key }} }}
targets: {{ t: {{ provider: p, model: {model} }} }}
routes: {{ default: {{ targets: [t] }} }}
"""


def litellm(folder, settings, env=None):
    port = free_port()
    file = folder / "litellm.yaml"
    file.write_text(settings)
    program = ["litellm", "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    env = {"LITELLM_MASTER_KEY": GATEWAY_KEY, **(env or {})}
    return port, running(program, port, folder / "litellm.log", env)


def client(port):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=GATEWAY_KEY, max_retries=0, timeout=60)


def text(port, model, stream):
    messages = [{"role": "user", "content": "Why?"}]
    answer = client(port).chat.completions.create(model=model, messages=messages, stream=stream)
    if not stream:
        return answer.choices[0].message.content
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)


@pytest.fixture
def upstream():
    upstream = Upstream()
    yield upstream
    upstream.stop()


# A provider that refuses the first call, and one whose first answer breaks off.
@pytest.mark.parametrize("model", ["limited-m", "cut-m"])
def test_behind_litellm_a_call_is_repeated_in_one_place(tmp_path, upstream, model):
    front, server = relight(tmp_path, before_provider(upstream, model))
    settings = example("yml", "# litellm in front of relight").replace(FRONT, f"http://127.0.0.1:{front}/v1")
    port, gateway = litellm(tmp_path, settings)
    with server, gateway:
        assert text(port, "gpt", stream=True) == TEXT
    assert upstream.calls[model] == 2, upstream.calls


def test_behind_litellm_a_dead_provider_is_called_as_often_as_relight_decides(tmp_path, upstream):
    front, server = relight(tmp_path, before_provider(upstream, "dead-m"))
    settings = example("yml", "# litellm in front of relight").replace(FRONT, f"http://127.0.0.1:{front}/v1")
    port, gateway = litellm(tmp_path, settings)
    with server, gateway, pytest.raises(openai.APIStatusError):
        text(port, "gpt", stream=False)
    assert upstream.calls["dead-m"] == 3, upstream.calls


@pytest.mark.parametrize("model", ["limited-m", "cut-m"])
def test_in_front_of_litellm_a_call_is_repeated_in_one_place(tmp_path, upstream, model):
    settings = example("yml", "# litellm in front of the provider")
    env = {"PROVIDER_URL": upstream.base_url, "PROVIDER_KEY": "key"}
    port, gateway = litellm(tmp_path, settings.replace("gpt-5-mini", model), env)
    settings = example("yaml", "# relight in front of litellm").replace(GATEWAY, f"http://127.0.0.1:{port}/v1")
    front, server = relight(tmp_path, settings)
    with gateway, server:
        assert text(front, "default", stream=True) == TEXT
    assert upstream.calls[model] == 2, upstream.calls


CLIENT = """
import os, sys
import openai

url, place, crashes = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key="sk-anything", max_retries=0)

if crashes == "inside":
    create = client.chat.completions.create
    def and_crash(**request):
        create(**request)
        os._exit(9)
    client.chat.completions.create = and_crash

def crash_between():
    if crashes == "between":
        os._exit(9)
"""

DBOS = """
from dbos import DBOS, SetWorkflowID

DBOS(config={"name": "friends", "system_database_url": f"sqlite:///{place}"})

EXAMPLE

@DBOS.step()
def crash():
    crash_between()

@DBOS.workflow()
def work(question):
    answer = ask(question)
    crash()
    return answer

DBOS.launch()
with SetWorkflowID("friends-1"):
    print(DBOS.start_workflow(work, "Why?").get_result())
"""

# The worker of the second process gets the steps of the first one's workflow.
TEMPORAL = """
import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

EXAMPLE

@activity.defn
def crash() -> None:
    crash_between()

@workflow.defn
class Work:
    @workflow.run
    async def run(self, question: str) -> str:
        within = timedelta(seconds=8)
        answer = await workflow.execute_activity(ask, question, start_to_close_timeout=within)
        await workflow.execute_activity(crash, start_to_close_timeout=within)
        return answer

async def main():
    temporal = await Client.connect(place)
    with ThreadPoolExecutor(4) as threads:
        worker = Worker(temporal, task_queue="friends", workflows=[Work], activities=[ask, crash],
                        activity_executor=threads, workflow_runner=UnsandboxedWorkflowRunner())
        async with worker:
            work = await temporal.start_workflow(
                Work.run, "Why?", id="friends-1", task_queue="friends", id_conflict_policy=USE_EXISTING)
            print(await work.result())

from temporalio.common import WorkflowIDConflictPolicy
USE_EXISTING = WorkflowIDConflictPolicy.USE_EXISTING
asyncio.run(main())
"""

RESTATE = """
import asyncio
import hypercorn
import hypercorn.asyncio
import restate

work = restate.Service("friends")

EXAMPLE

@work.handler()
async def both(ctx: restate.Context, question: str) -> str:
    answer = await ctx.service_call(ask, question)
    await ctx.run_typed("crash", crash_between)
    return answer

config = hypercorn.Config()
config.bind = [place]
asyncio.run(hypercorn.asyncio.serve(restate.app([work]), config))
"""


def script(folder, engine, first):
    """The program of a worker of the engine, with the example of the page that begins with this line."""
    file = folder / "work.py"
    file.write_text(CLIENT + engine.replace("EXAMPLE", example("python", first)))
    return [sys.executable, str(file)]


@pytest.fixture
def temporal(tmp_path):
    port = free_port()
    program = [os.environ["TEMPORAL"], "server", "start-dev", "--headless", "--port", str(port)]
    with running([*program, "--db-filename", str(tmp_path / "temporal.sqlite")], port, tmp_path / "temporal.log"):
        yield f"127.0.0.1:{port}"


# The process dies before the step's result is recorded, and after that.
CRASHES = pytest.mark.parametrize("crashes", ["inside", "between"])


def crash_and_repeat(program, crashes):
    """What the second process prints, which finds the work that the first one left."""
    first = subprocess.run([*program, crashes], capture_output=True, text=True, timeout=120)
    assert first.returncode == 9, first.stderr
    second = subprocess.run([*program, "never"], capture_output=True, text=True, timeout=120)
    assert second.returncode == 0, second.stderr
    return second.stdout


@CRASHES
def test_a_step_of_dbos_is_paid_once(tmp_path, upstream, crashes):
    front, server = relight(tmp_path, before_provider(upstream, "call-m"))
    program = script(tmp_path, DBOS, "@DBOS.step")
    with server:
        printed = crash_and_repeat([*program, f"http://127.0.0.1:{front}/v1", str(tmp_path / "dbos.sqlite")], crashes)
    assert TEXT in printed
    assert upstream.calls["call-m"] == 1, upstream.calls


@CRASHES
def test_an_activity_of_temporal_is_paid_once(tmp_path, upstream, temporal, crashes):
    front, server = relight(tmp_path, before_provider(upstream, "call-m"))
    program = script(tmp_path, TEMPORAL, "@activity.defn")
    with server:
        printed = crash_and_repeat([*program, f"http://127.0.0.1:{front}/v1", temporal], crashes)
    assert TEXT in printed
    assert upstream.calls["call-m"] == 1, upstream.calls


@CRASHES
def test_a_handler_of_restate_is_paid_once(tmp_path, upstream, crashes):
    front, server = relight(tmp_path, before_provider(upstream, "call-m"))
    ingress, admin, node, worker = free_port(), free_port(), free_port(), free_port()
    program = [*script(tmp_path, RESTATE, "@work.handler"), f"http://127.0.0.1:{front}/v1", f"127.0.0.1:{worker}"]
    env = {
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BASE_DIR": str(tmp_path / "restate"),
    }
    restate = running([os.environ["RESTATE"]], ingress, tmp_path / "restate.log", env)
    with server, restate, concurrent.futures.ThreadPoolExecutor(1) as threads:
        with running([*program, crashes], worker, tmp_path / "first.log") as first:
            posted(admin, "/deployments", {"uri": f"http://127.0.0.1:{worker}"})
            answer = threads.submit(posted, ingress, "/friends/both", "Why?")
            assert first.wait(60) == 9, (tmp_path / "first.log").read_text()
        # It would wait for Restate to close its connections.
        with running([*program, "never"], worker, tmp_path / "second.log", ending=signal.SIGKILL):
            assert answer.result(60) == TEXT
    assert upstream.calls["call-m"] == 1, upstream.calls


def posted(port, path, body):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.loads(response.read())
