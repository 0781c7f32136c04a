# SPDX-License-Identifier: Apache-2.0
"""`scripts/record` and `scripts/specification` as people run them, in a repository of their own with one bench."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
PROMISE = """
number = 1
promise = "A reading begins when it is due."
commands = ["make bench-x"]
measures = ["reader"]
gate = true

[[figure]]
name = "late_p99"
label = "p99"
at_most = 10
unit = "ms"
"""
BENCH = '#!/bin/sh\necho "share 2 to 4"\necho "RESULT late_p99 $(cat value) ms (expected <= 10) pass"\nexit 3\n'


class Commands(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        shutil.copytree(SCRIPTS, self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        self.write("Makefile", ".PHONY: bench-x\nbench-x:\n\t@./bench\n")
        self.write("bench", BENCH)
        (self.root / "bench").chmod(0o755)
        self.write("value", "3\n")
        self.write("src/reader.rs", "one\n")
        self.write("src/tests.rs", "one\n")
        self.write("spec/01-late.toml", PROMISE)
        self.write("spec/paths.toml", 'reader = ["src/**"]\n')
        self.write("spec/head.md", "# Specification\n")
        self.write("spec/not-promised.md", "## Not promised\n")
        (self.root / "spec/results").mkdir()
        self.run_in("git", "init", "--quiet", "--initial-branch=main")
        self.commit("one")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def run_in(self, *command, code=0, **variables):
        names = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")
        ours = ("QUICK", "GIT_", "MAKE")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        environment |= {f"GIT_{name}": "a@example" for name in names} | {"GIT_CONFIG_GLOBAL": "/dev/null"} | variables
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def commit(self, message):
        self.run_in("git", "add", "--all")
        self.run_in("git", "commit", "--quiet", "--allow-empty", "--message", message)

    def specification(self, *options, code=0):
        return self.run_in("scripts/specification", *options, code=code)

    def recorded(self):
        return [json.loads(line) for line in (self.root / "spec/results/bench-x.jsonl").read_text().splitlines()]

    def page(self):
        return (self.root / "SPECIFICATION.md").read_text()

    def test_a_promise_without_a_result_fails_the_check(self):
        self.specification()
        self.assertIn("**not measured**", self.page())
        self.assertIn("promise 1 has no result: scripts/record make bench-x", self.specification("--check", code=1))

    def test_a_run_is_recorded_with_its_commit_and_the_page_is_made_of_it(self):
        # make says 2 where a bench ends with 3.
        self.assertIn("1 results, 0 of them failed", self.run_in("scripts/record", "make", "bench-x", code=2))
        [one] = self.recorded()
        head = self.run_in("git", "rev-parse", "--short=10", "HEAD").strip()
        self.assertEqual((one["commit"], one["value"], one["spread"], one["quick"]), (head, 3, [2, 4], False))
        self.assertIn("| p99 ≤ 10 ms | holds, ", self.page())
        self.assertEqual(self.specification("--check"), "")
        self.assertEqual(self.specification("--stale"), "")

    def test_what_is_not_committed_has_no_results(self):
        self.write("src/reader.rs", "two\n")
        self.assertIn("commit first", self.run_in("scripts/record", "make", "bench-x", code=1))
        self.assertEqual(list((self.root / "spec/results").iterdir()), [])

    def test_a_quick_run_is_marked_and_changes_nothing(self):
        self.run_in("scripts/record", "make", "bench-x", code=2)
        before = self.page()
        self.commit("recorded")
        self.write("value", "4\n")
        self.commit("slower")
        self.run_in("scripts/record", "make", "bench-x", code=2, QUICK="1")
        self.assertEqual([one["quick"] for one in self.recorded()], [False, True])
        self.assertEqual(self.page(), before)

    def test_results_are_stale_once_what_they_measure_has_changed(self):
        self.run_in("scripts/record", "make", "bench-x", code=2)
        self.write("src/tests.rs", "two\n")
        self.write("README.md", "two\n")
        self.commit("what is not measured")
        self.assertEqual(self.specification("--stale", "--gates"), "")
        self.write("src/reader.rs", "two\n")
        self.commit("what is measured")
        self.assertIn("row 1: make bench-x: measured at", self.specification("--stale", "--gates", code=1))
        self.assertIn("warning: stale: row 1", self.specification("--check"))
        self.specification()
        self.assertIn(", **stale** since ", self.page())
        self.specification("--check")
        self.run_in("scripts/record", "make", "bench-x", code=2)
        self.assertEqual(self.specification("--stale"), "")

    def test_gates_are_the_promises_that_say_so(self):
        self.write("spec/01-late.toml", PROMISE.replace("gate = true\n", ""))
        self.commit("no gate")
        self.run_in("scripts/record", "make", "bench-x", code=2)
        self.write("src/reader.rs", "two\n")
        self.commit("what is measured")
        self.assertEqual(self.specification("--stale", "--gates"), "")
        self.assertIn("row 1", self.specification("--stale", code=1))

    def test_a_page_that_was_changed_by_hand_fails_the_check(self):
        self.run_in("scripts/record", "make", "bench-x", code=2)
        self.write("SPECIFICATION.md", self.page().replace("holds", "holds well"))
        self.assertIn("is not what spec/ makes", self.specification("--check", code=1))

    def test_a_log_is_recorded_for_the_commit_that_is_named(self):
        self.write("log", "RESULT late_p99 12 ms (expected <= 10) fail\n")
        command = ("scripts/record", "--log", "log", "--date", "2026-11-20", "--machine", "another", "--note", "busy")
        self.assertIn("needs --commit", self.run_in(*command, "make", "bench-x", code=2))
        self.assertIn("single revision", self.run_in(*command, "--commit", "nowhere", "make", "bench-x", code=1))
        self.run_in(*command, "--commit", "HEAD", "make", "bench-x")
        [one] = self.recorded()
        self.assertEqual((one["date"], one["machine"], one["note"]), ("2026-11-20", "another", "busy"))
        self.assertFalse(one["pass"])
        self.assertIn("| **fails**: p99 12 ms, 2026-11-20 |", self.page())

    def test_a_bench_that_says_nothing_is_an_error(self):
        self.write("bench", "#!/bin/sh\nexit 77\n")
        self.commit("skipped")
        said = self.run_in("scripts/record", "make", "bench-x", code=1)
        self.assertIn("no RESULT line from make bench-x (exit code 2)", said)
        self.assertIn("no target bench-y", self.run_in("scripts/record", "make", "bench-y", code=1))

    def test_paths_that_have_moved_are_missed(self):
        self.run_in("git", "mv", "src", "lib")
        self.assertIn("reader: src/** matches no file: where has it moved?", self.specification("--check", code=1))

    def test_a_shallow_clone_says_that_it_knows_no_ages(self):
        self.run_in("scripts/record", "make", "bench-x", code=2)
        self.write("src/reader.rs", "two\n")
        self.commit("what is measured")
        self.run_in("git", "clone", "--quiet", "--depth=1", f"file://{self.root}", "clone")
        self.assertIn("nothing is known of the age", self.run_in("clone/scripts/specification", "--check"))
        self.assertIn("nothing is known of the age", self.run_in("clone/scripts/specification", "--stale", "--gates"))


if __name__ == "__main__":
    unittest.main()
