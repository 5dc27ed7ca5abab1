#!/usr/bin/env bash
# The examples of docs/behind-and-in-front.md as they stand there, with the real programs from PyPI, npm and the Go module proxy, and
# the calls counted at the provider.
#
#   tests/friends/run.sh
#
# RELIGHT names another binary than that of this tree. Needs Go and npm. What it installs stays in target/friends: the first run builds
# Temporal's server, which takes minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."

restate_version=1.7.12
# The last one that the proxy has all modules of.
temporal_version=1.5.1

if [[ -z ${RELIGHT:-} ]]; then
  cargo build --locked --quiet --bin relight
  RELIGHT=$PWD/target/debug/relight
fi
export RELIGHT
home=$PWD/target/friends
.ci/venv "$home/venv" -r tests/friends/requirements.txt
export RESTATE=$home/node_modules/.bin/restate-server
if [[ $("$RESTATE" --version 2>/dev/null) != *" $restate_version" ]]; then
  npm install --silent --no-audit --no-fund --prefix "$home" "@restatedev/restate-server@$restate_version"
fi
export TEMPORAL=$home/temporal-$temporal_version/temporal
if [[ ! -x $TEMPORAL ]]; then
  # The same caches as tests/clients/run.sh.
  GOBIN=$(dirname "$TEMPORAL") GOCACHE=$home/../clients/go-build GOMODCACHE=$home/../clients/go-mod GOFLAGS=-modcacherw \
    go install "github.com/temporalio/cli/cmd/temporal@v$temporal_version"
fi
PATH=$home/venv/bin:$PATH "$home/venv/bin/python" -m pytest -q -p no:cacheprovider tests/friends
