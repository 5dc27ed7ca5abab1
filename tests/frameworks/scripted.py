"""A provider that answers a script in the three protocols of the front, and a recorder before it or before Relight.

The provider answers as OpenAI and Anthropic do, with all the fields that these send (`tests/sdk/healthy.py`). The recorder keeps
what a framework sends: its later requests repeat the conversation as it holds it.
"""

import contextlib
import http.client
import http.server
import json
import sys
import threading

import drivers

sys.path.insert(0, str(drivers.ROOT / "tests" / "sdk"))

import healthy  # noqa: E402
from upstream import RAN, SHELLS, TEXT, WEATHER  # noqa: E402

PROTOCOLS = {"/v1/chat/completions": "chat", "/v1/messages": "messages", "/v1/responses": "responses"}
# Headers of one connection, and those that the recorder writes anew.
OF_CONNECTION = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
PIECE_BYTES = 1 << 16


@contextlib.contextmanager
def serving(handler, **more):
    """The address of a server of this handler, which holds these attributes."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), more))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


class Quiet(http.server.BaseHTTPRequestHandler):
    """A handler that logs nothing, and sends what it writes at once."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


class Provider(Quiet):
    """Calls the tool that it is offered, and then says what it returned."""

    def do_POST(self):
        asked, protocol = json.loads(self.body()), PROTOCOLS.get(self.path.split("?")[0])
        if protocol is None:
            return self.answer(404, "application/json", b'{"error": {"message": "not here", "type": "not_found_error"}}')
        document = ANSWERS[protocol](asked)
        if not asked.get("stream"):
            return self.answer(200, "application/json", json.dumps(document).encode())
        events = "".join(written(*event) for event in healthy.EVENTS[protocol](document))
        return self.answer(200, "text/event-stream", events.encode())

    def do_GET(self):
        self.answer(404, "application/json", b"{}")

    do_HEAD = do_GET

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def written(name, data):
    text = data if isinstance(data, str) else json.dumps(data)
    return ("" if name is None else f"event: {name}\n") + f"data: {text}\n\n"


def step(asked, names, has_result):
    """The tool to call and its arguments, or a text."""
    shell = next((name for name in names if name in SHELLS), None)
    if shell and not has_result:
        return shell, SHELLS[shell]
    if "get_weather" in names and "weather" in json.dumps(asked.get("messages", asked.get("input"))) and not has_result:
        return "get_weather", {"city": "Riga"}
    return None, RAN if shell else WEATHER if "get_weather" in names and has_result else TEXT


def of_chat(asked):
    names = [tool["function"]["name"] for tool in asked.get("tools", [])]
    name, said = step(asked, names, asked["messages"][-1]["role"] == "tool")
    if name is None:
        case = healthy.chat("", content=said, usage=healthy.chat_usage(cached=1024, reasoning=256))
    else:
        call = {"id": "call_1abc", "type": "function", "function": {"name": name, "arguments": json.dumps(said)}}
        case = healthy.chat("", "tool_calls", content="Let me look.", tool_calls=[call])
    return {**case.document, "model": asked["model"]}


def of_messages(asked):
    names = [tool.get("name") for tool in asked.get("tools", [])]
    last = asked["messages"][-1]["content"]
    results = [block for block in last if isinstance(block, dict) and block["type"] == "tool_result"]
    name, said = step(asked, names, bool(results))
    if name is None:
        case = healthy.message("", healthy.said(said), usage={"cache_read_input_tokens": 1024})
    else:
        thought = {"type": "thinking", "thinking": "I must look.", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}
        call = {"type": "tool_use", "id": "toolu_1A09q90qw90lq917835lq9", "name": name, "input": said}
        thinks = [thought] if asked.get("thinking", {}).get("type") in ("enabled", "adaptive") else []
        case = healthy.message("", *thinks, healthy.said("Let me look."), call, stop="tool_use")
    return {**case.document, "model": asked["model"]}


def of_responses(asked):
    names = [tool.get("name") for tool in asked.get("tools", [])]
    last = asked["input"][-1] if isinstance(asked["input"], list) else {}
    name, said = step(asked, names, last.get("type") in ("function_call_output", "custom_tool_call_output"))
    if name is None:
        case = healthy.response("", healthy.output_message(healthy.output_text(said)), usage=(1024, 256))
    else:
        call = {"id": "fc_1", "type": "function_call", "status": "completed", "arguments": json.dumps(said)}
        case = healthy.response("", healthy.THOUGHT, {**call, "call_id": "call_1", "name": name})
    return {**healthy.repeating(case.document, asked), "model": asked["model"]}


ANSWERS = {"chat": of_chat, "messages": of_messages, "responses": of_responses}


class Recorder(Quiet):
    """Passes requests on to `behind`, and keeps the bodies of those that ask for an answer."""

    recording: "Recording"

    def do_POST(self):
        body = self.body()
        if self.path.split("?")[0] in PROTOCOLS:
            self.recording.requests.append(body.decode())
        self.pass_on(body)

    def do_GET(self):
        self.pass_on(None)

    do_HEAD = do_GET

    def pass_on(self, body):
        connection = http.client.HTTPConnection(self.recording.behind, timeout=drivers.PATIENCE)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in OF_CONNECTION}
        with contextlib.closing(connection):
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in OF_CONNECTION:
                    self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            if self.command == "HEAD":
                return
            while piece := response.read1(PIECE_BYTES):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")


class Recording:
    """What was sent, and to whom it is passed on: the address stays the same, so that frameworks see no other."""

    def __init__(self):
        self.behind, self.requests, self.address = "", [], ""

    def of(self, behind):
        self.behind, self.requests = behind, []


@contextlib.contextmanager
def recorder():
    recording = Recording()
    with serving(Recorder, recording=recording) as address:
        recording.address = f"http://{address}"
        yield recording
