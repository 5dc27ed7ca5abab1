"""Healthy answers of OpenAI's and Anthropic's APIs with all the fields that these send, as documents and as streams of the same.

A case is a client's request and the provider's whole answer. The stream is made of the document, event by event as the provider
cuts it, so that the two cannot disagree.
"""

import copy
import dataclasses
import json

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
PLACE_JSON = '{"city":"Riga","country":"Latvia"}'
ASK = [{"role": "user", "content": "Which city?"}]
# As long as the pieces of a stream.
PIECE = 7


@dataclasses.dataclass(frozen=True)
class Case:
    """One question and its answer."""

    protocol: str
    name: str
    document: dict
    # Arguments of the SDK's method, beside the model.
    request: dict = dataclasses.field(default_factory=dict)
    # Whether the SDK reads the answer's text as an object of a class.
    is_parsed: bool = False


def pieces(text):
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


# --- chat completions


def chat(name, finish="stop", request=None, usage=None, is_parsed=False, **message):
    message = {"role": "assistant", "content": None, "refusal": None, "annotations": [], **message}
    document = {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion",
        "created": 1741569952,
        "model": "gpt-5.1-2025-11-13",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": usage or chat_usage(),
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
    }
    return Case("chat", name, document, {"messages": ASK, **(request or {})}, is_parsed)


def chat_usage(cached=0, reasoning=0):
    return {
        "prompt_tokens": 1519,
        "completion_tokens": 310,
        "total_tokens": 1829,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def chat_call(number, arguments):
    return {"id": f"call_{number}abc", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


CHAT_FIELDS = ("role", "content", "refusal", "annotations", "reasoning_content", "tool_calls")


def chat_events(document):
    """The chunks of a stream that was asked for its usage."""
    around = {key: value for key, value in document.items() if key not in ("choices", "usage")}
    around["object"] = "chat.completion.chunk"
    choice = document["choices"][0]
    message = choice["message"]
    deltas = [{"role": "assistant", "content": "" if message["content"] is not None else None, "refusal": None}]
    for field in ("reasoning_content", "content", "refusal"):
        deltas += [{field: piece} for piece in pieces(message.get(field) or "")]
    for index, call in enumerate(message.get("tool_calls") or []):
        arguments = call["function"]["arguments"]
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]})
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces(arguments)]
    deltas += [{field: value} for field, value in message.items() if field not in CHAT_FIELDS]
    ends = [None] * len(deltas) + [choice["finish_reason"]]
    for delta, end in zip([*deltas, {}], ends):
        choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}]
        yield None, {**around, "choices": choices, "usage": None, "obfuscation": "aK3f"}
    yield None, {**around, "choices": [], "usage": document["usage"], "obfuscation": ""}
    yield None, "[DONE]"


CHAT_TOOLS = {"tools": [{"type": "function", "function": {"name": "get_weather", "parameters": CITY, "strict": True}}]}
CHAT = [
    chat("text", content="Größte 🙂 city: Riga."),
    chat("length", "length", content="It is the city of", request={"max_completion_tokens": 310}),
    chat("stop sequence", content="It is", request={"stop": ["the"]}),
    chat("content filter", "content_filter", content="It is"),
    chat("tool call", "tool_calls", request=CHAT_TOOLS, tool_calls=[chat_call(1, '{"city":"Riga"}')]),
    chat(
        "text and tool calls",
        "tool_calls",
        request=CHAT_TOOLS,
        content="Let me look.",
        tool_calls=[chat_call(1, '{"city": "Riga"}'), chat_call(2, '{"city": "Rīga"}')],
    ),
    chat("usage details", content="Riga.", usage=chat_usage(cached=1024, reasoning=256)),
    chat("reasoning", content="Riga.", reasoning_content="There is one city.", usage=chat_usage(reasoning=256)),
    chat("stop sequence at once", content="", request={"stop": ["the"]}),
    chat("unknown fields", content="Riga.", of_tomorrow={"score": 0.5}),
    chat("structured", content=PLACE_JSON, is_parsed=True),
    chat("structured refusal", refusal="I cannot help with that.", is_parsed=True),
]


