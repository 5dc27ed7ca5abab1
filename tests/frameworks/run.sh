#!/usr/bin/env bash
# Frameworks of four languages and three coding agents against the front, each as docs/frameworks.md has it, with calls
# counted at the upstream, and each with and without Relight where nothing fails: what it prints and sends is the same.
#
#   tests/frameworks/run.sh
#
# RELIGHT names another binary than that of this tree. What it installs stays in target/frameworks; the versions are in
# requirements.txt, package.json, go/go.mod and java/pom.xml. On Debian what is missing of Node, Go, a JDK and Maven is
# fetched with apt.
set -euo pipefail
cd "$(dirname "$0")/../.."

tests=$PWD/tests/frameworks
export FRAMEWORKS_HOME=$PWD/target/frameworks
home=$FRAMEWORKS_HOME
# With `buf` in it, by `.ci/run tools`.
tools=$PWD/target/ci-venv/bin

packages=()
command -v npm >/dev/null || packages+=(nodejs npm)
command -v go >/dev/null || packages+=(golang-go)
command -v javac >/dev/null || packages+=(default-jdk-headless)
command -v mvn >/dev/null || packages+=(maven)
if ((${#packages[@]})); then
  sudo=()
  if ((EUID != 0)); then sudo=(sudo); fi
  "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=300 update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q "${packages[@]}"
fi

mkdir -p "$home"/{node,java}
if [[ -z ${RELIGHT:-} ]]; then
  cargo build --locked --quiet --bin relight
  RELIGHT=$PWD/target/debug/relight
fi
export RELIGHT
# Installed once, and again when a version changes.
.ci/venv "$home/venv" -r "$tests/requirements.txt"
if ! cmp -s "$tests/package.json" "$home/node/package.json"; then
  cp "$tests/package.json" "$home/node/package.json"
  npm install --silent --no-audit --no-fund --prefix "$home/node"
  # What npm may not run by itself: each puts the binary of this platform in its place.
  (cd "$home/node/node_modules/@anthropic-ai/claude-code" && node install.cjs)
  (cd "$home/node/node_modules/opencode-ai" && node postinstall.mjs)
fi
if ! cmp -s "$tests/java/pom.xml" "$home/java/pom.xml"; then
  mvn --quiet --batch-mode -f "$tests/java/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$home/java/lib"
  cp "$tests/java/pom.xml" "$home/java/pom.xml"
fi
# The same caches as tests/clients/run.sh.
export GOCACHE=$home/../clients/go-build GOMODCACHE=$home/../clients/go-mod GOFLAGS='-mod=readonly -modcacherw'

# The adapters, from a copy: what is built of it stays out of the tree.
rm -rf "$home/package"
mkdir -p "$home/package/clients"
cp -r proto "$home/package/"
cp -r clients/python clients/typescript "$home/package/clients/"
"$home/venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$home/package/clients/python"
(cd "$home/package/clients/typescript" && npm ci --silent --no-audit --no-fund && PATH=$tools:$PATH npm run --silent build)
npm install --silent --no-audit --no-fund --no-save --prefix "$home/node" "$home/package/clients/typescript"
cp "$tests/ai_grpc.mjs" "$home/node/"

"$home/venv/bin/python" -m pytest -q -p no:cacheprovider "$tests"
