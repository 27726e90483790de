#!/usr/bin/env bash
# Counts the system calls of a server for each request: an echo of 1 KiB,
# or with `http:` a GET, under strace, with one connection and one request in flight.
#
#   ./syscalls.sh [http:]NAME=COMMAND...
#
# COMMAND is split at whitespace and contains {addr}, the address to listen on.
# Each server runs twice, for 1,000 and for 11,000 requests; the difference leaves
# out what happens once, at the start and at the end.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# syscalls REQUESTS COMMAND FILE: writes the calls of one run, `COUNT NAME`.
syscalls() {
  run_under "$1" "$name" "$2" strace -f -c -U calls,name -o "$3"
}

require strace
check_servers "$@"
for server in "$@"; do
  name=${server%%=*} command=${server#*=}
  syscalls "$FEW" "$command" "$directory/few"
  syscalls "$MANY" "$command" "$directory/many"
  echo "$name:"
  awk -v requests="$((MANY - FEW))" '
    $1 !~ /^[0-9]+$/ { next }
    FNR == NR { few[$2] = $1; next }
    { extra = ($1 - few[$2]) / requests }
    $2 == "total" { total = extra; next }
    extra >= 0.0005 { printf "  %-14s %.3f per request\n", $2, extra | "sort -k 2nr" }
    END { close("sort -k 2nr"); printf "  %-14s %.3f per request\n", "total", total }
  ' "$directory/few" "$directory/many"
done
