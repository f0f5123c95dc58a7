#!/bin/sh
# Fuzzes every parser for FUZZ_SECONDS each (10). With cargo-fuzz and a nightly compiler it uses
# libFuzzer; without, a driver on stable Rust that mutates the same seeds (SEED, a new one by default).
set -eu
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-10}
seed=${SEED:-$(date +%s)}
drive() {
    cargo run --quiet --release --manifest-path fuzz/Cargo.toml --bin drive -- "$@"
}
if cargo fuzz --version >/dev/null 2>&1 && cargo +nightly --version >/dev/null 2>&1; then
    drive --write-corpus fuzz/corpus
    for target in $(drive --list); do
        cargo +nightly fuzz run --features libfuzzer "$target" -- -max_total_time="$seconds" -verbosity=0
    done
else
    echo "cargo-fuzz or nightly Rust is missing: fuzzing with the driver for stable Rust, seed $seed"
    drive --seconds "$seconds" --seed "$seed"
fi
# What is unsafe in the codec once more, with each access looked at; nightly alone has that.
if [ -n "${FUZZ_ASAN:-}" ] && cargo +nightly --version >/dev/null 2>&1; then
    host=$(rustc -vV | sed -n 's/^host: //p')
    for target in transform_protobuf transform_thrift transform_descriptor; do
        RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 cargo +nightly run --quiet --release \
            --manifest-path fuzz/Cargo.toml --target "$host" --target-dir fuzz/target/asan --bin drive -- \
            --target "$target" --seconds "$seconds" --seed "$seed"
    done
fi
