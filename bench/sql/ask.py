# SPDX-License-Identifier: Apache-2.0
"""Asks DuckDB and chDB what our own reader was asked, and compares the answers bit for bit.

    ask.py answers DIR FILE FILE  the questions of questions.sql to the cold files of DIR; the files have our reader's answers, and PromQL's
    ask.py check DIR FILE NAME    the files that kills have left; FILE has what our reader found in them
    ask.py show DIR ENGINE NN..   prints SQL and answer, for the documentation

A line a verdict: `same NN ENGINE`, or `different NN ENGINE` and both answers; for PromQL `same NN ENGINE PLACE`, where its samples were.
"""

import itertools
import os
import re
import struct
import sys

import chdb.session
import duckdb

HERE = os.path.dirname(os.path.abspath(__file__))
VALUE = {
    "duckdb": "coalesce(float_value, int_value) / divisor * multiplier",
    "chdb": "ifNull(float_value, toFloat64(int_value)) / divisor * multiplier",
}
ACQUIRED = {"duckdb": "epoch_ns(time) + offset_ns", "chdb": "toUnixTimestamp64Nano(time) + offset_ns"}
SAME_SERIES = "PARTITION BY instance, labels ORDER BY time"
WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
WRITTEN = {
    "duckdb": {
        "ns": "epoch_ns({0})",
        "label": "(labels->>'{0}')",
        "idiv": "(({0}) // ({1}))",
        "double": "({0})::DOUBLE",
        "last": "arg_max({0}, time)",
        "first": "arg_min({0}, time)",
        "before": f"lag({{0}}) OVER ({SAME_SERIES})",
    },
    "chdb": {
        "ns": "toUnixTimestamp64Nano({0})",
        "label": "JSONExtractString(labels, '{0}')",
        "idiv": "intDiv({0}, {1})",
        "double": "toFloat64({0})",
        "last": "argMax({0}, time)",
        "first": "argMin({0}, time)",
        "before": f"lagInFrame(toNullable({{0}})) OVER ({SAME_SERIES} {WHOLE})",
    },
}


def questions():
    """Number, what is asked, SQL with what the dialects write differently."""
    text = open(os.path.join(HERE, "questions.sql"), encoding="utf-8").read()
    for number, title, sql in re.findall(r"^-- (\d\d) (.*)\n((?:.+\n)+)", text, re.MULTILINE):
        yield number, title, re.sub(r"^-- promql .*\n", "", sql, flags=re.MULTILINE).strip().rstrip(";")


def arguments(text, start):
    """The arguments behind the bracket at `start`, and where they end."""
    depth, parts, part = 0, [], ""
    for at in range(start, len(text)):
        letter = text[at]
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return [*parts, part.strip()], at + 1
        if letter == "," and depth == 1:
            parts.append(part.strip())
            part = ""
        elif not (letter == "(" and depth == 1):
            part += letter
    raise ValueError(text)


def in_dialect(sql, engine):
    while True:
        # The innermost first: behind the last $ there is none.
        at = sql.rfind("$")
        if at < 0:
            return sql
        name = re.match(r"\w+", sql[at + 1 :]).group()
        parts, end = arguments(sql, at + 1 + len(name))
        sql = sql[:at] + WRITTEN[engine][name].format(*parts) + sql[end:]


class DuckDb:
    def __init__(self, directory):
        self.database = duckdb.connect()
        self.database.execute("SET TimeZone = 'UTC'")
        self.views(directory, "*")

    def views(self, directory, files):
        gaps = os.path.join(directory, "cold", "gaps", files + ".parquet")
        samples = os.path.join(directory, "cold", files + ".parquet")
        more = f"{VALUE['duckdb']} AS value, {ACQUIRED['duckdb']} AS acquired_ns"
        self.database.execute(f"CREATE OR REPLACE VIEW samples AS SELECT *, {more} FROM '{samples}'")
        self.database.execute(f"CREATE OR REPLACE VIEW gaps AS SELECT * FROM '{gaps}'")

    def ask(self, sql):
        return [["" if cell is None else cell for cell in row] for row in self.database.execute(sql).fetchall()]


