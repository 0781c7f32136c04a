# SPDX-License-Identifier: Apache-2.0
"""What benches recorded: spec/results/COMMAND.jsonl, one RESULT line of one run a line. `scripts/record` appends,
nothing rewrites.

A line has: date (UTC, to the day or the second), commit (of what was measured), kernel, cpu, machine (in words, without
anything that identifies it), name, value (a number, or a word where the bench had none), unit, expected (the bound as
the bench printed it), pass, quick, and where there is one spread ([low, high]) and note.

Which results count: of each figure and machine the latest run that has the figure, with all its lines; a run with
QUICK=1 only where no full one is recorded on any machine. Two machines are the same if their descriptions are.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

RESULT = re.compile(
    r"^RESULT (?P<name>\S+) (?P<value>\S+) (?P<unit>.*?) ?\(expected (?P<expected>.*)\) (?P<verdict>pass|fail)$"
)
# The line before a RESULT may have the spread of what is the value's median.
SPREAD = re.compile(r"\b(?:quartiles|share) (-?[0-9.]+) to (-?[0-9.]+)")
BOUND = re.compile(r"^(<=|>=|<|>|=)?\s*(-?[0-9.]+(?:[eE][-+]?[0-9]+)?)")
WHERE = ["date", "commit", "kernel", "cpu", "machine"]
OPTIONAL = ["spread", "note"]
KEYS = [*WHERE, "name", "value", "unit", "expected", "pass", "quick", *OPTIONAL]


class RecordError(Exception):
    """Results that cannot be read or recorded."""


@dataclass(frozen=True)
class Result:
    date: str
    commit: str
    kernel: str
    cpu: str
    machine: str
    name: str
    value: float | str
    unit: str
    expected: str
    passed: bool
    quick: bool
    spread: tuple = ()
    note: str = ""

    @property
    def run(self):
        """What the lines of one run share."""
        return (self.date, self.commit)

    @property
    def bound(self):
        """The bench's bound: operator and number; None where it printed words."""
        found = BOUND.match(self.expected)
        return found and (found[1] or "=", float(found[2]))

    def line(self):
        """As a line of the file."""
        table = {key: getattr(self, "passed" if key == "pass" else key) for key in KEYS}
        return json.dumps({key: value for key, value in table.items() if value not in ((), "") or key not in OPTIONAL})


def number(text):
    """A number as it was printed; what is none stays a word."""
    try:
        value = float(text)
    except ValueError:
        return text
    if value != value or value in (float("inf"), float("-inf")):
        return text
    return int(text) if re.fullmatch(r"[-+]?[0-9]+", text) else value


def parse_log(lines, run):
    """The results in what a bench printed; `run` has the fields that all of them share."""
    before, found = "", []
    for line in lines:
        line = line.rstrip("\r\n")
        match = RESULT.match(line)
        if match:
            spread = SPREAD.search(before)
            fields = {key: match[key] for key in ("name", "unit", "expected")}
            fields |= {"value": number(match["value"]), "passed": match["verdict"] == "pass"}
            fields["spread"] = tuple(number(end) for end in spread.groups()) if spread else ()
            found.append(Result(**run, **fields))
        elif line.startswith("RESULT "):
            raise RecordError(f"a RESULT line of another shape: {line}")
        before = line
    return found


def parse_file(path):
    results = []
    for count, line in enumerate(path.read_text().splitlines(), 1):
        try:
            table = json.loads(line)
            if not isinstance(table, dict) or set(table) - set(KEYS) or set(KEYS) - set(OPTIONAL) - set(table):
                raise ValueError(f"the keys are not {', '.join(KEYS)}")
            table["passed"], table["spread"] = table.pop("pass"), tuple(table.get("spread", ()))
            results.append(Result(**table))
        except ValueError as error:
            raise RecordError(f"{path.name}:{count}: no result: {error}") from None
    return results


def load(root):
    """All results by the name of their file without .jsonl."""
    return {path.stem: parse_file(path) for path in sorted((root / "spec/results").glob("*.jsonl"))}


def latest(results):
    """Of one figure's results those that count, see above: a dict from machine to the lines of its latest run."""
    counted = [one for one in results if not one.quick] or list(results)
    newest = {}
    for one in counted:
        # Of one day, what was appended later is later.
        if one.machine not in newest or one.date >= newest[one.machine][0]:
            newest[one.machine] = one.run
    return {
        machine: [one for one in counted if (one.machine, one.run) == (machine, run)]
        for machine, run in newest.items()
    }


def this_machine(proc=Path("/proc"), sys=Path("/sys"), release=None):
    """kernel, cpu and machine of this machine: what a reader needs to judge figures, nothing that identifies it."""
    cpuinfo = (proc / "cpuinfo").read_text()
    of_cpu = dict(re.findall(r"^([a-z][a-z0-9 ]*\S)\s*: (.*)$", cpuinfo, re.MULTILINE))
    count = len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE))
    model = re.sub(r"\((?:R|TM)\)", "", of_cpu.get("model name", "unknown processor")).strip()
    family = of_cpu.get("cpu family", "?")
    # One name for all models of a maker is usual in virtual machines; families differ by a factor of two.
    machine = f"{model} family {family}"
    try:
        overflow = (sys / "devices/system/cpu/vulnerabilities/spec_rstack_overflow").read_text()
    except OSError:
        overflow = ""
    if "Safe RET" in overflow:
        machine += " with safe returns"
    virtual = "virtual " if " hypervisor" in f" {of_cpu.get('flags', '')}" else ""
    release = release or (proc / "sys/kernel/osrelease").read_text().strip()
    kernel = ".".join(re.findall(r"\d+", release)[:2])
    cpu = f"{model} (family {family}, model {of_cpu.get('model', '?')})"
    return {"kernel": kernel, "cpu": cpu, "machine": f"{machine}, {count} {virtual}CPUs"}
