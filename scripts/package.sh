#!/usr/bin/env bash
# Makes what Scotfree is carried away in, under target/package: a Debian package, the Python package as a wheel, and
# an image of the Debian package where a builder of images is at hand. `deb`, `wheel` or `image` makes one of them.
# Made again from the same binary the Debian package is the same to the byte.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
target=$(target_folder)
folder=$PWD/target/package
version=$(sed -nE 's/^version = "(.*)"/\1/p' Cargo.toml | head -1)
architecture=$(dpkg --print-architecture 2>/dev/null || true)
deb=scotfree_${version}_${architecture}.deb
# Times in packages are the commit's. Not exported: a build that is told of it begins anew with every commit.
epoch=$(git log -1 --format=%ct 2>/dev/null || date +%s)

say() { echo "package: $*" >&2; }
# A tool, or else what installs it.
needs() {
  command -v "$1" >/dev/null || { say "$1 is needed and missing (Debian: apt-get install $2)"; exit 3; }
}

# dpkg's own tools, not cargo-deb: they are wherever a Debian package can be tried, while cargo-deb is 95 crates to
# build, which took minutes here, and would do no more of this than the copying.
make_deb() {
  needs dpkg-deb dpkg
  needs dpkg-shlibdeps dpkg-dev
  needs strip binutils
  local tree=$folder/deb
  build_without_experiments "$folder/scot"
  rm -rf "$tree"
  stage "$folder/scot" "$tree"
  write_control "$tree"
  find "$tree" -exec touch --no-dereference --date="@$epoch" {} +
  SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group -Zxz --build "$tree" "$folder/$deb.part" >/dev/null
  mv "$folder/$deb.part" "$folder/$deb"
  rm -rf "$tree"
  echo "$folder/$deb"
}

