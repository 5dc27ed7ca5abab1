#!/usr/bin/env python3
"""The conformance suite of MCP against both sides of Relight: the front, whose tools are this file's, and its client.

    conformance.py BINARY HOME          # plays the scenarios of tools, in each revision
    conformance.py --server             # the tools, over standard input and output
    conformance.py --client BINARY URL  # an agent that calls the tools of a server behind Relight

HOME has a folder `node_modules` with @modelcontextprotocol/conformance, and in `node` or on the path a Node of version 22 or later. The
suite's other scenarios are of what the front has not: prompts, resources, completion, logging, tasks, and what a server requests from a
client; and of signing in, which a server of tools is configured for.
"""

import asyncio
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

VERSIONS = ["2025-06-18", "2025-11-25", "2026-07-28"]
OF_A_SERVER = [
    "server-initialize",
    "server-session-lifecycle",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "json-schema-2020-12",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
    "caching",
    "http-header-validation",
    "http-custom-header-server-validation",
    # Changes the list of tools, so it comes last.
    "server-stateless",
]
OF_A_CLIENT = [
    "initialize",
    "tools_call",
    "sse-retry",
    "request-metadata",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
]
# Checks that fail, and why; docs/tools.md says it, too. One that does not fail any more is to be taken out.
EXPECTED = {
    "caching": {
        # There are no prompts and resources.
        "sep-2549-prompts-list-caching-hints",
        "sep-2549-resources-list-caching-hints",
        "sep-2549-resources-templates-list-caching-hints",
    },
    "server-stateless": {
        # A tool's own error of the protocol is a result that is marked as an error.
        "sep-2575-server-rejects-undeclared-capability",
        "sep-2575-missing-capability-http-400",
    },
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="


def text(words):
    return types.TextContent(type="text", text=words)


def resource(words):
    contents = types.TextResourceContents(uri="test://embedded-resource", mime_type="text/plain", text=words)
    return types.EmbeddedResource(type="resource", resource=contents)


IMAGE = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
RESULTS = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")],
    "test_embedded_resource": [resource("This is an embedded resource content.")],
    "test_multiple_content_types": [text("Multiple content types test:"), IMAGE, resource("A resource.")],
    "test_tool_with_progress": [text("Done.")],
    "test_logging_tool": [text("Done.")],
    "test_streaming_elicitation": [text("Nobody can be asked.")],
    "json_schema_2020_12_tool": [text("Done.")],
    "test_parameter_header": [text("Done.")],
}
EMPTY = {"type": "object", "properties": {}}
# The tools that came since the start, and those who listen.
CHANGED, CHANGES = [], InMemorySubscriptionBus()
ADDRESS = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        },
    },
    "properties": {
        "name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]}, "phone": {"type": "string"}, "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


async def list_tools(_context, _params):
    schemas = {name: EMPTY for name in [*RESULTS, "test_error_handling", "test_missing_capability"]}
    schemas["json_schema_2020_12_tool"] = ADDRESS
    schemas["test_parameter_header"] = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    schemas |= {name: EMPTY for name in ["test_trigger_tool_change", *CHANGED]}
    return types.ListToolsResult(
        tools=[types.Tool(name=name, description=name, input_schema=schema) for name, schema in schemas.items()]
    )


async def call(context, params):
    if params.name in ("test_tool_with_progress", "test_logging_tool", "test_streaming_elicitation"):
        for progress in (0, 50, 100):
            await context.session.report_progress(progress, 100, f"{progress} of 100")
            await asyncio.sleep(0.05)
    if params.name == "test_error_handling":
        words = "This tool intentionally returns an error for testing"
        return types.CallToolResult(content=[text(words)], is_error=True)
    if params.name == "test_trigger_tool_change":
        CHANGED.append(f"new_tool_{len(CHANGED)}")
        # To whom the older revisions are spoken, and to whom 2026-07-28 is.
        await context.session.send_tool_list_changed()
        await CHANGES.publish(ToolsListChanged())
        return types.CallToolResult(content=[text("Done.")])
    if params.name == "test_missing_capability":
        return types.CallToolResult(content=[text("the client has no sampling")], is_error=True)
    return types.CallToolResult(content=RESULTS[params.name])


async def serve():
    server = Server(
        "relight-conformance", version="1", on_list_tools=list_tools, on_call_tool=call,
        on_subscriptions_listen=ListenHandler(CHANGES),
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options(NotificationOptions(tools_changed=True)))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Relight:
    """Relight with one tool server."""

    def __init__(self, binary, server):
        self.folder = tempfile.TemporaryDirectory()
        ports = [free_port() for _ in range(3)]
        self.url = f"http://127.0.0.1:{ports[2]}/mcp"
        config = {
            "server": {"listen": f"127.0.0.1:{ports[0]}", "admin_listen": f"127.0.0.1:{ports[1]}"},
            "journal": {"store": "memory"},
            "tools": {"servers": {"s": server}, "mcp_front": {"listen": f"127.0.0.1:{ports[2]}"}},
        }
        file = pathlib.Path(self.folder.name) / "relight.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        self.process = subprocess.Popen([binary, "serve", "--config", str(file)], stderr=subprocess.DEVNULL)

    def __enter__(self):
        for _ in range(200):
            try:
                urllib.request.urlopen(self.url, timeout=1)
            except urllib.error.HTTPError:
                return self
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the front does not open")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.folder.cleanup()

    def request(self, method, params):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        headers = {"content-type": "application/json", "accept": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.url, body, headers), timeout=60) as response:
            return json.load(response).get("result")

    def listed(self):
        """The tools by name, once the server has started."""
        for _ in range(20):
            if listed := self.request("tools/list", {}):
                return {tool["name"]: tool for tool in listed["tools"]}
            time.sleep(1)
        return {}


