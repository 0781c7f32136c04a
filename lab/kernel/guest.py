# SPDX-License-Identifier: Apache-2.0
"""The guest of lab-kernel as this machine sees it over the wire: a shell (payload), its agent, and readings of it by `onlooker read`.

All of it runs in the network namespace that has the tap device. Values are compared by the rule of three: the guest's own files, a reading whose values were acquired after
that, the files again; a counter must lie between the two, a gauge between them or within a tolerance.
"""
import json
import os
import re
import socket
import subprocess
import tempfile
import time

ADDRESS, READER = "10.77.0.1", "10.77.0.2"
SHELL_PORT, BOOTSTRAP_PORT, TCP_PORT, EXPORTER_PORT = 9100, 7187, 7188, 9187
# Emulated, beside other work: what takes a second elsewhere may take ten.
PATIENCE_S = 90
# Tries of a reading, of 10 s each.
READINGS = 5

AGENT = f"""[agent]
socket = "/tmp/agent/agent.sock"
state_dir = "/tmp/agent/state"
[bootstrap]
listen = "{ADDRESS}:{BOOTSTRAP_PORT}"
[tcp]
listen = "{ADDRESS}:{TCP_PORT}"
allow = ["{READER}/32"]
[kernel]
devices = ["eth0"]
allow = ["{READER}/32"]
sample = "2s"
[connections]
enabled = true
interval = "1s"
[cgroups]
enabled = true
interval = "1s"
rows = 256
[processes]
enabled = true
interval = "1s"
by = "cgroup"
"""


class Failed(Exception):
    """Something that must work did not."""


