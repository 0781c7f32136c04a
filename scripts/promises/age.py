# SPDX-License-Identifier: Apache-2.0
"""What has changed since a result was recorded: git says. A result is stale once a commit that the measured one does
not contain has touched a measured path. Tests and prose do not count. What is not committed is not seen.
"""

import functools
import subprocess

# Of no set, wherever they are.
NOT_MEASURED = [f":(exclude,glob)**/{name}" for name in ("tests/**", "tests.rs", "*_tests.rs", "*.md")]


class GitError(Exception):
    """git could not say."""


def pathspec(pattern):
    return f":(exclude,glob){pattern[1:]}" if pattern.startswith("!") else f":(glob){pattern}"


class History:
    """The history of one checkout."""

    def __init__(self, root):
        self.root = root
        self._since = functools.cache(self._ask_since)

    def git(self, *arguments):
        done = subprocess.run(["git", "-C", str(self.root), *arguments], capture_output=True, text=True)
        if done.returncode:
            raise GitError(f"git {' '.join(arguments[:3])}: {done.stderr.strip()}")
        return done.stdout

    @property
    def is_whole(self):
        """Whether old commits can be asked about: not in a shallow clone, nor without git."""
        try:
            return self.git("rev-parse", "--is-shallow-repository").strip() == "false"
        except (GitError, OSError):
            return False

    def empty_patterns(self, sets):
        """Patterns that match no file: what they meant has moved."""
        asked = [(name, pattern) for name, patterns in sets.items() for pattern in patterns if pattern[0] != "!"]
        return [one for one in asked if not self.git("ls-files", "--", pathspec(one[1]))]

    def changed_since(self, commit, patterns):
        """The day and the commit of the first change of these paths that `commit` does not contain; None when there is
        none. Raises GitError where `commit` is unknown."""
        return self._since(commit, tuple(patterns))

    def _ask_since(self, commit, patterns):
        specs = [pathspec(pattern) for pattern in patterns] + NOT_MEASURED
        log = self.git("log", "--reverse", "--format=%cs %h", f"{commit}..HEAD", "--", *specs)
        return tuple(log.split("\n", 1)[0].split()) if log.strip() else None
