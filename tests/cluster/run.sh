#!/usr/bin/env bash
# The chart before a real API server of Kubernetes on this machine, with a node whose containers are processes.
#
#   tests/cluster/run.sh PYTHON    # builds the control plane once, in 2 minutes of CPU
#
# PYTHON is an environment with pytest and PyYAML. RELIGHT is the binary (target/debug/relight). The control plane is built of the
# Go modules of Kubernetes into target/cluster, and again only if its sources change. Needs Go, kubectl, openssl, iproute2 and, for
# namespaces of the network, root; on Debian what is missing is fetched with apt.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=$1
sources=tests/cluster/control-plane
built=$PWD/target/cluster
helm=v3.22.0
flags="-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"

packages=()
command -v go >/dev/null || packages+=(golang-go)
command -v kubectl >/dev/null || packages+=(kubernetes-client)
command -v openssl >/dev/null || packages+=(openssl)
command -v ip >/dev/null || packages+=(iproute2)
sudo=()
if ((EUID != 0)); then sudo=(sudo --preserve-env); fi
if ((${#packages[@]})); then
  "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=300 update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q "${packages[@]}"
fi

mkdir -p "$built"
wanted=$(cat "$sources"/*.go "$sources/go.mod" | sha256sum)
if [[ $(cat "$built/control-plane.of" 2>/dev/null) != "$wanted" ]]; then
  (cd "$sources" && GOFLAGS=-mod=readonly nice -n 15 go build -p "${GO_JOBS:-2}" -ldflags "$flags" -o "$built/control-plane" .)
  echo "$wanted" >"$built/control-plane.of"
fi
if [[ ! -x $built/helm ]]; then GOBIN=$built nice -n 15 go install "helm.sh/helm/v3/cmd/helm@$helm"; fi

"${sudo[@]}" env "PATH=$PATH" "RELIGHT=$(realpath "${RELIGHT:-target/debug/relight}")" \
  "$python" -m pytest -q -p no:cacheprovider tests/cluster "${@:2}"
