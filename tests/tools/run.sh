#!/usr/bin/env bash
# Tool servers and clients on the official Python, TypeScript and Go SDKs of MCP, and the tests that need them.
#
#   tests/tools/run.sh            # installs the SDKs into target/tools and runs the tests
#   tests/tools/run.sh --install  # only installs
set -euo pipefail
cd "$(dirname "$0")/../.."

home=$PWD/target/tools
mkdir -p "$home"
if ! command -v npm >/dev/null; then
  sudo=()
  if ((EUID != 0)); then sudo=(sudo); fi
  "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=300 update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q nodejs npm
fi
.ci/venv "$home/venv" --require-hashes -r tests/tools/requirements.txt
if ! cmp -s tests/tools/package-lock.json "$home/package-lock.json" || [[ ! -f $home/node_modules/.package-lock.json ]]; then
  cp tests/tools/package.json tests/tools/package-lock.json "$home/"
  npm ci --silent --no-audit --no-fund --prefix "$home"
fi
# A module is looked for beside the file that names it.
cp tests/tools/server.mjs tests/tools/modern.mjs tests/tools/client.mjs "$home/"
if command -v go >/dev/null; then
  (cd tests/tools/go && go build -o "$home/mcp-go" .)
else
  echo "no go: the stories of the Go SDK are left out" >&2
fi

if [[ ${1:-} != --install ]]; then
  cargo test --locked --test it -- --ignored tool_sdks
  cargo build --locked --quiet --bin relight
  "$home/venv/bin/python" tests/tools/stories.py target/debug/relight "$home/venv/bin/python" tests/tools/server.py \
    "$home/server.mjs"
fi
