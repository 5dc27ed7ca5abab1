"""LiteLLM before and behind Relight, and Relight inside a step of DBOS: the examples of the page, with a provider that fails."""

import contextlib
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import time

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
def running(arguments, port, log, env=None):
    """A program that listens on this port."""
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
            os.killpg(program.pid, signal.SIGTERM)
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


STEP = '''
import os, sys
import openai
from dbos import DBOS, SetWorkflowID

url, database, crashes = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key="sk-anything", max_retries=0)
DBOS(config={"name": "friends", "system_database_url": f"sqlite:///{database}"})

EXAMPLE

@DBOS.step()
def crash():
    if crashes == "between":
        os._exit(9)

@DBOS.workflow()
def work(question):
    answer = ask(question)
    crash()
    return answer

if crashes == "inside":
    create = client.chat.completions.create
    def and_crash(**request):
        create(**request)
        os._exit(9)
    client.chat.completions.create = and_crash

DBOS.launch()
with SetWorkflowID("friends-1"):
    print(DBOS.start_workflow(work, "Why?").get_result())
'''


# The process dies before the step's result is recorded, and after that.
@pytest.mark.parametrize("crashes", ["inside", "between"])
def test_a_step_that_is_repeated_gets_the_answer_and_the_provider_is_called_once(tmp_path, upstream, crashes):
    front, server = relight(tmp_path, before_provider(upstream, "call-m"))
    script = tmp_path / "work.py"
    script.write_text(STEP.replace("EXAMPLE", example("python", "@DBOS.step")))
    program = [sys.executable, str(script), f"http://127.0.0.1:{front}/v1", str(tmp_path / "dbos.sqlite")]
    with server:
        first = subprocess.run([*program, crashes], capture_output=True, text=True, timeout=120)
        assert first.returncode == 9, first.stderr
        second = subprocess.run([*program, "never"], capture_output=True, text=True, timeout=120)
    assert second.returncode == 0 and TEXT in second.stdout, second.stderr
    assert upstream.calls["call-m"] == 1, upstream.calls
