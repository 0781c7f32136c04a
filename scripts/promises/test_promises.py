# SPDX-License-Identifier: Apache-2.0
"""Promises, results, judgements and the page, each by itself. `make lint` runs these."""

import json
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

from promises import page, promise, results
from promises.age import GitError
from promises.judge import JudgeError, judge

ROOT = Path(__file__).resolve().parents[2]
LATENESS = promise.Figure("late_p99", "<=", 10_000, "us", label="p99")
COST = promise.Figure("cost_*_ns", "<=", 5000, "ns", label="a block", where={"safe returns": 7500})
FAST, SLOW = "fast, 2 virtual CPUs", "slow with safe returns, 2 virtual CPUs"


def result(name="late_p99", value=2800, unit="us", expected="<= 10000", passed=True, **other):
    run = {"date": "2026-11-23", "commit": "a" * 10, "kernel": "6.18", "cpu": "a", "machine": FAST, "quick": False}
    fields = {"name": name, "value": value, "unit": unit, "expected": expected, "passed": passed}
    return results.Result(**(run | fields | other))


def promised(*figures, number=7, **other):
    fields = {"promise": "It is quick.", "commands": ("make bench-x",), "measures": ("x",)} | other
    return promise.Promise(number=number, figures=figures, **fields)


class Unchanged:
    def changed_since(self, commit, patterns):
        return None


class Changed:
    """Everything changed a day later, but for what was measured at one commit; one commit is unknown."""

    def changed_since(self, commit, patterns):
        if commit == "unknown":
            raise GitError("unknown revision")
        return None if commit == "f" * 10 else ("2026-11-24", "b0b")


def judged(one, *lines, history=None, file="bench-x"):
    return judge(one, {"x": ["src/**"]}, {file: list(lines)}, history or Unchanged())


class Results(unittest.TestCase):
    def test_lines_of_a_log_become_results(self):
        log = [
            "reading every 10 ms",
            "responder_tc_1024: quartiles 485 to 574 ns",
            "RESULT responder_tc_1024 533 ns (expected <= 750) pass",
            "RESULT slowdown 0.08 percentage points (expected <= 0) fail",
            "RESULT ready none ms (expected <= 5 (or so)) fail\r\n",
            "RESULT split_words 0 words (expected 0) pass",
        ]
        run = {"date": "d", "commit": "c", "kernel": "k", "cpu": "p", "machine": "m", "quick": True, "note": "busy"}
        found = results.parse_log(log, run)
        self.assertEqual([(one.name, one.value, one.unit, one.passed) for one in found], [
            ("responder_tc_1024", 533, "ns", True),
            ("slowdown", 0.08, "percentage points", False),
            ("ready", "none", "ms", False),
            ("split_words", 0, "words", True),
        ])  # fmt: skip
        self.assertEqual([one.spread for one in found], [(485, 574), (), (), ()])
        self.assertEqual([one.bound for one in found], [("<=", 750), ("<=", 0), ("<=", 5), ("=", 0)])
        self.assertTrue(all(one.quick and one.note == "busy" for one in found))

    def test_a_result_line_of_another_shape_is_not_passed_over(self):
        with self.assertRaisesRegex(results.RecordError, "another shape"):
            results.parse_log(["RESULT late_p99 28 us (expected <= 10000) maybe"], {})

    def test_what_is_no_number_is_a_word(self):
        self.assertEqual([results.number(text) for text in ("5", "-1.5", "1e3", "inf", "nan", "none")],
                         [5, -1.5, 1000.0, "inf", "nan", "none"])  # fmt: skip

    def test_a_line_is_read_as_it_was_written(self):
        one = result(value="none", passed=False, spread=(1, 2.5), note="quiet")
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "bench-x.jsonl"
            path.write_text(f"{one.line()}\n{result().line()}\n")
            self.assertEqual(results.parse_file(path), [one, result()])
            unknown = json.dumps(json.loads(one.line()) | {"host": "web-3"})
            for broken in ('{"date": "2026"}', "no JSON", "[1]", unknown):
                path.write_text(f"{one.line()}\n{broken}\n")
                with self.assertRaisesRegex(results.RecordError, r"bench-x\.jsonl:2"):
                    results.parse_file(path)

    def test_the_latest_run_on_each_machine_counts_with_all_its_lines(self):
        before = result(value=1, date="2026-11-22")
        twice = [result(value=2), result(value=3)]
        elsewhere = result(value=4, date="2026-11-01", machine=SLOW)
        self.assertEqual(results.latest([*twice, before, elsewhere]), {FAST: twice, SLOW: [elsewhere]})
        again = result(commit="0" * 10)
        self.assertEqual(results.latest([*twice, again]), {FAST: [again]})

    def test_a_quick_run_never_stands_for_a_full_one(self):
        full, quick = result(), result(date="2026-11-30", quick=True, machine=SLOW)
        self.assertEqual(results.latest([full, quick]), {FAST: [full]})
        self.assertEqual(results.latest([quick]), {SLOW: [quick]})

    def test_a_machine_is_described_without_its_name(self):
        with tempfile.TemporaryDirectory() as directory:
            at = Path(directory)
            processor = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD(R) EPYC\n"
            (at / "cpuinfo").write_text(2 * f"{processor}flags\t\t: fpu hypervisor\n\n")
            here = results.this_machine(proc=at, sys=at, release="6.18.44-host-name")
            machine = {"cpu": "AMD EPYC (family 25, model 1)", "machine": "AMD EPYC family 25, 2 virtual CPUs"}
            self.assertEqual(here, {"kernel": "6.18"} | machine)
            overflow = at / "devices/system/cpu/vulnerabilities/spec_rstack_overflow"
            overflow.parent.mkdir(parents=True)
            overflow.write_text("Mitigation: Safe RET\n")
            (at / "cpuinfo").write_text(f"{processor}flags\t\t: fpu\n")
            here = results.this_machine(proc=at, sys=at, release="6.1.0")
            self.assertEqual(here["machine"], "AMD EPYC family 25 with safe returns, 1 CPUs")