def example(schema):
    """Something that fits a schema."""
    if "enum" in schema:
        return schema["enum"][0]
    examples = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    return examples.get(schema.get("type"), "text")


def play_client(binary, url):
    """Calls what the scenario wants, else each tool that is listed."""
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with Relight(binary, {"url": url, "start_timeout": "10s"}) as relight:
        tools = relight.listed()
        calls = [(call["name"], call["arguments"]) for call in given.get("toolCalls", [])]
        rich = tools.get("json_schema_2020_12_tool")
        for name, tool in tools.items() if not calls else ():
            schema = tool["inputSchema"]
            required = schema.get("required", [])
            arguments = {key: example(value) for key, value in schema.get("properties", {}).items() if key in required}
            if rich and "schema" in arguments:
                arguments["schema"] = rich["inputSchema"]
            calls.append((name, arguments))
        for name, arguments in calls:
            relight.request("tools/call", {"name": name, "arguments": arguments})


def failing(suite, kind, arguments, scenario, version):
    """The checks of a scenario that fail; none if the revision has no such scenario."""
    with tempfile.TemporaryDirectory() as folder:
        played = subprocess.run(
            [*suite, kind, *arguments, "--scenario", scenario, "--spec-version", version, "-o", folder],
            capture_output=True, text=True, timeout=180, check=False,
        )
        checks = [json.loads(file.read_text(encoding="utf-8")) for file in pathlib.Path(folder).rglob("checks.json")]
    if not checks:
        assert played.returncode == 0, played.stdout + played.stderr
    found = {check["id"]: check for check in sum(checks, []) if check["status"] in ("FAILURE", "WARNING")}
    return {name: check.get("errorMessage", "") for name, check in found.items()}, bool(checks)


def main():
    binary, home = sys.argv[1], pathlib.Path(sys.argv[2])
    node = home / "node" / "node_modules" / "node" / "bin" / "node"
    node = str(node) if node.exists() else shutil.which("node")
    suite = [node, str(home / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")]
    only, wrong = sys.argv[3:], 0
    own = {"command": sys.executable, "args": [__file__, "--server"]}
    with Relight(binary, own) as relight:
        plays = [("server", ["--url", relight.url], scenario) for scenario in OF_A_SERVER]
        client = " ".join([sys.executable, __file__, "--client", binary])
        plays += [("client", ["--command", client, "--timeout", "60000"], scenario) for scenario in OF_A_CLIENT]
        for version in VERSIONS:
            for kind, arguments, scenario in plays:
                if only and scenario not in only:
                    continue
                failed, was_played = failing(suite, kind, arguments, scenario, version)
                expected = EXPECTED.get(scenario, set()) if was_played else set()
                unexpected = set(failed) ^ expected
                wrong += bool(unexpected)
                if was_played:
                    print(f"{version} {kind} {scenario}: {'ok' if not unexpected else 'FAILED'}", flush=True)
                for check in sorted(unexpected):
                    print(f"  {check}: {failed.get(check, 'does not fail any more')}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--server"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["--client"]:
        play_client(*sys.argv[2:])
    else:
        main()
