# Sourced, from the root of the repository: what cargo is told where the plane in the kernel cannot be built.
. scripts/common.sh
without_kernel_plane=()
if ! kernel_plane_can_be_built; then
  echo "leaving the plane in the kernel out of scot, which needs $kernel_plane_needs (scripts/setup.sh installs them)" >&2
  without_kernel_plane=(--no-default-features --features scotfree-cli/lab)
fi

# That scot builds without that plane, as cleanly as with it, and then without anything that needs its compiler.
check_without_kernel_plane() {
  cargo clippy -q --locked -p scotfree-switch -p scotfree-lab -p scotfree-cli --all-targets --no-default-features --features scotfree-cli/lab -- -D warnings
  # Packages leave the experiments out.
  cargo clippy -q --locked -p scotfree-cli --all-targets --no-default-features -- -D warnings
  if cargo tree -q --locked -p scotfree-switch -p scotfree-cli --no-default-features | grep libbpf; then
    echo "without the plane in the kernel neither scot nor the tests of its daemons must need libbpf" >&2
    return 1
  fi
}
