#!/usr/bin/env bash
# Builds the command scot, saying so if it takes a while.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/features.sh
[ -x "$(target_folder)/release/scot" ] || echo "building scot (a few minutes the first time)"
exec cargo build --release --locked -p scotfree-cli "${without_kernel_plane[@]}"
