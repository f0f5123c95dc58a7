#!/usr/bin/env bash
# Makes the Python environment of the study in target/python, with the package and its module in Rust, and prints
# the path of its interpreter. Does nothing where all is there. Ends with 3 if it cannot be made, and says why.
# `--lock` instead makes the files of exact versions anew.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=target/python
bootstrap=target/uv
locks=(python/bootstrap.txt python/requirements.txt)

# The authorities that this machine trusts, as pip does.
export UV_SYSTEM_CERTS=true

say() { echo "python: $*" >&2; }

make_bootstrap() {
  cmp -s python/bootstrap.txt "$bootstrap/installed" && return
  rm -rf "$bootstrap"
  python3 -m venv "$bootstrap" &&
    "$bootstrap/bin/pip" install -q --disable-pip-version-check --require-hashes --only-binary :all: -r python/bootstrap.txt &&
    cp python/bootstrap.txt "$bootstrap/installed"
}

make_environment() {
  cat "${locks[@]}" | cmp -s - "$environment/installed" && return
  rm -rf "$environment"
  # pyspark comes as source: what builds it is installed first, at the version that the lock names.
  "$bootstrap/bin/uv" venv -q --python "$(command -v python3)" "$environment" &&
    build_tools | "$bootstrap/bin/uv" pip install -q --python "$environment/bin/python" --require-hashes -r - &&
    "$bootstrap/bin/uv" pip sync -q --python "$environment/bin/python" --require-hashes --no-build-isolation python/requirements.txt &&
    cat "${locks[@]}" >"$environment/installed"
}

# The lock's entries of what builds source packages, with their hashes.
build_tools() {
  awk '/^[a-z]/{wanted = /^(setuptools|wheel|packaging)==/} wanted' python/requirements.txt
}

# The package as a link to its sources, its commands, and its module in Rust, built anew where its sources changed.
install_package() {
  (cd python && VIRTUAL_ENV=$OLDPWD/$environment PATH="$OLDPWD/$bootstrap/bin:$PATH" \
    "$OLDPWD/$environment/bin/maturin" develop -q --uv --release --locked)
}

lock() {
  make_bootstrap
  local compile=("$bootstrap/bin/uv" pip compile -q --generate-hashes --no-header --no-annotate --universal --python-version 3.11)
  echo "uv==$("$bootstrap/bin/uv" --version | cut -d' ' -f2)" | "${compile[@]}" - -o python/bootstrap.txt
  "${compile[@]}" --excludes python/excludes.txt --all-extras python/pyproject.toml python/requirements.in -o python/requirements.txt
}

if [ "${1:-}" = --lock ]; then
  lock
  exit
fi
cat "${locks[@]}" | cmp -s - "$environment/installed" || say "installing what the study uses (about 1.5 GB on disk, once)"
why=$(mktemp)
trap 'rm -f "$why"' EXIT
if ! { make_bootstrap && make_environment && install_package; } >"$why" 2>&1; then
  tail -20 "$why" >&2
  say "no environment for the study; it needs Python 3.11 with venv (Debian: apt-get install python3-venv), cargo and, once, a package index"
  exit 3
fi
# `scot study` and the others find their programs beside scot.
mkdir -p target/release
for program in scot-study scot-plan scot-rag; do
  [ ! -e "$environment/bin/$program" ] || ln -sf "../python/bin/$program" "target/release/$program"
done
echo "$PWD/$environment/bin/python"
