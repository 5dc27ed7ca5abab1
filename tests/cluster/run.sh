#!/usr/bin/env bash
# The chart on a real Kubernetes on this machine, with nodes whose containers are processes.
#
#   tests/cluster/run.sh small PYTHON    # etcd, the API server and one node; built once, in 9 minutes of CPU
#   tests/cluster/run.sh full PYTHON     # controllers, scheduler and two nodes, too; built once, in 11 minutes of CPU
#
# PYTHON is an environment with pytest and PyYAML, and for the full one the client package. RELIGHT is the binary
# (target/debug/relight). The control plane is built of the Go modules of Kubernetes into target/cluster, and again only if its
# sources change. Needs Go, kubectl, openssl, iproute2 and, for namespaces, root; on Debian what is missing is fetched with apt.
set -euo pipefail
cd "$(dirname "$0")/../.."

size=$1 python=$2
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

program=$built/control-plane tags=()
if [[ $size == full ]]; then program+=-full tags=(-tags full); fi
mkdir -p "$built"
wanted=$(cat "$sources"/*.go "$sources/go.mod" | sha256sum)
if [[ $(cat "$program.of" 2>/dev/null) != "$wanted" ]]; then
  (cd "$sources" && GOFLAGS=-mod=readonly nice -n 15 go build "${tags[@]}" -p "${GO_JOBS:-2}" -ldflags "$flags" -o "$program" .)
  echo "$wanted" >"$program.of"
fi
if [[ ! -x $built/helm ]]; then GOBIN=$built nice -n 15 go install "helm.sh/helm/v3/cmd/helm@$helm"; fi

# In namespaces of their own: nothing of this machine changes, and every process ends with the tests.
"${sudo[@]}" env "PATH=$PATH" "RELIGHT=$(realpath "${RELIGHT:-target/debug/relight}")" "CLUSTER=$size" \
  unshare --net --mount --pid --fork --kill-child --mount-proc sh -c '
    mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up && exec "$@"' - \
  "$python" -m pytest -q -p no:cacheprovider tests/cluster "${@:3}"
