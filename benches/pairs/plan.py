"""``tartan plan --from`` a finished run on the simulated device: the run of four times its items, predicted and done.

Parsing sleeps, the device takes its time as told, and the caches hold 105 items. Words: ``n=`` items of the small run,
``seconds=`` of comparing in the large one. The replay has an ideal machine: on a busy one, the run takes longer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tartan
from benches.pairs.simulated import Slow
from benches.shared._measure import options_of, print_table
from tartan.plan.from_run import OtherRun, measure_run
from tartan.run.session import folder_grid

TIMES = 4
SLOTS = 105


def run(n: int, folder: Path, pair_seconds: float, slots: int) -> Any:
    """Compare n items."""
    device = f"sim:compare={pair_seconds * 1e9:.0f}ns,preprocess={20 * pair_seconds * 1e9:.0f}ns"
    return tartan.allpairs(
        Slow(parse_seconds=40 * pair_seconds),
        list(range(n)),
        out=folder,
        device=device,
        host_cache=f"{slots}items",
        device_cache=f"{slots}items",
        workers=2,
    )


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Measure, print a table, return the numbers."""
    words = options_of(arguments, n=125, seconds=30.0)
    n, large = words.n, TIMES * words.n
    pair_seconds = words.seconds / (large * (large - 1) / 2)
    with tempfile.TemporaryDirectory() as folder:
        small = run(n, Path(folder) / "small", pair_seconds, SLOTS)
        known = measure_run("small", folder_grid(small.folder), small.folder.pairs.workload, small.n_pairs, small.stats)
        predicted = known.predict(OtherRun(n_items=large))
        done = run(large, Path(folder) / "large", pair_seconds, SLOTS).stats
    seconds = done["wall_seconds"]
    rows: list[list[object]] = [
        ["loads", predicted.loads, done["loads"], float(predicted.loads / done["loads"]), "= 1"],
        ["time, s", float(predicted.seconds), float(seconds), float(predicted.seconds / seconds), "0.95 to 1.05"],
        ["of it beyond the replay, as in the small run", known.rest_seconds, "", "", ""],
    ]
    title = f"{large} items on the simulated device, predicted from a run of {n}"
    print_table(title, rows, ("what", "predicted", "done", "ratio", "bar"))
    return {f"{what}, {name}": value for what, *values, _ in rows
            for name, value in zip(("predicted", "done", "ratio"), values)}  # fmt: skip


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
