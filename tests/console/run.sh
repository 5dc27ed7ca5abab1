#!/usr/bin/env bash
# The console in a real headless Chromium, against the real server.
#
#   tests/console/run.sh
#
# What it installs stays in target/console. On Debian a missing Chromium or Node is fetched with apt. RELIGHT_BINARY names a
# server that is built already, CHROMIUM another browser.
set -euo pipefail
cd "$(dirname "$0")/../.."

home=$PWD/target/console
# The last line of versions that runs on Debian's own Node.
driver=puppeteer-core@24.43.1

packages=()
command -v npm >/dev/null || packages+=(nodejs npm)
CHROMIUM=${CHROMIUM:-$(command -v chromium google-chrome | head -n 1 || true)}
[[ -n $CHROMIUM ]] || packages+=(chromium)
if ((${#packages[@]})); then
  sudo=()
  if ((EUID != 0)); then sudo=(sudo); fi
  "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=300 update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q "${packages[@]}"
fi

if [[ -z ${RELIGHT_BINARY:-} ]]; then
  cargo build --locked --quiet --bin relight
  RELIGHT_BINARY=$PWD/target/debug/relight
fi
mkdir -p "$home"
if [[ $(cat "$home/wanted" 2>/dev/null) != "$driver" ]]; then
  npm install --silent --no-audit --no-fund --prefix "$home" "$driver"
  echo "$driver" >"$home/wanted"
fi
export RELIGHT_BINARY CHROMIUM=${CHROMIUM:-$(command -v chromium)} CONSOLE_NODE_HOME=$home
node --test --test-reporter=spec tests/console/console.test.mjs
