#!/usr/bin/env python3
"""Between Relight and the pipes of a server: passes lines on, and makes the server be as tools become.

    changer.py FOLDER COMMAND...

`large` in FOLDER: calls with more than so many `paths` are never responded to. `renamed` (`TOOL OLD NEW`): an argument has another
name, and its old one is refused. `broken` (names of tools): their calls fail as a tool with a mistake in it does. `calls` gets every
call that came.
"""

import json
import pathlib
import subprocess
import sys
import threading

folder, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
listing = set()
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def words(name):
    try:
        return (folder / name).read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return []


def respond(message, text):
    result = {"content": [{"type": "text", "text": text}], "isError": True}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


def is_taken(message):
    """Whether a call is passed on, with the names that the server knows."""
    tool, arguments = message["params"]["name"], message["params"].get("arguments") or {}
    with (folder / "calls").open("a", encoding="utf-8") as calls:
        calls.write(json.dumps([tool, arguments]) + "\n")
    if tool in words("broken"):
        respond(message, "TypeError: Cannot read properties of undefined (reading 'cursor')")
        return False
    renamed = words("renamed")
    if renamed and renamed[0] == tool:
        _, old, new = renamed
        if old in arguments:
            respond(message, f"TypeError: {tool}() got an unexpected keyword argument '{old}'")
            return False
        if new in arguments:
            arguments[old] = arguments.pop(new)
    large = words("large")
    return not large or len(arguments.get("paths", [])) <= int(large[0])


def to_server():
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call" and not is_taken(message):
            continue
        if message.get("method") == "tools/list":
            listing.add(message["id"])
        server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
    server.stdin.close()


threading.Thread(target=to_server, daemon=True).start()
for line in server.stdout:
    message = json.loads(line)
    renamed = words("renamed")
    if message.get("id") in listing and "result" in message and renamed:
        name, old, new = renamed
        for tool in message["result"]["tools"]:
            if tool["name"] == name:
                schema = tool["inputSchema"]
                schema["properties"] = {new if key == old else key: value for key, value in schema["properties"].items()}
                schema["required"] = [new if key == old else key for key in schema.get("required", [])]
    print(json.dumps(message), flush=True)
