# Sourced, from the root of the repository: what the scripts have in common. Written so that bash 3.2, which macOS
# has, reads it and is refused in words.
if [ "$(uname -s)" != Linux ]; then
  echo "scotfree: this is $(uname -s), and these scripts are for Linux, whose network namespaces the device and the lab use; elsewhere use a Linux machine or a virtual one" >&2
  exit 1
fi
# Before 4.4 an empty list counts as an unset variable.
if [ "${BASH_VERSINFO[0]:-0}" -lt 4 ] || { [ "${BASH_VERSINFO[0]}" = 4 ] && [ "${BASH_VERSINFO[1]}" -lt 4 ]; }; then
  echo "scotfree: these scripts need bash 4.4 or newer, this is ${BASH_VERSION:-another shell}; install a newer bash and put it first in PATH" >&2
  exit 1
fi

# Where the system's tools and rustup's programs lie, also for who has neither in the path.
PATH="$PATH:/usr/sbin:/sbin${HOME:+:$HOME/.cargo/bin}"

# Some programs here are started in folders below this one.
case ${CARGO_TARGET_DIR:-/} in
  /*) ;;
  *) export CARGO_TARGET_DIR="$PWD/$CARGO_TARGET_DIR" ;;
esac

has() { command -v "$1" >/dev/null 2>&1; }

# The folder into which cargo builds: CARGO_TARGET_DIR, or what a configuration of cargo says, or target.
target_folder() {
  local told
  if told=$(cargo metadata --format-version 1 --no-deps --offline 2>/dev/null) &&
    [[ $told =~ \"target_directory\":\"([^\"]+)\" ]]; then
    echo "${BASH_REMATCH[1]}"
  else
    echo "${CARGO_TARGET_DIR:-$PWD/target}"
  fi
}

# Rust as Cargo.toml asks for it: 1.N.
rust_needed() { sed -nE 's/^rust-version = "(1\.[0-9]+).*"/\1/p' Cargo.toml; }

# The compiler of the programs in the kernel: CLANG, or clang-14, which they are tried with most, or else the newest
# of version 14 or newer. crates/scotfree-xdp/clang.rs chooses alike.
clang_version_min=14
find_clang() {
  if [ -n "${CLANG:-}" ]; then
    has "$CLANG" && echo "$CLANG"
    return
  fi
  local newest version
  # No pipe into `sort | head` here: a closed pipe would end the caller under pipefail.
  newest=$({ compgen -c clang- || true; } | sed -nE 's/^clang-([0-9]+)$/\1/p' | sort -rnu | sed -n 1p)
  if has "clang-$clang_version_min"; then
    echo "clang-$clang_version_min"
  elif [ "${newest:-0}" -gt "$clang_version_min" ]; then
    echo "clang-$newest"
  else
    version=$(clang --version 2>/dev/null | sed -nE '1s/.*version ([0-9]+).*/\1/p')
    [ "${version:-0}" -ge "$clang_version_min" ] && echo clang
  fi
}

# Headers for programs in the kernel, and the libraries that load them.
has_kernel_headers() {
  local header
  for header in bpf/bpf_helpers.h libelf.h zlib.h; do
    [ -e "/usr/include/$header" ] || return 1
  done
}
# libbpf is built from its source, by make.
kernel_plane_can_be_built() { find_clang >/dev/null && has_kernel_headers && has make; }
kernel_plane_needs="clang $clang_version_min or newer, libbpf-dev, libelf-dev, zlib1g-dev and make"
