#!/usr/bin/env bash
# Compares HTTP and gRPC on wakeful with axum and tonic on Tokio: the same router and the same
# service, on one thread each.
#
#   ./http.sh [--pairs N] [--only http|grpc|closed]
#
# Each comparison is a `wakeful load --compare`: blocks of both in turn, after a comparison of one
# server with itself. The generator has the last CPU, and the servers have all others. Wakeful has
# its default idle policy. Tokio is its current-thread runtime, and its multi-thread runtime with
# one worker for each CPU that servers have.
#
# http is GET / at 10,000 requests a second with random arrivals. grpc is a unary call with a
# message of seven bytes. closed is the highest throughput over 32 connections.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

pairs=12 only=
while [[ $# -gt 0 ]]; do
  case $1 in
    --pairs) pairs=$2 ;;
    --only) only=$2 ;;
    *) fail "usage: $program [--pairs N] [--only http|grpc|closed]" ;;
  esac
  shift 2
done
require cargo
cargo build -q --release --manifest-path "$here/../peers/Cargo.toml" -p peer-axum -p peer-tonic
peers=$here/../peers/target/release
last=$(($(nproc) - 1))
((last > 0)) || fail "there is one CPU: the generator needs one of its own"

# An encoded EchoRequest: its message is "hello".
printf '\x0a\x05hello' >"$directory/message"
grpc=(--protocol grpc --path /wakeful.echo.v1.Echo/Unary --body-file "$directory/message")
http=(--protocol http1)
open=(--rate 10k)
closed=(--closed)

# compare TITLE WAKEFUL TOKIO FLAG...
compare() {
  local title=$1 ours=$2 theirs=$3 status=0
  shift 3
  printf '\n## %s\n\n' "$title"
  "$WAKEFUL" load --compare "wakeful=$ours --listen {addr} --workers $workers" "tokio=$theirs --listen {addr} --workers $workers" \
    --pairs "$pairs" --connections 32 --duration 2s --warm-up 500ms --no-floor --quiet-patience 5s --repeats 4 "$@" 2>"$directory/said" || status=$?
  # Status 4: the slowest requests are INVALID, which does not concern the median.
  [[ $status == 0 || $status == 4 ]] || fail "wakeful load: $(tail -n 3 "$directory/said")"
}

for flavor in current-thread default; do
  workers=1
  [[ $flavor == current-thread ]] || workers=$last
  axum="$peers/axum-tokio --variant $flavor" tonic="$peers/tonic-tokio --variant $flavor"
  [[ -n $only && $only != http ]] ||
    compare "GET / at 10,000/s, Tokio $flavor" "$peers/axum-wakeful" "$axum" "${http[@]}" "${open[@]}"
  [[ -n $only && $only != grpc ]] ||
    compare "gRPC unary at 10,000/s, Tokio $flavor" "$peers/tonic-wakeful" "$tonic" "${grpc[@]}" "${open[@]}"
  [[ -n $only && $only != closed ]] ||
    compare "GET /, closed loop, Tokio $flavor" "$peers/axum-wakeful" "$axum" "${http[@]}" "${closed[@]}"
  [[ -n $only && $only != closed ]] ||
    compare "gRPC unary, closed loop, Tokio $flavor" "$peers/tonic-wakeful" "$tonic" "${grpc[@]}" "${closed[@]}"
done
