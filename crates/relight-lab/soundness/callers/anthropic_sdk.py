#!/usr/bin/env python3
"""Calls by Anthropic's SDK, as openai_sdk.py does by OpenAI's: the gateway is called at its `/v1/messages`.

    soundness my-gateway.yaml --caller "python crates/relight-lab/soundness/callers/anthropic_sdk.py"

Needs the package anthropic, and a gateway that speaks its protocol, whatever dialect the provider has.
"""

import json
import sys

import anthropic

# The names of one ending in the protocol of chat completions, in which cases are written.
FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


def arguments(body):
    """The request as this SDK takes it."""
    tools = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in body.get("tools", [])]
    return {"model": body["model"], "messages": body["messages"], "max_tokens": body.get("max_tokens", 4096), **({"tools": tools} if tools else {})}


def main():
    request = json.load(sys.stdin)
    base, _, _ = request["path"].rpartition("/v1/chat/completions")
    client = anthropic.Anthropic(base_url=f"http://{request['address']}{base}", api_key="sk-none", max_retries=0, timeout=30,
                                 default_headers=request["headers"])  # fmt: skip
    held = {"status": 0, "text": "", "tools": [], "finish": None, "error": None}
    try:
        if request["body"].get("stream"):
            with client.messages.stream(**arguments(request["body"])) as stream:
                held["status"] = 200
                for text in stream.text_stream:
                    held["text"] += text
                answer = stream.get_final_message()
        else:
            answer = client.messages.create(**arguments(request["body"]))
            held["text"] = "".join(block.text for block in answer.content if block.type == "text")
        held["status"], held["finish"] = 200, FINISH.get(answer.stop_reason, answer.stop_reason)
        held["tools"] = [(block.name, json.dumps(block.input)) for block in answer.content if block.type == "tool_use"]
    except anthropic.APIStatusError as error:
        held["status"], held["error"] = error.status_code, str(error)
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is what its caller holds
        held["error"] = f"{type(error).__name__}: {error}"
    json.dump(held, sys.stdout)


if __name__ == "__main__":
    main()
