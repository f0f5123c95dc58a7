#!/usr/bin/env bash
# Tries what `make package` has made where nothing of Scotfree or its tools is: in a tree of a minimal Debian 12,
# made by debootstrap. The Debian package is installed with what it asks for, examined by `scot doctor`, shown by
# `scot demo`, used, and purged, after which nothing of it is left; the wheel makes a report; the image is built; the
# units are started by systemd. `deb`, `wheel`, `image`, `units` try one of these. Only as root.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/target/package
work=$PWD/target/try-package
base=$work/base.tar
tree=$work/tree

say() { printf '\n== %s\n' "$*"; }
refuse() {
  echo "try-package: $*" >&2
  exit 3
}
fail() {
  echo "try-package: $*" >&2
  exit 1
}

for part in "$@"; do
  case $part in deb | wheel | image | units) ;; *)
    echo "try-package: there is no $part; there are: deb, wheel, image, units" >&2
    exit 2
    ;;
  esac
done
[ "$(id -u)" = 0 ] || refuse "making a tree, its mounts and namespaces takes root: sudo make try-package"
command -v debootstrap >/dev/null || refuse "debootstrap is needed and missing (Debian: apt-get install debootstrap)"
debs=("$folder"/scotfree_*.deb) wheels=("$folder"/scotfree-*.whl)
[ -e "${debs[0]}" ] && [ -e "${wheels[0]}" ] || refuse "nothing in $folder to be tried; make it: make package"
[ ${#debs[@]} = 1 ] && [ ${#wheels[@]} = 1 ] || refuse "more than one version in $folder; remove the old ones"

# In a mount namespace of its own nothing that is mounted here is ever seen, or left behind, outside.
if [ "${SCOT_TRY_INSIDE:-}" != yes ]; then
  SCOT_TRY_INSIDE=yes exec unshare --mount --propagation private "$PWD/scripts/try-package.sh" "$@"
fi

mounted=()
mount_in() {
  mkdir -p "${!#}"
  mount "$@"
  mounted=("${!#}" "${mounted[@]}")
}
# A tree is removed only when nothing of the machine is mounted in it any more.
clean() {
  local place
  for place in "${mounted[@]}"; do
    umount "$place" 2>/dev/null || umount --lazy "$place" || return
  done
  mounted=()
  rm -rf --one-file-system "$tree" "$work/images"
}
trap clean EXIT

inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$tree" "$@"; }
install_in() { inside apt-get install -y -qq -o Dpkg::Use-Pty=0 "$@" >"$work/apt.log" 2>&1 || { tail -20 "$work/apt.log" >&2; fail "apt-get install $*"; }; }

make_tree() {
  rm -rf --one-file-system "$tree"
  mkdir -p "$work"
  if [ ! -e "$base" ]; then
    say "a minimal Debian 12, once"
    # Where packages come from is this machine's affair: SCOT_DEBIAN_MIRROR, or debootstrap's own choice.
    debootstrap --variant=minbase bookworm "$tree" ${SCOT_DEBIAN_MIRROR:+"$SCOT_DEBIAN_MIRROR"} >"$work/debootstrap.log" 2>&1 ||
      { tail -5 "$work/debootstrap.log" >&2; fail "debootstrap"; }
    tar -C "$tree" -cf "$base.part" .
    mv "$base.part" "$base"
  else
    mkdir "$tree"
    tar -C "$tree" -xf "$base"
  fi
}

prepare_tree() {
  # Whoever makes namespaces in it expects its root to be a mount of its own.
  mount_in --bind "$tree" "$tree"
  cp /etc/resolv.conf /etc/hosts "$tree/etc/"
  # No daemon is started by its package's installation.
  printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
  chmod +x "$tree/usr/sbin/policy-rc.d"
  mount_in -t proc proc "$tree/proc"
  mount_in -t sysfs sysfs "$tree/sys"
  mount_in -t bpf bpf "$tree/sys/fs/bpf" || echo "no BPF file system: the plane in the kernel is not tried"
  mount_in --bind /dev "$tree/dev"
  mount_in -t tmpfs tmpfs "$tree/dev/shm"
  mount_in -t tmpfs tmpfs "$tree/run"
  mount_in -t tmpfs tmpfs "$tree/tmp"
  cp "${debs[0]}" "$tree/tmp/scotfree.deb"
  inside apt-get update -qq
}

# All that a package could have left: names, and who is known. What apt and dpkg note for themselves is theirs.
state() {
  inside find / -xdev \( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/log -o -name '*-' -path '/etc/*' \) -prune -o -print | sort
  cat "$tree"/etc/{passwd,group,shadow,gshadow}
}

try_installed() {
  say "apt-get install ./scotfree.deb, with what it depends on and recommends"
  install_in /tmp/scotfree.deb
  inside dpkg -s scotfree | grep -E '^(Version|Depends|Recommends):'
  inside scot --version
  say "scot doctor"
  inside scot doctor
  local plane planes=(user)
  if inside scot doctor --plane xdp >"$work/doctor-xdp.txt"; then planes+=(xdp); else grep -E "MUST" "$work/doctor-xdp.txt" || true; fi
  for plane in "${planes[@]}"; do
    say "scot demo --plane $plane, a Redis behind it"
    inside scot demo --service redis --plane "$plane" --seconds 3
  done
  try_papers
}

# The package: installed, used, purged.
try_deb() {
  try_installed
  try_purge
}

# Pages, completions and units.
try_papers() {
  say "pages, completions, units"
  local page
  for page in scot scot-demo scot-switch scot-kv scot-sidecar-client scot-sidecar-server scot-proxy scot-peer; do
    inside gzip -t "/usr/share/man/man1/$page.1.gz"
  done
  inside bash -c '. /usr/share/bash-completion/completions/scot && complete -p scot'
  inside test -s /usr/share/zsh/vendor-completions/_scot -a -s /usr/share/fish/vendor_completions.d/scot.fish
  local unit binary
  for unit in switch sidecar-server sidecar-client kv proxy peer; do
    binary=$(inside sed -nE 's/^ExecStart=([^ ]+) .*/\1/p' "/usr/lib/systemd/system/scot-$unit.service")
    inside test -x "$binary"
  done
}

# As README.Debian says, a daemon as its user, then a purge.
try_purge() {
  say "removed and purged, before anything was configured"
  inside dpkg --purge scotfree >/dev/null
  state >"$work/before.txt"
  ! grep -i scot "$work/before.txt" | grep -v '^/tmp/' || fail "this was left"
  say "installed again by dpkg -i, configured, used as its user"
  inside dpkg -i /tmp/scotfree.deb >/dev/null
  inside sh -ec '
    cp /usr/share/doc/scotfree/examples/scot.example.toml /etc/scotfree/scot.toml
    scot key new /etc/scotfree/cluster.key
    chown scotfree /etc/scotfree/cluster.key
    scot config check /etc/scotfree/scot.toml
    install -d -m 0750 -o scotfree -g scotfree /var/lib/scotfree
    # Whoever reads it may be there before the daemon is.
    : >/tmp/kv.out
    as="setpriv --reuid scotfree --regid scotfree --init-groups --no-new-privs --bounding-set -all"
    $as scot kv --key-file /etc/scotfree/cluster.key --listen 127.0.0.1:0 --log /var/lib/scotfree/kv.wal --log-size 16M >/tmp/kv.out 2>&1 &
    daemon=$!
    tail -f /tmp/kv.out --pid=$daemon | grep -q -m1 ready || { cat /tmp/kv.out; exit 1; }
    kill $daemon
    wait $daemon
    test -s /var/lib/scotfree/kv.wal
  '
  say "purged"
  inside dpkg --purge scotfree
  rm -f "$tree/tmp/kv.out"
  state >"$work/after.txt"
  diff "$work/before.txt" "$work/after.txt" || fail "the purge left or took this"
  echo "nothing is left"
}

# The wheels that the tree's pip takes: what the package asks for, in the versions of the lock, by their hashes.
fetch_wheels() {
  local pip=$PWD/target/wheel-tools/bin/pip file
  [ -x "$pip" ] || fail "target/wheel-tools is gone; make it: scripts/package.sh wheel"
  sed -nE 's/ *\\$//; s/^([A-Za-z][^ ]*==[^ ]+.*)$/\1/p' python/requirements.txt >"$work/versions.txt"
  mkdir -p "$work/wheels"
  "$pip" download -q --disable-pip-version-check --only-binary :all: --constraint "$work/versions.txt" --dest "$work/wheels" "${wheels[0]}[study]"
  for file in "$work"/wheels/*.whl; do
    case "$file" in */scotfree-*) continue ;; esac
    grep -q "sha256:$(sha256sum "$file" | cut -d' ' -f1)" python/requirements.txt || fail "$file is not what the lock names"
  done
  cp "${wheels[0]}" "$work/wheels/"
}

try_wheel() {
  say "the wheel in an environment of its own"
  fetch_wheels
  install_in --no-install-recommends python3-venv
  mount_in --bind -o ro "$work/wheels" "$tree/mnt"
  inside python3 -m venv /opt/study
  inside /opt/study/bin/pip install -q --disable-pip-version-check --no-index --find-links /mnt 'scotfree[study]'
  inside /opt/study/bin/scot-study --help >/dev/null
  inside /opt/study/bin/scot-study fleet --spans 20000 --methods 50 --to /tmp/fleet >/dev/null
  inside /opt/study/bin/scot-study report /tmp/fleet -o /tmp/report.html
  inside grep -q Content-Security-Policy /tmp/report.html
  install_in /tmp/scotfree.deb
  inside env PATH=/usr/sbin:/usr/bin:/opt/study/bin scot study --help | head -1
}

# The tree booted as a machine without a network, where the units are started by systemd itself.
try_units() {
  if ! command -v systemd-nspawn >/dev/null; then
    say "the units are not started: no systemd-nspawn (Debian: apt-get install systemd-container)"
    return
  fi
  say "the units, under systemd"
  install_in --no-install-recommends systemd systemd-sysv dbus
  install_in /tmp/scotfree.deb
  install -m 0755 scripts/try-units.sh "$tree/opt/"
  cat >"$tree/etc/systemd/system/try-units.service" <<END
[Unit]
After=multi-user.target
[Service]
Type=exec
ExecStart=/bin/sh -c '/opt/try-units.sh in-a-tree >/opt/units.out 2>&1; systemctl poweroff'
END
  mkdir -p "$tree/etc/systemd/system/default.target.wants"
  ln -sf ../try-units.service "$tree/etc/systemd/system/default.target.wants/"
  boot
  cat "$tree/opt/units.out"
  grep -q '^units: started' "$tree/opt/units.out" || fail "the units did not do what they should"
}

# Until the tree powers itself off, or for as long as it may take; what was mounted in it for chroot goes first.
boot() {
  local place
  for place in "${mounted[@]}"; do umount "$place" || umount --lazy "$place"; done
  mounted=()
  mount_in -t tmpfs tmpfs /run/systemd/nspawn
  mount_in -t bpf bpf "$work/bpf"
  timeout --kill-after=10 600 systemd-nspawn --quiet -D "$tree" --register=no --keep-unit --private-network \
    --capability=all --system-call-filter=bpf --bind="$work/bpf:/sys/fs/bpf" --console=pipe \
    --boot systemd.log_target=null </dev/null >"$work/boot.log" 2>&1 || true
}

# The image, on the same minimal Debian instead of one from a registry.
try_image() {
  if ! command -v buildah >/dev/null; then
    say "the image is not tried: no buildah (Debian: apt-get install buildah)"
    return
  fi
  say "the image"
  local images=$work/images container
  make_image_store "$images"
  [ -e "$folder/Containerfile" ] || refuse "no $folder/Containerfile; make it: scripts/package.sh image"
  container=$(in_store from scratch)
  in_store add -q "$container" "$base" / >/dev/null
  in_store commit -q "$container" localhost/minimal >/dev/null
  in_store build -q --build-arg BASE=localhost/minimal -f "$folder/Containerfile" -t localhost/scotfree "$folder" >"$work/image.log" 2>&1 ||
    { tail -5 "$work/image.log" >&2; fail "the image"; }
  in_store inspect --type image --format 'user {{.OCIv1.Config.User}}, entry {{.OCIv1.Config.Entrypoint}}{{"\n"}}' localhost/scotfree
  container=$(in_store from --pull-never localhost/scotfree)
  in_store run "$container" -- scot --version
  in_store run "$container" -- sh -c 'cd /var/lib/scotfree && scot key new k && test "$(id -un)" = scotfree'
  in_store rm --all >/dev/null
  rm -rf --one-file-system "$images"
}

# Images in a folder of this trial, without the kernel's help, so that it works in a container, too.
make_image_store() {
  rm -rf --one-file-system "$1"
  mkdir -p "$1"
  image_store=(--root "$1/root" --runroot "$1/run" --storage-driver vfs)
}
in_store() { BUILDAH_ISOLATION=chroot buildah "${image_store[@]}" "$@"; }

make_tree
prepare_tree
[ $# -gt 0 ] || set -- deb wheel image units
for part in "$@"; do "try_$part"; done
say "tried: ${debs[0]##*/}, ${wheels[0]##*/}"
