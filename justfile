# The everyday commands. `just` alone lists them; each is one line that also works without `just`.

# List the commands
default:
    @just --list --unsorted

# Build everything
build *args:
    cargo build --workspace --all-targets {{ args }}

# Run the tests
test *args:
    cargo test --workspace {{ args }}

# Lint as the gate does
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Format in place
fmt:
    cargo fmt --all

# Read the API documentation
doc *args:
    cargo doc --workspace --no-deps {{ args }}

# Check licences, bans and sources
deny:
    cargo deny --locked check --hide-inclusion-graph bans licenses sources

# Check for known vulnerabilities; needs the network
advisories:
    cargo deny --locked check advisories

# Everything a change must pass before it lands
gate:
    .ci/run

# Drive the agents' face with real clients, the conformance suite and the inspector; suites can be named
agents *suites:
    cargo build --package stead-cli && cargo build --package stead-mcp --example fixtures && tests/agents/run {{ suites }}

# Run the benchmarks; arguments go to them
bench *args:
    cargo run --release --package stead-bench -- {{ args }}

# Start a node and its board
up *args:
    cargo run --release -- up {{ args }}
