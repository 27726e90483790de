#!/bin/sh
# Measures how often `wakeful load --compare` is right. It compares a server with itself, and with
# the same server with 20 µs added, with 20 seeds each. This takes about 15 minutes on a quiet
# machine. It prints one line for each comparison, and the counts.
#
#   cargo build --release && proof/benches/compare-study.sh [RUNS]
set -eu
cd "$(dirname "$0")/../.."
runs=${1:-20}
wakeful=target/release/wakeful
server="$wakeful load null-server --listen {addr}"

study() { # what is expected, B's command
    right=0
    seed=1
    while [ "$seed" -le "$runs" ]; do
        "$wakeful" load --protocol frames --rate 10k --duration 400ms --warm-up 50ms --no-floor --seed "$((seed * 1000))" \
            --json --compare "a=$server" "b=$2" >study.json 2>/dev/null || [ $? = 4 ]
        verdicts=$(python3 -c '
import json
comparison = json.load(open("study.json"))["comparisons"][0]
print(" ".join("%s=%s(%.3f)" % (m["name"], m["verdict"].replace(" ", "-"), m["ratio"]) for m in comparison["metrics"]))')
        case "$1:$verdicts" in
            same:*=higher* | same:*=lower*) ;;
            same:*) right=$((right + 1)) ;;
            20us:*p50=higher*) right=$((right + 1)) ;;
        esac
        echo "$1 seed $seed: $verdicts"
        seed=$((seed + 1))
    done
    rm -f study.json
    echo "$1: right in $right of $runs"
}

study same "$server"
study 20us "$server --delay 20us"
