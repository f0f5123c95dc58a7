#!/bin/sh
# The units under a systemd of their own: started, used, told of a new key, stopped. scripts/try-package.sh runs this in
# the clean tree, booted as a machine; alone it would change the machine that it runs on.
set -eu
units="scot-kv scot-sidecar-server scot-sidecar-client scot-proxy scot-peer scot-switch"
[ "${1:-}" = in-a-tree ] || { echo "try-units: run scripts/try-package.sh" >&2; exit 2; }

fail() {
  echo "units: $*"
  for unit in $units redis-server redis-server@second; do journalctl --no-pager -q -o cat -u "$unit" | tail -5; done
  exit 1
}
# Waits until a unit's log has said something.
said() {
  tries=300
  until journalctl --no-pager -q -o cat -u "$1" | grep -q "$2"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || fail "$1 did not say: $2"
    sleep 0.2
  done
}
effective() { sed -n 's/^CapEff:\t//p' "/proc/$(systemctl show -p MainPID --value "$1")/status"; }

sed -i 's/^appendonly no/appendonly yes/' /etc/redis/redis.conf
systemctl restart redis-server
# A second Redis, which the proxy stands before.
sed -e 's/^port .*/port 6381/' -e 's|^dir .*|dir /var/lib/redis/second|' -e 's|^pidfile .*|pidfile /run/redis-second/redis-server.pid|' \
  -e 's|^logfile .*|logfile ""|' /etc/redis/redis.conf >/etc/redis/redis-second.conf
chown redis:redis /etc/redis/redis-second.conf
install -d -m 0750 -o redis -g redis /var/lib/redis/second
systemctl start redis-server@second
for port in eth1 eth2; do
  ip link add $port type veth peer name far-$port
  ip link set far-$port up
  ethtool -K far-$port gro on
  ip link set $port up
done
cat >/etc/scotfree/scot.toml <<'END'
[cluster]
key_file = "/etc/scotfree/cluster.key"
[switch]
ports = ["eth1", "eth2"]
address = "10.0.0.254"
server = "10.0.0.2"
device_id = 1
log = ["ram:/dev/shm/scot.log:16M"]
[server]
listen = "127.0.0.1:51000"
redis = "127.0.0.1:6379"
dead_letters = "/var/lib/scotfree/dead.jsonl"
[client]
listen = "127.0.0.1:6380"
server = "127.0.0.1:51000"
trace = "/var/lib/scotfree/trace.jsonl"
[kv]
listen = "127.0.0.2:51000"
log = "/var/lib/scotfree/kv.wal"
log_size = "16M"
[[proxy]]
name = "second"
listen = "127.0.0.1:7379"
redis = "127.0.0.1:6381"
log = "/var/lib/scotfree/proxy.log"
log_size = "32M"
peers = ["127.0.0.1:7399"]
[peer]
listen = "127.0.0.1:7399"
END
scot key new /etc/scotfree/cluster.key >/dev/null
chown scotfree /etc/scotfree/cluster.key
scot config check
for unit in $units; do
  systemctl start "$unit" || fail "$unit does not start"
done
for unit in $units; do said "$unit" 'scot: ready'; done
[ "$(redis-cli -p 6380 set key value)" = OK ] || fail "the client's sidecar does not take a SET"
[ "$(redis-cli -p 6379 get key)" = value ] || fail "the Redis has not got it"
[ "$(redis-cli -p 7379 set key value)" = OK ] || fail "the proxy does not take a SET"
[ "$(redis-cli -p 6381 get key)" = value ] || fail "the proxy's Redis has not got it"
for unit in scot-kv scot-sidecar-server scot-sidecar-client scot-proxy scot-peer; do
  [ "$(effective $unit)" = 0000000000000000 ] || fail "$unit has capabilities: $(effective $unit)"
done
# Only bpf, net_admin and net_raw.
[ "$(effective scot-switch)" = 0000008000003000 ] || fail "scot-switch has capabilities: $(effective scot-switch)"
scot key rotate /etc/scotfree/cluster.key
for unit in $units; do
  systemctl reload "$unit" || fail "$unit cannot be told to read its key again"
  said "$unit" 'reloaded: key'
done
redis-cli -p 6380 set key other >/dev/null
[ "$(redis-cli -p 6379 get key)" = other ] || fail "nothing passes with the new key"
for unit in $units; do
  systemctl stop "$unit"
  [ "$(systemctl show -p Result --value "$unit")" = success ] || fail "$unit ended badly"
  said "$unit" 'stopped'
done
systemd-analyze security --no-pager $units 2>/dev/null | tail -7
echo "units: started, used, told of a new key and stopped by $(systemctl --version | head -1)"
