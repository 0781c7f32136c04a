# SPDX-License-Identifier: Apache-2.0
"""That scripts/circles finds circles, and only those."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).with_name("circles")


def run(files):
    """Exit code and words of a crate with these files."""
    with tempfile.TemporaryDirectory() as crate:
        for name, text in files.items():
            file = Path(crate, "src", name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, SCRIPT, crate], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr


class Circles(unittest.TestCase):
    LIB = "mod a; mod b; mod c;\npub use a::A;\n"

    def test_a_circle_of_three_is_named(self):
        code, said = run({"lib.rs": self.LIB, "a.rs": "use crate::b::{self, B};", "b.rs": "fn f() { super::c::g() }", "c.rs": "use super::{\n a::{A, Other},\n};"})
        self.assertEqual(code, 1)
        self.assertIn("3 files", said)
        self.assertRegex(said, "a.rs uses .*b.rs")
        self.assertRegex(said, "c.rs uses .*a.rs")

    def test_of_files_below_others(self):
        code, said = run({"lib.rs": self.LIB, "a/mod.rs": "mod x;", "a/x.rs": "use crate::b::B;", "b.rs": "use crate::a::x::X;", "c.rs": ""})
        self.assertEqual(code, 1, said)

    def test_what_is_none(self):
        house = {"a/mod.rs": "mod x; use x::X;", "a/x.rs": "use super::A; use std::a::b;"}
        chain = {"b.rs": 'use crate::a::A;\n// use crate::c::C;\nconst TEXT: &str = "crate::c::C";', "c.rs": "use crate::b::B;\n#[cfg(test)]\nmod tests {\n use crate::a::A; }"}
        tests = {"a/tests.rs": "use crate::c::C;"}
        self.assertEqual(run({"lib.rs": self.LIB, **house, **chain, **tests}), (0, ""))


if __name__ == "__main__":
    unittest.main()