class Judging(unittest.TestCase):
    def test_it_holds_only_if_it_holds_on_every_machine(self):
        late = result(value=28_000, passed=False, machine=SLOW, date="2026-11-20")
        one = judged(promised(LATENESS), result(), late)
        said = "**fails** on slow with safe returns: p99 28 ms, 2026-11-20; holds elsewhere, 2026-11-23"
        self.assertEqual(page.status(one), said)
        later = result(machine=SLOW, date="2026-11-24")
        self.assertEqual(page.status(judged(promised(LATENESS), result(), late, later)), "holds, 2026-11-24")

    def test_a_name_belongs_to_the_first_figure_that_covers_it(self):
        special = replace(COST, name="cost_disk_ns", bound=9000)
        disk = result(name="cost_disk_ns", value=1, unit="ns", expected="<= 9000")
        cpu = result(name="cost_cpu_ns", value=1, unit="ns", expected="<= 5000")
        one = judged(promised(special, COST), cpu, disk)
        self.assertEqual([reading.lines for reading in one.readings], [(disk,), (cpu,)])

    def test_names_are_in_the_order_of_their_numbers(self):
        lines = [result(f"cost_{n}_ns", 1, "ns", "<= 5000") for n in (100, 24, 9)]
        [reading] = judged(promised(COST), *lines).readings
        self.assertEqual(list(reading.lines), lines[::-1])

    def test_the_bench_must_have_meant_the_bound_of_the_promise(self):
        on_slow = result(name="cost_cpu_ns", value=7000, unit="ns", expected="<= 7500", machine=SLOW)
        self.assertFalse(judged(promised(COST), on_slow).failed)
        for wrong in ({"machine": FAST}, {"expected": "<= 5000"}, {"expected": ">= 7500"}):
            with self.assertRaisesRegex(JudgeError, "was judged by"):
                judged(promised(COST), replace(on_slow, **wrong))
        with self.assertRaisesRegex(JudgeError, "was recorded in 'us'"):
            judged(promised(COST), replace(on_slow, unit="us"))
        self.assertTrue(judged(promised(COST), replace(on_slow, expected="<= 1", quick=True)).readings)

    def test_it_is_stale_if_one_figure_was_not_measured_since_the_change(self):
        fresh = result(commit="f" * 10)
        self.assertIsNone(judged(promised(LATENESS), fresh, history=Changed()).stale)
        older = result(machine=SLOW, date="2026-11-01")
        self.assertIsNone(judged(promised(LATENESS), fresh, older, history=Changed()).stale)
        block = result(name="cost_cpu_ns", value=1, unit="ns", expected="<= 5000")
        one = judged(promised(LATENESS, COST), fresh, block, history=Changed())
        self.assertEqual((one.stale.measured, one.stale.changed, one.stale.by), (block, "2026-11-24", "b0b"))
        self.assertEqual(page.status(one), "holds, 2026-11-23, **stale** since 2026-11-24")

    def test_a_commit_that_git_does_not_know_is_stale_too(self):
        one = judged(promised(LATENESS), result(commit="unknown"), history=Changed())
        self.assertEqual((one.stale.changed, page.status(one)), ("", "holds, 2026-11-23"))

    def test_what_nothing_was_recorded_for_is_missing(self):
        one = judged(promised(LATENESS, COST), result(), result(), file="bench-y")
        self.assertEqual((one.missing, page.status(one)), ((LATENESS, COST), "**not measured**"))
        self.assertIn(", not recorded: a block", page.status(judged(promised(LATENESS, COST), result())))


