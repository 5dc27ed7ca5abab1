"""Where nothing fails, a framework and a coding agent hold the same with Relight and without it, byte for byte.

Each of them runs three times, as docs/frameworks.md has it: twice at a provider and once through Relight before it, always at one
address. Its transcript is what it printed, and all that it sent: each request repeats the conversation as it holds it. Left out
of the comparison are ids and what docs/dialects.md lists as different; the two runs at the provider show that nothing else
differs by itself.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time

import drivers
import pytest
import test_coding_agents
from conftest import AGENTS, free_ports
from scripted import Provider, recorder, serving
from upstream import RAN, TEXT, WEATHER

SCENARIOS = {"call": TEXT, "stream": TEXT, "tools": WEATHER}
# The protocol of each, as the table of docs/frameworks.md has it.
DIALECTS = {"chat completions": "openai_chat", "messages": "anthropic", "responses": "openai_responses"}
SAME_AS = {"langgraph": "chat completions"}
HEADINGS = {name: heading for name, (heading, _) in drivers.FRAMEWORKS.items()}
HEADINGS |= {agent: heading for agent, (heading, *_) in test_coding_agents.PAGES.items()}
# Ids and what else is another one in each run, with what stands in its place.
IDS = [
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r"\b[0-9a-f]{64}\b", "DEVICE"),
    (r"\b(resp|msg|chatcmpl|rs|fc|fco|ctc|ses|prt)[_-][0-9A-Za-z_-]+\b", r"\1-ID"),
]
# What Codex says of its own run beside the conversation, in any order, and what its shell measures.
OF_THE_RUN = "client_metadata"
IDS += [(r"Chunk ID: \w+", "Chunk ID"), (r"Wall time: [\d.]+ seconds", "Wall time"), (r"succeeded in \d+ms", "succeeded")]
# Fields that docs/dialects.md lists, as a client sends them back.
LISTED = [(r'("encrypted_content": ?)"[^"]*"', r'\1"ENVELOPE"')]


def protocol_of(name):
    page = (drivers.ROOT / "docs" / "frameworks.md").read_text()
    row = next(line for line in page.splitlines() if re.match(rf"\| {re.escape(HEADINGS[name])}( \(\w+\))? \|", line))
    return SAME_AS.get(name) or row.split("|")[2].split(",")[0].strip()


def config(provider, ports):
    """A route and a target of one and the same name for each, in the dialect of its protocol."""
    addresses = {dialect: f"http://{provider}{'' if dialect == 'anthropic' else '/v1'}" for dialect in DIALECTS.values()}
    providers = "".join(
        f'  {dialect}: {{ dialect: {dialect}, base_url: "{address}", api_key: key, allow_plaintext: true }}\n'
        for dialect, address in addresses.items()
    )
    names = [(f"{scenario}-{name}", DIALECTS[protocol_of(name)]) for name in HEADINGS for scenario in SCENARIOS]
    targets = "".join(f"  {name}: {{ provider: {dialect}, model: {name} }}\n" for name, dialect in names)
    routes = "".join(f"  {name}: {{ targets: [{name}] }}\n" for name, _ in names)
    listen = 'listen: "127.0.0.1:{}", admin_listen: "127.0.0.1:{}", openai_front: {{ listen: "127.0.0.1:{}" }}'.format(*ports)
    return f"server: {{ {listen} }}\njournal: {{ store: memory }}\nproviders:\n{providers}targets:\n{targets}routes:\n{routes}"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The provider, and Relight before it."""
    folder, ports = tmp_path_factory.mktemp("transcripts"), free_ports(3)
    with serving(Provider) as provider:
        (folder / "relight.yaml").write_text(config(provider, ports))
        with (folder / "log").open("w") as log:
            command = [os.environ["RELIGHT"], "serve", "--config", str(folder / "relight.yaml")]
            server = subprocess.Popen(command, stderr=log)
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ports[2]), timeout=1):
                break
            if server.poll() is not None:
                pytest.fail((folder / "log").read_text())
            time.sleep(0.1)
        yield provider, f"127.0.0.1:{ports[2]}"
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def recording():
    with recorder() as recording:
        yield recording


def without(field, text):
    """A JSON text without this field, and as it was otherwise."""
    begin = text.find(f'"{field}":')
    if begin < 0:
        return text
    value = begin + len(f'"{field}":')
    _, end = json.JSONDecoder().raw_decode(text, value)
    return text[:begin] + text[end:]


def comparable(text):
    text = without(OF_THE_RUN, text)
    for pattern, instead in [*IDS, *LISTED]:
        text = re.sub(pattern, instead, text)
    return text


def transcripts(places, recording, run):
    """What `run` returned and all that was sent, from the provider twice and through Relight."""
    provider, relight = places
    for behind in (provider, provider, relight):
        recording.of(behind)
        printed = run()
        # Agents make requests beside each other.
        yield comparable(printed), sorted(map(comparable, recording.requests))


@pytest.mark.parametrize("framework", drivers.FRAMEWORKS)
def test_a_framework_holds_the_same_with_and_without_relight(places, recording, framework):
    def run():
        held = drivers.run(framework, recording.address, list(SCENARIOS))
        assert held == {scenario: {"text": text} for scenario, text in SCENARIOS.items()}
        return repr(held)

    first, second, through = transcripts(places, recording, run)
    assert len(first[1]) == 4, first
    assert second == first, "it differs by itself"
    assert through == first


@pytest.mark.parametrize("agent", AGENTS)
def test_a_coding_agent_holds_the_same_with_and_without_relight(places, recording, tmp_path, agent):
    def run():
        home = tmp_path / "home"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        printed, has_run = test_coding_agents.run(agent, recording.address, "call", home)
        assert has_run and RAN in printed, printed
        return printed

    first, second, through = transcripts(places, recording, run)
    assert len(first[1]) >= 2, first
    assert second == first, "it differs by itself"
    assert through == first
