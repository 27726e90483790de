#!/usr/bin/env bash
# Counts what a wake of a task by another task of its own loop costs: user-space
# instructions, and those among them that lock the bus (atomic read-modify-writes),
# under callgrind. Each runtime runs twice; the difference leaves out what happens
# once.
#
#   ./atomics.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
command -v valgrind >/dev/null || { echo "atomics.sh: valgrind is not installed" >&2; exit 1; }
cargo build -q --release --example local_wakes
program=${CARGO_TARGET_DIR:-target}/release/examples/local_wakes
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# count RUNTIME ROUNDS: prints instructions and bus locks of one run.
count() {
  valgrind -q --tool=callgrind --collect-bus=yes --callgrind-out-file="$out" "$program" "$1" "$2"
  awk '/^totals:/ { print $2, $3; found = 1 } END { exit !found }' "$out"
}

for runtime in wakeful tokio; do
  few=$(count $runtime 10000) many=$(count $runtime 20000)
  # Two wakes a round.
  echo "$few $many" | awk -v name=$runtime '{
    printf "%s: %.1f instructions and %.2f atomic operations for a wake and the poll that it causes\n",
      name, ($3 - $1) / 20000, ($4 - $2) / 20000
  }'
done
