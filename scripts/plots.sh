#!/usr/bin/env bash
# Draws lab/results/plots/NAME.vl.json as NAME.png, of all names if none is given. `--python` instead prints
# the Python that can draw, in an environment of its own, which is made if need be; ends with 3 if it cannot be.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
requirements=scripts/plot-requirements.txt
environment=target/plot-python

make_environment() {
  # Whole or not at all: what is installed is noted last.
  rm -rf "$environment"
  python3 -m venv "$environment" &&
    "$environment/bin/pip" install -q --disable-pip-version-check --require-hashes --only-binary :all: -r "$requirements" &&
    cp "$requirements" "$environment/installed"
}

if ! cmp -s "$requirements" "$environment/installed"; then
  why=$(mktemp)
  if ! make_environment >"$why" 2>&1; then
    echo "plots: no Python that draws: $(grep -v '^ *$' "$why" | tail -1); it needs python3 with its venv (Debian: apt-get install python3-venv) and, once, a package index" >&2
    rm -f "$why"
    exit 3
  fi
  rm -f "$why"
fi
if [ "${1:-}" = --python ]; then
  echo "$environment/bin/python"
else
  exec "$environment/bin/python" scripts/plot.py lab/results/plots "$@"
fi
