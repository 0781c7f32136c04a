#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the series sets of one host: `onlooker read --prometheus`, the controller's /metrics, node_exporter.

Series come and go while three programs are asked one after the other, so a difference counts only if it is there in
every round. The two of ours must have the same series. What only one of ours and node_exporter has is listed by metric
with the reason; a metric without a reason fails. Values of counts must not be negative anywhere.
"""
import argparse
import re
import subprocess
import sys
import time

from exposition import fetch, parse

ROUNDS, ROUND_S = 5, 6.0
# Before the rounds: everything that the agent samples seldom has come.
COMPLETE = ["node_filesystem_size_bytes", "node_processes_pids", "node_scrape_collector_success"]

# Metrics that only we have: pattern, why.
OURS = [
    (r"onlooker_", "Onlooker's own"),
    (r"container_", "a table of control groups, by cAdvisor's names"),
    (r"node_(qdisc_\w+|softirqs_(functions_)?total)$", "a collector that node_exporter has off by default"),
    (r"node_softnet_(backlog_len|cpu_collision_total|flow_limit_count_total|received_rps_total)$", "not in Debian's node_exporter 1.5"),
    (r"node_(kernel_hung_tasks|netstat_(TcpExt_TCP(OFOQueue|RcvQDrop)|Tcp_MaxConn))$", "not in Debian's node_exporter 1.5 by its defaults"),
]
# Metrics that only node_exporter has.
THEIRS = [
    (r"go_|promhttp_|node_exporter_build_info", "about node_exporter itself"),
    (r"node_systemd_", "not built: systemd's units are asked over D-Bus, which wakes systemd"),
    (r"node_textfile_", "not built: programs publish regions, they do not write text files"),
    # By name: a missing counter of traffic is no setting.
    (r"node_network_(address_assign_type|carrier(_up|_down)?_changes_total|device_id|dormant|flags|iface_id|iface_link|iface_link_mode|info|name_assign_type"
     r"|net_dev_group|protocol_type|transmit_queue_length)$", "not built: settings of a device, which the node dashboards do not ask for"),
    (r"node_(os_info|os_version|selinux_enabled|time_(clocksource|zone)_|disk_info|dmi_info|nvme_info|cpu_(info|package))", "not built: facts that hardly ever change, which the node dashboards do not ask for"),
    (r"node_nf_conntrack_stat_", "not built: netlink statistics of connection tracking, which the node dashboards do not ask for"),
    (r"node_processes_threads_state", "not built: it takes a look at each thread of each process"),
]
# Metrics whose label values differ by design.
BOTH = [
    (r"node_scrape_collector_", "collectors of ours have names of their own beside node_exporter's"),
    (r"node_(processes_state|tcp_connection_states)$", "states in which nobody is: 0 with us, absent there"),
]
# A gauge that may be below zero.
SIGNED = re.compile(r"node_(netstat_Tcp_MaxConn$|timex_|hwmon_temp|network_speed_bytes|cooling_device)|.*_(celsius|offset_seconds)$")


def of_host(series, host):
    """Those of a host in the controller's exposition, without what the controller adds."""
    def bare(key):
        return key[0], frozenset(label for label in key[1] if label != ("instance", host))
    mine = {key: value for key, value in series.items() if ("instance", host) in key[1]}
    return {bare(key): value for key, value in mine.items() if not key[0].startswith("onlooker_host_")}


class Rounds:
    """Differences that no round was without."""

    def __init__(self):
        self.lasting = {}

    def add(self, which, difference):
        self.lasting[which] = self.lasting.get(which, difference) & difference


def metrics(series):
    """How many of each metric, with one example."""
    found = {}
    for name, labels in sorted(series, key=str):
        count, example = found.get(name, (0, labels))
        found[name] = count + 1, example
    return found


def listed(title, series, reasons):
    """Prints what is there by metric with its reason; gives metrics without one."""
    without = []
    for name, (count, example) in metrics(series).items():
        reason = next((why for pattern, why in reasons if re.match(pattern, name)), None)
        if reason is None:
            without.append(name)
        labels = ",".join(f'{key}="{value}"' for key, value in sorted(example))
        print(f"{title:20} {name}{{{labels}}}{f' and {count - 1} more' if count > 1 else ''}: {reason or 'NO REASON'}")
    return without


def result(name, value, unit, bound, is_good):
    print(f"RESULT {name} {value} {unit} (expected {bound}) {'pass' if is_good else 'fail'}")
    return is_good


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("controller", help="URL; the watched host is its target `host`")
    arguments.add_argument("exporter", help="URL of node_exporter's metrics")
    arguments.add_argument("read", nargs=argparse.REMAINDER, help="command that reads the host in Prometheus' text")
    arguments.add_argument("--figures", default="series", help="what the names of the figures begin with")
    arguments = arguments.parse_args()

    def look():
        theirs = parse(fetch(arguments.exporter))
        ours = of_host(parse(fetch(f"{arguments.controller}/metrics")), "host")
        read = parse(subprocess.run(arguments.read, check=True, capture_output=True, text=True).stdout)
        return read, ours, theirs

    def names(series):
        return {name for name, _ in series}

    end = time.time() + 120
    while not all(name in names(series) for series in look()[:2] for name in COMPLETE):
        if time.time() > end:
            sys.exit(f"series: one of {COMPLETE} is not there within 120 s")
        time.sleep(1)
    rounds, negative, counts = Rounds(), set(), []
    for _ in range(ROUNDS):
        read, ours, theirs = look()
        counts.append((len(read), len(ours), len(theirs)))
        rounds.add("read", read.keys() - ours.keys())
        rounds.add("controller", ours.keys() - read.keys())
        rounds.add("ours", ours.keys() - theirs.keys())
        rounds.add("theirs", theirs.keys() - ours.keys())
        negative |= {key for one in (read, ours) for key, value in one.items() if value < 0 and not SIGNED.match(key[0])}
        time.sleep(ROUND_S)
    lasting = rounds.lasting
    print("series in each round (read, controller, node_exporter):", *counts)
    listed("only read", lasting["read"], [])
    listed("only controller", lasting["controller"], [])
    without = listed("only Onlooker", lasting["ours"], OURS + BOTH) + listed("only node_exporter", lasting["theirs"], THEIRS + BOTH)
    for name, labels in negative:
        print(f"negative: {name} {dict(labels)}")
    alike = len(lasting["read"]) + len(lasting["controller"])
    figures = arguments.figures
    good = [
        result(f"{figures}_read_and_controller_differ", alike, "series", "= 0", alike == 0),
        result(f"{figures}_without_reason", len(without), "metrics", "= 0", not without),
        result(f"{figures}_negative", len(negative), "series", "= 0", not negative),
        result(f"{figures}_compared", counts[-1][1], "series", ">= 300", counts[-1][1] >= 300),
    ]
    sys.exit(0 if all(good) else 1)


main()
