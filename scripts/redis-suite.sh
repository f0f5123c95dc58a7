#!/usr/bin/env bash
# Runs Redis' own test suite, in its external mode, against a Redis and then through Scotfree before such a Redis, and
# compares by the tests' names: of those that pass at the Redis alone, how many pass through? Prints that for each
# unit, and each test that differs; exits 1 below 97 %. The suite is not part of this repository: it is fetched by
# apt, in the version of the redis-server that is installed, into target/redis-suite.
#
#   scripts/redis-suite.sh [--through proxy|sidecars] [--mode covered|early] [--fsync always|everysec] [--cache SIZE] [UNIT...]
#
# With --cache the proxy answers reads of what it knows; the suite's own clients alone write that Redis.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

through=proxy mode=covered fsync=always cache=()
share_min=97
# Left out at both: they read the stream of replication, in which the markers are.
tags_refused=-needs:repl
# What docs/limits.md names. Through Scotfree these are not run, since they would leave a state behind that others fall
# over, and count as tests that do not pass.
impossible=(
  "EVAL - SELECT inside Lua should not affect the caller"
  "Script ACL check"
  "EXEC with only read commands should not be rejected when OOM"
  "Script return recursive object"
  "SWAPDB wants to wake blocked client, but the key already expired"
  "MULTI + LPUSH + EXPIRE + DEBUG SLEEP on blocked client, key already expired"
  "Keyspace notifications: evicted events"
  "Tracking invalidation message of eviction keys should be before response"
  "RESTORE can set LRU"
  "RESTORE can set LFU"
  "Check consistency of different data types after a reload"
  "Same dataset digest if saving/reloading as AOF?"
  "EXPIRES after AOF reload (without rewrite)"
)
# Without any news from a test for so long, its unit is given up.
silence_seconds_max=${SILENCE_SECONDS_MAX:-120}
units=()
usage() { echo "redis-suite: scripts/redis-suite.sh [--through proxy|sidecars] [--mode covered|early] [--fsync always|everysec] [--cache SIZE] [UNIT...], not $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1 ${2:-}" in
    "--through proxy" | "--through sidecars") through=$2; shift ;;
    "--mode covered" | "--mode early") mode=$2; shift ;;
    "--fsync always" | "--fsync everysec") fsync=$2; shift ;;
    "--cache "[0-9]*) cache=(--cache "$2" --cache-only-writer); shift ;;
    --*) usage "$1 ${2:-}" ;;
    *) units+=("$1") ;;
  esac
  shift
