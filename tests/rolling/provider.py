"""A provider of chat completions that counts its requests by what they ask, and fails, limits or answers by the model."""

import collections
import contextlib
import http.server
import json
import math
import threading
import time

# The words of an answer, which are sent one by one. A whole answer takes as long: 1.2 s.
WORDS = "one after another the lamps along the harbour were lit".split()
APART = 0.12
# Seconds until a limit ends, when it is first told.
LIMIT = 8


def answer(question):
    """The only right answer to a question."""
    return " ".join([f"[{question}]", *WORDS])


class Provider:
    """A server on a port of its own; used in a `with` statement."""

    def __init__(self):
        self.asked, self.refusals, self.lock = collections.Counter(), {}, threading.Lock()
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Else each word waits for the acknowledgement of the one before it.
            disable_nagle_algorithm = True

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                # A replica that ends, or a caller that goes, ends its connections.
                with contextlib.suppress(ConnectionError):
                    provider.respond(self, request)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def fail(self, model):
        """From now on the calls of a model fail."""
        body = {"error": {"message": "The service is unavailable.", "type": "server_error"}}
        self.refusals[model] = lambda: (503, {}, body)

    def limit(self, model):
        """From now on the calls of a model are refused, with the time until the limit ends."""
        ends = time.monotonic() + LIMIT
        body = {"error": {"message": "Rate limit reached.", "code": "rate_limit_exceeded"}}
        self.refusals[model] = lambda: (429, {"retry-after": str(max(1, math.ceil(ends - time.monotonic())))}, body)

    def answer(self, model):
        """From now on the calls of a model are answered again."""
        self.refusals[model] = None

    def requests(self, model):
        """How many requests of a model there were."""
        with self.lock:
            return sum(count for (of, _), count in self.asked.items() if of == model)

    def questions(self, model):
        """How often each question was put to a model."""
        with self.lock:
            return {question: count for (of, question), count in self.asked.items() if of == model}

    def respond(self, handler, request):
        model, question = request["model"], text(request["messages"][-1])
        with self.lock:
            self.asked[model, question] += 1
        if refusal := self.refusals.get(model):
            send(handler, *refusal())
            return
        usage = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}
        whole = {"id": "chatcmpl-1", "created": 1, "model": model, "usage": usage}
        if not request.get("stream"):
            time.sleep(len(WORDS) * APART)
            message = {"role": "assistant", "content": answer(question)}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            send(handler, 200, {}, whole | {"object": "chat.completion", "choices": choices})
            return
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        head = {"id": "chatcmpl-1", "created": 1, "model": model, "object": "chat.completion.chunk"}
        for number, word in enumerate(answer(question).split(" ")):
            delta = {"content": word if number == 0 else f" {word}"}
            chunk(handler, json.dumps(head | {"choices": [{"index": 0, "delta": delta}]}))
            time.sleep(APART)
        chunk(handler, json.dumps(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        chunk(handler, json.dumps(head | {"choices": [], "usage": usage}))
        chunk(handler, "[DONE]")
        handler.wfile.write(b"0\r\n\r\n")


def text(message):
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def send(handler, status, headers, body):
    sent = json.dumps(body).encode()
    handler.send_response(status)
    for name, value in {"content-type": "application/json", "content-length": str(len(sent)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(sent)


def chunk(handler, data):
    sent = f"data: {data}\n\n".encode()
    handler.wfile.write(f"{len(sent):x}\r\n".encode() + sent + b"\r\n")
