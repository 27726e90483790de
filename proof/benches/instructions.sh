#!/usr/bin/env bash
# Counts the user-space instructions of a server for each request: an echo of
# 1 KiB, or with `http:` a GET, under callgrind, with one connection and one request in flight.
#
#   ./instructions.sh [http:]NAME=COMMAND...
#
# COMMAND is split at whitespace and contains {addr}, the address to listen on.
# Each server runs twice, for 1,000 and for 11,000 requests; the difference leaves
# out what happens once, at the start and at the end.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# instructions REQUESTS COMMAND: prints the total of one run.
instructions() {
  run_under "$1" "$name" "$2" valgrind --tool=callgrind --callgrind-out-file="$directory/callgrind"
  # callgrind writes it at the end, even if SIGTERM ends the server without a handler.
  awk '/^totals:/ { print $2; found = 1 } END { exit !found }' "$directory/callgrind"
}

require valgrind
check_servers "$@"
for server in "$@"; do
  name=${server%%=*} command=${server#*=}
  instructions "$FEW" "$command" >"$directory/few"
  instructions "$MANY" "$command" >"$directory/many"
  few=$(<"$directory/few") many=$(<"$directory/many")
  awk -v name="$name" -v extra="$((many - few))" -v requests="$((MANY - FEW))" \
    'BEGIN { printf "%s: %.1f instructions per request\n", name, extra / requests }'
done
