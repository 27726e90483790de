#!/usr/bin/env bash
# What attacks do to honest clients, to memory, and to the metrics.
#
#   ./attacks.sh [--rate N] [--seconds N] [--attacks 'KIND...'] [--option=OPTION...]
#
# `wakeful serve http` answers GET / for an honest open-loop client (1,000 requests a second on 16 connections unless told otherwise), quiet, then under each attack of
# `crates/wakeful-http/examples/attack.rs` at its own scale: 1,000 connections at a byte a second, 10,000 connections a second that are reset, 500 header bombs a second, 100 floods a second of up to 20,000 frames. Each has a server of its own. The
# generator has the last CPU; server and attacker share the others, the attacker at the lowest priority (nice 19), so that what is measured is the server's work and not the attacker's. Each
# `--option=` goes to the server: `--option=--max-connections-per-peer=100`.
#
# `?` is where the generator was late itself, so that a figure would be the machine's: run it again when that is quiet. p99 quiet is measured before and behind each attack, and the larger one counts; RSS is the server's largest while attacked; the metric is what `wakeful_http_refused_total` has gained, by reason. Slowloris is on for longer than the
# server's header timeout (5 s here), so that it strikes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rate=1000 seconds=8 options=(--header-timeout 5)
attacks='slowloris connect-reset header-bomb hpack-bomb rapid-reset continuation settings ping'
while [[ $# -gt 0 ]]; do
  case $1 in
    --rate) rate=$2 && shift ;;
    --seconds) seconds=$2 && shift ;;
    --attacks) attacks=$2 && shift ;;
    --option=*) options+=("${1#--option=}") ;;
    *) fail "usage: $program [--rate N] [--seconds N] [--attacks 'KIND...'] [--option=OPTION...]" ;;
  esac
  shift
done
require curl
ATTACK=${ATTACK:-$(dirname "$WAKEFUL")/examples/attack}
[[ -x $ATTACK ]] || fail "$ATTACK is not there: run cargo build --release -p wakeful-http --example attack first"

last=$(($(nproc) - 1))
others=0-$((last - 1))
((last > 0)) || fail "there is one CPU: the generator needs one of its own"
# A connection of each attacker, and more.
ulimit -n "$(ulimit -H -n)"

refused() {
  curl -s "http://127.0.0.1:$1/metrics" | awk -F '"' '/^wakeful_http_refused_total/ { split($3, value, " "); print $2, value[2] }'
}

# p99 PORT SECONDS: of the honest client, in µs, or ? where the generator itself was late at p99; and how many were not answered well.
p99() {
  local status=0
  "$WAKEFUL" load "127.0.0.1:$1" --cpu "$last" --connections 16 --rate "$rate" --duration "$2s" --warm-up 1s \
    --no-floor --quiet-patience 0s --repeats 0 --json >"$directory/loaded" 2>"$directory/said" || status=$?
  [[ $status == 0 || $status == 4 ]] || fail "wakeful load: $(tail -n 3 "$directory/said")"
  sed -n '/"runs"/,$p' "$directory/loaded" | tr -d , | awk '
    /"failed":/ && !seen { failed = $2; seen = 1 }
    /"p99":/ && !asked { asked = 1; p99 = $2 == "null" ? "?" : int($2 / 1000) }
    END { print p99, failed + 0 }'
}

echo "$rate honest requests/s, $seconds s for each attack, ${options[*]}"
echo
echo '| attack | opened | p99 quiet, µs | p99 attacked, µs | attacked / quiet | honest ones that failed | RSS quiet, MiB | RSS at most, MiB | refused, by reason |'
echo '|---|---|---|---|---|---|---|---|---|'
for attack in $attacks; do
  serve_http "$others" "${options[@]}"
  rss() { awk -v field="$1" '$1 == field ":" { printf "%.1f", $2 / 1024 }' "/proc/$tool_pid/status"; }

  read -r before _ < <(p99 "$port" 3)
  quiet_rss=$(rss VmRSS)
  refused "$port" >"$directory/refused-before"
  # It begins before the measurement's warm-up, and ends behind it.
  taskset -c "$others" nice -n 19 "$ATTACK" "$attack" "$port" $((seconds + 4)) >"$directory/opened" &
  attacker=$!
  sleep 1
  read -r attacked failed < <(p99 "$port" "$seconds")
  wait "$attacker" || fail "the attack $attack failed"
  sleep 1
  most_rss=$(rss VmHWM)
  read -r after _ < <(p99 "$port" 3)
  refused "$port" >"$directory/refused-after"
  quiet=$(printf '%s\n' "$before" "$after" | sort -n | tail -n 1)
  reasons=$(awk 'NR == FNR { had[$1] = $2; next } $2 > had[$1] { printf "%s%s %d", comma, $1, $2 - had[$1]; comma = ", " }' \
    "$directory/refused-before" "$directory/refused-after")
  printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$attack" "$(cat "$directory/opened")" "$quiet" "$attacked" \
    "$(awk -v a="$attacked" -v q="$quiet" 'BEGIN { if (a > 0 && q > 0) printf "%.2f", a / q; else print "?" }')" "$failed" "$quiet_rss" "$most_rss" "$reasons"
  kill -TERM "$tool_pid"
  wait "$tool_pid" 2>/dev/null || true
  tool_pid=
done
