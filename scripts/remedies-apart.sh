#!/usr/bin/env bash
# That a remedy is one folder and its lines: in a copy of the tree each remedy's folder is deleted with the lines that
# name it, and everything else builds; then the toy is added by its folder and its lines, and `scot` lists it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/features.sh
export CARGO_TARGET_DIR=${APART_TARGET:-$(target_folder)/apart}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
registry=crates/scotfree-cli/src/registry.rs
# Built once and run for a moment: quickly built is what counts.
quick=(--config profile.dev.opt-level=0 --config 'profile.dev.package."*".opt-level=0' --config profile.dev.debug=0)

# All that is left, but what cannot be built here in any case.
rest=(--workspace)
if [ ${#without_kernel_plane[@]} -gt 0 ]; then
  rest+=(--exclude scotfree-xdp --exclude scotfree-kernels --exclude 'remedy-*-kernel' "${without_kernel_plane[@]}")
fi

copy_tree() {
  rm -rf "$copy/tree"
  mkdir -p "$copy/tree"
  git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' path; do
    [ ! -e "$path" ] || printf '%s\0' "$path"
  done | tar -c --null -T - | tar -x -C "$copy/tree"
}

# Its folder, and every line of a manifest or of the registry that names it.
delete_remedy() { # NAME
  rm -rf "crates/remedy-$1"
  find . -name Cargo.toml -exec sed -i "/remedy-$1\(-[a-z]*\)\?\(\.workspace\)\? *=/d; s/, \"dep:remedy-$1-kernel\"//" {} +
  sed -i "/remedy_$1/d" "$registry"
  sed -i "/^$1$/d" bpf/functions.order
  # Cargo refuses a pattern of members that nothing fits.
  local part
  for part in kernel world membership service models transport; do
    compgen -G "crates/remedy-*/$part" >/dev/null || sed -i "s#, \"crates/remedy-\*/$part\"##" Cargo.toml
  done
}

for folder in crates/remedy-*; do
  name=${folder#crates/remedy-}
  copy_tree
  (
    cd "$copy/tree"
    delete_remedy "$name"
    cargo check -q "${quick[@]}" --offline "${rest[@]}" --lib --bins
  ) || { echo "remedies-apart: without remedy-$name the rest does not build" >&2; exit 1; }
  echo "without remedy-$name everything else builds"
done

copy_tree
(
  cd "$copy/tree"
  mv fixtures/remedy-toy crates/remedy-toy
  sed -i 's#, "fixtures/remedy-toy"##; s#fixtures/remedy-toy#crates/remedy-toy#' Cargo.toml
  sed -i 's#^remedy-persist.workspace = true#&\nremedy-toy.workspace = true#' crates/scotfree-cli/Cargo.toml
  sed -i 's#^ *remedy!(remedy_persist,#    remedy!(remedy_toy),\n&#' "$registry"
  listed=$(cargo run -q "${quick[@]}" --offline -p scotfree-cli --no-default-features -- remedies)
  grep '^toy: ' <<<"$listed"
) || { echo "remedies-apart: the toy is not one folder and its lines" >&2; exit 1; }
