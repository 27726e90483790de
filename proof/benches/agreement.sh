#!/bin/sh
# Measures the same server with wakeful load, h2load and oha in turn, in three rounds: the p50 and
# p99 of `GET /` at 5,000 requests a second over 32 connections. h2load comes with Debian's
# nghttp2-client, and oha from `cargo install oha`. A tool that is missing is left out.
#
#   cargo build --release && proof/benches/agreement.sh
set -eu
cd "$(dirname "$0")/../.."
port=18099
taskset -c 0 target/release/wakeful serve http --loops 1 --idle park --listen 127.0.0.1:$port 2>/dev/null &
server=$!
trap 'kill $server' EXIT
sleep 0.5
echo "| round | tool | p50 | p99 |"
echo "|---|---|---|---|"
for round in 1 2 3; do
    target/release/wakeful load 127.0.0.1:$port --rate 5k --constant --duration 5s --no-floor --cpu 1 --markdown 2>/dev/null |
        awk -F'|' -v r="$round" 'NR == 3 { print "| " r " | wakeful load |" $4 "|" $6 "|" }'
    # The schedule of h2load --rps, according to its own log: all connections send at the same
    # moment.
    awk 'BEGIN { for (t = 0; t < 5; t += 1 / 157) for (c = 0; c < 32; c++) printf "%.6f\n", t }' >/tmp/agreement.trace
    target/release/wakeful load 127.0.0.1:$port --trace /tmp/agreement.trace --duration 5s --no-floor --cpu 1 --markdown 2>/dev/null |
        awk -F'|' -v r="$round" 'NR == 3 { print "| " r " | wakeful load, 32 at a time |" $4 "|" $6 "|" }'
    rm -f /tmp/agreement.trace
    if command -v h2load >/dev/null; then
        taskset -c 1 h2load --h1 -c 32 -t 1 --rps 157 -D 5 --warm-up-time 1 --log-file=/tmp/agreement.log "http://127.0.0.1:$port/" >/dev/null 2>&1 || true
        sort -n -k3 /tmp/agreement.log | awk -v r="$round" '{ t[NR] = $3 } END { print "| " r " | h2load --rps | " t[int(NR * 0.5)] " µs | " t[int(NR * 0.99)] " µs |" }'
        rm -f /tmp/agreement.log
    fi
    if command -v oha >/dev/null; then
        for correction in "" "--latency-correction"; do
            taskset -c 1 oha -c 32 -q 5000 -z 5s $correction --no-tui --output-format json "http://127.0.0.1:$port/" 2>/dev/null |
                python3 -c '
import json, sys
p = json.load(sys.stdin)["latencyPercentiles"]
print("| %s | oha %s | %.0f µs | %.0f µs |" % (sys.argv[1], sys.argv[2], p["p50"] * 1e6, p["p99"] * 1e6))' "$round" "-q $correction"
        done
    fi
done