def shell(script, timeout_s=PATIENCE_S):
    """Runs a script in the guest: its exit code and what it printed, errors too."""
    with socket.create_connection((ADDRESS, SHELL_PORT), timeout=timeout_s) as connection:
        # Read as a whole before any of it runs, so that nothing in it can take the rest for its input.
        connection.sendall(f"{{\n{script}\n}} </dev/null 2>&1\necho \"EXIT $?\"\n".encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    text, mark, code = answer.decode(errors="replace").rpartition("EXIT ")
    if not mark:
        raise Failed(f"the guest's shell ended early: {answer[-300:]!r}, of: {script[:300]}")
    return int(code), text


def run(script, timeout_s=PATIENCE_S):
    code, text = shell(script, timeout_s)
    if code:
        raise Failed(f"exit code {code} in the guest: {text.strip()[-500:]}, of: {script[:500]}")
    return text


def holds(command):
    return shell(f"{command} >/dev/null")[0] == 0


def until(what, wanted, timeout_s=PATIENCE_S, pause_s=0.3):
    """Waits until `wanted` has something."""
    end = time.time() + timeout_s
    while True:
        try:
            if found := wanted():
                return found
            problem = ""
        except (OSError, Failed) as error:
            problem = f": {error}"
        if time.time() > end:
            raise Failed(f"not within {timeout_s} s: {what}{problem}")
        time.sleep(pause_s)


def put(path, text):
    run(f"mkdir -p $(dirname {path}) && cat >{path} <<'END'\n{text}END")


# --- agent -------------------------------------------------------------------------------------------------------------------------------


class Agent:
    """The agent in the guest, and `onlooker read` beside it."""

    def __init__(self, onlooker):
        self.onlooker = onlooker
        self.token = None
        # Readings that were tried again.
        self.late = 0

    def start(self):
        """Until all that it serves is there."""
        put("/tmp/agent/agent.toml", AGENT)
        run("onlooker-agent run --config /tmp/agent/agent.toml >/tmp/agent/log 2>&1 & echo $! >/tmp/agent/pid")
        until("the agent is ready", lambda: holds("grep -q 'ready: ' /tmp/agent/log"))
        until("the agent serves what is not computed", lambda: holds("grep -q 'not computed, so sampled' /tmp/agent/log"))
        if self.token is None:
            with tempfile.NamedTemporaryFile("w", suffix=".token", delete=False) as file:
                file.write(run("onlooker-agent token --config /tmp/agent/agent.toml"))
            self.token = file.name

    def stop(self):
        """The agent, and what it has left in the kernel."""
        run("kill $(cat /tmp/agent/pid); while kill -0 $(cat /tmp/agent/pid) 2>/dev/null; do sleep 0.1; done; onlooker-agent purge --config /tmp/agent/agent.toml")

    def log(self):
        return run("cat /tmp/agent/log")

    def close(self):
        if self.token:
            os.unlink(self.token)

    def command(self, *arguments, via="kernel"):
        return [self.onlooker, "read", f"{ADDRESS}:{BOOTSTRAP_PORT}", "--token-file", self.token, "--via", via, "--timeout", "10s", *arguments]

    def read(self, *arguments, via="kernel"):
        """One reading: samples as `onlooker read --json` has them. Answers that take longer than 100 ms are too late for a reader (RTO_CAP_NS of crates/transport/src/soft/rtt.rs),
        which an emulated machine beside other work may well take: then it is tried again."""
        for _ in range(READINGS):
            done = subprocess.run(self.command("--json", *arguments, via=via), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            if done.returncode in (0, 3):
                reading = json.loads(done.stdout) if done.stdout else {"regions": [], "samples": []}
                problem = " ".join(region["problem"] for region in reading["regions"] if region.get("problem"))
                # Of a region that was not reached a reading tells nothing; any other problem is for the checks to find.
                if "timeout" not in problem:
                    return reading
            elif "timeout" not in done.stderr:
                break
            self.late += 1
        raise Failed(f"onlooker read {' '.join(arguments)}: {done.stderr.strip()[-500:]}")

    def fresh(self, *arguments, probe):
        """A reading all of which was acquired after this was called. `probe` is a metric of what the agent acquires now and then."""
        def time_of(reading):
            return max((sample["time_utc_ns"] for sample in reading["samples"] if sample["name"] == probe), default=0)

        def newer(than):
            reading = self.read(*arguments)
            # The clock relation moves a little from one bootstrap to the next.
            return reading if time_of(reading) > than + 100_000_000 else None
        # The first new one may have begun before.
        seen = self.read(*arguments)
        for _ in range(2):
            than = time_of(seen)
            seen = until(f"a new acquisition of {probe}", lambda: newer(than))  # noqa: B023 (called at once)
        return seen


class Gaps:
    """Reads all regions again and again meanwhile, and counts due readings that gave none. To be used by `with`; ends with it."""

    def __init__(self, agent, regions, interval="200ms"):
        chosen = [word for region in regions for word in ("--region", region)]
        self.command = agent.command("--interval", interval, "--summary", *chosen)
        self.found, self.readings = {}, 0

    def __enter__(self):
        self.output = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=self.output, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        self.process.wait()
        self.output.seek(0)
        lines = [line for line in self.output.read().splitlines() if line.startswith("{") and line.endswith("}")]
        self.output.close()
        if lines:
            last = json.loads(lines[-1])
            self.found = {f"{one['region']} {one['reason']}": one["count"] for one in last["gaps_by"]}
            self.readings = last["readings"]


# --- the guest's own files ---------------------------------------------------------------------------------------------------------------


def files(paths):
    """Their contents, read one after the other; those that are not there are left out."""
    listed = " ".join(f"'{path}'" for path in paths)
    text = run(f"for f in {listed}; do [ -r \"$f\" ] || continue; printf '=== %s\\n' \"$f\"; cat \"$f\" 2>/dev/null; done")
    found = {}
    for part in re.split(r"^=== ", text, flags=re.M)[1:]:
        path, _, content = part.partition("\n")
        found[path] = content
    return found


def is_between(value, before, after, slack=0.0):
    return min(before, after) - slack - 1e-9 * abs(before) <= value <= max(before, after) + slack + 1e-9 * abs(after)


class Verdict:
    """What was looked at and what was wrong; the first ones are shown."""

    def __init__(self, name):
        self.name, self.looked, self.wrong = name, 0, []

    def check(self, good, what):
        self.looked += 1
        if not good:
            self.wrong.append(what)
            if len(self.wrong) <= 20:
                print(f"{self.name}: WRONG: {what}", flush=True)
        return good

    def attempt(self, what, act):
        """Runs a step, whose own failure is one of the wrong things."""
        print(f"{self.name}: {what}", flush=True)
        try:
            act()
        except (Failed, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
            self.check(False, f"{what}: {type(error).__name__}: {error}")
