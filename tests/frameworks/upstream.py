"""A model server (chat completions) that counts its calls; the model's name says how it behaves.

`limited-…` refuses the first call, `cut-…` breaks the first answer off, `down-…` and `dead-…` fail always; any other answers.
Asked for the weather with tools at hand it calls one, and then says what the tool said; with a shell at hand it runs a command
in it, and then says so.
"""

import collections
import http.server
import json
import threading

TEXT = "Blue light is scattered most by the air."
WEATHER = "It is sunny in Riga."
RAN = "The command has run."
# What coding agents call their shell, and a command for it.
SHELLS = {
    "Bash": {"command": "echo relit > ran", "description": "Runs it"},
    "bash": {"command": "echo relit > ran", "description": "Runs it"},
    "exec_command": {"cmd": "echo relit > ran"},
}


class Upstream:
    """A running server."""

    def __init__(self):
        self.calls = collections.Counter()
        self._lock = threading.Lock()
        upstream = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                upstream._answer(self, body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def stop(self):
        self._server.shutdown()

    def _answer(self, request, body):
        model = body["model"]
        with self._lock:
            self.calls[model] += 1
            first = self.calls[model] == 1
        kind = model.split("-")[0]
        if kind in ("down", "dead"):
            return _refuse(request, 503, {}, "overloaded")
        if kind == "limited" and first:
            return _refuse(request, 429, {"retry-after": "1"}, "rate_limit_exceeded")
        messages = body["messages"]
        asked = [message for message in messages if message["role"] == "user"][-1]["content"]
        asked = asked if isinstance(asked, str) else json.dumps(asked)
        shell = next((name for name in map(_name, body.get("tools", [])) if name in SHELLS), None)
        has_result = messages[-1]["role"] == "tool"
        if shell and not has_result:
            return _call(request, model, shell, SHELLS[shell])
        if "weather" in asked and body.get("tools") and not has_result:
            return _call(request, model, "get_weather", {"city": "Riga"})
        text = RAN if shell else WEATHER if "weather" in asked else TEXT
        words = [{"content": word} for word in text.replace(" ", " \n").split("\n")]
        pieces = [{"role": "assistant", "content": ""}, *words]
        if kind == "cut" and first:
            return _stream(request, model, pieces[:4], None)
        return _stream(request, model, pieces, "stop")


def _name(tool):
    return tool["function"]["name"]


def _call(request, model, tool, arguments):
    call = {"index": 0, "id": "call_1", "type": "function"}
    call["function"] = {"name": tool, "arguments": json.dumps(arguments)}
    _stream(request, model, [{"role": "assistant", "tool_calls": [call]}], "tool_calls")


def _refuse(request, status, headers, code):
    body = json.dumps({"error": {"message": "Not now.", "type": code, "code": code}}).encode()
    request.send_response(status)
    for name, value in {**headers, "content-type": "application/json", "content-length": str(len(body))}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)


def _stream(request, model, deltas, finish):
    """Without a `finish` the connection ends where the answer does not."""
    request.send_response(200)
    request.send_header("content-type", "text/event-stream")
    request.send_header("transfer-encoding", "chunked")
    request.end_headers()
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": model}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    events = [{**frame, "choices": [choice]} for choice in choices]
    if finish:
        events.append({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        usage = {"prompt_tokens": 9, "completion_tokens": len(deltas), "total_tokens": 9 + len(deltas)}
        events.append({**frame, "choices": [], "usage": usage})
    data = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    if finish:
        data.append(b"data: [DONE]\n\n")
    for piece in data:
        request.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        request.wfile.flush()
    if finish:
        request.wfile.write(b"0\r\n\r\n")
    else:
        request.close_connection = True
