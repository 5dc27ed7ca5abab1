#!/usr/bin/env python3
"""Calls by OpenAI's SDK: a request in JSON on standard input, what its caller holds in JSON on standard output.

    soundness my-gateway.yaml --caller "python crates/relight-lab/soundness/callers/openai_sdk.py"

Needs the package openai. Its own retries are off: they would hide what the gateway does.
"""

import json
import sys

import openai


def main():
    request = json.load(sys.stdin)
    base, _, _ = request["path"].rpartition("/chat/completions")
    client = openai.OpenAI(base_url=f"http://{request['address']}{base}", api_key="sk-none", max_retries=0,
                           timeout=30, default_headers=request["headers"])  # fmt: skip
    held = {"status": 0, "text": "", "tools": [], "finish": None, "error": None}
    try:
        answer = client.chat.completions.create(**request["body"])
        held["status"] = 200
        if request["body"].get("stream"):
            calls = {}
            for chunk in answer:
                for choice in chunk.choices[:1]:
                    held["text"] += choice.delta.content or ""
                    held["finish"] = choice.finish_reason or held["finish"]
                    for call in choice.delta.tool_calls or []:
                        name, arguments = calls.get(call.index, ("", ""))
                        calls[call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
            held["tools"] = [calls[index] for index in sorted(calls)]
        elif answer.choices:
            choice = answer.choices[0]
            held["text"], held["finish"] = choice.message.content or "", choice.finish_reason
            held["tools"] = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
    except openai.APIStatusError as error:
        held["status"], held["error"] = error.status_code, str(error)
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is what its caller holds
        held["error"] = f"{type(error).__name__}: {error}"
    json.dump(held, sys.stdout)


if __name__ == "__main__":
    main()
