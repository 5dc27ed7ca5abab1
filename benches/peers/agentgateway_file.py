"""Runs the binary of agentgateway that is the first argument, before the upstream whose address is the last.

Prints the URL to call and what the model is called there, then serves until it is killed.
"""

import json
import os
import socket
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

program, upstream = sys.argv[1], sys.argv[2]
with ExitStack() as held:
    free = [held.enter_context(socket.socket()) for _ in range(4)]
    for each in free:
        each.bind(("127.0.0.1", 0))
    port, admin, stats, readiness = (each.getsockname()[1] for each in free)

provider = {
    "name": "one",
    "hostOverride": upstream,
    "provider": {"openAI": {"model": "mock"}},
    "policies": {"backendAuth": {"key": "sk-mock"}},
}
route = {
    # Its `attempts` are the further ones: three retries, as the other gateways have.
    "policies": {"retry": {"attempts": 3, "backoff": "500ms", "codes": [408, 429, 500, 502, 503, 504, 529]}},
    "backends": [{"ai": provider}],
}
configuration = {
    "config": {
        "adminAddr": f"127.0.0.1:{admin}",
        "statsAddr": f"127.0.0.1:{stats}",
        "readinessAddr": f"127.0.0.1:{readiness}",
    },
    "binds": [{"port": port, "listeners": [{"protocol": "HTTP", "routes": [route]}]}],
}
folder = tempfile.mkdtemp(prefix="agentgateway-")
file = Path(folder, "config.yaml")
# JSON is YAML.
file.write_text(json.dumps(configuration))
print(f"http://127.0.0.1:{port}/v1/chat/completions", "one", flush=True)
# What it prints later is of no use, and the reader of the first line is gone.
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.environ["RUST_LOG"] = "error"
os.execv(program, [program, "--file", str(file)])
