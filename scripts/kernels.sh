#!/usr/bin/env bash
# Boots the kernels that Debian's packages offer, each in a virtual machine, tries the device's programs on
# them, and writes docs/kernels.md. Packages are unpacked under target/kernels; only tools that are missing
# (qemu, cpio) are installed here. KERNELS="bookworm trixie" tries only those; PACKETS=n compares n packets;
# SECONDS_MAX=n bounds a guest; ACCELERATOR=kvm is faster where it works.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
packets=${PACKETS:-4000}
seconds_max=${SECONDS_MAX:-420}
accelerator=${ACCELERATOR:-tcg}
# A name for each kernel, and the suites that it may come from; the newest version wins.
offers=(
  "bullseye=bullseye,bullseye-security"
  "bookworm=bookworm,bookworm-security"
  "bookworm-backports=bookworm-backports"
  "trixie=trixie,trixie-security"
  "trixie-backports=trixie-backports"
  "testing=testing"
)
# A guest that dies before it says this (emulators err) is booted again; a trial that began is not repeated.
begins="the trial begins"
boots_max=3
meta=linux-image-cloud-amd64
cache=$PWD/target/kernels
kernels=$(target_folder)/debug/kernels
keys=/usr/share/keyrings/debian-archive-keyring.gpg

say() { printf 'kernels: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# ---- what runs must not outlive this script

work=$(mktemp -d)
guest=
clean() {
  if [ -n "$guest" ]; then
    kill "$guest" 2>/dev/null || true
    wait "$guest" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- tools

install_tools() {
  local missing=() pair
  for pair in qemu-system-x86_64:qemu-system-x86 cpio:cpio ip:iproute2 ethtool:ethtool xz:xz-utils; do
    has "${pair%%:*}" || missing+=("${pair##*:}")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  local as=()
  [ "$(id -u)" = 0 ] || as=(sudo -n)
  { "${as[@]}" apt-get update -qq && "${as[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$work/install" 2>&1 || {
    tail -3 "$work/install" >&2
    fail "could not install; as root: apt-get update && apt-get install ${missing[*]}"
  }
}

# ---- packages, by an apt of this cache's own: the machine's lists and packages stay as they are

private() {
  local command=$1
  shift
  "$command" -o Dir::State="$cache/apt" -o Dir::State::status="$cache/apt/status" -o Dir::Cache="$cache/apt/cache" \
    -o Dir::Etc::SourceList="$cache/apt/sources.list" -o Dir::Etc::SourceParts="$cache/apt/none" \
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
    -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User=root "$@"
}

# The machine's own sources of Debian say where the other suites lie.
repository() {
  apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(ORIGIN)' 'Created-By: Packages' |
    awk -v security="$1" '/ Debian$/ && ($2 ~ /-security$/) == security { print $1; exit }'
}

write_sources() {
  local main security suite from
  main=$(repository 0)
  security=$(repository 1)
  [ -n "$main" ] || fail "this machine's apt knows no Debian archive: it must be Debian, and apt-get update must have run"
  [ -f "$keys" ] || fail "$keys is missing; as root: apt-get install debian-archive-keyring"
  mkdir -p "$cache"/apt/{lists/partial,cache/archives/partial,none}
  : >"$cache/apt/status"
  for suite in $(printf '%s\n' "${offers[@]}" | sed 's/.*=//; s/,/ /g'); do
    from=$main
    if [[ $suite == *-security ]]; then from=$security; fi
    [ -z "$from" ] || printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$from" "$suite"
  done >"$cache/apt/sources.list"
}

update_lists() {
  # A suite that is not there is reported where its kernel is looked for.
  private apt-get update -qq >"$work/update" 2>&1 || true
  private apt-cache madison "$meta" >"$work/madison"
  [ -s "$work/madison" ] || {
    tail -3 "$work/update" >&2
    fail "apt offers no $meta from any suite"
  }
}

newest() { # SUITES
  awk -F' *[|] *' -v suites="$1" '{ split($3, from, " "); sub("/.*", "", from[2])
    if (index("," suites ",", "," from[2] ",")) { print $2; exit } }' "$work/madison"
}

# A kernel's package, and those of the same version that hold its parts.
parts_of() { # PACKAGE VERSION
  printf '%s\n' "$1"
  private apt-cache show "$1=$2" | sed -n 's/^Depends: //p' | tr ',' '\n' |
    sed -nE 's/^ *(linux-(image|binary|modules)-[^ ]*) \(= .*/\1/p' | sort -u
}

download() { # FOLDER PACKAGE...
  local folder=$1
  shift
  mkdir -p "$folder"
  (cd "$folder" && private apt-get download -qq "$@") 2>"$work/download" || {
    tail -3 "$work/download" >&2
    return 1
  }
}

unpack_module() { # FOLDER NAME
  local folder=$1 name=$2 deb path
  for deb in "$folder"/debs/*.deb; do
    path=$(dpkg-deb --fsys-tarfile "$deb" | tar -t | grep -E "/${name//[-_]/[-_]}\.ko(\.xz)?$" | head -1) || continue
    dpkg-deb --fsys-tarfile "$deb" | tar -xO "$path" >"$folder/module"
    if [[ $path == *.xz ]]; then xz -dc <"$folder/module" >"$folder/$name.ko"; else mv "$folder/module" "$folder/$name.ko"; fi
    rm -f "$folder/module"
    for needed in $(tr '\0' '\n' <"$folder/$name.ko" | sed -n 's/^depends=//p' | tr ',' ' '); do
      unpack_module "$folder" "$needed"
    done
    printf '%s.ko\n' "$name" >>"$folder/order"
    return 0
  done
  fail "no module $name in the packages of $(basename "$folder")"
}

# Fills target/kernels/VERSION with vmlinuz, the modules of veth and their order; says the folder.
fetch_kernel() { # VERSION
  local version=$1 folder=$cache/$1 image deb
  if [ ! -f "$folder/modules" ]; then
    rm -rf "$folder"
    image=$(private apt-cache show "$meta=$version" | sed -nE 's/^Depends:.*(linux-image-[0-9][^ ]*) .*/\1/p')
    [ -n "$image" ] || fail "$meta $version names no kernel"
    say "fetching $image $version"
    # shellcheck disable=SC2046
    download "$folder/debs" $(parts_of "$image" "$version" | sed "s/\$/=$version/") || fail "could not fetch $image"
    for deb in "$folder"/debs/*.deb; do
      dpkg-deb --fsys-tarfile "$deb" | tar -xO --wildcards './boot/vmlinuz-*' '*/modules/*/vmlinuz' 2>/dev/null >"$folder/part" || true
      if [ -s "$folder/part" ]; then mv "$folder/part" "$folder/vmlinuz"; fi
    done
    [ -f "$folder/vmlinuz" ] || fail "no kernel in the packages of $image"
    printf '%s=%s\n' "$image" "$version" >"$folder/package"
    unpack_module "$folder" veth
    mv "$folder/order" "$folder/modules"
    rm -rf "$folder/debs" "$folder/part"
  fi
  printf '%s\n' "$folder"
}

fetch_busybox() {
  [ ! -x "$cache/busybox" ] || return 0
  rm -rf "$cache/busybox-deb"
  download "$cache/busybox-deb" busybox-static || fail "could not fetch busybox-static"
  dpkg-deb --fsys-tarfile "$cache"/busybox-deb/*.deb | tar -xO --wildcards '*/bin/busybox' >"$cache/busybox.new"
  chmod +x "$cache/busybox.new"
  mv "$cache/busybox.new" "$cache/busybox"
  rm -rf "$cache/busybox-deb"
}

# ---- the guest

build_programs() {
  . scripts/features.sh
  [ ${#without_kernel_plane[@]} -eq 0 ] || fail "but that plane is what is to be tried"
  say "building the programs and their test"
  cargo build -q --locked -p scotfree-kernels
  cargo test -q --locked -p remedy-persist-kernel --test equivalence --no-run --message-format=json >"$work/built"
  equivalence=$(sed -nE 's/.*"target":\{[^}]*"name":"equivalence".*"executable":"([^"]+)".*/\1/p' "$work/built" | tail -1)
  object=$(sed -nE 's/.*scotfree-xdp[^"]*".*"out_dir":"([^"]+)".*/\1/p' "$work/built" | tail -1)/dispatcher.bpf.o
  [ -x "$equivalence" ] || fail "cargo did not say where the equivalence test is"
  [ -f "$object" ] || fail "cargo did not say where the programs are"
}

make_root() { # FOLDER: all but the kernel's modules
  local root=$1 tool library
  mkdir -p "$root"/{bin,tools,proc,sys,dev,modules,tmp,run/netns,var}
  ln -s /run "$root/var/run"
  cp "$cache/busybox" "$root/bin/busybox"
  for tool in ip ethtool; do cp -L "$(command -v $tool)" "$root/tools/$tool"; done
  strip -o "$root/tools/kernels" "$kernels"
  strip -o "$root/tools/equivalence" "$equivalence"
  cp "$object" "$root/dispatcher.bpf.o"
  for library in $(ldd "$root"/tools/* | grep -oE '/[^ ]+\.so[^ ]*' | sort -u); do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
  cat >"$root/init" <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/tools:/bin EQUIVALENCE_PACKETS=$packets
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t bpf bpf /sys/fs/bpf
echo 1 > /proc/sys/kernel/printk
while read module; do insmod /modules/\$module; done < /modules/order
ip link set lo up
echo "$begins"
kernels trial /dispatcher.bpf.o /tools/equivalence
poweroff -f
INIT
  chmod +x "$root/init"
}

boot() { # FOLDER CONSOLE: 0 if the guest ended by itself in time
  local folder=$1 console=$2 root=$work/root ended
  rm -f "$root"/modules/*
  cp "$folder"/*.ko "$root/modules/"
  cp "$folder/modules" "$root/modules/order"
  (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"
  # `timeout` passes a signal on, so that ending it ends the guest. cx16 is off since QEMU 7.2 emulates its
  # instruction wrongly when an interrupt comes: guests died with flags that no processor can have.
  timeout -k 5 "$seconds_max" qemu-system-x86_64 -accel "$accelerator" -cpu Nehalem,-cx16 -m 1024 -nodefaults -display none \
    -no-reboot -serial "file:$console" -kernel "$folder/vmlinuz" -initrd "$work/initrd" \
    -append "console=ttyS0 panic=-1 quiet" </dev/null 2>"$work/qemu" &
  guest=$!
  ended=0
  wait "$guest" || ended=$?
  guest=
  return "$ended"
}

try_kernel() { # NAME VERSION
  local folder reason package console ended
  folder=$(fetch_kernel "$2")
  package=$(cat "$folder/package")
  console=$folder/console
  say "booting $package ($1), at most $seconds_max s"
  for _ in $(seq "$boots_max"); do
    ended=0
    boot "$folder" "$console" || ended=$?
    case $ended in
      0) ;;
      124 | 137) reason="no report within $seconds_max s"; break ;;
      *) cat "$work/qemu" >&2; fail "qemu ended with $ended: that is not the kernel's fault" ;;
    esac
    reason="the guest ended without a report"
    ! grep -aqF "$begins" "$console" || break
    reason="the guest ended before its trial began"
    say "$reason"
  done
  "$kernels" read "$console" "$package" "${package%%=*}" "$reason" | tee -a "$work/reports" >&2
  say "the console is kept as ${console#"$PWD"/}"
}

has apt-get || fail "there is no apt-get here: this needs Debian or one of its kind"
install_tools
write_sources
update_lists
fetch_busybox
build_programs
make_root "$work/root"
: >"$work/reports"
for offer in "${offers[@]}"; do
  name=${offer%%=*}
  [ -z "${KERNELS:-}" ] || [[ " $KERNELS " == *" $name "* ]] || continue
  version=$(newest "${offer#*=}")
  if [ -n "$version" ]; then try_kernel "$name" "$version"; else say "no kernel from $name: not offered, or its suite cannot be reached"; fi
done
[ -s "$work/reports" ] || fail "no kernel was tried"
if [ -n "${KERNELS:-}" ]; then
  say "docs/kernels.md is left as it is: not all kernels were tried"
else
  "$kernels" table "$work/reports" "$(date -u +%F)" "$(git rev-parse --short=10 HEAD)" >"$work/kernels.md"
  mv "$work/kernels.md" docs/kernels.md
  say "wrote docs/kernels.md"
fi
