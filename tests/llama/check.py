"""A real inference server under Relight: llama.cpp's answers, its errors, its silence and its death.

Run by run.sh as `check.py RELIGHT TINY SLOW`: the binary and two models of noise. The client is OpenAI's SDK, against the
front; the servers are processes of their own, so that they can be stopped and killed.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import openai

RELIGHT, TINY, SLOW = sys.argv[1:]
HERE = pathlib.Path(__file__).parent
ASK = [{"role": "user", "content": "Why?"}]
LONG = [{"role": "user", "content": "why " * 150}]
STEADY = {"temperature": 0, "seed": 1}


def expect(held, what):
    if not held:
        raise SystemExit(f"FAILED: {what}")


def llama(model, context, *key):
    """A server, and its address once it has told it."""
    process = subprocess.Popen(
        [sys.executable, HERE / "serve.py", model, str(context), str(free_port()), *key],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    running.append(process)
    for line in process.stdout:
        if line.startswith("http://"):
            return process, line.strip()
    raise SystemExit("llama.cpp's server did not start")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def relight(**places):
    """The service, and a client of its front."""
    port = free_port()
    log = open("relight.log", "w")
    places = {**os.environ, **places, "FRONT_PORT": str(port)}
    process = subprocess.Popen([RELIGHT, "serve", "--config", HERE / "relight.yaml"], env=places, stderr=log)
    running.append(process)
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="any", max_retries=0)
        time.sleep(0.05)
    raise SystemExit(pathlib.Path("relight.log").read_text())


def whole(client, route, messages=ASK, **more):
    raw = client.chat.completions.with_raw_response.create(model=route, messages=messages, **more)
    return raw.parse(), raw.headers["x-relight-target"], int(raw.headers["x-relight-attempts"])


def raised(error, route, messages=ASK, **more):
    try:
        client.chat.completions.create(model=route, messages=messages, **more)
    except error as caught:
        return caught
    raise SystemExit(f"FAILED: {error.__name__} was not raised")


def an_answer_is_what_the_server_itself_says():
    direct = openai.OpenAI(base_url=f"{two_at}/v1", api_key="any")
    said = direct.chat.completions.create(model="noise", messages=ASK, max_tokens=24, **STEADY).choices[0]
    answer, _, attempts = whole(client, "plain", max_tokens=24, **STEADY)
    expect(answer.choices[0].message.content == said.message.content and len(said.message.content) >= 24, answer)
    expect(answer.choices[0].finish_reason == "length" and attempts == 1, answer)
    expect(answer.usage.completion_tokens == 24 and answer.usage.prompt_tokens > 0, answer.usage)


def a_stream_brings_the_same_text_piece_by_piece():
    answer, _, _ = whole(client, "plain", max_tokens=24, **STEADY)
    stream = client.chat.completions.create(model="plain", messages=ASK, max_tokens=24, stream=True, **STEADY)
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    expect("".join(pieces) == answer.choices[0].message.content, pieces)
    expect(len([piece for piece in pieces if piece]) > 1, pieces)


def its_errors_are_told_as_what_they_are():
    error = raised(openai.BadRequestError, "narrow", LONG)
    expect(error.code == "context_length_exceeded", error)
    error = raised(openai.BadRequestError, "narrow", LONG, stream=True)
    expect(error.code == "context_length_exceeded", error)
    nonsense = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
    raised(openai.BadRequestError, "narrow", response_format=nonsense)


def what_is_too_long_for_one_goes_to_a_larger_window():
    answer, target, attempts = whole(client, "grown", LONG, max_tokens=4)
    expect((target, attempts) == ("wide", 2) and answer.choices[0].message.content, (target, attempts))


def a_refused_key_costs_a_handful_of_attempts_and_leads_to_the_next_target():
    made, began = [], time.monotonic()
    for _ in range(10):
        answer, target, attempts = whole(client, "let-in", max_tokens=4)
        expect(target == "narrow" and answer.choices[0].message.content, target)
        made.append(attempts)
    # A handful until it is believed, then a probe a second at most.
    most = 6 + int(time.monotonic() - began)
    expect(made[0] == 2 and max(made) == 2 and 1 in made and made.count(2) <= most, made)
    error = raised(openai.APIStatusError, "stranger")
    expect(error.body["relight"]["class"] == "authentication", error.body)


def a_server_that_stopped_answering_is_left():
    one.send_signal(signal.SIGSTOP)
    try:
        answer, target, attempts = whole(client, "pair", max_tokens=4)
    finally:
        one.send_signal(signal.SIGCONT)
    expect((target, attempts) == ("two", 2) and answer.choices[0].message.content, (target, attempts))


def a_server_killed_while_it_speaks_is_made_good_without_a_seam():
    straight, _, _ = whole(client, "plain", max_tokens=200, **STEADY)
    stream = client.chat.completions.create(model="pair", messages=ASK, max_tokens=200, stream=True, **STEADY)
    pieces = []
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            pieces.append(chunk.choices[0].delta.content)
            if len(pieces) == 3:
                one.kill()
                one.wait()
    expect("".join(pieces) == straight.choices[0].message.content, pieces)


def a_server_that_is_gone_costs_an_attempt_and_no_answer():
    answer, target, _ = whole(client, "pair", max_tokens=4)
    expect(target == "two" and answer.choices[0].message.content, target)


running = []
try:
    one, one_at = llama(SLOW, 4096)
    two, two_at = llama(SLOW, 4096)
    _, narrow_at = llama(TINY, 256, "right")
    client = relight(LLAMA_ONE=one_at, LLAMA_TWO=two_at, LLAMA_NARROW=narrow_at)
    for check in (
        an_answer_is_what_the_server_itself_says,
        a_stream_brings_the_same_text_piece_by_piece,
        its_errors_are_told_as_what_they_are,
        what_is_too_long_for_one_goes_to_a_larger_window,
        a_refused_key_costs_a_handful_of_attempts_and_leads_to_the_next_target,
        a_server_that_stopped_answering_is_left,
        a_server_killed_while_it_speaks_is_made_good_without_a_seam,
        a_server_that_is_gone_costs_an_attempt_and_no_answer,
    ):
        check()
        print("ok", check.__name__, flush=True)
finally:
    for process in running:
        process.kill()
print("llama.cpp: all good")
