#!/usr/bin/env bash
# Shows what attacks do to honest clients, to memory, and to the metrics.
#
#   ./attacks.sh [--rate N] [--seconds N] [--rounds N] [--attacks 'KIND...']
#                [--beside server|generator] [--option=OPTION...]
#
# `wakeful serve http` answers GET / for an honest open-loop client: 5,000 requests a second on 16
# connections by default. Each round measures without an attack, then under an attack of
# `crates/wakeful-http/examples/attack.rs`, then without it again. Each attack has a server of its
# own, and its own scale: 1,000 connections at a byte a second, 10,000 connections a second that are
# reset, 500 header bombs a second, 100 floods a second of up to 20,000 frames.
#
# The generator has the last CPU. Server and attacker share the others, the attacker at the lowest
# priority (nice 19), so that the server's work is measured and not the attacker's. This separation
# is not perfect: a loop that spins sometimes loses its CPU to the attacker, for up to a tick of the
# kernel's. An attacker that works for milliseconds at once (slowloris-burst) affects the server in
# this way. `--beside generator` shows such an attack without that effect. Slowloris lasts longer
# than the server's header timeout (5 s here), so that the timeout takes effect. Each `--option=`
# goes to the server: `--option=--max-connections-per-peer=100`.
#
# All times are response times, counted from when a request was due. So a generator that is itself
# late (for example, beside the attacker) only makes them larger. For each figure the script prints
# the median of the rounds, the lowest and the highest. RSS is the server's largest. The metric is
# by how much `wakeful_http_refused_total` has grown, by reason.
#
# A hypervisor that stops a CPU for milliseconds now and then determines the p99 of a whole run,
# with or without an attack. So there are two more figures:
# * p99 of a tenth of a second: the p99 of the requests in each tenth of a second, and the median of
#   these. The ratio within a round, attacked / quiet, should be at most 2. The ratio quiet after
#   the attack / quiet before it is printed with it. Stops that affect fewer than half of the tenths
#   do not change this figure. Neither does an attack that affects fewer than half of them, such as
#   slowloris-burst. (Runs of more than six seconds have longer slices: a sixtieth of the run.)
# * The share of the requests, of all rounds together, that took longer than twice the p99 without
#   stops, both quiet and attacked. (This p99 is the least quiet p99 of the service times, because
#   few requests share their time with a CPU that stands still.) This figure does show such an
#   attack. The p99 has doubled if the share is above 1 % without stops. The share without stops is
#   not known here. So an attack must add less than 1 %, and even that is no proof. The shares are
#   known in steps of 9 %.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rate=5000 seconds=6 rounds=5 beside=server options=(--header-timeout 5)
attacks='slowloris slowloris-burst connect-reset header-bomb hpack-bomb rapid-reset continuation settings ping'
while [[ $# -gt 0 ]]; do
  case $1 in
    --rate) rate=$2 && shift ;;
    --seconds) seconds=$2 && shift ;;
    --rounds) rounds=$2 && shift ;;
    --attacks) attacks=$2 && shift ;;
    --beside) beside=$2 && shift ;;
    --option=*) options+=("${1#--option=}") ;;
    *) fail "usage: $program [--rate N] [--seconds N] [--rounds N] [--attacks 'KIND...'] [--beside server|generator] [--option=OPTION...]" ;;
  esac
  shift
done
require curl
ATTACK=${ATTACK:-$(dirname "$WAKEFUL")/examples/attack}
[[ -x $ATTACK ]] || fail "$ATTACK is not there: run cargo build --release -p wakeful-http --example attack first"

last=$(($(nproc) - 1))
others=0-$((last - 1))
((last > 0)) || fail "there is one CPU: the generator needs one of its own"
case $beside in
  server) attackers=$others ;;
  generator) attackers=$last ;;
  *) fail "--beside server, or --beside generator" ;;
esac
# Enough for the connections of each attacker.
ulimit -n "$(ulimit -H -n)"

refused() {
  curl -s "http://127.0.0.1:$1/metrics" | awk -F '"' '/^wakeful_http_refused_total/ { split($3, value, " "); print $2, value[2] }'
}

# p99 NAME: prints the p99 of the honest client in µs, or ? if there are too few requests, and how
# many requests failed. NAME gets the results.
p99() {
  local status=0
  "$WAKEFUL" load "127.0.0.1:$port" --cpu "$last" --connections 16 --rate "$rate" --duration "${seconds}s" --warm-up 1s \
    --no-floor --quiet-patience 0s --repeats 0 --json >"$directory/$1" 2>"$directory/said" || status=$?
  [[ $status == 0 || $status == 4 ]] || fail "wakeful load: $(tail -n 3 "$directory/said")"
  sed -n '/"runs"/,$p' "$directory/$1" | tr -d , | awk '
    /"failed":/ && !seen { failed = $2; seen = 1 }
    /"p99":/ && !asked { asked = 1; p99 = $2 == "null" ? "?" : int($2 / 1000) }
    END { print p99, failed + 0 }'
}

# tenths_p99 NAME: prints the median of the slices' p99, in µs.
tenths_p99() {
  tr -d ' \n' <"$directory/$1" | sed -n 's/.*"timeline":\[{//; T; s/}\].*//; s/},{/\n/g; p' | sed -n 's/.*"p99":\([0-9]*\).*/\1/p' | sort -g |
    awk '{ value[NR] = $1 } END { if (NR) printf "%.1f", (value[int((NR + 1) / 2)] + value[int(NR / 2) + 1]) / 2000; else print "?" }'
}

