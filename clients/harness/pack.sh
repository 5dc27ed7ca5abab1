#!/usr/bin/env bash
# Packs the client packages as they are published, checks what each registry checks, and installs each from its package alone in a
# project of its own, where the first lines of docs/clients.md run against a real server. Uploads nothing. The package for Rust is
# packed by cargo (`.ci/run publish`).
#
#   clients/harness/pack.sh FOLDER    # with `buf` in it
#
# RELIGHT_BINARY is the server (target/debug/relight). What would be published is in target/packages afterwards. Needs Node, Go, a JDK
# and Maven, as clients/harness/run.sh fetches them.
set -euo pipefail
cd "$(dirname "$0")/../.."

tools=$(realpath -s "$1")
root=$PWD
out=$root/target/packages
work=$out/work
binary=$(realpath "${RELIGHT_BINARY:-target/debug/relight}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

mkdir -p "$out"
.ci/venv "$out/venv" build==1.6.1 twine==7.0.0
rm -rf "$work" "$out"/{python,npm,maven,go}
mkdir -p "$work/user" "$out/npm"
git ls-files -z --cached --others --exclude-standard clients proto LICENSE | tar --null --files-from - --create | tar --extract --directory "$work"
for package in python typescript go; do cp LICENSE "$work/clients/$package/"; done

# === what is published ===

"$out/venv/bin/python" -m build --outdir "$out/python" "$work/clients/python" >"$work/python.log" 2>&1 || { cat "$work/python.log" && exit 1; }
"$out/venv/bin/twine" check --strict "$out"/python/*

(cd "$work/clients/typescript" && npm ci --silent --no-audit --no-fund && PATH=$tools:$PATH npm pack --silent --pack-destination "$out/npm")

# The module with its stubs, and a proxy that serves it as that of the registry does.
export GOCACHE=$root/target/clients/go-build GOMODCACHE=$root/target/clients/go-mod GOFLAGS='-mod=readonly -modcacherw' GOTOOLCHAIN=local
(cd "$work/clients/go" && PATH=$tools:$PATH go generate ./relight && go vet ./... && go mod verify >"$work/go.log")
mkdir -p "$out/go"
cp -r "$work"/clients/go/{go.mod,go.sum,LICENSE,relight} "$out/go/"
served=$work/proxy/relight.dev/api/@v
mkdir -p "$served"
cp "$out/go/go.mod" "$served/v$version.mod"
echo "{\"Version\":\"v$version\"}" >"$served/v$version.info"
echo "v$version" >"$served/list"
python3 - "$out/go" "relight.dev/api@v$version" "$served/v$version.zip" <<'PYTHON'
import pathlib, sys, zipfile
folder, prefix, archive = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        packed.write(file, f"{prefix}/{file.relative_to(folder)}")
PYTHON

(cd "$work/clients/java" && mvn --quiet --batch-mode -Dmaven.test.skip=true deploy -DaltDeploymentRepository="packed::file:$out/maven")

# === what a user has of it ===

# The first lines of docs/clients.md in a language, with this server in the place of theirs.
first_lines() {
  awk -v fence="\`\`\`$1" '$0 == fence { inside = 1; next } inside && /^```/ { exit } inside' docs/clients.md |
    sed "s/127\.0\.0\.1:50051/127.0.0.1:$port/"
}

answered() {
  if ! grep -q sky "$1"; then
    echo "no answer by the package:" && cat "$1" "$work/server.log"
    exit 1
  fi
  echo "$1: $(head -c 60 "$1")…"
}

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
env -u OPENAI_API_KEY -u ANTHROPIC_API_KEY "$binary" serve --listen "127.0.0.1:$port" --admin-listen 127.0.0.1:0 2>"$work/server.log" &
server=$!
trap 'kill "$server"' EXIT
for _ in $(seq 100); do if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi && sleep 0.1; done

cd "$work/user"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check "$out/python/relight-$version-py3-none-any.whl"
(cd "$root" && first_lines python) >first.py
venv/bin/python first.py >python.out
answered python.out

mkdir npm && cd npm
echo '{ "private": true, "type": "module" }' >package.json
npm install --silent --no-audit --no-fund "$out/npm/relight-client-$version.tgz"
(cd "$root" && first_lines ts) >first.mjs
node first.mjs >../npm.out
cd ..
answered npm.out

mkdir go && cd go
{
  printf 'package main\nimport (\n"context"\n"fmt"\n"os"\n"relight.dev/api/relight"\n)\nfunc run(ctx context.Context) error {\n'
  (cd "$root" && first_lines go)
  printf 'return nil\n}\nfunc main() {\nif err := run(context.Background()); err != nil {\nfmt.Println(err)\nos.Exit(1)\n}\n}\n'
} >main.go
# A cache of its own: a packed version may differ from that of an earlier run.
export GOMODCACHE=$work/go-mod GOFLAGS='-mod=mod -modcacherw' GOPROXY="file://$work/proxy,file://$root/target/clients/go-mod/cache/download,https://proxy.golang.org" GONOSUMDB=relight.dev
go mod init user >/dev/null 2>&1
go get "relight.dev/api@v$version" 2>"$work/go.log" || { cat "$work/go.log" && exit 1; }
go list -m relight.dev/api
go vet .
go run . >../go.out
cd ..
answered go.out

mkdir -p java/src/main/java && cd java
cat >pom.xml <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>user</groupId><artifactId>user</artifactId><version>1</version>
  <properties><maven.compiler.release>17</maven.compiler.release></properties>
  <repositories><repository><id>packed</id><url>file://$out/maven</url></repository></repositories>
  <dependencies><dependency><groupId>dev.relight</groupId><artifactId>relight-client</artifactId><version>$version</version></dependency></dependencies>
  <build><plugins><plugin><artifactId>maven-compiler-plugin</artifactId><version>3.13.0</version></plugin></plugins></build>
</project>
XML
{
  printf 'import dev.relight.client.*;\npublic class First {\npublic static void main(String[] arguments) throws Exception {\n'
  (cd "$root" && first_lines java)
  printf '}\n}\n'
} >src/main/java/First.java
# What an earlier run left of this version in Maven's cache is not what was packed.
rm -rf "${HOME}/.m2/repository/dev/relight/relight-client/$version"
mvn --quiet --batch-mode compile org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=target/lib
java -cp 'target/classes:target/lib/*' First >../java.out
cd ..
answered java.out

rm -rf "$work/go-mod"
cd "$root"
find target/packages/{python,npm,maven} -type f -name '*[a-z]' ! -name '*.md5' ! -name '*.sha1' ! -name '*.xml'
