"""The official Python SDK against the front: it works by its base URL alone, and its errors mean what they say.

Run by run.sh, with the front's base URL as the only argument. Every check names what a user of the SDK relies on.
"""

import asyncio
import json
import sys

import openai

from checks import expect, raised

BASE_URL = sys.argv[1]
KEY = "sk-relight-sdk"
ASK = [{"role": "user", "content": "Why?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]

client = openai.OpenAI(base_url=BASE_URL, api_key=KEY)


def an_answer_is_an_object_of_the_sdk():
    answer = client.chat.completions.create(model="chat", messages=ASK, temperature=0.5, user="u-1")
    expect(answer.choices[0].message.content == "You said: Why?", answer)
    expect(answer.choices[0].finish_reason == "stop", answer)
    expect(answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0, answer)
    expect(answer.model == "echo", answer)
    expect(answer.id == f"chatcmpl-{answer._request_id}", "the request id of the SDK is the invocation's")


def headers_tell_target_and_attempts():
    raw = client.chat.completions.with_raw_response.create(model="rescued", messages=ASK)
    expect(raw.headers["x-relight-target"] == "counting", raw.headers)
    expect(raw.headers["x-relight-attempts"] == "2", raw.headers)
    expect(raw.parse().choices[0].message.content == "One two three four five.", raw)


def streamed(model, **more):
    stream = client.chat.completions.create(
        model=model, messages=ASK, stream=True, stream_options={"include_usage": True}, **more
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return chunks, text


def a_stream_comes_in_chunks_and_ends_with_usage():
    chunks, text = streamed("chat")
    expect(text == "You said: Why?", text)
    expect(len(chunks) > 4 and chunks[0].choices[0].delta.role == "assistant", chunks)
    expect(chunks[-1].usage is not None and not chunks[-1].choices, chunks[-1])
    expect(chunks[-2].choices[0].finish_reason == "stop", chunks[-2])


def a_silent_stream_is_kept_alive():
    _, text = streamed("slow")
    expect(text == "Late but whole.", text)


def a_broken_stream_is_mended_without_a_seam():
    _, text = streamed("rescued")
    expect(text == "One two three four five.", text)


def a_stream_that_cannot_be_mended_raises():
    error = raised(openai.APIError, lambda: streamed("torn"))
    expect(error.code == "stream_interrupted", error)


def the_stream_helper_gathers_tool_calls():
    with client.chat.completions.stream(model="tools", messages=ASK, tools=TOOLS) as stream:
        kinds = {event.type for event in stream}
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    expect("tool_calls.function.arguments.done" in kinds, kinds)
    expect(call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Riga"}, call)


def tool_calls_go_there_and_back():
    answer = client.chat.completions.create(model="tools", messages=ASK, tools=TOOLS, tool_choice="auto")
    message = answer.choices[0].message
    expect(answer.choices[0].finish_reason == "tool_calls", answer)
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Sunny."}
    again = client.chat.completions.create(model="chat", messages=[*ASK, message, result])
    expect(again.choices[0].message.content == "You said: Why?", again)


def reasoning_is_where_clients_look_for_it():
    answer = client.chat.completions.create(model="thinker", messages=ASK)
    expect(answer.choices[0].message.reasoning_content == "Let me think.", answer)


def every_error_has_its_class():
    once = {"x-relight-max-retries": "0"}
    quick = client.with_options(max_retries=0)
    error = raised(
        openai.RateLimitError,
        lambda: quick.chat.completions.create(model="limited", messages=ASK, extra_headers=once),
    )
    expect(error.code == "rate_limit_exceeded" and int(error.response.headers["retry-after"]) >= 1, error)
    error = raised(openai.BadRequestError, lambda: client.chat.completions.create(model="long", messages=ASK))
    expect(error.code == "context_length_exceeded", error)
    error = raised(openai.BadRequestError, lambda: client.chat.completions.create(model="chat", messages=ASK, n=2))
    expect(error.param == "n", error)
    error = raised(openai.NotFoundError, lambda: client.chat.completions.create(model="caht", messages=ASK))
    expect(error.code == "model_not_found" and "`chat`" in error.message, error)
    stranger = openai.OpenAI(base_url=BASE_URL, api_key="sk-unknown")
    raised(openai.AuthenticationError, lambda: stranger.models.list())


def what_was_retried_already_is_not_retried_by_the_sdk():
    error = raised(openai.InternalServerError, lambda: client.chat.completions.create(model="broken", messages=ASK))
    expect(error.response.headers["x-should-retry"] == "false", error.response.headers)
    expect(error.body["relight"]["attempts"] == 3, error.body)
    expect("x-stainless-retry-count" in error.request.headers, error.request.headers)
    expect(error.request.headers["x-stainless-retry-count"] == "0", "the SDK asked once")


def models_are_listed():
    names = [model.id for model in client.models.list()]
    expect("chat" in names and "rescued" in names, names)
    expect(client.models.retrieve("chat").id == "chat", "a model by its name")


async def many_streams_run_at_once():
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as many:

        async def one(number):
            messages = [{"role": "user", "content": str(number)}]
            stream = await many.chat.completions.create(model="chat", messages=messages, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        texts = await asyncio.gather(*(one(number) for number in range(20)))
    expect(texts == [f"You said: {number}" for number in range(20)], texts)


for check in (
    an_answer_is_an_object_of_the_sdk,
    headers_tell_target_and_attempts,
    a_stream_comes_in_chunks_and_ends_with_usage,
    a_silent_stream_is_kept_alive,
    a_broken_stream_is_mended_without_a_seam,
    a_stream_that_cannot_be_mended_raises,
    the_stream_helper_gathers_tool_calls,
    tool_calls_go_there_and_back,
    reasoning_is_where_clients_look_for_it,
    every_error_has_its_class,
    what_was_retried_already_is_not_retried_by_the_sdk,
    models_are_listed,
):
    check()
    print("ok", check.__name__)
asyncio.run(many_streams_run_at_once())
print("ok many_streams_run_at_once")
print(f"python: openai {openai.__version__}: all good")
