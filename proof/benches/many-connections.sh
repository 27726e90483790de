#!/usr/bin/env bash
# Measures what an idle connection costs a server, in bytes of its own memory, and whether idle
# connections slow down active ones.
#
#   ./many-connections.sh [--idle COUNT] [--rounds N] PROTOCOL:NAME=COMMAND...
#
# PROTOCOL is http or frames. COMMAND is split at whitespace and contains {addr}, the address to
# listen on. `idle_connections` opens the idle connections. Each has had one answer, and then stays
# silent. By default there are 20,000 of them, or as many as the limit of open files (`ulimit -Hn`)
# allows in addition to 100 active ones.
#
# Memory is the growth of the process's own pages (Rss in /proc/PID/smaps_rollup), divided by the
# number of idle connections. It counts from the end of the first load on 100 connections until all
# idle connections are open. It includes tasks, buffers, tables, and what the allocator wastes, but
# not the kernel's memory for the sockets, which is the same for all servers. Response times are
# those of 100 connections at 5,000 requests a second, without and with the idle ones, in turn. The
# script prints the median of the rounds.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly ACTIVE=100
readonly RATE=5000
HOLDER=${HOLDER:-${CARGO_TARGET_DIR:-$here/target}/release/examples/idle_connections}

rounds=3
ulimit -n "$(ulimit -Hn)"
most=$(($(ulimit -n) - ACTIVE - 100))
idle=$((most < 20000 ? most : 20000))
while [[ ${1:-} == --* ]]; do
  case $1 in
    --idle) idle=$2 ;;
    --rounds) rounds=$2 ;;
    *) fail "unknown option: $1" ;;
  esac
  shift 2
done
((idle <= most)) || fail "no more than $most idle connections fit into ulimit -Hn"

# rss PID: the process's pages in memory, in bytes.
rss() {
  awk '/^Rss:/ { print $2 * 1024 }' "/proc/$1/smaps_rollup"
}

# quantiles ADDR PROTOCOL: prints p50 and p99 of the active connections, in µs.
quantiles() {
  local protocol=(--protocol frames --size 28)
  [[ $2 == http ]] && protocol=(--protocol http1)
  local status=0
  "$WAKEFUL" load "$1" "${protocol[@]}" --connections "$ACTIVE" --rate "$RATE" --duration 4s \
    --no-floor --quiet-patience 0s --repeats 0 --json >"$directory/loaded" 2>"$directory/said" || status=$?
  # Status 4 means INVALID for a figure that stands alone. Here it is compared with its neighbour.
  [[ $status == 0 || $status == 4 ]] || fail "wakeful load: $(tail -n 3 "$directory/said")"
  # The response times of the first run come first. The run takes four seconds, because p99 is null
  # with fewer than 100 requests beyond it.
  awk '/"p50":/ && !p50 { p50 = $2 } /"p99":/ && !p99 { p99 = $2 } END { print p50 / 1000, p99 / 1000 }' \
    <(sed -n '/"runs"/,$p' "$directory/loaded" | sed -n '/"response"/,$p' | tr -d ,)
}

median() {
  sort -n | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}

# hold PROTOCOL PORT: opens the idle connections.
hold() {
  mkfifo "$directory/hold"
  "$HOLDER" "$1" "$2" "$idle" <"$directory/hold" >"$directory/held" 2>&1 &
  holder=$!
  exec 9>"$directory/hold"
  until grep -q ready "$directory/held"; do
    kill -0 "$holder" 2>/dev/null || fail "$(cat "$directory/held")"
    sleep 0.1
  done
}

release() {
  exec 9>&-
  wait "$holder"
  rm "$directory/hold"
}

measure() {
  local protocol=$1 name=$2 command=$3 port words round
  port=$(free_port)
  read -ra words <<<"${command//"{addr}"/0.0.0.0:$port}"
  "${words[@]}" </dev/null >"$directory/server" 2>&1 &
  tool_pid=$!
  until_it_accepts "$command" "$directory/server"
  quantiles "127.0.0.1:$port" "$protocol" >/dev/null
  local before with
  before=$(rss "$tool_pid")
  : >"$directory/without" >"$directory/with"
  for ((round = 0; round < rounds; round++)); do
    quantiles "127.0.0.1:$port" "$protocol" >>"$directory/without"
    hold "$protocol" "$port"
    # Only the first round counts: later ones reuse memory that the allocator kept.
    ((round)) || with=$(rss "$tool_pid")
    quantiles "127.0.0.1:$port" "$protocol" >>"$directory/with"
    release
  done
  kill -TERM "$tool_pid"
  wait "$tool_pid" 2>/dev/null || true
  tool_pid=
  printf '%-24s %12s %14s %14s %14s %14s\n' "$name" "$(((with - before) / idle))" \
    "$(cut -d ' ' -f 1 "$directory/without" | median)" "$(cut -d ' ' -f 1 "$directory/with" | median)" \
    "$(cut -d ' ' -f 2 "$directory/without" | median)" "$(cut -d ' ' -f 2 "$directory/with" | median)"
}

[[ -x $WAKEFUL ]] || fail "$WAKEFUL is not there: run cargo build --release first"
[[ -x $HOLDER ]] || fail "$HOLDER is not there: run cargo build --release --examples in proof/benches/"
[[ $# -gt 0 ]] || fail "usage: $program [--idle COUNT] [--rounds N] PROTOCOL:NAME=COMMAND..."
for server in "$@"; do
  [[ $server == @(http|frames):?*=*"{addr}"* ]] ||
    fail "expected http:NAME=COMMAND or frames:NAME=COMMAND with {addr} in it: $server"
done
echo "$idle idle connections, $ACTIVE active at $RATE requests/s, response times in µs"
printf '%-24s %12s %14s %14s %14s %14s\n' server 'bytes each' 'p50 without' 'p50 with' 'p99 without' 'p99 with'
for server in "$@"; do
  protocol=${server%%:*} rest=${server#*:}
  measure "$protocol" "${rest%%=*}" "${rest#*=}"
done
