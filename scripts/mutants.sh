#!/usr/bin/env bash
# Changes the machine crates' code in a random sample of places, one at a time, and counts how many changes
# their tests and 200 seeds of the simulator notice. SAMPLE=100 and SEED (a new one by default) choose it,
# or NAMES, a file with names of changes as they are printed.
set -euo pipefail
cd "$(dirname "$0")/.."
version=27.1.0

if [ "$(cargo mutants --version 2>/dev/null)" != "cargo-mutants $version" ]; then
  echo "cargo-mutants $version lists and tries the changes, and is not installed here: cargo install --locked cargo-mutants@$version" >&2
  exit 2
fi
exec python3 scripts/mutants.py --sample "${SAMPLE:-100}" --seed "${SEED:-$(date +%s)}" ${NAMES:+--names "$NAMES"}
