#!/usr/bin/env bash
# The micro-benchmarks, one after the other; each prints JSON, the last one a table.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
cargo run -q --locked --release -p scotfree-io --example domain_bench
cargo run -q --locked --release -p scotfree-switch --example bridge_latency
cargo run -q --locked --release -p scotfree-io --example flush_bench
