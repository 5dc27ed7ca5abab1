"""The providers' own Python SDKs against the scripted wire servers: what these servers say is what those clients read.

Run by run.sh, with the lines of `cargo run --example wires` on its input.
"""

import json
import sys

import anthropic
import boto3
import botocore.config
import botocore.exceptions
import google.genai
import google.genai.errors
import openai

from checks import expect, raised

PLACES = dict(line.split() for line in sys.stdin)
TEXT = "Blue light is scattered most."
ASK = [{"role": "user", "content": "Why?"}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def anthropic_messages():
    client = anthropic.Anthropic(base_url=PLACES["anthropic"], api_key="key", max_retries=0)

    def ask(model, **more):
        with client.messages.stream(model=model, max_tokens=99, messages=ASK, **more) as stream:
            pieces = list(stream.text_stream)
            return stream.get_final_message(), pieces

    message, pieces = ask("text")
    expect(message.content[0].text == TEXT and message.stop_reason == "end_turn" and len(pieces) > 1, message)
    expect(message.usage.input_tokens == 10, message.usage)
    tools = [{"name": "get_weather", "input_schema": WEATHER}]
    message, _ = ask("tool", tools=tools)
    expect(message.stop_reason == "tool_use" and message.content[0].input == {"city": "Riga"}, message)
    message, _ = ask("refuses")
    expect(message.stop_reason == "refusal", message)
    error = raised(anthropic.RateLimitError, lambda: ask("limited"))
    expect(error.response.headers["retry-after"] == "1" and error.body["error"]["type"] == "rate_limit_error", error)
    error = raised(anthropic.APIStatusError, lambda: ask("overloaded"))
    expect(error.body["error"]["type"] == "overloaded_error", error)
    raised(anthropic.BadRequestError, lambda: ask("unfit"))


def openai_chat_completions():
    client = openai.OpenAI(base_url=PLACES["openai_chat"], api_key="key", max_retries=0)

    def ask(model, **more):
        with client.chat.completions.stream(model=model, messages=ASK, **more) as stream:
            for _ in stream:
                pass
            return stream.get_final_completion().choices[0]

    choice = ask("text")
    expect(choice.message.content == TEXT and choice.finish_reason == "stop", choice)
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
    choice = ask("tool", tools=tools)
    expect(json.loads(choice.message.tool_calls[0].function.arguments) == {"city": "Riga"}, choice)
    error = raised(openai.RateLimitError, lambda: ask("limited"))
    expect("retry-after" in error.response.headers, error.response.headers)
    raised(openai.APIError, lambda: ask("overloaded"))
    raised(openai.BadRequestError, lambda: ask("unfit"))


def openai_responses():
    client = openai.OpenAI(base_url=PLACES["openai_responses"], api_key="key", max_retries=0)

    def ask(model, **more):
        with client.responses.stream(model=model, input="Why?", **more) as stream:
            for _ in stream:
                pass
            return stream.get_final_response()

    response = ask("text")
    expect(response.output_text == TEXT and response.status == "completed", response)
    tools = [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": False}]
    response = ask("tool", tools=tools)
    call = next(item for item in response.output if item.type == "function_call")
    expect(json.loads(call.arguments) == {"city": "Riga"}, response)
    raised(openai.RateLimitError, lambda: ask("limited"))
    raised(openai.BadRequestError, lambda: ask("unfit"))


def google_gemini():
    options = google.genai.types.HttpOptions(base_url=PLACES["gemini"])
    client = google.genai.Client(api_key="key", http_options=options)

    def ask(model):
        return list(client.models.generate_content_stream(model=model, contents="Why?"))

    chunks = ask("text")
    expect("".join(chunk.text or "" for chunk in chunks) == TEXT and len(chunks) > 1, chunks)
    expect(chunks[-1].candidates[0].finish_reason == "STOP", chunks[-1])
    calls = [call for chunk in ask("tool") for call in chunk.function_calls or []]
    expect(calls[0].name == "get_weather" and calls[0].args == {"city": "Riga"}, calls)
    error = raised(google.genai.errors.ClientError, lambda: ask("limited"))
    expect(error.code == 429 and error.status == "RESOURCE_EXHAUSTED", error)
    raised(google.genai.errors.ClientError, lambda: ask("unfit"))


def amazon_bedrock():
    once = botocore.config.Config(retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret", "region_name": "eu-central-1"}
    client = boto3.client("bedrock-runtime", endpoint_url=PLACES["bedrock"], config=once, **keys)

    def ask(model):
        messages = [{"role": "user", "content": [{"text": "Why?"}]}]
        return list(client.converse_stream(modelId=model, messages=messages)["stream"])

    def deltas(events):
        return [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]

    events = ask("text")
    expect("".join(delta["text"] for delta in deltas(events)) == TEXT, events)
    expect({"messageStop": {"stopReason": "end_turn"}} in events, events)
    arguments = "".join(delta["toolUse"]["input"] for delta in deltas(ask("tool")))
    expect(json.loads(arguments) == {"city": "Riga"}, arguments)
    error = raised(botocore.exceptions.ClientError, lambda: ask("limited"))
    expect(error.response["Error"]["Code"] == "ThrottlingException", error.response)
    raised(botocore.exceptions.EventStreamError, lambda: ask("overloaded"))
    error = raised(botocore.exceptions.ClientError, lambda: ask("unfit"))
    expect(error.response["Error"]["Code"] == "ValidationException", error.response)


for check in (anthropic_messages, openai_chat_completions, openai_responses, google_gemini, amazon_bedrock):
    check()
    print("ok", check.__name__)
print(f"python: anthropic {anthropic.__version__}, openai, google-genai and boto3 read the wires: all good")
