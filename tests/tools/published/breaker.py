#!/usr/bin/env python3
"""Between Relight and the pipes of a server: passes lines on, notes the calls, and ends with the server
at any moment of a call, though of no more calls in a row than Relight repeats.

    breaker.py NOTES COMMAND...
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import threading

notes, command = sys.argv[1], sys.argv[2:]
dice = random.Random(os.getpid())
calls = set()
# As many as there are repetitions: the last attempt is left alone.
MOST_ENDS = 5
# The number of ends in a row, also of the processes before this one.
kept = pathlib.Path(f"{notes}.ends")
in_a_row = int(kept.read_text()) if kept.exists() else 0
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def may_end(share):
    return dice.random() < share and in_a_row < MOST_ENDS


def end():
    kept.write_text(str(in_a_row + 1))
    server.kill()
    os._exit(1)


def to_server():
    for line in sys.stdin:
        message = json.loads(line)
        is_call = message.get("method") == "tools/call"
        if is_call and may_end(0.1):
            end()
        if is_call:
            calls.add(message["id"])
            with open(notes, "a", encoding="utf-8") as file:
                file.write(line)
        server.stdin.write(line)
        server.stdin.flush()
        if is_call and may_end(0.1):
            end()
    server.stdin.close()


threading.Thread(target=to_server, daemon=True).start()
for answer in server.stdout:
    if json.loads(answer).get("id") in calls:
        if may_end(0.05):
            end()
        in_a_row = 0
    sys.stdout.write(answer)
    sys.stdout.flush()
