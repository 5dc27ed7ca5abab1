#!/usr/bin/env bash
# Measures other gateways beside Relight, in the same rounds; installs TensorZero and LiteLLM from PyPI into target/peers first.
#
#   benches/peers.sh "front unary"                        # TensorZero
#   benches/peers.sh "front unary" tensorzero litellm
#   AGENTGATEWAY=/path/to/agentgateway benches/peers.sh "front unary" agentgateway   # a binary that you have
#
# The kinds are those of `cargo bench --bench overhead`. Needs Python 3.11 with venv.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1-}
shift || true
(($#)) || set -- tensorzero

# A peer's name and version, the program that runs it, its package, and what else it needs.
peer() {
  local name=$1 version=$2 program=$3 package=$4
  shift 4
  local venv=target/peers/$name-$version
  if [[ ! -e $venv/installed ]]; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$package==$version" "$@"
    touch "$venv/installed"
  fi
  RELIGHT_PEERS+="$name $version=$venv/bin/python -W ignore benches/peers/$program;"
}

# agentgateway, which no registry has: the binary that AGENTGATEWAY names.
agentgateway() {
  local binary version
  [[ -n ${AGENTGATEWAY-} ]] || { echo "agentgateway: AGENTGATEWAY must name its binary; nothing is built or downloaded" >&2; exit 2; }
  binary=$(realpath -e "$AGENTGATEWAY") || exit 2
  version=$("$binary" -V) || { echo "agentgateway: $binary does not run" >&2; exit 2; }
  # The command is split at blanks, and the peers at semicolons.
  [[ $binary != *[[:space:]\;]* ]] || { echo "agentgateway: a blank or a semicolon in the path $binary" >&2; exit 2; }
  RELIGHT_PEERS+="agentgateway $version=python3 benches/peers/agentgateway_file.py $binary;"
}

RELIGHT_PEERS=
for name; do
  case $name in
    tensorzero) peer TensorZero 2026.6.0 tensorzero_gateway.py tensorzero openai==3.54.0 ;;
    litellm) peer LiteLLM 1.108.7 litellm_proxy.py "litellm[proxy]" ;;
    agentgateway) agentgateway ;;
    *) echo "no peer is called $name: tensorzero, litellm, agentgateway" >&2; exit 2 ;;
  esac
done
export RELIGHT_PEERS
cargo bench --locked --bench overhead -- "$kind"
