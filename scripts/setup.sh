#!/usr/bin/env bash
# Installs what is missing of the Debian packages that the demo, the lab and the tests use, and says of each what it
# is for; does nothing where all is there. What cannot be installed is named, with what is lost by it and the command
# that would install it. `--report` also installs what the study needs, `--study` what its tests need beside that:
# Java for Spark, a browser, an etcd. Needs no make: without it run this, then scripts/build.sh and the program that it makes.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

wish=${1:-}
case $wish in
  "" | --report | --study) ;;
  *) echo "setup: scripts/setup.sh [--report | --study], not $wish" >&2; exit 2 ;;
esac

java_versions=(openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless default-jre-headless)

has_venv() { has python3 && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

has_java() {
  local version
  version=$(java -version 2>&1 | sed -nE '1s/.*version "([0-9]+).*/\1/p')
  [ "${version:-0}" -ge 17 ]
}

# A compiler without the C library's headers and start files links nothing.
links() {
  has cc || return 1
  local program rc=0
  program=$(mktemp)
  echo 'int main(void) { return 0; }' | cc -x c -o "$program" - 2>"$program.why" || rc=1
  rm -f "$program" "$program.why"
  return $rc
}

# ---- what is missing: what for, and the packages of which the first that is offered brings it

purposes=()
choices=()
want() { # PURPOSE PACKAGE...
  purposes+=("$1")
  shift
  choices+=("$*")
}

has ip || want "network namespaces, without which there is no demo and no lab" iproute2
has unshare || want "the demo without being root" util-linux
has redis-server || want "a real Redis in the demo and in tests" redis-server
{ has redis-cli && has redis-benchmark; } || want "Redis' own clients in the demo and in tests" redis-tools
{ has prometheus && has promtool; } || want "Prometheus itself, which reads the daemons' metrics in tests" prometheus
has ethtool || want "a look at the offloads of a device's ports (scot doctor), and tests of them" ethtool
has cc || want "a C compiler, without which scot does not link" gcc
links || want "a C compiler's library, without which scot does not link" libc6-dev
plane="the plane in the kernel (scot switch --plane xdp)"
[ -n "$(find_clang || true)" ] || want "$plane: its compiler" clang
has_kernel_headers || for package in libbpf-dev libelf-dev zlib1g-dev; do want "$plane: its libraries" $package; done
# libbpf is built from its source, by make.
has make || want "$plane: its library's build; and the verbs of the Makefile" make
has pkg-config || want "$plane: how its libraries are found" pkg-config
if [ -n "$wish" ]; then
  has_venv || for package in python3 python3-venv; do want "the study, the planner and retrieval" $package; done
fi
if [ "$wish" = --study ]; then
  has_java || want "the study on Spark" "${java_versions[@]}"
  has chromium || want "tests of pages in a browser" chromium
  has etcd || want "tests of groups whose views etcd keeps" etcd-server
fi

# ---- which package, of those that the distribution offers

offered() { apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'; }

# clang-14, or the distribution's own if it is no older, or else the newest that there is.
offered_clang() {
  local usual newest
  usual=$(apt-cache policy clang 2>/dev/null | sed -nE 's/^ *Candidate: ([0-9]+:)?([0-9]+).*/\2/p')
  newest=$(apt-cache search --names-only '^clang-[0-9]+$' 2>/dev/null | sed -nE 's/^clang-([0-9]+) .*/\1/p' | sort -rn | sed -n 1p)
  if offered "clang-$clang_version_min"; then
    echo "clang-$clang_version_min"
  elif [ "${usual:-0}" -ge "$clang_version_min" ]; then
    echo clang
  elif [ "${newest:-0}" -gt "$clang_version_min" ]; then
    echo "clang-$newest"
  else
    echo "clang-$clang_version_min"
  fi
}

package_of() { # CHOICE...
  if [ "$1" = clang ]; then
    offered_clang
    return
  fi
  local package
  for package in "$@"; do
    if offered "$package"; then
      echo "$package"
      return
    fi
  done
  echo "$1"
}

# ---- installing: all at once, or one by one where that fails, since one name that is not there fails all

say() { echo "setup: $*"; }
warn() { say "$@" >&2; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
install() { as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; }

install_one_by_one() {
  local place failed=()
  for place in "${!packages[@]}"; do
    install "${packages[place]}" >"$log" 2>&1 && continue
    failed+=("${packages[place]}")
    warn "could not install ${packages[place]}: $(grep -v '^ *$' "$log" | tail -1)"
    warn "  lost by it: ${purposes[place]}"
  done
  [ ${#failed[@]} = 0 ] || warn "as root, when they can be had: apt-get update && apt-get install ${failed[*]}"
}

install_missing() {
  local packages=() place
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  if ! has apt-get; then
    warn "no apt-get here; install with your package manager what Debian calls:"
  elif ! as_root true 2>/dev/null; then
    warn "installing takes root, and sudo wants a password or is not there; as root, apt-get install:"
  elif ! as_root apt-get update -qq >"$log" 2>&1; then
    warn "apt-get update failed ($(grep -v '^ *$' "$log" | tail -1)); going on with the lists that are there"
  fi
  for place in "${!choices[@]}"; do
    # shellcheck disable=SC2086
    packages+=("$(package_of ${choices[place]})")
  done
  say "missing, and what for:"
  for place in "${!packages[@]}"; do
    printf 'setup:   %-24s %s\n' "${packages[place]}" "${purposes[place]}"
  done
  if ! has apt-get || ! as_root true 2>/dev/null; then
    return
  fi
  say "installing them"
  install "${packages[@]}" >"$log" 2>&1 || install_one_by_one
}

[ ${#choices[@]} = 0 ] || install_missing

# ---- what there is now

stop=0
for tool in ip unshare; do
  has "$tool" || { warn "$tool is needed and missing"; stop=1; }
done
links || { warn "no C compiler that links a program (Debian: apt-get install gcc libc6-dev)"; stop=1; }
rust=$(rust_needed)
if ! has cargo; then
  warn "cargo is needed and missing; install Rust $rust or newer (Ubuntu 24.04: apt-get install rustup && rustup default stable; Debian 12 packages an older one: use rustup's own installer)"
  stop=1
elif ! minor=$(cargo --version | sed -nE 's/^cargo 1\.([0-9]+)\..*/\1/p') || [ "${minor:-0}" -lt "${rust#1.}" ]; then
  warn "Rust $rust or newer is needed, this is $(cargo --version); with rustup: rustup update stable"
  stop=1
fi
if [ -n "$wish" ]; then
  has_venv || { warn "Python 3.11 or newer with venv is needed for the study and missing (apt-get install python3 python3-venv)"; stop=1; }
fi
if [ "$wish" = --study ]; then
  has_java || warn "no Java 17 or newer: what runs on Spark is skipped with the reason"
  has chromium || warn "no chromium: what is tried in a browser is skipped with the reason"
  has etcd || warn "no etcd: tests of groups whose views it keeps are skipped with the reason"
fi
if ! kernel_plane_can_be_built; then
  warn "of $kernel_plane_needs something is missing: scot is built without the plane in the kernel (\`scot switch --plane xdp\`)"
fi
has redis-server || warn "no redis-server: the demo runs on the embedded scot kv, tests against Redis are skipped with the reason"
has make || warn "no make: its verbs are scripts; instead of \`make demo\`: scripts/build.sh && $(target_folder)/release/scot demo"
exit $stop
