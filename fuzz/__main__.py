"""Attack Tartan with random damage, input, commands and kills, until something is wrong or the time is over.

``python -m fuzz [PART ...] [--seconds S] [--seed N]``: without parts all in turn, without seconds for ever. Each
attack prints its seed when it fails, with the command that repeats it; a hang becomes a dump of all threads.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from fuzz import cluster, commands, corruption, inputs, kills, native, simulated

HANG_SECONDS = {"properties": 1200.0, "cargo-fuzz": 1800.0}  # these may have to compile first; others: 300
PARTS: dict[str, Callable[[random.Random, Path], None]] = {
    "corruption": corruption.attack,
    "inputs": inputs.attack,
    "commands": commands.attack,
    "simulated": simulated.attack,
    "cluster": cluster.attack,
    "kills": kills.attack,
    "properties": native.properties,
    "cargo-fuzz": native.targets,
}
NEEDS: dict[str, Callable[[], str | None]] = {
    "properties": native.lacks_cargo, "cargo-fuzz": native.lacks_cargo_fuzz,
}  # fmt: skip


def main(words: list[str]) -> int:
    """Attack; return 0 when the time is over, 1 at the first defect."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Attack Tartan at random.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all in turn")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long; default: never")
    parser.add_argument("--rounds", type=int, default=sys.maxsize, help="attacks of each part; default: no end")
    parser.add_argument("--seed", type=int, help="of the first attack; default: another one each time")
    options = parser.parse_args(words)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {unknown.pop()}, only {', '.join(PARTS)}")
    first = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    print(f"seeds from {first}", flush=True)
    end, counts = time.monotonic() + options.seconds, dict.fromkeys(_possible(options.parts or list(PARTS)), 0)
    for seed in range(first, first + min(options.rounds, 10**9) if counts else first):
        for part in counts:
            if time.monotonic() > end:
                return _over(counts)
            if not _survives(part, seed):
                return 1
            counts[part] += 1
    return _over(counts)


def _possible(parts: list[str]) -> list[str]:
    """Return the parts that this machine can run, and say why others are skipped."""
    missing = {part: NEEDS[part]() for part in parts if part in NEEDS}
    for part, reason in missing.items():
        if reason is not None:
            print(f"{part} is skipped: {reason}", flush=True)
    return [part for part in parts if missing.get(part) is None]


def _survives(part: str, seed: int) -> bool:
    """Make one attack; return whether everything was as it must be."""
    faulthandler.dump_traceback_later(HANG_SECONDS.get(part, 300.0), exit=True)
    try:
        with tempfile.TemporaryDirectory(prefix="tartan-fuzz-") as name:
            PARTS[part](random.Random(seed), Path(name))
    except Exception:
        traceback.print_exc()
        print(f"defect: repeat it with  python -m fuzz {part} --rounds 1 --seed {seed}", file=sys.stderr)
        return False
    finally:
        faulthandler.cancel_dump_traceback_later()
    return True


def _over(counts: dict[str, int]) -> int:
    print("; ".join(f"{count:,} x {part}" for part, count in counts.items()) or "nothing", "without a defect")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
