"""Prints the peak memory of a process and all that come from it, in bytes: PSS, which counts shared pages once.

Runs apart from what it watches: ``python _memory.py PID``.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable
from pathlib import Path

INTERVAL_SECONDS = 0.03
#: Of a processor at most: a look at a process of some GB takes 30 ms, in which it cannot map memory.
SHARE = 0.05


def parents() -> dict[int, int]:
    """Return the parent of each process of the machine."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = stat.read_text()
            found[int(stat.parent.name)] = int(text[text.rindex(")") + 2 :].split()[1])
    return found


def family(root: int, parent_of: dict[int, int], known: Iterable[int] = ()) -> set[int]:
    """Return a process and its descendants, with those known before (their parents may have ended)."""
    members = {root, *known} & (parent_of.keys() | {root})
    while more := {pid for pid, parent in parent_of.items() if parent in members} - members:
        members |= more
    return members


def pss_bytes(pid: int) -> int:
    """Return the proportional set size of a process; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] != "Z"


def main() -> None:
    """Watch until the process ends."""
    root, peak, members = int(sys.argv[1]), 0, set[int]()
    while running(root):
        start = time.monotonic()
        members = family(root, parents(), members)
        peak = max(peak, sum(map(pss_bytes, members)))
        time.sleep(max(INTERVAL_SECONDS, (time.monotonic() - start) / SHARE))
    print(peak)


if __name__ == "__main__":
    main()
