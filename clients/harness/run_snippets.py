"""Runs every snippet of docs/clients.md as it is written, but for its address, against the real server.

CLIENT_LANGUAGES names the languages whose packages were built, by the words behind their fences.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

import certificates
import grpc
from drivers import CLIENTS
from relight.v1 import invocation_pb2, recovery_service_pb2, recovery_service_pb2_grpc
from replica import Replica

_KEY = "relight-key-of-this-test"
_PATIENCE = 240
_PLAIN, _SECURED = "127.0.0.1:50051", "dns:///relight-headless:50051"
CONFIG = """
journal: { store: memory }
providers:
  scripted:
    dialect: scripted
    script:
      models:
        echo: { otherwise: { answer: { text: "Blue scatters most: {user}", tokens_per_second: 90 } } }
        broken: { otherwise: { status: { code: 400, body: { error: { message: "It cannot be read." } } } } }
        agent: { otherwise: { answer: { tool_calls: [{ name: get_weather, arguments: { city: Atlantis } }] } } }
targets:
  echo: { provider: scripted, model: echo }
  broken: { provider: scripted, model: broken }
  agent: { provider: scripted, model: agent }
routes: { default: { targets: [echo] }, broken: { targets: [broken] }, agent: { targets: [agent] } }
"""
TOOLS = """
tools:
  servers:
    weather:
      http:
        base_url: "http://127.0.0.1:{port}"
        tools: { get_weather: { method: GET, path: "/weather/{city}", description: The weather now. } }
  tools: { get_weather: { read_only: true } }