done
[ ${#cache[@]} -eq 0 ] || [ "$through" = proxy ] || usage "--cache with --through $through"
[ ${#units[@]} -gt 0 ] || units=(
  unit/type/string unit/type/incr unit/type/hash unit/type/list unit/type/list-2 unit/type/list-3 unit/type/set
  unit/type/zset unit/type/stream unit/type/stream-cgroups unit/keyspace unit/expire unit/scan unit/sort unit/multi
  unit/protocol unit/quit unit/scripting unit/functions unit/pubsub unit/tracking unit/other unit/bitops unit/bitfield
  unit/geo unit/hyperloglog unit/dump unit/info-command unit/introspection-2 unit/lazyfree
)

refuse() { echo "redis-suite: $*" >&2; exit 3; }
for need in redis-server:redis-server redis-cli:redis-tools apt-get:apt tclsh:tcl; do
  has "${need%:*}" || refuse "${need%:*} is needed and missing (Debian: apt-get install ${need#*:})"
done
scot=${SCOT:-$(target_folder)/release/scot}
[ -x "$scot" ] || refuse "$scot is missing; make it: scripts/build.sh"

work=$PWD/target/redis-suite
mkdir -p "$work"
# What is asked is what is answered, not how fast: files in memory, and a sync with each write, take the least time.
memory=/dev/shm
[ -w "$memory" ] || memory=$work
version=$(redis-server --version | sed -nE 's/.* v=([0-9.]+) .*/\1/p')

# ---- the suite: sources as this system's apt has them, found by lists of their own, so nothing else changes

# Where packages come from, as lines of where their sources are.
source_lines() {
  local lists=/etc/apt/sources.list.d/debian.sources
  if [ -e "$lists" ]; then
    sed -E 's/^Types:.*/Types: deb-src/' "$lists" >"$1/sources.d/suite.sources"
  fi
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | sed -nE 's/^deb(-src)? /deb-src /p' >"$1/sources.list" || true
}

fetch_suite() {
  suite=$work/redis-$version
  [ -e "$suite/tests/test_helper.tcl" ] && return
  local apt=$work/apt package
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/sources.d" "$apt/source"
  source_lines "$apt"
  local options=(
    -qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o "Dir::Etc::sourceparts=$apt/sources.d"
    -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o Acquire::Languages=none -o APT::Sandbox::User=
  )
  echo "redis-suite: fetching the source of Redis $version by apt" >&2
  apt-get "${options[@]}" update || refuse "apt-get update failed for lists of sources"
  package=$(apt-cache "${options[@]}" showsrc redis | sed -nE "s/^Version: (([0-9]+:)?${version//./\\.}-.*)/\1/p" | tail -1)
  [ -n "$package" ] || refuse "apt has no source of redis $version, which is what redis-server is of"
  (cd "$apt/source" && apt-get "${options[@]}" source --download-only "redis=$package") || refuse "apt-get source redis=$package failed"
  tar -xf "$apt/source/redis_$version.orig.tar.gz" -C "$work" --wildcards '*/tests/*' '*/runtest'
}
fetch_suite
# A test that is not run would leave its database, in which those after it look for what others have written.
scripting=$suite/tests/unit/scripting.tcl
grep -q '^    r select 9$' "$scripting" || sed -i "/^    test {EVAL - Scripts can't run blpop command}/i\\    r select 9" "$scripting"

# ---- processes of one unit: each in a folder of its own, ended with it

started=()
end_all() {
  local pid
  for pid in "${started[@]}"; do
    # What is left of a unit is of no use, and a Redis whose script does not end hears nothing else.
    kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
  done
  started=()
}
clean() {
  end_all
  [ -z "${site:-}" ] || rm -rf "$site"
}
trap clean EXIT
trap 'exit 130' INT TERM

start() { # LOG PROGRAM WORD...
  local log=$1
  shift
  (cd "$site" && exec "$@" >"$log" 2>&1) &
  started+=($!)
}
# Nothing else is known to listen there.
ports() { echo 'foreach n {1 2 3 4} {lappend all [socket -server x -myaddr 127.0.0.1 0]}; foreach s $all {puts [lindex [fconfigure $s -sockname] 2]}' | tclsh; }
await_ping() { # PORT
  local tries
  for ((tries = 0; tries < 300; tries++)); do
    [ "$(redis-cli -p "$1" ping 2>/dev/null)" = PONG ] && return
    sleep 0.1
  done
  cat "$site"/*.log >&2
  refuse "nothing answers at port $1"
}

start_redis() { # PORT
  # Rewritten by nobody but the tests: one of them fails where the server has begun to do so itself.
  start redis.log redis-server --bind 127.0.0.1 --port "$1" --unixsocket redis.sock --appendonly yes --appendfsync "$fsync" --save "" \
    --auto-aof-rewrite-percentage 0 \
    --enable-debug-command yes --enable-protected-configs yes
  await_ping "$1"
}
start_scot() { # PORT OTHER-PORT
  if [ "$through" = proxy ]; then
    start scot.log "$scot" proxy --listen "127.0.0.1:$1" --redis unix:redis.sock --log proxy.log --mode "$mode" "${cache[@]}"
  else
    (cd "$site" && "$scot" key new cluster.key >/dev/null)
    start server.log "$scot" sidecar server --listen "127.0.0.1:$2" --redis unix:redis.sock --dead-letters dead.jsonl --key-file cluster.key
    start scot.log "$scot" sidecar client --listen "127.0.0.1:$1" --server "127.0.0.1:$2" --mode "$mode" --key-file cluster.key
  fi
  await_ping "$1"
}

# One line for each test: its result, its name, and which of that name it is.
results() {
  sed -E 's/\x1b\[[0-9;]*m//g' "$1" | awk '
    /^\[(ok|err)\]: / {
      result = $1; gsub(/\[|\]|:/, "", result)
      name = substr($0, index($0, "]: ") + 3)
      if (result == "ok") sub(/ \([0-9]+ ms\)$/, "", name); else sub(/ in tests\/.*$/, "", name)
      print result "\t" name "\t" ++seen[name]
    }'
}

run_unit() { # ARM UNIT PORT PORT-OF-THE-SUITE
  local out=$work/out/$1/${2//\//-} rc=0 name options=()
  mkdir -p "$work/out/$1"
  if [ "$1" = through ]; then
    for name in "${impossible[@]}"; do
      options+=(--skiptest "$name")
    done
  fi
  # In the background, so that an interrupt is heard at once.
  (cd "$suite" && exec tclsh tests/test_helper.tcl --host 127.0.0.1 --port "$3" --baseport "$4" --durable --single "$2" \
    --timeout "$silence_seconds_max" --tags "$tags_refused" "${options[@]}") >"$out.log" 2>&1 </dev/null &
  started+=($!)
  wait $! || rc=$?
  results "$out.log" >"$out.results"
  [ $rc -le 1 ] || echo "redis-suite: $2 $1 ended with $rc" >&2
}

try_unit() { # UNIT
  site=$(mktemp -d "$memory/redis-suite.XXXXXX")
  local port
  mapfile -t port < <(ports)
  start_redis "${port[0]}"
  run_unit direct "$1" "${port[0]}" "${port[3]}"
  end_all
  rm -rf "$site"
  site=$(mktemp -d "$memory/redis-suite.XXXXXX")
  start_redis "${port[0]}"
  start_scot "${port[1]}" "${port[2]}"
  run_unit through "$1" "${port[1]}" "${port[3]}"
  end_all
  mkdir -p "$work/out/logs" && cp "$site/scot.log" "$work/out/logs/${1//\//-}.log"
  rm -rf "$site"
}

# Counts a unit, and names the tests that pass at the Redis alone only.
compare() { # UNIT
  local direct=$work/out/direct/${1//\//-}.results through=$work/out/through/${1//\//-}.results
  awk -F'\t' -v unit="$1" -v differs="$work/out/differs" '
    NR == FNR { if ($1 == "ok") wanted[$2 "\t" $3] = 1; next }
    { found[$2 "\t" $3] = $1 }
    END {
      for (test in wanted) {
        all++
        if (found[test] == "ok") { same++; continue }
        split(test, words, "\t")
        print unit ": " words[1] (found[test] ? "" : " (not run)") >>differs
      }
      printf "%-26s %5d %5d %7.2f %%\n", unit, all, same, all ? 100 * same / all : 100
    }' "$direct" "$through"
}

echo "Redis $version, appendfsync $fsync; through: scot $through, $mode${cache[*]:+, ${cache[*]}}"
printf '%-26s %5s %5s %9s\n' unit alone same share
rm -rf "$work/out"
mkdir -p "$work/out"
: >"$work/out/differs"
for unit in "${units[@]}"; do
  try_unit "$unit"
  compare "$unit" | tee -a "$work/out/counts"
done
echo
awk '{ all += $2; same += $3 } END { printf "%-26s %5d %5d %7.2f %%\n", "all", all, same, all ? 100 * same / all : 0 }' "$work/out/counts"
if [ -s "$work/out/differs" ]; then
  printf '\npass at the Redis alone only:\n'
  sort "$work/out/differs"
fi
awk -v min=$share_min '{ all += $2; same += $3 } END { exit !(all > 0 && 100 * same >= min * all) }' "$work/out/counts"
