#!/bin/sh
# The connections of one loop become ten times as expensive as all others. The script measures the
# response times of the cheap ones, with each strategy, with and without moving, and with Tokio's
# work stealing. It takes four minutes, and prints a Markdown table.
#
#   proof/benches/load-skew.sh [--rounds N] [--seconds N]
#
# As root, the servers run at a real-time priority, so that other programs do not disturb them. The
# client has a higher one, so that it sends a request when it is due, although it shares two CPUs
# with two loops. Without root, the client reports how late it was.
set -eu
cd "$(dirname "$0")"
cargo build --release --quiet --example load_skew
program=${CARGO_TARGET_DIR:-target}/release/examples/load_skew
if [ "$(id -u)" = 0 ]; then
    exec chrt --fifo 2 "$program" --servers-under "chrt --fifo 1" "$@"
fi
exec "$program" "$@"
