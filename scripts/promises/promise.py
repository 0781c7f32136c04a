# SPDX-License-Identifier: Apache-2.0
"""Promises, as spec/NN-name.toml has them. People write these files; unknown keys are refused.

    number = 24                      # for ever: pages and code refer to it
    promise = "..."                  # 80 characters, or two short sentences
    commands = ["make soak-fleet"]   # what measures it: a target of the Makefile, a program of the tree, or "by hand"
    measures = ["controller"]        # sets of paths in spec/paths.toml: a change of one makes the results stale
    held_by_test = true              # `make test` measures it, so that no result needs to be recorded
    gate = true                      # `make lint` fails when its results are stale, instead of warning
    budget = "..."                   # for the table, only where no figure has a label
    notes = '''...'''                # what a reader must know besides: Markdown

    [[figure]]
    name = "fleet_lateness_p99"      # of the RESULT line; * stands for anything
    label = "p99 late"               # for the table; without one the figure is in the notes only
    at_most = 10000                  # or at_least, exactly, below, above, in the unit of the RESULT line
    where = { "safe returns" = 7500 }  # another bound on machines whose description has these words
    otherwise = "or nothing shown"   # what else the bench accepts
    unit = "us"
"""

import re
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

LONGEST_PROMISE, LONGEST_TWO_SENTENCES = 80, 160
OPERATORS = {"at_most": "<=", "at_least": ">=", "exactly": "=", "below": "<", "above": ">"}
BY_HAND = "by hand"


class SpecError(Exception):
    """A file of spec/ that cannot be meant so. Says which one, and what to do."""


def only_known(table, known, where):
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise SpecError(f"{where}: unknown key {unknown[0]}; known are {', '.join(known)}")


@dataclass(frozen=True)
class Figure:
    """One or more RESULT lines with one bound."""

    name: str
    operator: str
    bound: float
    unit: str
    label: str = ""
    otherwise: str = ""
    where: dict = field(default_factory=dict, hash=False)

    def covers(self, name):
        return fnmatchcase(name, self.name)

    def bound_on(self, machine):
        return next((bound for words, bound in self.where.items() if words in machine), self.bound)

    @classmethod
    def from_table(cls, table, where):
        only_known(table, ["name", "label", *OPERATORS, "where", "otherwise", "unit"], where)
        operators = [key for key in OPERATORS if key in table]
        if "name" not in table or len(operators) != 1 or "unit" not in table:
            raise SpecError(f"{where}: a figure needs name, unit and one of {', '.join(OPERATORS)}")
        [key] = operators
        others = {other: table[other] for other in ("label", "otherwise", "where") if other in table}
        return cls(table["name"], OPERATORS[key], table[key], table["unit"], **others)


@dataclass(frozen=True)
class Promise:
    """One row of SPECIFICATION.md."""

    number: int
    promise: str
    commands: tuple
    measures: tuple
    figures: tuple
    budget: str = ""
    notes: str = ""
    held_by_test: bool = False
    gate: bool = False

    @property
    def result_files(self):
        """Names without .jsonl of the files that what it is measured by is recorded in."""
        return [result_file(command) for command in self.commands]


def result_file(command):
    """`make bench-torn` and `lab/lab-verbs` are recorded in bench-torn and lab-verbs."""
    return command.split()[-1].rsplit("/", 1)[-1]


def check_words(promise, where):
    sentences = re.findall(r"[^.]+(?:\.\S[^.]*)*\.?", promise)
    longest = LONGEST_TWO_SENTENCES if len(sentences) == 2 else LONGEST_PROMISE
    if len(promise) > longest:
        raise SpecError(
            f"{where}: the promise has {len(promise)} characters: at most {LONGEST_PROMISE}, or two short sentences of "
            f"{LONGEST_TWO_SENTENCES} together"
        )
    if "|" in promise or "\n" in promise:
        raise SpecError(f"{where}: the promise is a cell of a table: no | and one line")


def check_command(command, root, where):
    if command == BY_HAND:
        return
    words = command.split()
    if words[0] == "make" and len(words) == 2:
        makefile = (root / "Makefile").read_text()
        if re.search(rf"^{re.escape(words[1])}:(?!=)", makefile, re.MULTILINE) or words[1] in phony_targets(makefile):
            return
        raise SpecError(f"{where}: the Makefile has no target {words[1]}")
    if not (len(words) == 1 and (root / command).is_file()):
        raise SpecError(f"{where}: {command!r} is no `make TARGET`, no program of this tree and not {BY_HAND!r}")


def phony_targets(makefile):
    return {name for line in re.findall(r"^\.PHONY:(.*)$", makefile, re.MULTILINE) for name in line.split()}


def load_promise(path, sets, root):
    where = path.name
    try:
        table = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{where}: {error}") from None
    known = ["number", "promise", "commands", "measures", "held_by_test", "gate", "budget", "notes", "figure"]
    only_known(table, known, where)
    missing = [key for key in ("number", "promise", "commands", "measures") if key not in table]
    if missing:
        raise SpecError(f"{where}: {missing[0]} is missing")
    figures = tuple(Figure.from_table(one, where) for one in table.pop("figure", []))
    table["commands"], table["measures"] = tuple(table["commands"]), tuple(table["measures"])
    promise = Promise(figures=figures, **table)
    if not re.match(rf"{promise.number:02}-[a-z0-9-]+\.toml$", path.name):
        raise SpecError(f"{where}: number {promise.number} belongs in {promise.number:02}-name.toml")
    check_words(promise.promise, where)
    for command in promise.commands:
        check_command(command, root, where)
    unknown = [name for name in promise.measures if name not in sets]
    if unknown:
        raise SpecError(f"{where}: spec/paths.toml has no set {unknown[0]}")
    if any(figure.label for figure in figures) == bool(promise.budget):
        raise SpecError(f"{where}: the table needs figures with a label, or a budget in words, not both")
    if not figures and not promise.held_by_test:
        raise SpecError(f"{where}: without a figure only `make test` can hold it: held_by_test")
    if not promise.commands or (not promise.measures and not promise.held_by_test):
        raise SpecError(f"{where}: commands and measures must not be empty")
    return promise


def load(root):
    """All promises by number, and the sets of paths. Raises SpecError."""
    sets = tomllib.loads((root / "spec/paths.toml").read_text())
    files = sorted((root / "spec").glob("[0-9]*.toml"))
    promises = sorted((load_promise(path, sets, root) for path in files), key=lambda one: one.number)
    numbers = [one.number for one in promises]
    twice = {number for number in numbers if numbers.count(number) > 1}
    if twice:
        raise SpecError(f"spec: number {min(twice)} stands in two files")
    unused = sorted(set(sets) - {name for one in promises for name in one.measures})
    if unused:
        raise SpecError(f"spec/paths.toml: no promise measures {unused[0]}")
    return promises, sets
