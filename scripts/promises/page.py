# SPDX-License-Identifier: Apache-2.0
"""SPECIFICATION.md as text: the table, a section of notes for each promise, and the prose of spec/head.md and
spec/not-promised.md around them."""

import re

GENERATED = "<!-- Made by scripts/specification of spec/: edit there. -->"
SIGNS = {"<=": "≤ ", ">=": "≥ ", "=": "", "<": "< ", ">": "> "}
LARGER = {"ns": (1000, "us"), "us": (1000, "ms"), "ms": (1000, "s"), "KiB": (1024, "MiB")}
MOST_LISTED = 6
# Marks of age change with every commit; a page that differs in them only is still the right one.
STALE_MARK = re.compile(r", \*\*stale\*\* since [0-9-]+")


def scaled(values, unit):
    """The values as text and the unit that fits the greatest of them. What is no number stays."""
    numbers = [value for value in values if not isinstance(value, str)]
    factor = 1
    if unit.startswith("of_"):
        factor, unit = 0.01, f"%_{unit}"
    while unit in LARGER and max(map(abs, numbers), default=0) >= factor * LARGER[unit][0]:
        step, unit = LARGER[unit]
        factor *= step
    return [value if isinstance(value, str) else plain(value / factor) for value in values], words(unit)


def amounts(values, unit):
    """`[6600, 11700]` in us as `6.6 to 11.7 ms`."""
    texts, unit = scaled(values, unit)
    return f"{' to '.join(texts)} {unit}"


def amount(value, unit):
    return amounts([value], unit)


def plain(value):
    """At most four digits where the value is no whole number; thousands are grouped."""
    if value == round(value):
        return f"{round(value):,}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def words(unit):
    return unit.replace("x_plain_add", "plain adds").replace("percent_of", "%_of").replace("_", " ")


def bound(figure, machine=""):
    text = f"{SIGNS[figure.operator]}{amount(figure.bound_on(machine), figure.unit)}"
    return f"{text}, {figure.otherwise}" if figure.otherwise else text


def bounds(figure):
    """All of a figure's bounds."""
    others = [f" (with {where} {amount(value, figure.unit)})" for where, value in figure.where.items()]
    return bound(figure) + "".join(others)


def is_count(figure):
    """Its label says what is counted: `0 gaps`, not `gaps 0 gaps`."""
    return bool(figure.label) and figure.operator == "="


def budget(promise):
    if promise.budget:
        return promise.budget
    labelled = [figure for figure in promise.figures if figure.label]
    return "; ".join(
        f"{plain(figure.bound)} {figure.label}" if is_count(figure) else f"{figure.label} {bounds(figure)}"
        for figure in labelled
    )


def failure(judgement):
    """The first failing figure with its value and day, how many more there are, and on which machine if others pass."""
    failed = judgement.failed
    reading, one = failed[0]
    figure, machines = reading.figure, {reading.machine for reading, _ in failed}
    label = figure.label or f"`{one.name}`"
    text = f"{one.value} {label}" if is_count(figure) else f"{label} {amount(one.value, one.unit)}"
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    elsewhere = [other.run.date[:10] for other in judgement.readings if other.machine not in machines]
    where = f" on {reading.machine.split(',')[0]}" if elsewhere else ""
    holds = f"; holds elsewhere, {max(elsewhere)}" if elsewhere else ""
    return f"**fails**{where}: {text}{more}, {one.date[:10]}{holds}"


def status(judgement):
    promise = judgement.promise
    held = "held by `make test`"
    if not promise.figures:
        return held
    if not judgement.readings:
        return f"{held}; figures not recorded" if promise.held_by_test else "**not measured**"
    holds = f"{held}; figures hold" if promise.held_by_test else "holds"
    text = failure(judgement) if judgement.failed else f"{holds}, {judgement.date}"
    if all(one.quick for reading in judgement.readings for one in reading.lines):
        text += ", quick run"
    missing = [figure.label for figure in judgement.missing if figure.label]
    if missing:
        text += f", not recorded: {', '.join(missing)}"
    if judgement.stale and judgement.stale.changed:
        text += f", **stale** since {judgement.stale.changed}"
    return text


def value(one):
    [text, *ends], unit = scaled([one.value, *one.spread], one.unit)
    return f"{text} {unit} ({' to '.join(ends)})" if ends else f"{text} {unit}"


def values(reading):
    """Its value; of a few different ones each with what is its own in its name; of many the least and the greatest, and
    which of them fail."""
    lines, name = reading.lines, reading.figure.name
    fails = {one: ", **fails**" if not one.passed else "" for one in lines}
    if len(lines) == 1:
        return value(lines[0]) + fails[lines[0]]
    if len({one.value for one in lines}) > 1 and len(lines) <= MOST_LISTED:
        return "; ".join(f"{own_part(one.name, name)}{value(one)}{fails[one]}" for one in lines)
    numbers = sorted({one.value for one in lines if not isinstance(one.value, str)})
    odd = sorted({one.value for one in lines if isinstance(one.value, str)})
    text = ", ".join(([amounts([numbers[0], *numbers[1:][-1:]], reading.figure.unit)] if numbers else []) + odd)
    failed = ", ".join(f"`{one.name}` {amount(one.value, one.unit)}" for one in reading.failed)
    return f"{text}, {len(lines)} figures{f', **fails**: {failed}' if failed else ''}"


def own_part(name, pattern):
    """Of a name what the pattern leaves open: `tc: ` of responder_tc_1024 in responder_*_1024."""
    match = re.fullmatch("(.*)".join(map(re.escape, pattern.split("*"))), name)
    own = " ".join(match.groups()).strip("_ ") if match else name
    return f"{own}: " if own else ""


def measured(reading):
    """Two cells: the machine with the conditions that were noted, and the run."""
    notes = sorted({one.note for one in reading.lines if one.note})
    one = reading.run
    return f"{'; '.join([reading.machine, *notes])} | {one.date[:10]} {one.commit[:7]}{' quick' if one.quick else ''}"


def measured_by(promise):
    named = [command if command == "by hand" else f"by `{command}`" for command in promise.commands]
    return f"Measured {' and '.join(named)}."


def section(judgement):
    promise = judgement.promise
    lines = [f"### {promise.number}", "", f"**{promise.promise}** {measured_by(promise)}", ""]
    if promise.figures:
        lines += ["| figure | bound | value | machine | measured |", "|---|---|---|---|---|"]
        for reading in judgement.readings:
            limit = bound(reading.figure, reading.machine)
            lines.append(f"| `{reading.figure.name}` | {limit} | {values(reading)} | {measured(reading)} |")
        lines += [f"| `{figure.name}` | {bounds(figure)} | not recorded | | |" for figure in judgement.missing]
        lines.append("")
    if promise.notes.strip():
        lines += [promise.notes.strip(), ""]
    return lines


def page(judgements, head, not_promised):
    lines = [GENERATED, "", head.strip(), "", "| # | promise | budget | now |", "|---|---|---|---|"]
    for one in judgements:
        promise = one.promise
        lines.append(
            f"| [{promise.number}](#{promise.number}) | {promise.promise} | {budget(promise)} | {status(one)} |"
        )
    lines += ["", not_promised.strip(), "", "## Notes", ""]
    for one in judgements:
        lines += section(one)
    return "\n".join(lines).rstrip() + "\n"


def without_age(text):
    return STALE_MARK.sub("", text)
