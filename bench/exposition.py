# SPDX-License-Identifier: Apache-2.0
"""Prometheus' text exposition, as the comparisons with node_exporter read it."""
import re
import urllib.request

LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def parse(text):
    """Series of an exposition: (name, labels) to value. An empty label is no label."""
    series = {}
    for row in text.splitlines():
        if not row or row[0] == "#":
            continue
        head, _, value = row.rpartition(" ")
        name, _, labels = head.partition("{")
        key = (name, frozenset((k, v) for k, v in LABEL.findall(labels) if v))
        series[key] = float(value)
    return series