class ChDb:
    def __init__(self, directory):
        self.session = chdb.session.Session()
        self.views(directory, "*")

    def views(self, directory, files):
        path = os.path.join(directory, "cold", files + ".parquet")
        gaps = os.path.join(directory, "cold", "gaps", files + ".parquet")
        for view in ("samples", "gaps"):
            self.session.query(f"DROP VIEW IF EXISTS {view}")
        more = f"{VALUE['chdb']} AS value, {ACQUIRED['chdb']} AS acquired_ns"
        self.session.query(f"CREATE VIEW samples AS SELECT *, {more} FROM file('{path}', Parquet)")
        self.session.query(f"CREATE VIEW gaps AS SELECT * FROM file('{gaps}', Parquet)")

    def ask(self, sql):
        lines = str(self.session.query(sql, "TabSeparatedWithNamesAndTypes")).split("\n")
        if len(lines) < 2:
            return []
        kinds = lines[1].split("\t")
        rows = [line.split("\t") for line in lines[2:] if line]
        return [[self.cell(cell, kind) for cell, kind in zip(row, kinds)] for row in rows]

    @staticmethod
    def cell(text, kind):
        if "Float" in kind:
            return float(text)
        if "Int" in kind:
            return int(text)
        return text.replace("\\n", "\n").replace("\\t", "\t").replace("\\'", "'").replace("\\\\", "\\")


ENGINES = {"duckdb": DuckDb, "chdb": ChDb}


def written(cell):
    """A cell as `onlooker-bench sql answer` writes it: a float is its bits."""
    if isinstance(cell, float):
        return "f" + struct.pack(">d", cell).hex()
    return str(cell)


def read_rows(path, keys):
    """Rows of a file by its first cells."""
    rows = {}
    for line in open(path, encoding="utf-8"):
        cells = line.rstrip("\n").split("\t")
        rows.setdefault(tuple(cells[:keys]), []).append(cells[keys:])
    return rows


def compare(what, ours, theirs, sql):
    print("same" if theirs == ours != [] else "different", what)
    if theirs != ours:
        pairs = itertools.zip_longest(ours, theirs)
        first = next((one, other) for one, other in pairs if one != other)
        print(f"{what}: {len(ours)} and {len(theirs)} rows\n  ours   {first[0]}\n  theirs {first[1]}\n  {sql}", file=sys.stderr)


def answers(directory, path, promql_path):
    ours = read_rows(path, 1)
    promql = read_rows(promql_path, 2)
    for engine, make in ENGINES.items():
        database = make(directory)
        for number, _, question in questions():
            sql = in_dialect(question, engine)
            try:
                theirs = [[written(cell) for cell in row] for row in database.ask(sql)]
            except Exception as error:  # whatever it is: there is no answer
                theirs = [[f"{type(error).__name__}: {error}"]]
            compare(f"{number} {engine}", ours.get((number,), []), theirs, sql)
            for place in [place for place, of in promql if of == number]:
                compare(f"{number} {engine} {place}", promql[place, number], theirs, sql)


def check(directory, path, name):
    wanted = [line.split()[1:] for line in open(path, encoding="utf-8") if line.startswith("file\t")]
    for engine, make in ENGINES.items():
        database = make(directory)
        minute = "$idiv(acquired_ns, 60000000000) * 60000000000"
        sql = (
            f"SELECT {minute} AS begin, count(*), sum(int_value), min(acquired_ns), max(acquired_ns) FROM samples"
            " GROUP BY begin ORDER BY begin"
        )
        theirs = [[str(cell) for cell in row] for row in database.ask(in_dialect(sql, engine))]
        # A kill may leave the gaps of a file that it did not let be, until the next start.
        gaps = database.ask("SELECT count(DISTINCT reason) FROM gaps")[0][0]
        is_same = theirs == wanted and gaps - len(wanted) in ((0, 1) if name == "left" else (0,))
        print("same" if is_same else "different", name, engine)
        if not is_same:
            print(f"  ours   {wanted}\n  theirs {theirs}\n  gaps {gaps}", file=sys.stderr)


def show(directory, engine, numbers):
    database = ENGINES[engine](directory)
    for number, title, sql in questions():
        if number in numbers:
            print(f"-- {number} {title}\n{in_dialect(sql, engine)};")
            for row in database.ask(in_dialect(sql, engine)):
                print("  " + "  ".join(str(cell) for cell in row))


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "show":
        show(rest[0], rest[1], rest[2:])
    else:
        {"answers": answers, "check": check}[what](*rest)