# The experiments are the repository's, and are run there: what is installed goes without them.
build_without_experiments() {
  . scripts/features.sh
  local features=(--no-default-features)
  [ ${#without_kernel_plane[@]} -gt 0 ] || features+=(--features xdp)
  cargo build --release --locked -p scotfree-cli "${features[@]}"
  cp "$target/release/scot" "$1"
  # What lies in the target folder is the command with all.
  scripts/build.sh
}

# The package's files: the binary without what only a debugger reads, and what it writes about itself.
stage() {
  local scot=$1 tree=$2
  install -D -m 0755 "$scot" "$tree/usr/bin/scot"
  strip --strip-unneeded "$tree/usr/bin/scot"
  "$scot" man "$tree/usr/share/man/man1" >/dev/null
  gzip -9n "$tree"/usr/share/man/man1/*.1
  install -d "$tree"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
  "$scot" completions bash >"$tree/usr/share/bash-completion/completions/scot"
  "$scot" completions zsh >"$tree/usr/share/zsh/vendor-completions/_scot"
  "$scot" completions fish >"$tree/usr/share/fish/vendor_completions.d/scot.fish"
  local unit
  for unit in packaging/*.service; do
    install -d "$tree/usr/lib/systemd/system"
    sed 's|/usr/local/bin/|/usr/bin/|' "$unit" >"$tree/usr/lib/systemd/system/${unit##*/}"
  done
  local doc=$tree/usr/share/doc/scotfree
  install -D -m 0644 packaging/deb/README.Debian "$doc/README.Debian"
  install -D -m 0644 docs/scot.example.toml "$doc/examples/scot.example.toml"
  gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
  { cat packaging/deb/copyright; sed 's/^$/./; s/^/ /' LICENSE-MIT; } >"$doc/copyright"
  find "$tree" -type d -exec chmod 0755 {} +
  find "$tree" -type f ! -path '*/usr/bin/*' -exec chmod 0644 {} +
}

write_control() {
  local tree=$1 size
  size=$(du -sk --apparent-size "$tree" | cut -f1)
  install -d -m 0755 "$tree/DEBIAN"
  sed -e "s|@VERSION@|$version|; s|@ARCHITECTURE@|$architecture|; s|@INSTALLED_KB@|$size|" \
    -e "s|@LIBRARIES@|$(libraries "$tree/usr/bin/scot")|" packaging/deb/control >"$tree/DEBIAN/control"
  install -m 0755 packaging/deb/{postinst,prerm,postrm} "$tree/DEBIAN/"
  (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
}

# The packages whose libraries the binary is linked with, in the versions that it needs.
libraries() {
  local scratch
  scratch=$(mktemp -d)
  install -D /dev/null "$scratch/debian/control"
  (cd "$scratch" && dpkg-shlibdeps -O "$1" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
  rm -rf "$scratch"
}

# Built with the one tool that the lock names for it; the environment of the study is not needed.
make_wheel() {
  local tools=$PWD/target/wheel-tools lock
  lock=$(awk '/^[a-z]/{wanted = /^maturin==/} wanted' python/requirements.txt)
  if [ "$(cat "$tools/installed" 2>/dev/null)" != "$lock" ]; then
    if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
      say "Python 3.11 with venv is needed and missing (Debian: apt-get install python3 python3-venv)"
      exit 3
    fi
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install -q --disable-pip-version-check --require-hashes --no-deps -r <(echo "$lock")
    echo "$lock" >"$tools/installed"
  fi
  rm -f "$folder"/scotfree-*.whl
  (cd python && PATH="$tools/bin:$PATH" maturin build -q --release --locked -o "$folder")
  echo "$folder"/scotfree-*.whl
}

# An image that has the Debian package installed; built in a folder that has nothing else.
make_image() {
  [ -e "$folder/$deb" ] || make_deb >/dev/null
  install -m 0644 packaging/Containerfile "$folder/Containerfile"
  check_image
  local builder base=${SCOT_IMAGE_BASE:-debian:12-slim} checked="only checked that $folder/Containerfile can be read and names files that are there"
  if ! builder=$(find_builder); then
    say "no builder of images at hand (podman, buildah, or docker with its engine): $checked"
    return
  fi
  if [ -z "${SCOT_IMAGE_BASE:-}" ] && ! "$builder" pull -q "$base" >/dev/null 2>&1; then
    say "$builder cannot fetch $base (SCOT_IMAGE_BASE names another): $checked"
    return
  fi
  "$builder" build -q --build-arg "BASE=$base" -f "$folder/Containerfile" -t "scotfree:$version" "$folder" >/dev/null
  echo "image scotfree:$version (by $builder)"
}

find_builder() {
  local builder
  for builder in podman buildah docker; do
    if "$builder" info >/dev/null 2>&1; then
      echo "$builder"
      return
    fi
  done
  return 1
}

# Every line begins with an instruction or goes on with one, and what is copied is there.
check_image() {
  local known='ARG|FROM|COPY|RUN|USER|WORKDIR|VOLUME|ENTRYPOINT|CMD|LABEL|ENV|EXPOSE' wrong source
  wrong=$(sed -e ':a' -e '/\\$/{N;s/\\\n/ /;ba' -e '}' "$folder/Containerfile" | grep -vE "^($known) |^#|^$" || true)
  [ -z "$wrong" ] || { say "packaging/Containerfile: no instruction: $wrong"; exit 1; }
  for source in $(sed -nE 's/^COPY (--[^ ]+ )*(.*) [^ ]+$/\2/p' "$folder/Containerfile"); do
    compgen -G "$folder/$source" >/dev/null || { say "packaging/Containerfile copies $source, which is not in $folder"; exit 1; }
  done
}

mkdir -p "$folder"
case "${1:-all}" in
deb | wheel | image) "make_$1" ;;
all)
  make_deb
  make_wheel
  make_image
  ;;
*)
  say "there is no $1; there are: deb, wheel, image"
  exit 2
  ;;
esac
