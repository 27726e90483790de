#!/bin/sh
# One loop's connections become ten times as expensive as all others: the response times of the
# cheap ones, under each way to accept, with and without moving, beside Tokio's work stealing. Four
# minutes; the table is Markdown.
#
#   proof/benches/load-skew.sh [--rounds N] [--seconds N]
#
# As root the servers have a real-time priority, so that other programs do not disturb them, and the
# client a higher one, so that it asks when a request is due although two loops share two CPUs with
# it. Without, it says how late it was.
set -eu
cd "$(dirname "$0")"
cargo build --release --quiet --example load_skew
program=${CARGO_TARGET_DIR:-target}/release/examples/load_skew
if [ "$(id -u)" = 0 ]; then
    exec chrt --fifo 2 "$program" --servers-under "chrt --fifo 1" "$@"
fi
exec "$program" "$@"