class Page(unittest.TestCase):
    def test_amounts_have_a_unit_that_fits(self):
        for value, unit, shown in [
            (750, "ns", "750 ns"),
            (11_700, "us", "11.7 ms"),
            (10_000, "ms", "10 s"),
            (1536, "KiB", "1.5 MiB"),
            (0.017, "of_due_times", "1.7 % of due times"),
            (1_000_000_000, "words", "1,000,000,000 words"),
            (0.6, "percent_of_a_core", "0.6 % of a core"),
            ("none", "ms", "none ms"),
            (-1.7, "%", "-1.7 %"),
        ]:
            self.assertEqual(page.amount(value, unit), shown)
        self.assertEqual(page.amounts([600, 2100], "ns"), "0.6 to 2.1 us")

    def test_a_budget_is_made_of_the_bounds(self):
        gaps = promise.Figure("gaps", "=", 0, "gaps", label="gaps")
        loss = promise.Figure("loss", "<=", 1, "%", label="loss", otherwise="or nothing shown")
        unlabelled = promise.Figure("frames", ">=", 24_000, "frames")
        text = page.budget(promised(LATENESS, COST, gaps, loss, unlabelled))
        block = "a block ≤ 5 us (with safe returns 7.5 us)"
        self.assertEqual(text, f"p99 ≤ 10 ms; {block}; 0 gaps; loss ≤ 1 %, or nothing shown")

    def test_a_row_and_its_notes(self):
        cpu = result(name="cost_cpu_ns", value=800, unit="ns", expected="<= 5000", note="quiet", spread=(700, 1200))
        disk = replace(cpu, name="cost_disk_ns", value=5100, passed=False)
        held = promised(number=8, budget="all", held_by_test=True, commands=("make test",), notes="By tests.\n")
        text = page.page([judged(promised(COST, LATENESS), cpu, disk), judged(held)], "# Head\n", "## Not yet\n")
        row = "| [7](#7) | It is quick. | a block ≤ 5 us (with safe returns 7.5 us); p99 ≤ 10 ms | "
        self.assertIn(f"{row}**fails**: a block 5.1 us, 2026-11-23, not recorded: p99 |\n", text)
        seen = "cpu: 0.8 us (0.7 to 1.2); disk: 5.1 us (0.7 to 1.2), **fails**"
        where = "fast, 2 virtual CPUs; quiet | 2026-11-23 aaaaaaa"
        self.assertIn(f"| `cost_*_ns` | ≤ 5 us | {seen} | {where} |\n", text)
        self.assertIn("| `late_p99` | ≤ 10 ms | not recorded | | |\n", text)
        self.assertIn("| [8](#8) | It is quick. | all | held by `make test` |\n", text)
        self.assertTrue(text.endswith("### 8\n\n**It is quick.** Measured by `make test`.\n\nBy tests.\n"), text)

    def test_of_many_values_the_ends_and_what_fails_are_shown(self):
        fields = {"unit": "ns", "expected": "<= 5000"}
        lines = [result(f"cost_{n}_ns", n, passed=n < 5005, **fields) for n in range(4998, 5006)]
        [reading] = judged(promised(COST), *lines).readings
        self.assertEqual(page.values(reading), "4.998 to 5.005 us, 8 figures, **fails**: `cost_5005_ns` 5.005 us")
        [reading] = judged(promised(COST), *(replace(one, value=7) for one in lines[:7])).readings
        self.assertEqual(page.values(reading), "7 ns, 7 figures")

    def test_pages_are_compared_without_their_marks_of_age(self):
        aged = page.status(judged(promised(LATENESS), result(), history=Changed()))
        self.assertEqual(page.without_age(f"| {aged} |"), "| holds, 2026-11-23 |")
        self.assertNotEqual(page.without_age("| holds, 2026-11-23 |"), page.without_age("| holds, 2026-11-24 |"))


