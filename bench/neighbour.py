# SPDX-License-Identifier: Apache-2.0
"""A program of another user on an attacked machine: how long the agent takes to answer it, and whether it still gets its region; for bench/attack.

Usage: neighbour.py SOCKET SECONDS. Says `neighbour ANSWERS LONGEST_MS REFUSED`.
"""

import sys
import time

from registrant import Connection, Refused, Region, field, plain

path, seconds = sys.argv[1], float(sys.argv[2])
end = time.monotonic() + seconds
answers, longest, slowest, refused = 0, 0.0, "", 0


class Timed(Connection):
    """Knows how long each answer took; that to hello with the connecting before."""

    def __init__(self, path):
        self.begin = time.monotonic()
        super().__init__(path)

    def ask(self, **request):
        global answers, longest, slowest
        answer = super().ask(**request)
        now = time.monotonic()
        answers, took_ms, self.begin = answers + 1, (now - self.begin) * 1e3, now
        if took_ms > longest:
            longest, slowest = took_ms, f"{request['op']}, answer {answers}"
        return answer


while time.monotonic() < end:
    try:
        connection = Timed(path)
        region = Region(connection, "neighbour", [plain([field("neighbour_value")], 1)])
        region.publish()
        region.remove()
        connection.close()
    except Refused as error:
        refused += 1
        print(f"refused: {error}", file=sys.stderr, flush=True)
    time.sleep(0.1)
print(f"longest: {slowest}", file=sys.stderr)
print("neighbour", answers, round(longest, 1), refused, flush=True)
