# SPDX-License-Identifier: Apache-2.0
# Readings by TCP before and after, and the reader's output: what is wrong, which gaps, when it was good again.
function take(line, into, part, count, i, name, rest, labels, at) {
    count = split(line, part, /[{]"name":"/)
    for (i = 2; i <= count; i++) {
        name = substr(part[i], 1, index(part[i], "\"") - 1)
        at = index(part[i], "\"labels\":{")
        if (name !~ /^shop_/ || !at) continue
        rest = substr(part[i], at + 9)
        labels = substr(rest, 1, index(rest, "}"))
        rest = substr(rest, index(rest, "}") + 1)
        if (!match(rest, /^,"value":-?[0-9.e+-]+,/)) continue
        into[name labels] = substr(rest, 10, RLENGTH - 10) + 0
        if (name == "shop_visits_total" && match(rest, /"time_utc_ns":[0-9]+/)) time = substr(rest, RSTART + 14, RLENGTH - 20) + 0
    }
}
function bad(what) {
    wrong++
    if (wrong <= 10) print "WRONG line " FNR ": " what
}
function look(key, value, labels, sales, error) {
    if (!(key in low) && !(key in high)) bad(key " is not the program's")
    if (key ~ /_total[{]/) {
        if (key in seen && value < seen[key]) bad(key " was " seen[key] " and is " value)
        if (key in low && value < low[key]) bad(key " is " value ", by TCP it was " low[key] " before")
        if (key in high && value > high[key]) bad(key " is " value ", by TCP it was " high[key] " after")
        seen[key] = value
    }
    if (key ~ /^shop_till_mean_cents/) {
        labels = substr(key, index(key, "{"))
        sales = now["shop_till_sales_total" labels]
        error = value * sales - now["shop_till_cents_total" labels]
        if (error < -0.5 || error > 0.5) bad("the till: " sales " sales of " value " cents are not " now["shop_till_cents_total" labels])
    }
}
function reading(key) {
    time = 0
    split("", now)
    take($0, now)
    for (key in now) look(key, now[key])
    if (!time) {
        # Without the program: said in the document, or on the lines that follow.
        if (/"problem":"|"refused":\[/) reasons++
        else pending = 1
        return
    }
    if (pending) { without++; print "line " FNR ": a reading before it had no values, and nothing said why" }
    if (last && (reasons || pending)) gaps++
    else if (last && time - last > 5000) { gaps++; without++; print "line " FNR ": nothing for " time - last " ms, and nothing said why" }
    if (last && time - last > longest) longest = time - last
    if (!good && time > end) good = time
    readings++
    last = time
    reasons = pending = 0
}
FILENAME == before { if (/^[{]/) take($0, low); next }
FILENAME == after { if (/^[{]/) take($0, high); next }
# The last one may have been cut off when the reader was told to end.
/^[{].*[^}]$/ { next }
/^[{]/ { reading(); next }
/^onlooker: warning: / { next }
{
    reasons++
    pending = 0
    kind = $0
    gsub(/[0-9]+/, "N", kind)
    if (!kinds[kind]++ && kind_count++ < 12) print "reason: " substr($0, 1, 300)
}
END {
    if (pending) { without++; gaps++ }
    else if (reasons) gaps++
    print "= readings " readings + 0
    print "= gaps " gaps + 0
    print "= gaps_without_reason " without + 0
    print "= wrong_values " wrong + 0
    print "= longest_gap_ms " longest + 0
    if (good) print "= recovery_ms " good - end
}