class Promises(unittest.TestCase):
    GOOD = (
        'number = 3\npromise = "It is quick."\ncommands = ["make bench-x"]\nmeasures = ["x"]\n'
        '[[figure]]\nname = "late"\nlabel = "late"\nat_most = 5\nunit = "ms"\n'
    )

    def load(self, text, name="03-quick.toml"):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            (root / "Makefile").write_text(".PHONY: bench-x\nbench-x: setup-a\n\tbench/x\nQUICK := 1\n")
            (root / name).write_text(text)
            return promise.load_promise(root / name, {"x": []}, root)

    def test_a_good_one(self):
        one = self.load(self.GOOD)
        self.assertEqual((one.number, one.figures), (3, (promise.Figure("late", "<=", 5, "ms", label="late"),)))
        self.assertEqual(one.result_files, ["bench-x"])

    def test_what_cannot_be_meant_is_refused(self):
        long = "It is quick and small and right and cheap and never late and nobody will ever notice it at all."
        for change, reason in [
            (("number = 3", "number = 4"), "belongs in 04-name.toml"),
            (("number = 3", "numbre = 3"), "unknown key numbre"),
            (('promise = "It is quick."\n', ""), "promise is missing"),
            (("It is quick.", long), "at most 80"),
            (("It is quick.", "It is. Quick. Always, " + long[:50]), None),
            (("It is quick.", "It | is."), "no |"),
            (('"make bench-x"', '"make bench-y"'), "no target bench-y"),
            (('"make bench-x"', '"make QUICK"'), "no target QUICK"),
            (('"make bench-x"', '"bench/x"'), "no program of this tree"),
            (('["x"]', '["y"]'), "no set y"),
            (('["x"]', "[]"), "must not be empty"),
            (("at_most = 5", "at_most = 5\nat_least = 1"), "one of at_most"),
            (("at_most = 5", "at_msot = 5"), "unknown key at_msot"),
            (('label = "late"\n', ""), "figures with a label"),
            (('measures = ["x"]', 'measures = ["x"]\nbudget = "5 ms"'), "figures with a label"),
            (("number = 3", "number = "), "03-quick.toml"),
        ]:
            with self.subTest(change=change):
                text = self.GOOD.replace(*change)
                self.assertNotEqual(text, self.GOOD)
                if reason is None:
                    self.load(text)
                    continue
                with self.assertRaises(promise.SpecError) as caught:
                    self.load(text)
                self.assertIn(reason, str(caught.exception))

    def test_without_figures_only_tests_can_hold_it(self):
        bare = 'number = 3\npromise = "It is."\ncommands = ["make bench-x"]\nmeasures = []\nbudget = "all"\n'
        with self.assertRaisesRegex(promise.SpecError, "held_by_test"):
            self.load(bare)
        self.assertTrue(self.load(f"{bare}held_by_test = true\n").held_by_test)

    def test_numbers_are_for_ever(self):
        promises, _ = promise.load(ROOT)
        self.assertEqual([one.number for one in promises], list(range(1, len(promises) + 1)))
        self.assertGreaterEqual(len(promises), 46)


if __name__ == "__main__":
    unittest.main()