"""
_UNKNOWN_CITY = "there is no city of this name"
_GO_IMPORTS = {
    "context": "context",
    "tls": "crypto/tls",
    "x509": "crypto/x509",
    "fmt": "fmt",
    "os": "os",
    "time": "time",
    "relight": "relight.dev/api/relight",
    "v1": "relight.dev/api/relight/v1",
}

Runner = Callable[[pathlib.Path, list[str]], list[list[str]]]


def snippets(language: str) -> list[str]:
    text = (CLIENTS.parent / "docs" / "clients.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def python(folder: pathlib.Path, blocks: list[str]) -> list[list[str]]:
    commands = []
    for number, block in enumerate(blocks):
        path = folder / f"snippet{number}.py"
        path.write_text(block)
        commands.append([sys.executable, str(path)])
    return commands


def typescript(_: pathlib.Path, blocks: list[str]) -> list[list[str]]:
    # In the package, so that it is found by its own name.
    commands = []
    for number, block in enumerate(blocks):
        path = CLIENTS / "typescript" / "dist" / f"snippet{number}.mjs"
        path.write_text(block)
        commands.append(["node", str(path)])
    return commands


def go(folder: pathlib.Path, blocks: list[str]) -> list[list[str]]:
    """One program of all snippets, which runs the one with the number that it is given."""
    whole = "\n".join(f"func(ctx context.Context) error {{\n{block}\nreturn nil\n}}," for block in blocks)
    body = f"""
        func main() {{
            snippets := []func(context.Context) error{{ {whole} }}
            number, _ := strconv.Atoi(os.Args[1])
            if err := snippets[number](context.Background()); err != nil {{
                fmt.Println("FAILED", err)
                os.Exit(1)
            }}
        }}
    """
    used = {path for name, path in _GO_IMPORTS.items() if re.search(rf"\b{name}\.", body)} | {"strconv"}
    source, program = folder / "main.go", folder / "snippets"
    imports = "\n".join(f'"{path}"' for path in sorted(used)).replace('"relight.dev/api/relight/v1"', 'v1 "relight.dev/api/relight/v1"')
    source.write_text(f"package main\nimport (\n{imports}\n)\n{body}")
    subprocess.run(["go", "build", "-o", str(program), str(source)], cwd=CLIENTS / "go", check=True)
    return [[str(program), str(number)] for number in range(len(blocks))]


def java(folder: pathlib.Path, blocks: list[str]) -> list[list[str]]:
    """One class of all snippets, which runs the one with the number that it is given."""
    whole = "\n".join(f"case {number} -> {{\n{block}\n}}" for number, block in enumerate(blocks))
    body = f"""
        public class Snippets {{
            public static void main(String[] arguments) throws Exception {{
                switch (Integer.parseInt(arguments[0])) {{ {whole} }}
            }}
        }}
    """
    source = folder / "Snippets.java"
    imports = "".join(f"import {name}.*;\n" for name in ("dev.relight.client", "dev.relight.v1", "io.grpc", "java.io", "java.time", "java.util"))
    # Names that several of these packages have.
    imports += "import dev.relight.client.StatusException;\nimport dev.relight.v1.Failure;\n"
    source.write_text(imports + body)
    target = CLIENTS / "java" / "target"
    path = f"{target / 'classes'}:{target / 'lib'}/*:{folder}"
    subprocess.run(["javac", "-cp", path, "-d", str(folder), str(source)], check=True)
    return [["java", "-cp", path, "Snippets", str(number)] for number in range(len(blocks))]


def rust(folder: pathlib.Path, blocks: list[str]) -> list[list[str]]:
    """One program of all snippets, which runs the one with the number that it is given."""
    artifacts: dict[str, pathlib.Path] = {}
    for line in pathlib.Path(os.environ["CLIENT_RUST_ARTIFACTS"]).read_text().splitlines():
        built = json.loads(line)
        libraries = [name for name in built.get("filenames", []) if name.endswith(".rlib")]
        artifacts |= {built["target"]["name"]: pathlib.Path(name) for name in libraries}
    whole = "\n".join(f"{number} => {{\n{block}\n}}" for number, block in enumerate(blocks))
    source, program = folder / "main.rs", folder / "snippets-rust"
    source.write_text(f"""
        #![allow(unused_imports)]
        use std::time::Duration;
        use relight_client::*;
        use serde_json::json;
        #[tokio::main]
        async fn main() -> Result<(), Box<dyn std::error::Error>> {{
            match std::env::args().nth(1).ok_or("no number")?.parse::<usize>()? {{ {whole} _ => {{}} }}
            Ok(())
        }}
    """)
    command = ["rustc", "--edition", "2024", "-L", f"dependency={artifacts['tokio'].parent}", "-o", str(program), str(source)]
    for name in ("relight_client", "serde_json", "tokio"):
        command += ["--extern", f"{name}={artifacts[name]}"]
    subprocess.run(command, cwd=CLIENTS, check=True)
    return [[str(program), str(number)] for number in range(len(blocks))]


RUNNERS: dict[str, Runner] = {"python": python, "ts": typescript, "go": go, "java": java, "rust": rust}


class Weather(http.server.BaseHTTPRequestHandler):
    """The tool of the snippets."""

    def do_GET(self) -> None:
        city = self.path.rpartition("/")[2]
        body = {"error": _UNKNOWN_CITY} if city == "Atlantis" else {"city": city, "sky": "blue"}
        text = json.dumps(body).encode()
        self.send_response(404 if city == "Atlantis" else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


class Expected:
    """What the snippets print, asked of the server without any of the packages."""

    def __init__(self, port: int) -> None:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        stub = recovery_service_pb2_grpc.RecoveryServiceStub(channel)
        invocation = invocation_pb2.Invocation(route="broken")
        invocation.model.messages.add(role="ROLE_USER").parts.add().text.text = "Why?"
        request = recovery_service_pb2.InvokeWithRecoveryRequest(invocation=invocation)
        self._failure = stub.InvokeWithRecovery(request, timeout=60).failure.user_message
        feed = stub.WatchRecovery(recovery_service_pb2.WatchRecoveryRequest(from_start=True), timeout=60)
        self._event = next(message.event.display_text for message in feed if message.event.display_text)
        feed.cancel()
        channel.close()

    def of(self, block: str) -> str:
        if "Atlantis" in block:
            return _UNKNOWN_CITY
        if "get_weather" in block:
            return "Oslo"
        if "broken" in block:
            return self._failure
        if re.search(r"\.watch(fromstart)?\(", block, re.IGNORECASE):
            return self._event
        question = "And the sunset?" if "And the sunset?" in block else "Why is the sky blue?"
        return f"Blue scatters most: {question}"


def run(languages: list[str], folder: pathlib.Path) -> tuple[int, int]:
    weather = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Weather)
    threading.Thread(target=weather.serve_forever, daemon=True).start()
    plain = Replica(folder, CONFIG + TOOLS.replace("{port}", str(weather.server_port)))
    _, certificate, key = certificates.make(folder)
    server = f"tls: {{ cert_file: {certificate}, key_file: {key} }}"
    keys = f"keys: [{{ tenant: test, sha256: {hashlib.sha256(_KEY.encode()).hexdigest()} }}]"
    secured = Replica(folder, f"{CONFIG}server: {{ {server}, {keys} }}\n")
    count = failed = 0
    try:
        expected = Expected(plain.port)
        for language in languages:
            blocks = snippets(language)
            if not blocks:
                raise SystemExit(f"FAILED: docs/clients.md has no snippet of {language}")
            addresses = {_PLAIN: f"127.0.0.1:{plain.port}", _SECURED: f"dns:///localhost:{secured.port}"}
            written = [re.sub("|".join(addresses), lambda found: addresses[found[0]], block) for block in blocks]
            for block, command in zip(blocks, RUNNERS[language](folder, written), strict=True):
                ran = subprocess.run(
                    command, cwd=folder, text=True, capture_output=True, timeout=_PATIENCE,
                    env={**os.environ, "RELIGHT_API_KEY": _KEY},
                )
                count += 1
                if ran.returncode != 0 or expected.of(block) not in ran.stdout:
                    failed += 1
                    print(f"FAILED, not {expected.of(block)!r}:\n{block}\n{ran.stdout}{ran.stderr}")
    finally:
        plain.kill()
        secured.kill()
        weather.shutdown()
    return count, failed


def main() -> int:
    languages = os.environ["CLIENT_LANGUAGES"].split()
    with tempfile.TemporaryDirectory() as folder:
        count, failed = run(languages, pathlib.Path(folder))
    print(f"snippets: {count} in {', '.join(languages)}; {failed} failed")
    return 1 if failed or not count else 0


sys.exit(main())
