#!/usr/bin/env bash
# Installs what is missing of the Debian packages that the tests and the demo use; does nothing where
# all is there. What cannot be installed is named with the command that would install it. With `--study` also what
# the study and its tests use: Python with venv, Java for Spark, a browser.
set -euo pipefail

# command:package
wanted=(clang-14:clang-14 pkg-config:pkg-config ip:iproute2 redis-server:redis-server redis-cli:redis-tools redis-benchmark:redis-tools ethtool:ethtool unshare:util-linux)
required=(ip unshare)
has_venv() { has python3 && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

PATH="$PATH:/usr/sbin:/sbin:$HOME/.cargo/bin"
has() { command -v "$1" >/dev/null 2>&1; }

# A compiler without the C library's headers and start files links nothing.
links() {
  has cc || return 1
  local program rc=0
  program=$(mktemp)
  echo 'int main(void) { return 0; }' | cc -x c -o "$program" - 2>"$program.why" || rc=1
  rm -f "$program" "$program.why"
  return $rc
}

# Headers for programs in the kernel, and the libraries that load them.
compiles_bpf() {
  local header
  for header in bpf/bpf_helpers.h libelf.h zlib.h; do
    [ -e "/usr/include/$header" ] || return 1
  done
  has make
}

missing=()
for pair in "${wanted[@]}"; do
  has "${pair%%:*}" || missing+=("${pair##*:}")
done
links || missing+=(gcc libc6-dev)
if [ "${1:-}" = --study ]; then
  has_venv || missing+=(python3 python3-venv)
  has java || missing+=(openjdk-17-jre-headless)
  has chromium || missing+=(chromium)
fi
# What the plane in the kernel is compiled and linked with.
compiles_bpf || missing+=(libbpf-dev libelf-dev zlib1g-dev gcc libc6-dev make)

if [ ${#missing[@]} -gt 0 ]; then
  mapfile -t packages < <(printf '%s\n' "${missing[@]}" | sort -u)
  install=(apt-get install -y -qq --no-install-recommends "${packages[@]}")
  run() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
  echo "setup: installing ${packages[*]}"
  if ! has apt-get; then
    echo "setup: no apt-get here; install with your package manager: ${packages[*]}" >&2
  elif ! { run apt-get update -qq && DEBIAN_FRONTEND=noninteractive run "${install[@]}" >/tmp/scot-setup.$$ 2>&1; }; then
    echo "setup: could not install; as root: apt-get update && ${install[*]}" >&2
    [ -s /tmp/scot-setup.$$ ] && tail -3 /tmp/scot-setup.$$ >&2
  fi
  rm -f /tmp/scot-setup.$$
fi

stop=0
for tool in "${required[@]}"; do
  has "$tool" || { echo "setup: $tool is needed and missing" >&2; stop=1; }
done
links || { echo "setup: no C compiler that links a program (Debian: apt-get install gcc libc6-dev)" >&2; stop=1; }
if ! has cargo; then
  echo "setup: cargo is needed and missing; install Rust 1.89 or newer (Ubuntu 24.04: apt-get install rustup && rustup default stable; Debian 12 packages an older one: use rustup's own installer)" >&2
  stop=1
elif ! minor=$(cargo --version | sed -nE 's/^cargo 1\.([0-9]+)\..*/\1/p') || [ "${minor:-0}" -lt 89 ]; then
  echo "setup: Rust 1.89 or newer is needed, this is $(cargo --version); with rustup: rustup update stable" >&2
  stop=1
fi
if [ "${1:-}" = --study ]; then
  has_venv || { echo "setup: Python 3.11 or newer with venv is needed for the study and missing (apt-get install python3 python3-venv)" >&2; stop=1; }
  has java || echo "setup: no Java 17: what runs on Spark is skipped with the reason" >&2
  has chromium || echo "setup: no chromium: what is tried in a browser is skipped with the reason" >&2
fi
if ! { has clang-14 && compiles_bpf; }; then
  echo "setup: clang-14, libbpf-dev, libelf-dev or zlib1g-dev is missing: scot is built without the plane in the kernel (\`scot switch --plane xdp\`)" >&2
fi
has redis-server || echo "setup: no redis-server: the demo runs on the embedded scot kv, tests against Redis are skipped with the reason" >&2
exit $stop
