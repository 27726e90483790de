#!/usr/bin/env bash
# A light load over more and more loops. It shows what it costs to have many loops, and whether they
# stay awake together.
#
#   ./light-load.sh [--rate N] [--rounds N] [--loops 'N N...']
#
# `wakeful serve http` with each number of loops answers GET / on 32 connections, at 10,000 requests
# a second in total by default. The servers take turns, and each block has a fresh server. The
# generator has the last CPU, and the servers have all others. For comparison there is one loop that
# always spins, which is the fastest that is possible. Several spinning loops use as many CPUs by
# definition, so they are not measured. `capped` is one loop that may spin for half of a CPU.
#
# p50 is the median of the rounds, with the lowest and the highest value. It is also given as a
# share of the spinning loop's p50 in the same round. CPU is in CPUs. Parks and remote wakes are
# those of all loops together for each request, from /metrics. So is the number of active loops at
# the end.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rate=10000 rounds=5 loops='1 2 8 16'
while [[ $# -gt 0 ]]; do
  case $1 in
    --rate) rate=$2 ;;
    --rounds) rounds=$2 ;;
    --loops) loops=$2 ;;
    *) fail "usage: $program [--rate N] [--rounds N] [--loops 'N N...']" ;;
  esac
  shift 2
done
require curl

# The measured time, in seconds.
readonly TIME=2
last=$(($(nproc) - 1))
others=0-$((last - 1))
((last > 0)) || fail "there is one CPU: the generator needs one of its own"

# total PORT NAME: the sum of a counter over all loops.
total() {
  curl -s "http://127.0.0.1:$1/metrics" | awk -v name="$2" '$1 ~ "^" name "{" { sum += $2 } END { print sum + 0 }'
}

# measure NAME OPTION...: p50 in µs, CPUs, parks and remote wakes a request, active loops.
measure() {
  local name=$1 port parks remote status=0
  shift
  serve_http "$others" "$@"
  parks=$(total "$port" wakeful_loop_parks_total) remote=$(total "$port" wakeful_loop_remote_total)
  "$WAKEFUL" load "127.0.0.1:$port" --cpu "$last" --pid "$tool_pid" --connections 32 --rate "$rate" --duration "${TIME}s" --warm-up 1s \
    --no-floor --quiet-patience 5s --json >"$directory/loaded" 2>"$directory/said" || status=$?
  # Status 4: the slowest requests are INVALID, which does not concern the median.
  [[ $status == 0 || $status == 4 ]] || fail "wakeful load: $(tail -n 3 "$directory/said")"
  parks=$(($(total "$port" wakeful_loop_parks_total) - parks)) remote=$(($(total "$port" wakeful_loop_remote_total) - remote))
  local active
  active=$(total "$port" wakeful_loop_active)
  kill -TERM "$tool_pid"
  wait "$tool_pid" 2>/dev/null || true
  tool_pid=
  # The counters also count during the warm-up, and in a block that is repeated.
  awk -v parks="$parks" -v remote="$remote" -v active="$active" -v seconds=$((TIME + 1)) -v rate="$rate" '
    /"runs"/ { runs++ } /"response"/ { at = 1 }
    at && /"p50":/ && !p50 { p50 = $2 } /"share":/ && !cpu { cpu = $2 }
    END { print p50 / 1000, cpu, parks / (seconds * rate), remote / (seconds * rate), active }' \
    <(sed -n '/"runs"/,$p' "$directory/loaded" | tr -d ,) >>"$directory/$name"
}

# column NAME NUMBER: prints this column of all rounds.
column() {
  cut -d ' ' -f "$2" "$directory/$1"
}

# spread: prints the median of its input, with the lowest and the highest value.
spread() {
  sort -g | awk -v digits="$1" '{ value[NR] = $1 }
    END { printf "%." digits "f (%." digits "f to %." digits "f)", value[int((NR + 1) / 2)], value[1], value[NR] }'
}

names=(spinning capped)
for n in $loops; do names+=("$n"); done
for ((round = 1; round <= rounds; round++)); do
  for name in "${names[@]}"; do
    [[ -t 2 ]] && printf '\rround %d of %d: %-10s' "$round" "$rounds" "$name" >&2
    case $name in
      spinning) measure "$name" --loops 1 --idle spin ;;
      capped) measure "$name" --loops 1 --max-cpu 0.4 ;;
      *) measure "$name" --loops "$name" ;;
    esac
  done
done
[[ -t 2 ]] && printf '\r%40s\r' '' >&2

echo "$rate requests/s in all, $rounds rounds of $TIME s"
echo
echo '| loops | p50, µs | p50 / one spinning | CPUs | CPUs / loops | parks a request | remote wakes a request | active |'
echo '|---|---|---|---|---|---|---|---|'
for name in "${names[@]}"; do
  count=$name
  [[ $name == [sc]* ]] && count=1
  printf '| %s | %s | %s | %s | %.3f | %s | %s | %s |\n' "$name" "$(column "$name" 1 | spread 1)" \
    "$(paste -d ' ' "$directory/$name" "$directory/spinning" | awk '{ print $1 / $6 }' | spread 2)" \
    "$(column "$name" 2 | spread 2)" "$(column "$name" 2 | sort -g | awk -v n="$count" '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] / n }')" \
    "$(column "$name" 3 | spread 4)" "$(column "$name" 4 | spread 4)" "$(column "$name" 5 | spread 0)"
done
