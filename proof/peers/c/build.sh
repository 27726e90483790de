#!/bin/sh
# Builds the peers in C and C++ into a directory. What cannot be built is named
# as missing, and the rest is built all the same.
#
#   proof/peers/c/build.sh OUTDIR
#
# On Debian: apt-get install gcc g++ libevent-dev libuv1-dev libboost-dev
set -u

if [ $# -ne 1 ]; then
    echo "usage: $0 OUTDIR" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd) || exit 1
mkdir -p "$1" || exit 1
out=$(cd "$1" && pwd) || exit 1
cc=${CC:-gcc}
cxx=${CXX:-g++}
warnings='-Wall -Wextra'
log=$out/build.log
: >"$log" || exit 1

have_cc=$(command -v "$cc") || have_cc=
have_cxx=$(command -v "$cxx") || have_cxx=
# What the peers share, and what the probes share.
for shared in peer late-wake; do
    [ -n "$have_cc" ] || break
    # shellcheck disable=SC2086
    "$cc" -std=gnu11 -O2 $warnings -c "$here/$shared.c" -o "$out/$shared.o" 2>>"$log" || {
        echo "$0: $shared.c does not compile:" >&2
        cat "$log" >&2
        exit 1
    }
done

# header LANGUAGE FILE [FLAG...]: whether there is such a header.
header() {
    language=$1 file=$2
    shift 2
    echo "#include <$file>" | "$cc" -x "$language" "$@" -E -o /dev/null - 2>/dev/null
}

# finish NAME: says what became of it.
finish() {
    if [ "$status" -eq 0 ]; then
        echo "built: $1 ($("$out/$1" --version))"
    else
        # A program of an earlier build must not pass for one of this one.
        rm -f "$out/$1"
        echo "missing: $1: $reason"
    fi
}

# c_program NAME SHARED LIBRARY HEADER PACKAGE: NAME.c with SHARED.o.
c_program() {
    status=1
    if [ -z "$have_cc" ]; then
        reason="no C compiler ($cc)"
    elif ! header c "$4"; then
        reason="no header $4 (Debian: $5)"
    else
        # shellcheck disable=SC2086
        "$cc" -std=gnu11 -O2 $warnings "$here/$1.c" "$out/$2.o" -o "$out/$1" "-l$3" -lpthread \
            2>>"$log"
        status=$?
        reason="it does not compile, see $log"
    fi
    finish "$1"
}

# asio_program NAME SHARED [FLAG...]: NAME.cpp with SHARED.o.
asio_program() {
    name=$1 shared=$2 status=1 flags=
    shift 2
    if [ -z "$have_cc" ] || [ -z "$have_cxx" ]; then
        reason="no C++ compiler ($cxx)"
        finish "$name"
        return
    fi
    if header c++ boost/asio.hpp -std=c++17; then
        flags=-DBOOST_ALL_NO_LIB
    elif header c++ asio.hpp -std=c++17 -DASIO_STANDALONE; then
        flags=-DASIO_STANDALONE
    fi
    if [ -z "$flags" ]; then
        reason="no header boost/asio.hpp or asio.hpp (Debian: libboost-dev or libasio-dev)"
    else
        # shellcheck disable=SC2086
        "$cxx" -std=c++17 -O2 $warnings $flags "$@" "$here/$name.cpp" "$out/$shared.o" \
            -o "$out/$name" -lpthread 2>>"$log"
        status=$?
        reason="it does not compile, see $log"
    fi
    finish "$name"
}

c_program libevent peer event_core event2/event.h libevent-dev
c_program libuv peer uv uv.h libuv1-dev
asio_program asio peer
c_program late-wake-libevent late-wake event_core event2/event.h libevent-dev
c_program late-wake-libuv late-wake uv uv.h libuv1-dev
asio_program late-wake-asio late-wake
# What it is for is the sanitizer's report, with names in it.
asio_program shared-socket-asio peer -O1 -g -fno-omit-frame-pointer -fsanitize=address
rm -f "$out/peer.o" "$out/late-wake.o"
exit 0
