# Sourced: what cargo is told where the plane in the kernel cannot be built.
without_kernel_plane=()
kernel_plane_can_be_built() {
  command -v clang-14 >/dev/null 2>&1 || return 1
  local header
  for header in bpf/bpf_helpers.h libelf.h zlib.h; do
    [ -e "/usr/include/$header" ] || return 1
  done
}
if ! kernel_plane_can_be_built; then
  echo "leaving the plane in the kernel out of scot: clang-14, libbpf-dev, libelf-dev or zlib1g-dev is missing (scripts/setup.sh installs them)" >&2
  without_kernel_plane=(--no-default-features)
fi

# That scot builds without that plane, as cleanly as with it, and then without anything that needs its compiler.
check_without_kernel_plane() {
  cargo clippy -q --locked -p scotfree-switch -p scotfree-lab -p scotfree-cli --all-targets --no-default-features -- -D warnings
  if cargo tree -q --locked -p scotfree-cli --no-default-features -e normal,build | grep libbpf; then
    echo "without the plane in the kernel scot must not need libbpf" >&2
    return 1
  fi
}
