#!/usr/bin/env bash
# The examples of docs/behind-and-in-front.md as they stand there, with the real programs from PyPI, and the calls counted at the
# provider.
#
#   tests/friends/run.sh
#
# RELIGHT names another binary than that of this tree. What it installs stays in target/friends.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [[ -z ${RELIGHT:-} ]]; then
  cargo build --locked --quiet --bin relight
  RELIGHT=$PWD/target/debug/relight
fi
export RELIGHT
home=$PWD/target/friends
.ci/venv "$home/venv" -r tests/friends/requirements.txt
PATH=$home/venv/bin:$PATH "$home/venv/bin/python" -m pytest -q -p no:cacheprovider tests/friends
