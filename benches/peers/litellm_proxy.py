"""Runs the proxy of LiteLLM before the upstream whose address is the argument.

Prints the URL to call and what the model is called there, then serves until it is killed.
"""

import json
import os
import socket
import sys
from pathlib import Path

provider = {"model": "openai/mock", "api_base": f"http://{sys.argv[1]}/v1", "api_key": "sk-mock"}
configuration = {
    "model_list": [{"model_name": "one", "litellm_params": provider}],
    "litellm_settings": {"num_retries": 3},
}
file = Path(sys.prefix, "config.yaml")
# JSON is YAML.
file.write_text(json.dumps(configuration))
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
print(f"http://127.0.0.1:{port}/v1/chat/completions", "one", flush=True)
# What it prints later is of no use, and the reader of the first line is gone.
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
program = str(Path(sys.executable).with_name("litellm"))
os.environ |= {
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # It listens on this machine alone.
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}
os.execv(program, [program, "--config", str(file), "--host", "127.0.0.1", "--port", port, "--num_workers", "1"])
