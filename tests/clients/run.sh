#!/usr/bin/env bash
# Deadlines of callers, with the gRPC clients of Python, Node, Go and Java against a model that never answers: each gets the
# report of the failure before its own deadline, which every client writes and rounds in its own way.
#
#   tests/clients/run.sh PYTHON    # a Python with grpcio and grpcio-tools
#
# What it installs stays in target/clients. All four are needed; on Debian a missing one is fetched with apt.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=$PWD/$1
home=$PWD/target/clients
# The versions that are tried, beside those in go.mod, pom.xml and .ci/requirements.txt.
node_clients=('@grpc/grpc-js@1.14.7' '@grpc/proto-loader@0.8.1')
plugin=org.apache.maven.plugins:maven-dependency-plugin:3.8.1
# Milliseconds. The first are waited for, side by side; of the others only the end that the service states is read. The lengths just
# above a step are the worst: C-core states three digits and rounds up.
waited=(1 10 100 250 500 999 1001 2000 5003 9999 10001 10010 11110)
read_only=(10050 12340 30010 60020 100010 100500 300300 600000)

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

mkdir -p "$home"/{node,python,java}
cargo build --locked --quiet --bin relight
"$python" -m grpc_tools.protoc -I proto --python_out="$home/python" --grpc_python_out="$home/python" \
  --include_imports --descriptor_set_out="$home/relight.binpb" proto/relight/v1/*.proto
wanted="${node_clients[*]}"
if [[ $(cat "$home/node/wanted" 2>/dev/null) != "$wanted" ]]; then
  npm install --silent --no-audit --no-fund --prefix "$home/node" "${node_clients[@]}"
  echo "$wanted" >"$home/node/wanted"
fi
GOCACHE=$home/go-build GOMODCACHE=$home/go-mod GOFLAGS='-mod=readonly -modcacherw' \
  go build -C tests/clients/go -o "$home/deadlines-go" .
if ! cmp -s tests/clients/java/pom.xml "$home/java/pom.xml"; then
  mvn --quiet --batch-mode -f tests/clients/java/pom.xml "$plugin:copy-dependencies" -DoutputDirectory="$home/java/lib"
  cp tests/clients/java/pom.xml "$home/java/pom.xml"
fi
javac -cp "$home/java/lib/*" -d "$home/java/classes" tests/clients/java/Deadlines.java

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
RELIGHT_PORT=$port target/debug/relight serve --config tests/clients/silent.yaml 2>"$home/relight.log" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
for _ in $(seq 100); do
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
  sleep 0.1
done

arguments=("127.0.0.1:$port" "$home/relight.binpb" "${waited[@]}" -- "${read_only[@]}")
# Two at a time: each start takes a whole core for a moment.
PYTHONPATH=$home/python "$python" tests/clients/deadlines.py "${arguments[@]}" &
first=$!
CLIENTS_NODE_HOME=$home/node node tests/clients/deadlines.mjs "${arguments[@]}"
wait "$first"
"$home/deadlines-go" "${arguments[@]}" &
first=$!
java -cp "$home/java/lib/*:$home/java/classes" Deadlines "${arguments[@]}"
wait "$first"
