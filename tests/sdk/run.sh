#!/usr/bin/env bash
# The official SDKs of the providers, with no key, no model and no network but the registries: OpenAI's and Anthropic's against
# `relight serve` with scripted models; OpenAI's, Anthropic's, Google's and Amazon's against the scripted wire servers that tests
# and demo use; OpenAI's and Anthropic's with and without Relight, whose objects are the same but for what docs/dialects.md names.
#
#   tests/sdk/run.sh
#
# What it installs stays in target/sdk. Without Node only Python is tried, unless SDK_NODE=required.
set -euo pipefail
cd "$(dirname "$0")/../.."

home=$PWD/target/sdk
# The versions that are tried; the wire is theirs, so they are named.
python_sdks=('openai==2.*' 'anthropic==2.*' 'google-genai==3.*' 'boto3==1.*')
node_sdks=('openai@6' '@anthropic-ai/sdk@1')
cargo build --locked --quiet --bin relight --example wires

mkdir -p "$home/node"
.ci/venv "$home/venv" "${python_sdks[@]}"
with_node=yes
if ! command -v npm >/dev/null; then
  if [[ ${SDK_NODE:-} == required ]]; then
    echo "npm is missing" >&2
    exit 1
  fi
  echo "npm is missing: the JavaScript SDKs are not tried"
  with_node=no
elif [[ ! -d $home/node/node_modules/@anthropic-ai/sdk ]]; then
  npm install --silent --no-audit --no-fund --prefix "$home/node" "${node_sdks[@]}"
fi

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
RELIGHT_FRONT_PORT=$port target/debug/relight serve --config tests/sdk/relight.yaml 2>"$home/relight.log" &
server=$!
# The wire servers serve until their input ends.
coproc wires { target/debug/examples/wires; }
# shellcheck disable=SC2154 # coproc sets it
trap 'kill "$server" "$wires_PID" 2>/dev/null || true' EXIT
places=$(for _ in 1 2 3 4 5; do read -r line && echo "$line"; done <&"${wires[0]}")
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
"$home/venv/bin/python" tests/sdk/front_python.py "$base_url"
"$home/venv/bin/python" tests/sdk/wires_python.py <<<"$places"
"$home/venv/bin/python" tests/sdk/differential.py target/debug/relight
if [[ $with_node == yes ]]; then
  SDK_NODE_HOME=$home/node node tests/sdk/openai_node.mjs "$base_url"
  SDK_NODE_HOME=$home/node node tests/sdk/front_node.mjs "$base_url"
  SDK_NODE_HOME=$home/node node tests/sdk/anthropic_node.mjs "$(awk '$1 == "anthropic" { print $2 }' <<<"$places")"
fi
