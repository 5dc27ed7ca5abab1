#!/usr/bin/env bash
# MCP servers that others published, installed into target/published-tools and run as they are: with and without Relight, with faults
# between (tests/tools/published.py), and through all doors (published_stories.py). Then the conformance suite of MCP.
#
#   tests/tools/published/run.sh FOLDER    # with `buf` in it; RELIGHT_BINARY names a server that is built already
set -euo pipefail
cd "$(dirname "$0")/../../.."

tools=$1
home=$PWD/target/published-tools
mkdir -p "$home"
if ! command -v npm >/dev/null || ! command -v git >/dev/null; then
  sudo=()
  if ((EUID != 0)); then sudo=(sudo); fi
  "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=300 update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q nodejs npm git
fi
.ci/venv "$home/venv" --require-hashes -r tests/tools/published/requirements.txt
if ! cmp -s tests/tools/published/package-lock.json "$home/package-lock.json" || [[ ! -f $home/node_modules/.package-lock.json ]]; then
  cp tests/tools/published/package.json tests/tools/published/package-lock.json "$home/"
  npm ci --silent --no-audit --no-fund --prefix "$home"
fi
# The conformance suite wants a newer Node than many systems have.
if (($(node -p 'process.versions.node.split(".")[0]') < 22)) && [[ ! -x $home/node/node_modules/node/bin/node ]]; then
  npm install --silent --no-audit --no-fund --prefix "$home/node" node@22.23.3
fi
if [[ -z ${RELIGHT_BINARY:-} ]]; then cargo build --locked --quiet --bin relight; fi
given=("$(realpath "${RELIGHT_BINARY:-target/debug/relight}")" "$home/node_modules" "$home/venv")
"$home/venv/bin/python" tests/tools/published.py "${given[@]}"
clients/harness/run.sh "$tools" "$home/venv/bin/python" "$PWD/tests/tools/published_stories.py" "${given[@]}"
"$home/venv/bin/python" tests/tools/conformance.py "${given[0]}" "$home"
