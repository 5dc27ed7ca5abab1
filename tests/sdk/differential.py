"""With and without Relight, the same healthy answer is the same object of the providers' own Python SDKs.

    tests/sdk/differential.py BINARY

A server answers as OpenAI and Anthropic do. Each of its answers is read twice by the SDK, from it and through `relight serve`
before it, as a document and as a stream. The two objects are compared field by field, and the kinds of a stream's events. What
may differ is the table in docs/dialects.md, section "What differs from a direct connection", and nothing else; a field in it that
no answer needs is wrong, too.
"""

import collections
import contextlib
import functools
import http.server
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

import anthropic
import openai
import pydantic

import healthy

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "dialects.md"
SECTION = "What differs from a direct connection"
DIALECTS = {"chat": "openai_chat", "messages": "anthropic", "responses": "openai_responses"}
# The names of the protocols in the documentation.
PROTOCOLS = {"chat completions": "chat", "messages": "messages", "responses": "responses"}
PATIENCE_SECONDS = 30


class Place(pydantic.BaseModel):
    city: str
    country: str


class Provider(http.server.BaseHTTPRequestHandler):
    """Answers with the case that the request's model names, as a document or as a stream."""

    protocol_version = "HTTP/1.1"
    # A response in two packets waits for the client's acknowledgement otherwise.
    disable_nagle_algorithm = True

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        protocol, number = asked["model"].split("-")
        case = [case for case in healthy.CASES if case.protocol == protocol][int(number)]
        document = healthy.repeating(case.document, asked) if protocol == "responses" else case.document
        if asked.get("stream"):
            kind, body = "text/event-stream", b"".join(map(written, healthy.EVENTS[protocol](document)))
        else:
            kind, body = "application/json", json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-request-id", "req_7f3a")
        self.send_header("request-id", "req_7f3a")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def written(event):
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data)
    return ("" if name is None else f"event: {name}\n").encode() + f"data: {text}\n\n".encode()


def configuration(upstream):
    """One target and one route for each case, both named as the case's model."""
    providers = "".join(
        f'  {protocol}: {{ dialect: {dialect}, base_url: "{upstream}{"" if protocol == "messages" else "/v1"}", '
        "api_key: k, allow_plaintext: true }\n"
        for protocol, dialect in DIALECTS.items()
    )
    models = [(case.protocol, model_of(case)) for case in healthy.CASES]
    targets = "".join(f"  {model}: {{ provider: {protocol}, model: {model} }}\n" for protocol, model in models)
    routes = "".join(f"  {model}: {{ targets: [{model}] }}\n" for _, model in models)
    server = 'server: { listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", openai_front: { listen: "127.0.0.1:0" } }\n'
    return f"{server}journal: {{ store: memory }}\nproviders:\n{providers}targets:\n{targets}routes:\n{routes}"


def model_of(case):
    number = [other for other in healthy.CASES if other.protocol == case.protocol].index(case)
    return f"{case.protocol}-{number}"


@contextlib.contextmanager
def upstream():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


@contextlib.contextmanager
def relight(binary, before):
    """The address of a front before this upstream."""
    with tempfile.TemporaryDirectory() as folder:
        config, log = pathlib.Path(folder, "relight.yaml"), pathlib.Path(folder, "log")
        config.write_text(configuration(before))
        with log.open("w") as errors:
            process = subprocess.Popen([binary, "serve", "--config", config], stdout=errors, stderr=errors)
        try:
            yield front_address(process, log)
        finally:
            process.terminate()
            process.wait()


def front_address(process, log):
    end = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < end:
        if found := re.search(r"openai_front\S*?(127\.0\.0\.1:\d+)", log.read_text()):
            return f"http://{found[1]}"
        time.sleep(0.05)
    raise SystemExit(f"FAILED: it does not serve:\n{log.read_text()}")


# --- the SDKs


class Seen:
    """What a client holds at the end, and the kinds of the events that led to it."""

    def __init__(self, held, kinds=()):
        # Fields that are not set are null for who reads them.
        self.fields = dict(flat(held.model_dump(mode="json", warnings=False)))
        self.kinds = merged(kinds)


def merged(kinds):
    """One for each run of the same: how an answer is cut into pieces is not compared."""
    return [kind for kind, _ in itertools.groupby(kinds)]