# --- messages


def message(name, *content, stop="end_turn", request=None, usage=None, is_parsed=False, **more):
    document = {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 472,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 89,
            "service_tier": "standard",
            "inference_geo": "not_available",
            **(usage or {}),
        },
        **more,
    }
    return Case("messages", name, document, {"messages": ASK, "max_tokens": 2048, **(request or {})}, is_parsed)


def tool_use(number, city):
    return {"type": "tool_use", "id": f"toolu_{number}A09q90qw90lq917835lq9", "name": "get_weather", "input": {"city": city}}


def said(text):
    return {"type": "text", "text": text}


def message_events(document):
    usage = document["usage"]
    begun = {**document, "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
    begun.pop("stop_details", None)
    yield from named({"type": "message_start", "message": begun})
    for index, block in enumerate(document["content"]):
        start, deltas = dict(block), []
        if block["type"] == "text":
            start["text"] = ""
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
            if "citations" in block:
                start["citations"] = []
                deltas += [{"type": "citations_delta", "citation": citation} for citation in block["citations"]]
        elif block["type"] == "thinking":
            start |= {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif block["type"] in ("tool_use", "server_tool_use"):
            start["input"] = {}
            # The first piece is empty.
            arguments = ["", *pieces(json.dumps(block["input"]))]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in arguments]
        yield from named({"type": "content_block_start", "index": index, "content_block": start})
        if index == 0:
            yield from named({"type": "ping"})
        for delta in deltas:
            yield from named({"type": "content_block_delta", "index": index, "delta": delta})
        yield from named({"type": "content_block_stop", "index": index})
    counted = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens", "server_tool_use")
    ended = {field: document[field] for field in ("stop_reason", "stop_sequence", "stop_details") if field in document}
    cost = {field: usage[field] for field in counted if field in usage}
    yield from named({"type": "message_delta", "delta": ended, "usage": cost})
    yield from named({"type": "message_stop"})


def named(event):
    yield event["type"], event


MESSAGE_TOOLS = {"tools": [{"name": "get_weather", "input_schema": CITY}]}
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
SEARCH = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
SEARCHED = [
    {"type": "server_tool_use", "id": "srvtoolu_01W", "name": "web_search", "input": {"query": "city of Latvia"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_01W",
        "content": [
            {
                "type": "web_search_result",
                "title": "Riga",
                "url": "https://example.com/",
                "encrypted_content": "Eqg",
                "page_age": None,
            }
        ],
    },
]
CITATION = {
    "type": "web_search_result_location",
    "url": "https://example.com/",
    "title": "Riga",
    "encrypted_index": "Eo8",
    "cited_text": "Riga is a city.",
}
MESSAGES = [
    message("text", said("Größte 🙂 city: Riga.")),
    message("length", said("It is the city of"), stop="max_tokens"),
    message("stop sequence", said("It is"), stop="stop_sequence", stop_sequence="the", request={"stop_sequences": ["the"]}),
    message(
        "one of two stop sequences",
        said("It is"),
        stop="stop_sequence",
        stop_sequence="the",
        request={"stop_sequences": ["a", "the"]},
    ),
    message("tool call", tool_use(1, "Riga"), stop="tool_use", request=MESSAGE_TOOLS),
    message(
        "text and tool calls",
        said("Let me look."),
        tool_use(1, "Riga"),
        tool_use(2, "Rīga"),
        stop="tool_use",
        request=MESSAGE_TOOLS,
    ),
    message("usage details", said("Riga."), usage={"cache_read_input_tokens": 1024, "cache_creation_input_tokens": 12}),
    message(
        "thinking",
        {"type": "thinking", "thinking": "There is one city.", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"},
        {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
        said("Riga."),
        request=THINKING,
    ),
    message("refusal", said("I cannot"), stop="refusal"),
    message(
        "web search",
        *SEARCHED,
        said("Riga."),
        request=SEARCH,
        usage={"server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0}},
    ),
    message("citations", *SEARCHED, {**said("Riga."), "citations": [CITATION]}, request=SEARCH),
    message(
        "citations between texts",
        *SEARCHED,
        said("The city is "),
        {**said("Riga"), "citations": [CITATION]},
        said(" and it is "),
        {**said("in Latvia"), "citations": [CITATION, {**CITATION, "encrypted_index": "Eo9"}]},
        said("."),
        request=SEARCH,
    ),
    message(
        "explained refusal",
        said("I cannot"),
        stop="refusal",
        stop_details={"type": "refusal", "category": "cyber", "explanation": "That may do harm."},
    ),
    message("stop sequence at once", stop="stop_sequence", stop_sequence="the", request={"stop_sequences": ["the"]}),
    message(
        "tool call with its caller",
        {**tool_use(1, "Riga"), "caller": {"type": "direct"}},
        stop="tool_use",
        request=MESSAGE_TOOLS,
    ),
    message("structured", said(PLACE_JSON), is_parsed=True),
]


# --- responses


def response(name, *output, status="completed", reason=None, request=None, usage=None, is_parsed=False):
    cached, reasoning = usage or (0, 0)
    document = {
        "id": "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b",
        "object": "response",
        "created_at": 1741476542,
        "status": status,
        "background": False,
        "billing": {"payer": "developer"},
        "completed_at": 1741476543 if status == "completed" else None,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": reason and {"reason": reason},
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": "gpt-5.1-2025-11-13",
        "output": list(output),
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "prompt_cache_retention": None,
        "reasoning": {"effort": "none", "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 1519,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": 310,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": 1829,
        },
        "user": None,
        "metadata": {},
    }
    return Case("responses", name, document, {"input": "Which city?", "store": False, **(request or {})}, is_parsed)


def repeating(document, asked):
    """The response with what the API repeats of the request."""
    text = {**document["text"], **asked.get("text", {})}
    repeated = ("tools", "tool_choice", "max_output_tokens", "store", "instructions", "metadata", "parallel_tool_calls")
    return {**document, **{field: asked[field] for field in repeated if field in asked}, "text": text}


def output_message(*content, status="completed"):
    return {"id": "msg_67ccd2bf17f0", "type": "message", "status": status, "content": list(content), "role": "assistant"}


def output_text(text):
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def function_call(number, city):
    arguments = json.dumps({"city": city}, ensure_ascii=False)
    item = {"id": f"fc_{number}", "type": "function_call", "status": "completed", "arguments": arguments}
    return {**item, "call_id": f"call_{number}", "name": "get_weather"}


def response_events(document):
    events = unnumbered_events(document)
    for number, event in enumerate(events):
        yield from named({**event, "sequence_number": number})


def unnumbered_events(document):
    asked = {**document, "status": "in_progress", "completed_at": None, "incomplete_details": None, "output": [], "usage": None}
    yield {"type": "response.created", "response": asked}
    yield {"type": "response.in_progress", "response": asked}
    for index, item in enumerate(document["output"]):
        about = {"item_id": item["id"], "output_index": index}
        begun = copy.deepcopy(item)
        if "status" in item:
            begun["status"] = "in_progress"
        for field in ("content", "summary"):
            if field in item:
                begun[field] = []
        for field in ("arguments", "input"):
            if field in item:
                begun[field] = ""
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        yield from item_events(item, about)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{document['status']}", "response": document}


def item_events(item, about):
    def grown(kind, field, text, more=None, done=None, before_done=()):
        for piece in pieces(text):
            yield {"type": f"response.{kind}.delta", **about, **(more or {}), "delta": piece, "obfuscation": "k9"}
        yield from before_done
        yield {"type": f"response.{kind}.done", **about, **(more or {}), field: text, **(done or {})}

    for number, part in enumerate(item.get("summary", [])):
        place = {**about, "summary_index": number}
        yield {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
        yield from grown("reasoning_summary_text", "text", part["text"], {"summary_index": number})
        yield {"type": "response.reasoning_summary_part.done", **place, "part": part}
    for number, part in enumerate(item.get("content", [])):
        place = {**about, "content_index": number}
        field, more = ("refusal", {}) if part["type"] == "refusal" else ("text", {"logprobs": []})
        empty = {**part, field: "", **({"annotations": []} if field == "text" else {})}
        yield {"type": "response.content_part.added", **place, "part": empty}
        added = [
            {
                "type": "response.output_text.annotation.added",
                **place,
                "annotation_index": index,
                "annotation": annotation,
            }
            for index, annotation in enumerate(part.get("annotations", []))
        ]
        kind = "refusal" if field == "refusal" else "output_text"
        yield from grown(kind, field, part[field], {"content_index": number, **more}, before_done=added)
        yield {"type": "response.content_part.done", **place, "part": part}
    if item["type"] == "function_call":
        yield from grown("function_call_arguments", "arguments", item["arguments"], done={"name": item["name"]})
    if item["type"] == "custom_tool_call":
        yield from grown("custom_tool_call_input", "input", item["input"])


RESPONSE_TOOLS = {"tools": [{"type": "function", "name": "get_weather", "parameters": CITY, "strict": True}]}
CUSTOM_TOOLS = {"tools": [{"type": "custom", "name": "shell"}]}
CUSTOM_CALL = {
    "id": "ctc_1",
    "type": "custom_tool_call",
    "status": "completed",
    "call_id": "call_3",
    "name": "shell",
    "input": "ls -l\n",
}
WEB_SEARCH = {"tools": [{"type": "web_search"}]}
WEB_CALL = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "city of Latvia"},
}
ANNOTATION = {"type": "url_citation", "start_index": 0, "end_index": 4, "url": "https://example.com/", "title": "Riga"}
THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "There is one city."}, {"type": "summary_text", "text": "It is Riga."}],
    "encrypted_content": "gAAAAABpQkx0",
}
ENCRYPTED = {"include": ["reasoning.encrypted_content"]}
RESPONSES = [
    response("text", output_message(output_text("Größte 🙂 city: Riga."))),
    response(
        "length",
        output_message(output_text("It is the city of"), status="incomplete"),
        status="incomplete",
        reason="max_output_tokens",
        request={"max_output_tokens": 310},
    ),
    response(
        "content filter",
        output_message(output_text("It is"), status="incomplete"),
        status="incomplete",
        reason="content_filter",
    ),
    response("tool call", function_call(1, "Riga"), request=RESPONSE_TOOLS),
    response(
        "text and tool calls",
        output_message(output_text("Let me look.")),
        function_call(1, "Riga"),
        function_call(2, "Rīga"),
        request=RESPONSE_TOOLS,
    ),
    response("custom tool call", CUSTOM_CALL, request=CUSTOM_TOOLS),
    response("usage details", output_message(output_text("Riga.")), usage=(1024, 256)),
    response("reasoning", THOUGHT, output_message(output_text("Riga.")), usage=(0, 256), request=ENCRYPTED),
    response("reasoning in one part", {**THOUGHT, "summary": THOUGHT["summary"][:1]}, output_message(output_text("Riga."))),
    response("web search", WEB_CALL, output_message(output_text("Riga.")), request=WEB_SEARCH),
    response("citations", WEB_CALL, output_message({**output_text("Riga."), "annotations": [ANNOTATION]}), request=WEB_SEARCH),
    response(
        "reasoning without a summary",
        {**THOUGHT, "summary": []},
        output_message(output_text("Riga.")),
        request=ENCRYPTED,
    ),
    response("refusal", output_message({"type": "refusal", "refusal": "I cannot help with that."})),
    response("structured", output_message(output_text(PLACE_JSON)), is_parsed=True),
]

EVENTS = {"chat": chat_events, "messages": message_events, "responses": response_events}
CASES = [*CHAT, *MESSAGES, *RESPONSES]
