"""The official Python SDKs against the front's other protocols: OpenAI's responses, Anthropic's messages.

Run by run.sh, with the front's base URL as the only argument. Every check names what a user of the SDK relies on.
"""

import re
import sys
from pathlib import Path

import anthropic
import openai

from checks import expect, raised

BASE_URL = sys.argv[1]
KEY = "sk-relight-sdk"
ASK = [{"role": "user", "content": "Why?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

responses = openai.OpenAI(base_url=BASE_URL, api_key=KEY).responses
claude = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=KEY)


def a_response_is_an_object_of_the_sdk():
    answer = responses.create(model="chat", input="Why?", metadata={"job": "7"})
    expect(answer.output_text == "You said: Why?" and answer.status == "completed", answer)
    expect(answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0, answer)
    expect(answer.id == f"resp_{answer._request_id}" and answer.metadata == {"job": "7"}, answer)


def a_streamed_response_is_gathered_by_the_sdk():
    with responses.stream(model="thinker", input="Why?") as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_response()
    expect(answer.output_text == "Yes." and answer.output[0].summary[0].text == "Let me think.", answer)
    expect(kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds)


def a_conversation_goes_on_from_its_response():
    tools = [{"type": "function", "name": "get_weather", "parameters": CITY, "strict": False}]
    first = responses.create(model="tools", input="Why?", tools=tools)
    call = next(item for item in first.output if item.type == "function_call")
    expect(call.name == "get_weather", first)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    second = responses.create(model="chat", input=[result], previous_response_id=first.id, tools=tools)
    expect(second.output_text == "You said: Why?", second)
    expect(responses.retrieve(second.id).output_text == second.output_text, "a stored response can be fetched")
    error = raised(openai.BadRequestError, lambda: responses.create(model="chat", input="x", previous_response_id=first.id))
    expect(error.param == "previous_response_id", error)


def a_broken_response_is_mended_or_raises():
    def text(model):
        stream = responses.create(model=model, input="Why?", stream=True)
        return "".join(event.delta for event in stream if event.type == "response.output_text.delta")

    expect(text("rescued") == "One two three four five.", "without a seam")
    error = raised(openai.APIError, lambda: text("torn"))
    expect(error.code == "stream_interrupted", error)


def a_response_is_resumed_as_its_page_says():
    page = Path("docs/resumable-streams.md").read_text()
    lines = next(block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "starting_after" in block)
    names = {"client": openai.OpenAI(base_url=BASE_URL, api_key=KEY)}
    exec(lines, names)
    kinds = [event.type for event in names["seen"] + names["rest"]]
    numbers = [event.sequence_number for event in names["seen"] + names["rest"]]
    expect(kinds[-1] == "response.completed" and numbers == list(range(len(numbers))), kinds)


def ids_of_events_break_no_sdk():
    resumable = {"x-relight-resumable": "true"}
    chat = openai.OpenAI(base_url=BASE_URL, api_key=KEY).chat.completions
    # The second is silent for so long that comments come among its events.
    for model, text in (("thinker", "Yes."), ("slow", "Late but whole.")):
        with responses.stream(model=model, input="Why?", extra_headers=resumable) as stream:
            expect(stream.until_done().get_final_response().output_text == text, "responses")
        with claude.messages.stream(model=model, max_tokens=99, messages=ASK, extra_headers=resumable) as stream:
            expect(stream.get_final_message().content[-1].text == text, "messages")
        chunks = list(chat.create(model=model, messages=ASK, stream=True, extra_headers=resumable))
        expect("".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text, chunks)


def errors_of_responses_have_their_classes():
    raised(openai.NotFoundError, lambda: responses.create(model="caht", input="Why?"))
    error = raised(openai.BadRequestError, lambda: responses.create(model="chat", input="Why?", background=True))
    expect(error.param == "background", error)
    error = raised(openai.InternalServerError, lambda: responses.create(model="broken", input="Why?"))
    expect(error.body["relight"]["attempts"] == 3 and error.request.headers["x-stainless-retry-count"] == "0", error)


def a_message_is_an_object_of_the_sdk():
    message = claude.messages.create(model="chat", max_tokens=99, messages=ASK, system="Be brief.")
    expect(message.content[0].text == "You said: Why?" and message.stop_reason == "end_turn", message)
    expect(message.id == f"msg_{message._request_id}" and message.usage.input_tokens > 0, message)


def a_streamed_message_is_gathered_by_the_sdk():
    with claude.messages.stream(model="thinker", max_tokens=99, messages=ASK) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    expect("".join(pieces) == "Yes." and message.content[0].thinking == "Let me think.", message)


def tools_of_messages_go_there_and_back():
    tools = [{"name": "get_weather", "input_schema": CITY}]
    message = claude.messages.create(model="tools", max_tokens=99, messages=ASK, tools=tools)
    call = message.content[-1]
    expect(message.stop_reason == "tool_use" and call.input == {"city": "Riga"}, message)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny."}
    turns = [*ASK, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    again = claude.messages.create(model="chat", max_tokens=99, messages=turns, tools=tools)
    expect(again.content[0].text.startswith("You said:"), again)


def a_broken_message_is_mended_or_raises():
    def text(model):
        with claude.messages.stream(model=model, max_tokens=99, messages=ASK) as stream:
            return "".join(stream.text_stream)

    expect(text("rescued") == "One two three four five.", "without a seam")
    error = raised(anthropic.APIStatusError, lambda: text("torn"))
    expect(error.body["error"]["code"] == "stream_interrupted", error)


def errors_of_messages_have_their_classes():
    once = {"x-relight-max-retries": "0"}

    def ask(model, client=claude, **more):
        return client.messages.create(model=model, max_tokens=99, messages=ASK, **more)

    error = raised(anthropic.RateLimitError, lambda: ask("limited", claude.with_options(max_retries=0), extra_headers=once))
    expect(error.body["error"]["type"] == "rate_limit_error", error)
    raised(anthropic.NotFoundError, lambda: ask("caht"))
    raised(anthropic.BadRequestError, lambda: ask("long"))
    error = raised(anthropic.InternalServerError, lambda: ask("broken"))
    expect(error.request.headers["x-stainless-retry-count"] == "0", "the SDK asked once")
    stranger = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key="sk-unknown")
    raised(anthropic.AuthenticationError, lambda: ask("chat", stranger))
    raised(anthropic.BadRequestError, lambda: claude.messages.count_tokens(model="chat", messages=ASK))


def models_are_listed_by_the_sdk():
    names = [model.id for model in claude.models.list()]
    expect("chat" in names and claude.models.retrieve("chat").id == "chat", names)


for check in (
    a_response_is_an_object_of_the_sdk,
    a_streamed_response_is_gathered_by_the_sdk,
    a_conversation_goes_on_from_its_response,
    a_broken_response_is_mended_or_raises,
    a_response_is_resumed_as_its_page_says,
    ids_of_events_break_no_sdk,
    errors_of_responses_have_their_classes,
    a_message_is_an_object_of_the_sdk,
    a_streamed_message_is_gathered_by_the_sdk,
    tools_of_messages_go_there_and_back,
    a_broken_message_is_mended_or_raises,
    errors_of_messages_have_their_classes,
    models_are_listed_by_the_sdk,
):
    check()
    print("ok", check.__name__)
print(f"python: openai {openai.__version__}, anthropic {anthropic.__version__}: all good")
