"""The adapters over gRPC: what they show of a recovery that HTTP cannot, and what they cost."""

import asyncio
import contextlib
import functools
import io
import json
import pathlib
import re
import subprocess

import drivers
import pytest
import relight
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from relight_langchain import ChatRelight
from relight_pydantic_ai import RelightModel
from upstream import TEXT, WEATHER

QUESTION = "Why is the sky blue?"
ASK_WEATHER = "What is the weather in Riga?"


def langchain(grpc, scenario, **more):
    return ChatRelight(target=grpc, route=f"{scenario}-langchain-grpc", timeout=60, **more)


def pydantic(grpc, scenario, **more):
    return Agent(RelightModel(grpc, route=f"{scenario}-pydantic-grpc", timeout=60, **more))


PAGE = pathlib.Path(__file__).parents[2] / "docs" / "frameworks.md"


@pytest.mark.parametrize(("heading", "route"), [("LangChain", "call-langchain-grpc"), ("Pydantic AI", "call-pydantic-grpc")])
def test_the_snippet_of_the_page_works(grpc, upstream, heading, route):
    section = PAGE.read_text().split(f"\n## {heading} over gRPC\n", 1)[1]
    block = re.search(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]
    printed, before = io.StringIO(), upstream.calls[route]
    with contextlib.redirect_stdout(printed):
        exec(block.replace("127.0.0.1:50051", grpc).replace('"default"', f'"{route}"'), {})
    assert (printed.getvalue().strip(), upstream.calls[route]) == (TEXT, before + 1)


@pytest.mark.parametrize("scenario", ["call", "limited", "outage"])
def test_langchain_gets_the_answer_and_what_recovery_did(grpc, scenario):
    answer = langchain(grpc, scenario).invoke(QUESTION)
    assert answer.text == TEXT
    assert answer.response_metadata["attempts"] >= {"call": 1, "limited": 2, "outage": 2}[scenario]


def test_langchain_streams_final_text_and_with_live_the_rewind(grpc):
    assert "".join(chunk.text for chunk in langchain(grpc, "stream").stream(QUESTION)) == TEXT
    chunks = list(langchain(grpc, "cut", live=True).stream(QUESTION))
    last = [chunk for chunk in chunks if "text" in chunk.response_metadata]
    assert last[-1].response_metadata["text"] == TEXT
    assert last[-1].response_metadata["attempts"] == 2


def test_langchain_calls_tools(grpc):
    @tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"It is sunny in {city}."

    model = langchain(grpc, "tools").bind_tools([get_weather])
    asked = HumanMessage(ASK_WEATHER)
    call = model.invoke([asked])
    assert call.tool_calls[0]["args"] == {"city": "Riga"}
    answer = model.invoke([asked, call, get_weather.invoke(call.tool_calls[0])])
    assert answer.text == WEATHER


def test_langchain_raises_a_failure_for_good(grpc):
    with pytest.raises(relight.FailureError) as raised:
        langchain(grpc, "dead").invoke(QUESTION)
    assert raised.value.failure.failure_class


@pytest.mark.parametrize("scenario", ["call", "limited", "outage"])
def test_pydantic_ai_gets_the_answer_and_what_recovery_did(grpc, scenario):
    result = pydantic(grpc, scenario).run_sync(QUESTION)
    assert result.output == TEXT
    details = result.all_messages()[-1].provider_details
    assert details["attempts"] >= {"call": 1, "limited": 2, "outage": 2}[scenario]
    assert result.usage.output_tokens > 0


def test_pydantic_ai_streams_and_replaces_what_was_taken_back(grpc):
    async def streamed(scenario, **more):
        """The text as the events build it up, and whether a part began anew."""
        text, starts = "", 0
        async with pydantic(grpc, scenario, **more).iter(QUESTION) as run:
            async for node in run:
                if not Agent.is_model_request_node(node):
                    continue
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                            text, starts = event.part.content, starts + 1
                        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                            text += event.delta.content_delta
        assert run.result.output == text
        return text, starts

    assert asyncio.run(streamed("stream")) == (TEXT, 1)
    text, _ = asyncio.run(streamed("cut"))
    assert text == TEXT


def test_pydantic_ai_calls_tools(grpc):
    agent = pydantic(grpc, "tools")

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"It is sunny in {city}."

    assert agent.run_sync(ASK_WEATHER).output == WEATHER


def test_pydantic_ai_raises_its_own_error_for_a_failure_for_good(grpc):
    with pytest.raises(ModelAPIError) as raised:
        pydantic(grpc, "dead").run_sync(QUESTION)
    assert isinstance(raised.value.__cause__, relight.FailureError)


@functools.cache
def ai_sdk(grpc):
    """What the AI SDK made of every scenario."""
    folder = drivers.HOME / "node"
    ran = subprocess.run(["node", "ai_grpc.mjs", grpc], cwd=folder, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_ai_sdk_gets_the_answer_and_what_recovery_did(grpc):
    outcomes = ai_sdk(grpc)
    assert {scenario: outcomes[scenario]["text"] for scenario in ("call", "stream", "limited", "cut", "outage")} == dict.fromkeys(
        ("call", "stream", "limited", "cut", "outage"), TEXT
    )
    assert [outcomes[scenario]["attempts"] for scenario in ("call", "limited")] == [1, 2]
    assert outcomes["outage"]["attempts"] >= 2 and outcomes["call"]["tokens"] > 0


def test_the_ai_sdk_snippet_of_the_page_works(grpc):
    section = PAGE.read_text().split("\n## AI SDK over gRPC\n", 1)[1]
    block = re.search(r"^```js\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]
    script = drivers.HOME / "node" / "snippet.mjs"
    leave = "\nprocess.exit(0);\n"
    script.write_text(block.replace("127.0.0.1:50051", grpc).replace("'default'", "'call-ai-grpc'") + leave)
    ran = subprocess.run(["node", script.name], cwd=script.parent, capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == TEXT, ran.stderr


def test_the_ai_sdk_calls_tools_and_throws_a_failure_for_good(grpc):
    assert ai_sdk(grpc)["tools"] == {"text": WEATHER}
    assert ai_sdk(grpc)["dead"] == {"error": "FailureError"}


@pytest.mark.parametrize("adapter", ["langchain-grpc", "pydantic-grpc", "ai-grpc"])
def test_no_adapter_multiplies_the_calls(upstream, adapter):
    # With the snippets of the page.
    expected = {"call": 2, "stream": 1, "tools": 2, "limited": 2, "cut": 2, "spare": 1}
    assert {kind: upstream.calls[f"{kind}-{adapter}"] for kind in expected} == expected
