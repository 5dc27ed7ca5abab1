#!/usr/bin/env bash
# The official OpenAI SDKs against `relight serve` with scripted models: no key, no model, no network but the registries.
#
#   tests/sdk/run.sh                  # builds the debug binary
#   RELIGHT=path/to/relight tests/sdk/run.sh
#
# What it installs stays in target/sdk. Without Node only Python is tried, unless SDK_NODE=required.
set -euo pipefail
cd "$(dirname "$0")/../.."

home=$PWD/target/sdk
# The versions that are tried; the wire is theirs, so they are named.
python_sdk='openai==2.*'
node_sdk='openai@6'
relight=${RELIGHT:-}
if [[ -z $relight ]]; then
  cargo build --locked --quiet --bin relight
  relight=target/debug/relight
fi

mkdir -p "$home/node"
if [[ ! -x $home/venv/bin/python ]]; then
  python3 -m venv "$home/venv"
fi
"$home/venv/bin/pip" install --quiet --disable-pip-version-check "$python_sdk"
with_node=yes
if ! command -v npm >/dev/null; then
  if [[ ${SDK_NODE:-} == required ]]; then
    echo "npm is missing" >&2
    exit 1
  fi
  echo "npm is missing: the JavaScript SDK is not tried"
  with_node=no
elif [[ ! -d $home/node/node_modules/openai ]]; then
  npm install --silent --no-audit --no-fund --prefix "$home/node" "$node_sdk"
fi

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
RELIGHT_FRONT_PORT=$port "$relight" serve --config tests/sdk/relight.yaml 2>"$home/relight.log" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
for _ in $(seq 100); do
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
  if ! kill -0 "$server" 2>/dev/null; then
    cat "$home/relight.log" >&2
    exit 1
  fi
  sleep 0.1
done

base_url=http://127.0.0.1:$port/v1
"$home/venv/bin/python" tests/sdk/openai_python.py "$base_url"
if [[ $with_node == yes ]]; then
  SDK_NODE_HOME=$home/node node tests/sdk/openai_node.mjs "$base_url"
fi
