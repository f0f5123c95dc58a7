#!/usr/bin/env bash
# Makes each mistake of crates/remedy-replicate/mutations.toml in a copy of the tree, one at a time, and says who
# notices it: unit tests, the world with SEEDS=1000 of each kind, or the models. Exits with 1 below 95 of a hundred.
# NAMES='a pattern' tries those whose 'file: name' fits. A mistake that does not compile is told, and the others tried.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 scripts/mutations.py --seeds "${SEEDS:-1000}" ${NAMES:+--names "$NAMES"}
