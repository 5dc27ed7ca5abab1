"""Runs the gateway of TensorZero before the upstream whose address is the argument.

Prints the URL to call and what the model is called there, then serves until it is killed.
"""

import os
import signal
import sys
import tempfile
from pathlib import Path

os.environ |= {"OPENAI_API_KEY": "sk-mock", "RUST_LOG": "error"}

import openai  # noqa: E402
import tensorzero  # noqa: E402

CONFIGURATION = """
[gateway]
observability.enabled = false
disable_pseudonymous_usage_analytics = true

[models.one]
routing = ["a"]

[models.one.providers.a]
type = "openai"
model_name = "mock"
api_base = "http://{upstream}/v1/"

[functions.one]
type = "chat"

[functions.one.variants.v]
type = "chat_completion"
model = "one"
retries = {{ num_retries = 3, max_delay_s = 10 }}
"""

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "tensorzero.toml")
    file.write_text(CONFIGURATION.format(upstream=sys.argv[1]))
    client = tensorzero.patch_openai_client(openai.OpenAI(api_key="none"), config_file=str(file), async_setup=False)
url = str(client.base_url).rstrip("/") + "/chat/completions"
print(url, "tensorzero::function_name::one", flush=True)
# The gateway has threads of its own.
signal.pause()
