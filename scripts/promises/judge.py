# SPDX-License-Identifier: Apache-2.0
"""How each promise stands: its figures with the results that count, which of them fail, since when they are stale.
Decides nothing about how that is shown."""

import re
from dataclasses import dataclass

from promises import results as recorded
from promises.age import GitError


class JudgeError(Exception):
    """A promise and what was recorded for it contradict each other."""


@dataclass(frozen=True)
class Reading:
    """A figure on one machine: the lines of the runs that count, of all names that the figure covers."""

    figure: object
    machine: str
    lines: tuple

    @property
    def failed(self):
        return [one for one in self.lines if not one.passed]

    @property
    def run(self):
        """One of its lines: they are of one run."""
        return self.lines[0]


@dataclass(frozen=True)
class Stale:
    """A result older than a change of what it measures. `changed` is the day, `by` the commit of the first such change;
    both are empty where git does not know the commit that was measured."""

    measured: object
    changed: str
    by: str


@dataclass(frozen=True)
class Judgement:
    promise: object
    readings: tuple
    missing: tuple
    stale: Stale | None

    @property
    def failed(self):
        return [(reading, one) for reading in self.readings for one in reading.failed]

    @property
    def date(self):
        """The day of the latest result."""
        return max(reading.run.date for reading in self.readings)[:10] if self.readings else ""


def readings_of(promise, results):
    """The figures' readings in the order of the file, of each the newest first. A name belongs to the first figure that
    covers it."""
    by_figure = {figure: [] for figure in promise.figures}
    for one in (one for name in promise.result_files for one in results.get(name, [])):
        figure = next((figure for figure in promise.figures if figure.covers(one.name)), None)
        if figure:
            by_figure[figure].append(one)
    readings = []
    for figure, lines in by_figure.items():
        on_machines = [
            Reading(figure, machine, tuple(sorted(latest, key=natural)))
            for machine, latest in recorded.latest(lines).items()
        ]
        readings += sorted(on_machines, key=lambda reading: reading.run.date, reverse=True)
    return tuple(readings)


def natural(result):
    """Order by name in which 24 comes before 100."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", result.name)]


def check_bounds(promise, readings):
    """The bench that judged a figure must have meant the bound of the promise."""
    for reading in readings:
        figure = reading.figure
        wanted = (figure.operator, figure.bound_on(reading.machine))
        for one in reading.lines:
            if one.unit != figure.unit:
                raise JudgeError(
                    f"promise {promise.number}: {one.name} was recorded in {one.unit!r}, "
                    f"the promise has {figure.unit!r}"
                )
            if not one.quick and one.bound and one.bound != wanted:
                raise JudgeError(
                    f"promise {promise.number}: {one.name} is to be {wanted[0]} {wanted[1]:g}, and was judged by "
                    f"'{one.expected}' on {one.date}: run {promise.commands[0]} again, or mend the budget"
                )


def stale_since(promise, sets, readings, history):
    """Of the results that would have to be made again, those whose paths changed first."""
    patterns = [pattern for name in promise.measures for pattern in sets[name]]
    newest = {}
    for reading in readings:
        known = newest.get(reading.figure, reading.run)
        newest[reading.figure] = max(known, reading.run, key=lambda one: one.date)
    found = []
    for one in newest.values():
        try:
            changed = history.changed_since(one.commit, patterns)
        except GitError:
            changed = ("", "")
        if changed:
            found.append(Stale(one, *changed))
    return min(found, key=lambda stale: (stale.changed, stale.measured.date), default=None)


def judge(promise, sets, results, history):
    """Raises JudgeError. `history` may be None: then nothing is known of ages."""
    readings = readings_of(promise, results)
    check_bounds(promise, readings)
    with_results = {reading.figure for reading in readings}
    missing = tuple(figure for figure in promise.figures if figure not in with_results)
    stale = stale_since(promise, sets, readings, history) if history and promise.measures else None
    return Judgement(promise, readings, missing, stale)
