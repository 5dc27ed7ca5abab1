#!/usr/bin/env bash
# Takes the pictures of the documentation anew, into docs/pictures, or into the folder that is named.
#
#   tests/pictures/run.sh [FOLDER]
#
# Needs Chromium and Prometheus, which `.ci/run console rules` fetch where they are missing, and the environment of `.ci/run tools`.
# What it installs stays in target/pictures. RELIGHT names a server that is built already.
set -euo pipefail
cd "$(dirname "$0")/../.."

home=$PWD/target/pictures
if [[ -z ${RELIGHT:-} ]]; then
  cargo build --locked --quiet --bin relight
  RELIGHT=target/debug/relight
fi
.ci/venv "$home" arize-phoenix==20.26.1
chromium=${CHROMIUM:-$(command -v chromium google-chrome | head -n 1)}
target/ci-venv/bin/python tests/pictures/take.py "$RELIGHT" "$home/bin/phoenix" "$chromium" "${1:-docs/pictures}"
