# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
# How guest `b` of lab-faults looks at a fault: a reader that goes on, the other side's clock, and what the readings say afterwards. Sourced by faults.
#
# Times are milliseconds. b's clock is UTC (`now`), as in the readings; what the other side does is stamped with its uptime (`stamp`), and moved to b's clock by an offset
# that each section measures anew.

METRICS='shop_visits_total shop_jobs_total shop_orders_total shop_till_sales_total shop_till_cents_total shop_till_mean_cents'

say() {
    read -r up _ </proc/uptime
    echo "[$up] $*"
}

found() { echo "FOUND ${NAME}_$1 $2"; }

# busybox's date has no fractions of a second.
now() { adjtimex | awk '/tv_sec/ { s = $2 } /tv_usec/ { printf "%s%03d\n", s, $2 / 1000 }'; }

# In a subshell: the shell itself keeps a copy of what a group is redirected from, and what runs on in the background would keep the connection open by it.
remote() { # SCRIPT [SECONDS]
    printf '( . /lab/faults-guest.sh\n%s\n) </dev/null 2>&1\n' "$1" | timeout "${2:-40}" nc "$LAB_PEER_IP4" 9100
}

# A script over there, with what it says; its stamps are kept.
act() { # SCRIPT [SECONDS]
    say "over there: $1"
    remote "$@" | tee -a "$DIR/stamps" | sed 's/^/    /'
}

at() { sed -n "s/^AT $1 //p" "$DIR/stamps" | tail -n 1; }

# The fault was over at this stamp.
ended() { # STAMP
    local stamp
    stamp=$(at "$1")
    [ -n "$stamp" ] || { say "no stamp '$1' from over there" && return 1; }
    END=$((stamp + OFFSET))
    say "over at $END (its uptime $stamp)"
}

# Stamps of a script that runs over there by itself.
fetched() { # STAMP TRIES
    local tries=$2
    until remote 'cat /tmp/agent/stamps' 5 >>"$DIR/stamps" && [ -n "$(at "$1")" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { say "no stamp '$1' after $2 tries" && return 1; }
        sleep 0.5
    done
    sed 's/^/    /' "$DIR/stamps" | sort -u
}

calibrate() {
    local before after up
    before=$(now)
    up=$(remote 'stamp now' 10 | sed -n 's/^AT now //p')
    after=$(now)
    [ -n "$up" ] || { say "the other side does not answer" && return 1; }
    OFFSET=$(((before + after) / 2 - up))
    say "clocks: $((after - before)) ms for a look at the other's"
}

# shellcheck disable=SC2086 # METRICS are several words
look() { # SECONDS OPTION...
    local seconds=$1
    shift
    timeout "$seconds" onlooker read "$LAB_PEER_IP4:7187" $METRICS --token-file "$TOKEN" --timeout 20s --region '*shop*' "$@"
}

reads_once() { look 30 --via verbs >/tmp/faults/once 2>&1; }

healthy() {
    local end
    end=$(($(now) + 25000))
    until reads_once; do
        [ "$(now)" -lt "$end" ] || return 1
        sleep 0.5
    done
}

repaired() {
    say "the pair does not work: $(tail -n 2 /tmp/faults/once); starting all anew"
    found repaired 1
    restored
    remote "killed /tmp/agent/holder.pid; killed /tmp/agent/pid; ip link set \"\$LAB_NIC\" up; sleep 1; restored; holder; agent $MODE; lives /tmp/agent/shop.pid || shop"
    healthy
}

# A line of JSON, by TCP: the bounds of what may be read.
by_tcp() { # FILE
    local tries=10
    until look 30 --via tcp --interval 100ms --count 1 --json >"$1" 2>&1 && grep -q shop_visits_total "$1"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { say "nothing by TCP: $(tail -n 1 "$1" | cut -c1-300)" && return 1; }
        sleep 0.5
    done
}

prepare() { # FAULT
    NAME=$1 DIR=/tmp/faults/$1 READER='' END=0
    OUT=$DIR/out
    mkdir -p "$DIR"
    : >"$DIR/stamps"
    : >"$OUT"
    say "=== $NAME"
    healthy || repaired || return 1
    calibrate && by_tcp "$DIR/before"
}

# Readings and, between them, why there was none: both outputs in one file, in order.
# shellcheck disable=SC2086 # METRICS are several words
start_reader() { # [TIMEOUT]
    onlooker read "$LAB_PEER_IP4:7187" $METRICS --token-file "$TOKEN" --timeout "${1:-20s}" --via verbs --region '*shop*' \
        --interval 100ms --json >>"$OUT" 2>&1 &
    READER=$!
    echo "$READER" >/tmp/faults/reader.pid
}

# When the last good reading was, 0 if there is none.
last_good() {
    local time
    time=$(grep '"name":"shop_visits_total".*}$' "$OUT" | tail -n 1 |
        sed -n 's/.*"name":"shop_visits_total"[^}]*},"value":[0-9]*,"time_utc_ns":\([0-9]*\)[0-9]\{6\},.*/\1/p')
    echo "${time:-0}"
}

is_read_since() { [ "$(last_good)" -gt "$1" ]; }
is_reading() { is_read_since 0; }
has_reason() { tail -n 1 "$OUT" | grep -q '^onlooker: '; }

begin() { # FAULT [TIMEOUT]
    prepare "$1" || return 1
    start_reader "${2:-20s}"
    await 200 is_reading || { say "the reader does not begin: $(tail -n 3 "$OUT" | cut -c1-400)" && return 1; }
    sleep 1
}

is_ended() { ! grep -q '^State:.[^Z]' "/proc/$READER/status" 2>/dev/null; }

# 143: it lived until it was told to end.
stop_reader() {
    local code=0
    kill -TERM "$READER" 2>/dev/null
    await 100 is_ended || { say "the reader does not end: $(grep State: "/proc/$READER/status")" && kill -9 "$READER"; }
    wait "$READER" || code=$?
    READER=''
    rm -f /tmp/faults/reader.pid
    found reader_exit "$code"
}

judge() {
    awk -v before="$DIR/before" -v after="$DIR/after" -v end="$END" -f /lab/faults.awk "$DIR/before" "$DIR/after" "$OUT" >"$DIR/judged"
    sed -n '/^= /!s/^/    /p' "$DIR/judged"
    sed -n "s/^= /FOUND ${NAME}_/p" "$DIR/judged"
}

# Waits for the first reading after the fault, two seconds more, and looks at all of them.
finish() { # SECONDS
    await "$(($1 * 5))" is_read_since "$END" || say "not read again within about $1 s; last lines: $(tail -n 2 "$OUT" | cut -c1-300)"
    sleep 2
    stop_reader
    by_tcp "$DIR/after"
    say "first and last lines of $(wc -l <"$OUT"):"
    sed -n '1p;$p' "$OUT" | cut -c1-200 | sed 's/^/    /'
    judge
    found alive "$(remote 'lives /tmp/agent/pid && lives /tmp/agent/holder.pid && echo alive' | grep -c alive)"
}

