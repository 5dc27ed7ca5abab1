#!/usr/bin/env bash
# Draws where one kind of call spends its time: a flame graph in target/profile/flame.svg.
#
#   benches/profile.sh "front unary"
#
# The kinds are those of `cargo bench --bench overhead`. Needs perf (Debian: linux-perf) and the right to use it on own processes.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:?a kind of call, such as "front unary"}
out=$PWD/target/profile

command -v perf >/dev/null || { echo "perf is missing (Debian: apt-get install linux-perf)" >&2; exit 1; }
if [[ ! -x $out/bin/inferno-flamegraph ]]; then cargo install --quiet --root "$out" inferno; fi
export CARGO_TARGET_DIR=$out RUSTFLAGS="-C force-frame-pointers=yes"
export CARGO_PROFILE_BENCH_DEBUG=line-tables-only CARGO_PROFILE_BENCH_STRIP=false
RELIGHT_PROFILE=$out/perf.data cargo bench --locked --bench overhead -- "$kind"
perf script -i "$out/perf.data" | "$out/bin/inferno-collapse-perf" >"$out/stacks"
"$out/bin/inferno-flamegraph" --title "$kind" <"$out/stacks" >"$out/flame.svg"
echo "$out/flame.svg"