# service_p99 NAME: prints the p99 of the service times, in µs.
service_p99() {
  tr -d ' \n' <"$directory/$1" | sed 's/.*"service":{//; s/"p9999".*//; s/.*"p99":\([0-9]*\).*/\1/' | awk '$1 > 0 { print int($1 / 1000) }'
}

# slower BOUND NAME...: prints the share of the requests in these results that took longer than
# BOUND, in µs. All of them have the same length.
slower() {
  local bound=$1 name
  shift
  [[ $bound != '?' ]] || { echo '?'; return; }
  for name in "$@"; do
    tr -d ' \n' <"$directory/$name" | sed 's/.*"response":{[^[]*"curve":\[\[//; s/\]\].*//; s/\],\[/\n/g' | awk -F , -v bound="$bound" '
      $2 / 1000 > bound { print 1 - $1; found = 1; exit }
      END { if (!found) print 0 }'
  done | awk '{ sum += $1 } END { printf "%.2f %%", sum / NR * 100 }'
}

# spread VALUE...: prints the median, and the lowest and highest value if there are several.
spread() {
  printf '%s\n' "$@" | awk '$1 != "" && $1 != "?"' | sort -g | awk '
    { value[NR] = $1 }
    END {
      if (!NR) print "?"
      else if (NR == 1) print value[1]
      else printf "%.4g (%s to %s)\n", (value[int((NR + 1) / 2)] + value[int(NR / 2) + 1]) / 2, value[1], value[NR]
    }'
}

ratio() {
  awk -v a="$1" -v b="$2" 'BEGIN { if (a + 0 > 0 && b + 0 > 0) printf "%.2f", a / b; else print "?" }'
}

echo "$rate honest requests/s, $rounds rounds, $seconds s for each attack, the attacker beside the $beside, ${options[*]}"
echo
echo '| attack | opened by it | p99 of a tenth, quiet, µs | attacked, µs | attacked / quiet | quiet / quiet | p99 quiet, µs | p99 attacked, µs | slower than, µs | slower, quiet | slower, attacked | honest ones that failed | RSS quiet, MiB | RSS at most, MiB | refused, by reason |'
echo '|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|'
for attack in $attacks; do
  serve_http "$others" "${options[@]}"
  rss() { awk -v field="$1" '$1 == field ":" { printf "%.1f", $2 / 1024 }' "/proc/$tool_pid/status"; }

  rm -f "$directory"/quiet.* "$directory"/attacked.*
  quiets=() attackeds=() quiet_tenths=() attacked_tenths=() ratios=() controls=() failures=0 opened=0
  read -r quiet _ < <(p99 quiet.0)
  quiets+=("$quiet")
  tenths_before=$(tenths_p99 quiet.0)
  quiet_tenths+=("$tenths_before")
  quiet_rss=$(rss VmRSS)
  refused "$port" >"$directory/refused-before"
  for ((round = 1; round <= rounds; round++)); do
    [[ ! -t 2 ]] || printf '\r%s: round %s of %s ' "$attack" "$round" "$rounds" >&2
    # The attack begins before the measurement's warm-up, and ends after the measurement.
    taskset -c "$attackers" nice -n 19 "$ATTACK" "$attack" "$port" $((seconds + 4)) >"$directory/opened" &
    attacker=$!
    sleep 1
    read -r attacked failed < <(p99 "attacked.$round")
    attackeds+=("$attacked")
    wait "$attacker" || fail "the attack $attack failed"
    sleep 1
    read -r quiet _ < <(p99 "quiet.$round")
    quiets+=("$quiet")
    tenths_attacked=$(tenths_p99 "attacked.$round") tenths_after=$(tenths_p99 "quiet.$round")
    quiet_tenths+=("$tenths_after") attacked_tenths+=("$tenths_attacked")
    ratios+=("$(ratio "$tenths_attacked" "$tenths_before")" "$(ratio "$tenths_attacked" "$tenths_after")")
    controls+=("$(ratio "$tenths_after" "$tenths_before")")
    failures=$((failures + failed)) opened=$((opened + $(cat "$directory/opened")))
    tenths_before=$tenths_after
  done
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
  most_rss=$(rss VmHWM)
  refused "$port" >"$directory/refused-after"
  reasons=$(awk 'NR == FNR { had[$1] = $2; next } $2 > had[$1] { printf "%s%s %d", comma, $1, $2 - had[$1]; comma = ", " }' \
    "$directory/refused-before" "$directory/refused-after")
  bound=$(cd "$directory" && for name in quiet.*; do service_p99 "$name"; done | sort -g | awk 'NR == 1 { print 2 * $1 } END { if (!NR) print "?" }')
  printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$attack" "$opened" \
    "$(spread "${quiet_tenths[@]}")" "$(spread "${attacked_tenths[@]}")" "$(spread "${ratios[@]}")" "$(spread "${controls[@]}")" \
    "$(spread "${quiets[@]}")" "$(spread "${attackeds[@]}")" "$bound" \
    "$(cd "$directory" && slower "$bound" quiet.*)" "$(cd "$directory" && slower "$bound" attacked.*)" "$failures" "$quiet_rss" "$most_rss" "$reasons"
  kill -TERM "$tool_pid"
  wait "$tool_pid" 2>/dev/null || true
  tool_pid=
done
