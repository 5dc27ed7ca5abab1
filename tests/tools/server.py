#!/usr/bin/env python3
"""An MCP server on the official Python SDK that misbehaves on demand; see README.md beside it."""

import asyncio
import datetime
import json
import os
import socket
import sys

# Before the SDK takes it: what a server must never do is written past the SDK.
WIRE = os.dup(1)

import mcp_types as types  # noqa: E402
import uvicorn  # noqa: E402
from mcp.server import NotificationOptions, Server  # noqa: E402
from mcp.server.stdio import stdio_server  # noqa: E402

NOTES = os.environ.get("NOTES", "")
MAX_DAYS = int(os.environ.get("MAX_DAYS", "31"))
EXTRA_TOOLS = int(os.environ.get("TOOLS", "0"))
STATE = {"renamed": "RENAMED" in os.environ, "broken": "BROKEN" in os.environ, "keys": set()}
DATE = {"type": "string", "format": "date"}
FIRST_DAY = datetime.date(2024, 1, 1)


def schema(properties, required=()):
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def tool(name, description, properties, required=(), **hints):
    annotations = types.ToolAnnotations(**hints) if hints else None
    return types.Tool(
        name=name, description=description, input_schema=schema(properties, required), annotations=annotations
    )


def tools():
    count = {"max_results" if STATE["renamed"] else "limit": {"type": "integer", "minimum": 1}}
    text = {"type": "string"}
    listed = [
        tool(
            "get_activities",
            "Lists the activities between two days, both included.",
            {"after": DATE, "before": DATE, "limit": {"type": "integer"}},
            ["after", "before"],
            read_only_hint=True,
        ),
        tool("get_activity", "Returns one activity by its id.", {"id": text}, ["id"], read_only_hint=True),
        tool("get_activity_on", "Returns the activity of a day.", {"id": text}, ["id"], read_only_hint=True),
        tool(
            "list_activities",
            "Lists the activities between two days, both included.",
            {"from": DATE, "to": DATE},
            ["from", "to"],
            read_only_hint=True,
        ),
        tool(
            "get_private_activities",
            "Lists the private activities of an athlete.",
            {"athlete": text},
            ["athlete"],
            read_only_hint=True,
        ),
        tool("search", "Finds activities by words.", {"query": text, **count}, ["query"], read_only_hint=True),
        tool(
            "add_comment",
            "Adds a comment.",
            {"text": text, "key": text, "then": {"enum": ["respond", "crash", "hang"]}},
            ["text"],
            read_only_hint=False,
            destructive_hint=False,
            idempotent_hint=False,
        ),
        tool("misbehave", "Does what no server should.", {"how": text}, ["how"]),
        tool("control", "Changes this server.", {"action": text}, ["action"]),
    ]
    listed.extend(tool(f"extra_{number}", "One of many.", {}) for number in range(EXTRA_TOOLS))
    return listed


def activities(first, last):
    first, last = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)
    found, day = [], max(first, FIRST_DAY)
    # One a week, on the weekday of the first day.
    day += datetime.timedelta(days=-(day - FIRST_DAY).days % 7)
    while day <= last:
        found.append({"id": f"a-{(day - FIRST_DAY).days}", "day": day.isoformat()})
        day += datetime.timedelta(days=7)
    return (last - first).days, found


def result(structured):
    text = types.TextContent(type="text", text=json.dumps(structured))
    return types.CallToolResult(content=[text], structured_content=structured)


def failure(text):
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def note(line):
    with open(NOTES, "a", encoding="utf-8") as notes:
        notes.write(line + "\n")


async def list_between(first, last, limit=None):
    days, found = activities(first, last)
    if days > MAX_DAYS:
        await asyncio.Event().wait()
    found = found[:limit]
    return result({"activities": found, "total": len(found)})


async def misbehave(how, request_id):
    if how == "crash":
        print("Traceback: the server crashes now", file=sys.stderr, flush=True)
        os._exit(70)
    if how == "not_json":
        os.write(WIRE, b"Traceback (most recent call last):\n")
    if how == "endless_line":
        while True:
            os.write(WIRE, b"x" * 65536)
    if how == "flood":
        while True:
            os.write(WIRE, b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}\n')
    await asyncio.Event().wait()


async def call(context, params):
    name, arguments = params.name, dict(params.arguments or {})
    if name == "get_activities":
        return await list_between(arguments["after"], arguments["before"], arguments.get("limit"))
    if name == "list_activities":
        return await list_between(arguments["from"], arguments["to"])
    if name == "get_activity_on":
        _, known = activities("2024-01-01", "2030-12-31")
        found = [activity for activity in known if activity["day"] == arguments.get("id")]
        return result(found[0]) if found else failure(f"Activity of {arguments.get('id')} not found")
    if name == "get_activity":
        _, known = activities("2024-01-01", "2030-12-31")
        found = [activity for activity in known if activity["id"] == arguments.get("id")]
        return result(found[0]) if found else failure(f"Activity {arguments.get('id')} not found")
    if name == "get_private_activities":
        return failure(f"403 Forbidden: the activities of {arguments['athlete']} are private")
    if name == "search":
        if STATE["broken"]:
            return failure("AttributeError: 'NoneType' object has no attribute 'cursor'")
        count = "max_results" if STATE["renamed"] else "limit"
        unknown = [argument for argument in arguments if argument not in ("query", count)]
        if unknown:
            return failure(f"TypeError: search() got an unexpected keyword argument '{unknown[0]}'")
        _, known = activities("2024-01-01", "2024-12-31")
        return result({"activities": known[: arguments.get(count, 10)], "query": arguments["query"]})
    if name == "add_comment":
        key = arguments.get("key")
        if key is None or key not in STATE["keys"]:
            note(f"comment {arguments['text']}")
            STATE["keys"].add(key)
        if arguments.get("then") == "crash":
            os._exit(70)
        if arguments.get("then") == "hang":
            await asyncio.Event().wait()
        return result({"added": arguments["text"]})
    if name == "misbehave":
        return await misbehave(arguments["how"], context.request_id)
    if name == "control":
        action = arguments["action"]
        if action in ("rename", "restore"):
            STATE["renamed"] = action == "rename"
            await context.session.send_tool_list_changed()
        else:
            STATE["broken"] = action == "break"
        return result({"done": action})
    if name.startswith("extra_"):
        return result({"tool": name})
    return failure(f"Unknown tool: {name}")


async def list_tools(_context, _params):
    return types.ListToolsResult(tools=tools())


server = Server("relight-test-tools", version="1", on_list_tools=list_tools, on_call_tool=call)


async def over_stdio():
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


def over_http():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"listening on {listener.getsockname()[1]}", file=sys.stderr, flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    if "--http" in sys.argv:
        over_http()
    else:
        asyncio.run(over_stdio())
