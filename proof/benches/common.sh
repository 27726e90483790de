# What instructions.sh and syscalls.sh share: starting a server under a tool, sending it an exact
# number of requests with `wakeful load`, and cleaning up.
#
# shellcheck shell=bash disable=SC2034

# The slope between these two runs does not contain what happens only once.
readonly FEW=1000
readonly MANY=11000

# How long a server may take to accept connections or to end, in seconds. Under
# a tool either takes many times as long as without.
readonly LIMIT=60

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
WAKEFUL=${WAKEFUL:-${CARGO_TARGET_DIR:-$here/../../target}/release/wakeful}

program=$(basename "$0")
directory=$(mktemp -d)
tool_pid=

fail() {
  echo "$program: $*" >&2
  exit 1
}

cleanup() {
  if [[ -n $tool_pid ]]; then
    # Kill both, because a server can outlive its tool.
    kill -KILL "$(server_of "$tool_pid")" "$tool_pid" 2>/dev/null || true
    wait "$tool_pid" 2>/dev/null || true
  fi
  rm -rf "$directory"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# require TOOL: fails early, and says what is missing.
require() {
  command -v "$1" >/dev/null || fail "$1 is not installed"
  [[ -x $WAKEFUL ]] || fail "$WAKEFUL is not there: run cargo build --release first"
}

# check_servers: checks the arguments of the script: one or more [http:]NAME=COMMAND, with {addr} in
# COMMAND.
check_servers() {
  local server
  [[ $# -gt 0 ]] || fail "usage: $program [http:]NAME=COMMAND..., with {addr} in each COMMAND"
  for server in "$@"; do
    [[ $server == ?*=*"{addr}"* ]] || fail "expected NAME=COMMAND with {addr} in it: $server"
  done
}

accepts() {
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# until_it_accepts NAME SAID: waits until $tool_pid accepts on $port. If it ends before that, prints
# the end of the file SAID, which says why.
until_it_accepts() {
  SECONDS=0
  until accepts "$port"; do
    kill -0 "$tool_pid" 2>/dev/null || fail "$1 ended: $(tail -n 3 "$2")"
    ((SECONDS < LIMIT)) || fail "$1 accepts no connection after $LIMIT s"
    sleep 0.1
  done
}

# serve_http CPUS OPTION...: starts `wakeful serve http` on these CPUs as $tool_pid, and waits until
# it accepts on $port.
serve_http() {
  local cpus=$1
  shift
  port=$(free_port)
  taskset -c "$cpus" "$WAKEFUL" serve http --listen "127.0.0.1:$port" "$@" </dev/null >"$directory/server" 2>&1 &
  tool_pid=$!
  until_it_accepts "the server" "$directory/server"
}

# free_port: prints a port on which no process listens, below those that the kernel hands out
# itself.
free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)) && accepts "$port"; do :; done
  echo "$port"
}

# server_of: prints the process to end. This is the only child of a tool that runs the server as
# another process, or else the tool itself.
server_of() {
  local children
  # The list has no newline at its end, and it is gone once the tool has ended.
  read -r children 2>/dev/null <"/proc/$1/task/$1/children" || true
  echo "${children:-$1}" | cut -d ' ' -f 1
}

# load REQUESTS ADDR NAME: sends exactly this number of requests, one after another on one
# connection: GETs if the name begins with `http:`, or else frames of 1 KiB. All of them are due at
# once, so the next one is sent as soon as an answer has come.
load() {
  local requests=$1 addr=$2 status=0 protocol=(--protocol frames --size 1024)
  [[ $3 != http:* ]] || protocol=(--protocol http1)
  awk -v requests="$requests" 'BEGIN { while (requests--) print 0 }' >"$directory/trace"
  "$WAKEFUL" load "$addr" "${protocol[@]}" --trace "$directory/trace" \
    --connections 1 --in-flight 1 --timeout 10m \
    --no-floor --quiet-patience 0s --repeats 0 --json \
    >"$directory/loaded" 2>"$directory/load-said" || status=$?
  # Status 4 means INVALID as a measurement of time, because requests piled up. Here they are meant
  # to.
  [[ $status == 0 || $status == 4 ]] || fail "wakeful load: $(tail -n 3 "$directory/load-said")"
  grep -q "\"answered\": $requests,$" "$directory/loaded" ||
    fail "not all of $requests requests were answered: $(grep '"answered"' "$directory/loaded")"
}

# run_under REQUESTS NAME COMMAND TOOL...: runs the server under the tool, for exactly this number
# of requests over one connection.
run_under() {
  local requests=$1 name=$2 command=$3 port words
  shift 3
  port=$(free_port)
  read -ra words <<<"${command//"{addr}"/127.0.0.1:$port}"

  "$@" "${words[@]}" </dev/null >"$directory/said" 2>&1 &
  tool_pid=$!
  until_it_accepts "$command" "$directory/said"

  load "$requests" "127.0.0.1:$port" "$name"

  kill -TERM "$(server_of "$tool_pid")"
  SECONDS=0
  while kill -0 "$tool_pid" 2>/dev/null; do
    ((SECONDS < LIMIT)) || fail "$command does not end within $LIMIT s of SIGTERM"
    sleep 0.1
  done
  # The status is that of the signal, unless the server handled it.
  wait "$tool_pid" 2>/dev/null || true
  tool_pid=
}
