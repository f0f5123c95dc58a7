#!/bin/sh
# One host: a Redis, a proxy with a durable log before it, and a check that kills the Redis while it is written to.
# All of it lies in one folder and is reached at one port of loopback:
#   docs/one-host.sh redis    starts a Redis, or starts it again on the files that it left
#   docs/one-host.sh proxy    starts `scot proxy` before it: clients connect to 127.0.0.1:7379
#   docs/one-host.sh check    counts to 1000 there, kills the Redis on the way, and looks whether each step was made once
#   docs/one-host.sh down     ends both; the folder stays
# ONE_HOST names the folder (./one-host), PORT the port. Needs redis-server, redis-cli, and scot in the path.
set -eu

folder=${ONE_HOST:-one-host}
port=${PORT:-7379}
steps=1000

fail() {
    echo "one-host: $1" >&2
    exit 1
}

ask() {
    redis-cli -p "$port" "$@"
}

# await WHAT COMMAND...: until the command succeeds, half a minute at most.
await() {
    what=$1
    shift
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "$what: not within 30 s; see $folder"
        sleep 0.1
    done
}

# Whether the process of a pid file runs, and is ours: it works in the folder, or was started with a file of it. After a
# restart of the host the number may be somebody else's.
runs() {
    [ -s "$folder/$1.pid" ] || return 1
    pid=$(cat "$folder/$1.pid")
    [ "$(readlink "/proc/$pid/cwd")" = "$folder" ] || grep -qF "$folder/" "/proc/$pid/cmdline" 2>/dev/null
}

answers() {
    [ "$(redis-cli -s "$folder/redis.sock" ping 2>/dev/null)" = PONG ]
}

start_redis() {
    ! runs redis || fail "its Redis runs already: docs/one-host.sh down"
    redis-server --daemonize yes --dir "$folder" --pidfile "$folder/redis.pid" --logfile "$folder/redis.log" \
        --port 0 --unixsocket "$folder/redis.sock" --unixsocketperm 700 \
        --appendonly yes --appendfsync everysec --save '' --maxmemory-policy noeviction
    await "the Redis answers" answers
}

start_proxy() {
    runs redis || fail "there is no Redis yet: docs/one-host.sh redis"
    ! runs proxy || fail "its proxy runs already: docs/one-host.sh down"
    scot proxy --listen "127.0.0.1:$port" --redis "unix:$folder/redis.sock" --log "$folder/proxy.log" \
        --log-size 32M >"$folder/proxy.out" 2>&1 &
    echo $! >"$folder/proxy.pid"
    await "the proxy is ready" proxy_has_said
    runs proxy || fail "the proxy ended: $(cat "$folder/proxy.out")"
    echo "redis-cli -p $port"
}

# That it serves, or why it ended.
proxy_has_said() {
    ! runs proxy || grep -q 'scot: ready' "$folder/proxy.out"
}

check() {
    runs proxy || fail "there is no proxy yet: docs/one-host.sh proxy"
    ask set one-host:count 0 >/dev/null
    i=0
    while [ "$i" -lt "$steps" ]; do
        echo 'INCR one-host:count'
        i=$((i + 1))
    done | ask >"$folder/counted" 2>&1 &
    counting=$!
    await "it counts to 100" grep -q '^100$' "$folder/counted"
    kill -9 "$(cat "$folder/redis.pid")"
    await "the Redis is dead" is_dead
    start_redis
    wait "$counting" || fail "the client was cut off: $(tail -n 1 "$folder/counted")"
    said=$(tail -n 1 "$folder/counted")
    found=$(ask get one-host:count)
    [ "$said $found" = "$steps $steps" ] || fail "the last answer was $said, and $found is there, of $steps"
    echo "killed on the way; $steps steps, each once"
}

is_dead() {
    ! runs redis
}

# The proxy first: it speaks to the Redis.
stop() {
    for name in proxy redis; do
        if runs "$name"; then
            pid=$(cat "$folder/$name.pid")
            kill "$pid"
            await "$name has ended" has_ended "$pid"
        fi
        rm -f "$folder/$name.pid"
    done
}

has_ended() {
    ! kill -0 "$1" 2>/dev/null
}

for tool in redis-server redis-cli; do
    command -v "$tool" >/dev/null || fail "there is no $tool: apt-get install redis-server redis-tools"
done
command -v scot >/dev/null || fail "there is no scot in the path: scripts/build.sh, then PATH=\$PWD/target/release:\$PATH"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd -P)
case "${1:-}" in
redis) start_redis ;;
proxy) start_proxy ;;
check) check ;;
down) stop ;;
*) fail "usage: docs/one-host.sh redis | proxy | check | down" ;;
esac
