# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
# What both guests of lab-faults can do: start and kill the programs, make the device, hide the library. Sourced, also by the scripts that `b` sends to `a`.

LIBRARIES=/usr/lib/x86_64-linux-gnu/libibverbs.so

# A line with this guest's uptime in ms.
stamp() {
    read -r up _ </proc/uptime
    echo "AT $1 ${up%.*}${up#*.}0"
}

await() { # TENTHS COMMAND...
    tenths=$1
    shift
    until "$@"; do
        tenths=$((tenths - 1))
        [ "$tenths" -gt 0 ] || return 1
        sleep 0.1
    done
}

# shellcheck disable=SC2120 # arguments come from scripts that are sent over
agent() { # [CONFIGURATION]
    onlooker-agent run --config "/tmp/agent/${1:-agent}.toml" </dev/null >>/tmp/agent/log 2>&1 &
    echo $! >/tmp/agent/pid
}

# Its exit code goes to holder.exits: whoever starts it by a script that was sent over does not live to see it. ARGUMENTS stand before the program.
# shellcheck disable=SC2120
holder() { # [ARGUMENT]...
    rm -f /tmp/agent/holder.pid
    {
        # shellcheck disable=SC2016 # expanded in there
        sh -c 'echo $$ >/tmp/agent/holder.pid; exec "$@"' sh "$@" onlooker-holder --socket /run/onlooker-holder/holder.sock >>/tmp/agent/holder.log 2>&1
        echo $? >>/tmp/agent/holder.exits
    } </dev/null >/dev/null 2>&1 &
    await 50 test -s /tmp/agent/holder.pid
}

shop() {
    ONLOOKER_SOCKET=/run/onlooker/agent.sock onlooker-demo-shop 1800 </dev/null >/tmp/agent/shop.log 2>&1 &
    echo $! >/tmp/agent/shop.pid
}

killed() { # PIDFILE
    [ -s "$1" ] && kill -9 "$(cat "$1")" 2>/dev/null
}

lives() { # PIDFILE
    [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null
}

device_ready() {
    port=/sys/class/infiniband/$LAB_RDMA/ports/1
    grep -q ACTIVE "$port/state" 2>/dev/null && grep -q ffff:0a4d: "$port"/gids/* 2>/dev/null
}

device() {
    rdma link add "$LAB_RDMA" type rxe netdev "$LAB_NIC" && await 200 device_ready
}

library_away() {
    for file in "$LIBRARIES"*; do
        case $file in *.away) ;; *) mv "$file" "$file.away" ;; esac
    done
}

library_back() {
    for file in "$LIBRARIES"*.away; do
        [ ! -e "$file" ] || mv "$file" "${file%.away}"
    done
}

# Whatever a fault may have left.
restored() {
    tc qdisc del dev "$LAB_NIC" root 2>/dev/null
    library_back
    [ -e "/sys/class/infiniband/$LAB_RDMA" ] || device
}