def flat(value, path=""):
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from flat(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from flat(inner, f"{path}[{index}]")
    else:
        yield path, value


@functools.cache
def openai_client(address):
    return openai.OpenAI(base_url=f"{address}/v1", api_key="k", max_retries=0)


@functools.cache
def anthropic_client(address):
    return anthropic.Anthropic(base_url=address, api_key="k", max_retries=0)


def chat(address, case, stream):
    completions = openai_client(address).chat.completions
    request = {"model": model_of(case), **case.request}
    form = {"response_format": Place} if case.is_parsed else {}
    if not stream:
        ask = completions.parse if case.is_parsed else completions.create
        return Seen(ask(**request, **form))
    kinds = []
    with completions.stream(**request, **form, stream_options={"include_usage": True}) as events:
        # The SDK raises what ends early, and holds it all the same.
        try:
            for event in events:
                if event.type == "chunk":
                    kinds.append(kind_of_chunk(event.chunk))
            return Seen(events.get_final_completion(), kinds)
        except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError) as error:
            return Seen(events.current_completion_snapshot, [*kinds, type(error).__name__])


def kind_of_chunk(chunk):
    if not chunk.choices:
        return "usage"
    choice = chunk.choices[0]
    said = [name for name, value in choice.delta.model_dump().items() if value not in (None, "")]
    return " ".join([*said, *([choice.finish_reason] if choice.finish_reason else [])])


def messages(address, case, stream):
    client = anthropic_client(address).messages
    request = {"model": model_of(case), **case.request}
    form = {"output_format": Place} if case.is_parsed else {}
    if not stream:
        ask = client.parse if case.is_parsed else client.create
        return Seen(ask(**request, **form))
    kinds = []
    with client.stream(**request, **form) as events:
        for event in events:
            if event.type.startswith(("message_", "content_block_")):
                delta = getattr(event, "delta", None)
                kinds.append(" ".join([event.type, *([delta.type] if hasattr(delta, "type") else [])]))
        return Seen(events.get_final_message(), kinds)


def responses(address, case, stream):
    client = openai_client(address).responses
    request = {"model": model_of(case), **case.request}
    form = {"text_format": Place} if case.is_parsed else {}
    if not stream:
        ask = client.parse if case.is_parsed else client.create
        return Seen(ask(**request, **form))
    kinds = []
    with client.stream(**request, **form) as events:
        for event in events:
            kinds.append(event.type)
            if event.type in ("response.completed", "response.incomplete"):
                held = event.response
        return Seen(held, kinds)


ASK = {"chat": chat, "messages": messages, "responses": responses}


# --- the comparison


def allowed():
    """Rows of the page's table: protocol, and a field as `choices[].message.annotations` or the kind of an event."""
    section = PAGE.read_text().split(f"## {SECTION}\n", 1)[1].split("\n## ", 1)[0]
    rows = set()
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in PROTOCOLS:
            rows |= {(PROTOCOLS[cells[0]], field) for field in re.findall(r"`([^`]+)`", cells[1])}
    return rows


def row_of(protocol, path, rows):
    """The row that names the field or what is around it."""
    general = re.sub(r"\[\d+\]", "[]", path)
    for end in [len(general), *(match.start() for match in re.finditer(r"[.\[]", general))]:
        if (protocol, general[:end]) in rows:
            return protocol, general[:end]
    return None


def differences(direct, through, rows, protocol):
    for path in sorted({*direct.fields, *through.fields}):
        one, other = direct.fields.get(path), through.fields.get(path)
        if one != other:
            yield path, one, other
    for kind in sorted({*direct.kinds, *through.kinds}):
        one, other = direct.kinds.count(kind), through.kinds.count(kind)
        if one != other and (protocol, kind) in rows:
            yield kind, one, other
    one, other = (merged(kind for kind in seen.kinds if (protocol, kind) not in rows) for seen in (direct, through))
    if one != other:
        yield "the events", one, other


def main():
    binary = sys.argv[1]
    rows, used, unforeseen = allowed(), collections.Counter(), []
    with upstream() as provider, relight(binary, provider) as front:
        for case, stream in itertools.product(healthy.CASES, [False, True]):
            ask = ASK[case.protocol]
            seen = ask(provider, case, stream), ask(front, case, stream)
            for path, one, other in differences(*seen, rows, case.protocol):
                row = row_of(case.protocol, path, rows)
                used[row] += 1
                if row is None:
                    kind = "stream" if stream else "document"
                    where = f"{case.protocol}, {case.name}, {kind}: {path}"
                    unforeseen.append(f"{where} is {one!r} directly, {other!r} through Relight")
    for stale in sorted(rows - set(used)):
        unforeseen.append(f"{stale[0]}: nothing differs in `{stale[1]}`, which the page names")
    if unforeseen:
        raise SystemExit("\n".join(["FAILED", *unforeseen]))
    print(f"ok {len(healthy.CASES)} answers, as documents and as streams, are the same but for {len(rows)} fields and events")


if __name__ == "__main__":
    main()
