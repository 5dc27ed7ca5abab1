#!/usr/bin/env python3
"""Between Relight and the pipes of a server: passes lines on, notes the calls, and ends with the server
at any moment of a call.

    breaker.py NOTES COMMAND...
"""

import json
import os
import random
import subprocess
import sys
import threading

notes, command = sys.argv[1], sys.argv[2:]
dice = random.Random(os.getpid())
calls = set()
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def end():
    server.kill()
    os._exit(1)


def to_server():
    for line in sys.stdin:
        message = json.loads(line)
        is_call = message.get("method") == "tools/call"
        if is_call and dice.random() < 0.1:
            end()
        if is_call:
            calls.add(message["id"])
            with open(notes, "a", encoding="utf-8") as file:
                file.write(line)
        server.stdin.write(line)
        server.stdin.flush()
        if is_call and dice.random() < 0.1:
            end()
    server.stdin.close()


threading.Thread(target=to_server, daemon=True).start()
for answer in server.stdout:
    if json.loads(answer).get("id") in calls and dice.random() < 0.05:
        end()
    sys.stdout.write(answer)
    sys.stdout.flush()
