#!/usr/bin/env bash
# Builds the client packages as their users do, and runs the specification, faults, TLS and the documentation's snippets
# against all of them.
#
#   clients/harness/run.sh FOLDER               # with `buf` in it
#   clients/harness/run.sh FOLDER COMMAND...    # runs COMMAND instead, with CLIENT_DRIVERS
#
# RELIGHT_BINARY is the server (target/debug/relight), CLIENT_ROUNDS the rounds of faults of each kind (3; 1000 by hand).
# Builds in target/client-packages, on a copy; the package for Rust is one of the workspace. On Debian what is missing of Node, Go, a
# JDK, Maven and openssl is fetched with apt.
set -euo pipefail
cd "$(dirname "$0")/../.."

tools=$(realpath -s "$1")
home=$PWD/target/client-packages
cargo_target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
RELIGHT_BINARY=$(realpath "${RELIGHT_BINARY:-target/debug/relight}")
export RELIGHT_BINARY

packages=()
command -v npm >/dev/null || packages+=(nodejs npm)
command -v go >/dev/null || packages+=(golang-go)
command -v javac >/dev/null || packages+=(default-jdk-headless)
command -v mvn >/dev/null || packages+=(maven)
command -v openssl >/dev/null || packages+=(openssl)
if ((${#packages[@]})); then
  sudo=()
  if ((EUID != 0)); then sudo=(sudo); fi
  "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=300 update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q "${packages[@]}"
fi

mkdir -p "$home"
.ci/venv "$home/venv" -r clients/harness/requirements.txt
# The artifacts are what the snippets are compiled against.
cargo build --locked -p relight-client --example driver --message-format json-render-diagnostics >"$home/rust-artifacts.jsonl"
rm -rf "$home"/{proto,docs} "$home"/clients/{python,go,java,spec,harness,typescript/src,typescript/dist}
git ls-files -z --cached --others --exclude-standard clients proto docs/clients.md |
  tar --null --files-from - --create | tar --extract --directory "$home"
cd "$home/clients"

python=$home/venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps ./python
(cd python && "$python" -m mypy)

(cd typescript && npm ci --silent --no-audit --no-fund && PATH=$tools:$PATH npm run --silent build)

# The same caches as tests/clients/run.sh.
export GOCACHE=$home/../clients/go-build GOMODCACHE=$home/../clients/go-mod GOFLAGS='-mod=readonly -modcacherw'
(cd go && PATH=$tools:$PATH go generate ./relight && go vet ./relight ./cmd/... && go build -o "$home/driver-go" ./cmd/driver)

(cd java && mvn --quiet --batch-mode test-compile dependency:copy-dependencies -DoutputDirectory=target/lib)

export CLIENT_DRIVERS="python=$python $PWD/python/driver.py
typescript=node $PWD/typescript/driver.mjs
go=$home/driver-go
java=java -cp $PWD/java/target/classes:$PWD/java/target/test-classes:$PWD/java/target/lib/* dev.relight.client.Driver
rust=$cargo_target/debug/examples/driver"
export CLIENT_LANGUAGES='python ts go java rust' CLIENT_RUST_ARTIFACTS=$home/rust-artifacts.jsonl
if (($# > 1)); then exec "${@:2}"; fi
"$python" harness/run_spec.py
"$python" harness/run_wire.py
"$python" harness/run_snippets.py
"$python" harness/run_rounds.py
