#!/usr/bin/env bash
# All tests, from the cheapest to the dearest. Ends with a line that counts them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/features.sh
scot=$(target_folder)/release/scot
workspace=(--workspace)
if [ ${#without_kernel_plane[@]} -gt 0 ]; then
  echo "SKIP: tests of the plane in the kernel: its programs cannot be compiled here"
  workspace+=(--exclude scotfree-xdp --exclude scotfree-kernels --exclude 'remedy-*-kernel' "${without_kernel_plane[@]}")
fi
log=$(mktemp)
mounted=
trap 'rm -f "$log"; [ -z "$mounted" ] || umount "$mounted"' EXIT

# What devices keep in the kernel lies where systemd mounts a BPF file system; not every machine has systemd.
if [ "$(id -u)" = 0 ] && [ "$(stat -f -c %T /sys/fs/bpf 2>/dev/null)" != bpf_fs ] && mount -t bpf bpf /sys/fs/bpf; then
  mounted=/sys/fs/bpf
fi

step() { printf '\n== %s\n' "$*"; }

step "format, lints, tidy rules"
cargo fmt --all -- --check
cargo clippy -q --locked "${workspace[@]}" --all-targets -- -D warnings
cargo run -q --locked -p xtask -- tidy

step "scot without the plane in the kernel"
check_without_kernel_plane

step "the environment of the study"
study=$(scripts/python.sh)
export PATH="${study%/*}:$PATH"

step "the scripts"
python3 -m unittest -q --buffer scripts/test_scripts.py
python3 -m unittest discover -q --buffer -s scripts -p 'test_mut*.py'

step "tests of all crates"
cargo build -q --locked --release -p scotfree-cli "${without_kernel_plane[@]}"
EXAMPLES_ARE_BUILT=1 cargo test --locked "${workspace[@]}" --no-fail-fast 2>&1 | tee "$log"

step "rings under every order of two threads' words"
RUSTFLAGS="--cfg loom" cargo test -q --locked -p remedy-ring --test loom --target-dir "$(target_folder)/loom" 2>&1 | tee -a "$log"

step "the codec beside others"
cargo test -q --locked --features buffa --manifest-path lab/peers/codec/Cargo.toml 2>&1 | tee -a "$log"

step "the codec under tonic"
cargo test -q --locked --manifest-path adapters/tonic/Cargo.toml --workspace 2>&1 | tee -a "$log"

step "each remedy is one folder"
scripts/remedies-apart.sh

step "plots are drawn"
if python=$(scripts/plots.sh --python); then
  "$python" -m unittest discover -q --buffer -s scripts -p 'test_plot.py'
else
  echo "SKIP: no plot is drawn here, for the reason above"
fi

step "the study"
ruff format -q --check python
ruff check -q python
(cd python && "$study" -m mypy src tests bench)
(cd python && "$study" -m pytest -rs -n logical --dist loadfile | tee -a "$log")

step "the study as a wheel"
scripts/wheel.sh

step "the parsers under random input"
cargo test -q --locked --manifest-path fuzz/Cargo.toml 2>&1 | tee -a "$log"
FUZZ_SECONDS=3 scripts/fuzz.sh

step "2,000 seeds of the simulator"
cargo run -q --locked --release -p remedy-persist-world --example sim -- --seeds 0..2000
cargo run -q --locked --release -p remedy-persist-world --example sim -- --seeds 0..2000 --several

step "100 rounds of kill -9 on real processes, and as many with the append-only file cut back to its last sync"
"$scot" lab run kill-rounds --rounds 100 --no-results
"$scot" lab run kill-rounds-cut --rounds 100 --no-results

step "100 rounds of the same with a proxy, its log on the disk and in the memory of peers"
"$scot" lab run proxy-kill-rounds --rounds 100 --no-results
"$scot" lab run proxy-kill-rounds-peers --rounds 100 --no-results

step "the controls, which must lose"
"$scot" lab run kill-rounds-control --rounds 2 --no-results
"$scot" lab run proxy-kill-rounds-control --rounds 4 --no-results

# Of cargo's runners ("test result: ok. 3 passed; …") and of pytest ("3 passed, 1 skipped in 2.1s").
sum() {
  awk -v want="$1" '/^test result:/ || / in [0-9.]+s( |$)/{for(i=1;i<NF;i++) if($(i+1) ~ "^"want) total+=$i} END{print total+0}' "$log"
}
printf '\n%s passed, %s failed, %s ignored\n' "$(sum passed)" "$(sum failed)" "$(($(sum ignored) + $(sum skipped)))"
