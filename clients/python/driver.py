"""Runs the calls of the specification with this package: one call as JSON on each line in, what its caller held out."""

import json
import sys
import threading

import relight
from relight.v1 import failure_pb2, model_pb2

FIELDS = ("route", "request_id")


def text_of(message):
    pieces = []
    for part in message.parts:
        pieces += [part.text.text, part.tool_call.name, *(piece.text.text for piece in part.tool_result.content)]
    return "".join(pieces)


def shown(history):
    return [[model_pb2.Role.Name(message.role), text_of(message)] for message in history]


def ended_with_answer(answer, prompt):
    history = [relight.user(prompt)]
    answer.apply_to(history)
    return {
        "ended": "answer",
        "text": answer.text,
        "target": answer.target,
        "tool_calls": [[call.id, call.name, call.arguments_json] for call in answer.tool_calls],
        "history": shown(history),
        "around": answer.around,
    }


def ended_with_failure(failure, thrown):
    name = failure_pb2.FailureClass.Name(failure.failure_class)
    return {"ended": "failure", "failure": [name, failure.user_message], "thrown": thrown}


def outcome(outcome, prompt):
    match outcome:
        case relight.Answer():
            return ended_with_answer(outcome, prompt)
        case relight.Failed(failure=failure):
            return ended_with_failure(failure, thrown=False)


def call_tool(client, call, fields, timeout):
    tool, history = call["tool"], []
    asked = tool["name"]
    options = {"goal": tool.get("goal", ""), "meta": tool.get("meta"), "timeout": timeout, **fields}
    if "call_id" in tool:
        asked = model_pb2.ToolCallPart(id=tool["call_id"], name=asked, arguments_json=json.dumps(tool["arguments"]))
    else:
        options["arguments"] = tool["arguments"]
    try:
        ended = client.try_call_tool(asked, **options) if call.get("return_failure") else client.call_tool(asked, **options)
    except relight.FailureError as error:
        error.apply_to(history)
        return ended_with_failure(error.failure, thrown=True) | {"history": shown(history)}
    ended.apply_to(history)
    if isinstance(ended, relight.Failed):
        return ended_with_failure(ended.failure, thrown=False) | {"history": shown(history)}
    return {
        "ended": "result",
        "text": ended.text,
        "target": ended.target,
        "structured": ended.structured,
        "history": shown(history),
    }


def read(stream, items, limit, cancel_after=None):
    for item in stream:
        match item:
            case str(text) | relight.Text(text=text):
                items.append(["text", text])
            case relight.Rewind(kept=kept):
                items.append(["rewind", kept])
        if len(items) == limit:
            return
        if len(items) == cancel_after:
            threading.Thread(target=stream.close).start()


def stream(client, call, fields, timeout, held):
    live, items = call.get("live", False), held.setdefault("items", [])
    options = {"live": live, "raise_failure": not call.get("return_failure", False), "timeout": timeout}
    limit = call.get("take", call.get("detach"))
    with client.stream(call["prompt"], **options, **fields) as answer:
        read(answer, items, limit, call.get("cancel_after"))
        if "take" in call:
            return {"ended": "left"}
        if "detach" not in call:
            return outcome(answer.outcome, call["prompt"])
        point = answer.detach()
    with client.resume(point, **options) as answer:
        read(answer, items, None)
        return outcome(answer.outcome, call["prompt"])


def watch(client, call, timeout, held):
    events = held.setdefault("events", [])
    with client.watch(after=call.get("after", ""), from_start=call.get("from_start", False), timeout=timeout) as feed:
        for event in feed:
            missed = event.WhichOneof("body") == "missed"
            events.append([event.cursor, f"missed {event.missed.count}" if missed else event.display_text])
            held["cursor"] = feed.cursor
            if len(events) == call["take"]:
                break
    return {"ended": "left"}


def distinct(client, call):
    """Calls until so many different answers came."""
    texts = set()
    for _ in range(call["most"]):
        texts.add(client.invoke(call["prompt"]).text)
        if len(texts) == call["distinct"]:
            break
    return {"texts": sorted(texts)}


def run(target, call):
    fields = {key: call[key] for key in FIELDS if key in call}
    timeout = call["timeout_ms"] / 1000 if "timeout_ms" in call else None
    reconnect = relight.Reconnect(attempts=call.get("attempts", 12), wait=0.05)
    tls = relight.Tls(ca=call["tls"].encode()) if call.get("tls") else False
    held = {}
    try:
        with relight.Client(target, api_key=call.get("api_key"), tls=tls, reconnect=reconnect) as client:
            if call["method"] == "stream":
                held |= stream(client, call, fields, timeout, held)
            elif call["method"] == "watch":
                held |= watch(client, call, timeout, held)
            elif call["method"] == "call_tool":
                held |= call_tool(client, call, fields, timeout)
            elif call["method"] == "distinct":
                held |= distinct(client, call)
            elif call.get("return_failure"):
                held |= outcome(client.try_invoke(call["prompt"], timeout=timeout, **fields), call["prompt"])
            else:
                held |= outcome(client.invoke(call["prompt"], timeout=timeout, **fields), call["prompt"])
    except relight.FailureError as error:
        held |= ended_with_failure(error.failure, thrown=True)
    except relight.StatusError as error:
        cancelled = "cancel_after" in call and error.code.name == "CANCELLED"
        held |= {"ended": "cancelled"} if cancelled else {"ended": "status", "status": [error.code.name, error.reason]}
    except relight.ProtocolError:
        held |= {"ended": "protocol"}
    return held


for line in sys.stdin:
    job = json.loads(line)
    print(json.dumps(run(job["target"], job["call"])), flush=True)
