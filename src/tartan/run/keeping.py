"""Watches what a run keeps that keeps what is beyond a threshold: it is stopped before it fills the disk."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tartan.application import output_dtypes
from tartan.base.bounds import round_bound
from tartan.base.files import arrow_file
from tartan.base.format import format_bytes
from tartan.core.pairs.kept import KeptForecast, KeptLimits, KeptSoFar, sample_groups
from tartan.core.pairs.ledger import DONE, NOT_COMPUTED
from tartan.core.pairs.shares import Chunk
from tartan.errors import ResourceError
from tartan.run.probing import ItemFacts, ask, load_one
from tartan.run.rank import open_rank
from tartan.run.request import Request
from tartan.runtime.items import ItemFailure
from tartan.runtime.tasks import score_groups
from tartan.store.dense import plain_bytes
from tartan.store.folder import RunFolder
from tartan.workers.executor import Completed

# By arithmetic: RESOLVED (10) of 8,128 pairs are 0.12 %.
MOST_SAMPLED = 128
"""Items of pairs that are compared in a doubtful run: 8,128 pairs tell shares of 0.1 %."""
# By arithmetic: RESOLVED (10) of 3,276 triples are 0.3 %; as 128 would be 341,376 triples.
MOST_SAMPLED_TRIPLES = 28
"""The same of triples: 3,276 of them tell shares of 0.3 %."""
# By judgement: memory beside the caches, as BAND_BYTES. No benchmark.
SAMPLE_BYTES = 256 * 2**20
# By judgement: as LONGEST_SECONDS of mirroring.
SAMPLE_SECONDS = 20.0
"""What that may take; the other work of the run waits for it, once."""

# By format: two int64.
INDEX_BYTES = 16
"""Of the two items of a kept row; three have more, which only makes a run look smaller."""

Scores = NDArray[np.float64]


class KeptWatch:
    """Looks now and then at what a run has kept, and refuses to go on where it will be too much.

    Parameters
    ----------
    folder : RunFolder
    limits : KeptLimits
    sample : callable
        Returns scores of pairs from all over the run.
    free_bytes : callable
        Returns what is free on the disk of a path.
    """

    def __init__(
        self,
        folder: RunFolder,
        limits: KeptLimits,
        sample: Callable[[], Scores],
        free_bytes: Callable[[Path], int],
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._sample = sample
        self._free_bytes = free_bytes
        self._scores: Scores | None = None
        self._looked_at: set[Chunk] = set()
        self._kept = KeptSoFar()
        self._n_ended = self._due = 0

    def add(self, n_pairs: int) -> None:
        """Count pairs that ended; look when there are as many as a chunk has, and a quarter more than last time.

        Raises
        ------
        ResourceError
            If the run would keep too much.
        """
        self._n_ended += n_pairs
        if self._n_ended < self._due:
            return
        kept = self._count_kept()
        self._due = self._n_ended + max(self._folder.manifest.chunk**2, kept.n_pairs // 4)
        free = self._free_bytes(self._folder.path)
        if not self._limits.is_doubtful(kept, free):
            return
        if self._scores is None:
            self._scores = self._sample()
        forecast = self._limits.judge(kept, free, self._scores)
        if forecast is not None:
            raise _refusal(self._folder, self._limits, forecast, free)

    def _count_kept(self) -> KeptSoFar:
        """Return what is kept; chunks are looked at until nothing more of them follows."""
        unfinished = KeptSoFar()
        for chunk in self._folder.committed():
            if chunk in self._looked_at:
                continue
            counts = self._folder.counts([chunk])
            found = KeptSoFar(int(counts[DONE:].sum())) + _part(self._folder, chunk)
            if counts[NOT_COMPUTED]:
                unfinished += found
            else:
                self._looked_at.add(chunk)
                self._kept += found
        return self._kept + unfinished


def make_watch(
    folder: RunFolder, asked: Request, facts: Callable[[], ItemFacts], free_bytes: Callable[[Path], int]
) -> KeptWatch | None:
    """Return what watches a run; None where it cannot keep too much, or the user wants all that it keeps."""
    rule, wanted, outputs = folder.manifest.reduce, folder.wanted, folder.manifest.outputs
    if rule is None or rule["kind"] != "threshold" or asked.options.keep_all:
        return None
    output = str(rule.get("output") or next(iter(outputs)))
    matrix_bytes = plain_bytes(replace(folder.manifest, reduce=None), folder.manifest.n_items, whole_numbers=True)
    limits = KeptLimits(
        wanted.n_scores,
        round_bound(rule["threshold"], outputs[output]),
        bool(rule.get("largest")),
        matrix_bytes if matrix_bytes and folder.manifest.arity == 2 else None,
        2 if wanted.both_ways and not wanted.counted_twice else 1,
    )
    row_bytes = INDEX_BYTES + sum(dtype.itemsize for dtype in outputs.values())
    if limits.always_fits(row_bytes, free_bytes(folder.path)):
        return None
    return KeptWatch(folder, limits, lambda: _sample(folder, asked, facts(), output), free_bytes)


def _sample(folder: RunFolder, asked: Request, facts: ItemFacts, output: str) -> Scores:
    """Return scores of pairs or triples from all over the run, compared on a worker; NaN where that fails."""
    arity, deadline = folder.manifest.arity, time.monotonic() + SAMPLE_SECONDS
    most = MOST_SAMPLED if arity == 2 else MOST_SAMPLED_TRIPLES
    most = max(2 * arity, min(most, int(SAMPLE_BYTES // max(1.0, facts.item_bytes))))
    groups = sample_groups(folder.wanted.workload, most, arity)
    options = replace(asked.options, workers=1, device=("cpu",))
    with open_rank(asked.app, options) as rank:
        items, bad = {}, set()
        for index in sorted({index for group in groups for index in group}):
            if time.monotonic() > deadline:
                break
            probe = load_one(asked.source, rank.executor, index, options)
            if isinstance(probe, ItemFailure):
                bad.add(index)
            else:
                items[index] = probe.item
        tried = [group for group in groups if all(index in items or index in bad for index in group)]
        dtypes = {name: dtype.str for name, dtype in output_dtypes(asked.app).items()}
        left = max(1.0, deadline - time.monotonic())
        args = (items, tried, facts.form is not None, dtypes, output, left)
        outcome = ask(rank.executor, score_groups, *args, timeout=2 * left)
    return np.array(outcome.value if isinstance(outcome, Completed) else [], np.float64)


def _part(folder: RunFolder, chunk: Chunk) -> KeptSoFar:
    """Return what the part of a chunk has; nothing where it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder.part_of(chunk)
    with contextlib.suppress(OSError, pa.ArrowInvalid), arrow_file(path) as file:
        return KeptSoFar(0, int(pq.read_metadata(file).num_rows), path.stat().st_size)
    return KeptSoFar()


def _refusal(folder: RunFolder, limits: KeptLimits, forecast: KeptForecast, free: int) -> ResourceError:
    rule, unit = folder.manifest.reduce or {}, "pairs" if folder.manifest.arity == 2 else "triples"
    beside = (
        "" if limits.matrix_bytes is None else f", and the whole matrix takes up to {format_bytes(limits.matrix_bytes)}"
    )
    return ResourceError(
        f"--threshold {rule['threshold']:g} keeps about {_format_percent(forecast.share)} of "
        f"{limits.n_pairs:,} {unit}, "
        f"{forecast.n_rows:,} scores: {format_bytes(forecast.n_bytes)} on disk, where {format_bytes(free)} are free on "
        f"the file system of {folder.path}{beside}. {_ways_out(limits, forecast, free)}. What is done is kept",
        code="keeps-too-much",
        context={
            "option": "--threshold",
            "n_rows": forecast.n_rows,
            "needed_bytes": forecast.n_bytes,
            "free_bytes": free,
            "matrix_bytes": limits.matrix_bytes,
            "threshold": forecast.bound,
        },
    )


def _ways_out(limits: KeptLimits, forecast: KeptForecast, free: int) -> str:
    ways = ["In a folder of its own, --top-k K keeps the best of each item"]
    if forecast.bound is not None and forecast.bound_share is not None:
        ways.append(f"--threshold {forecast.bound:g} about {_format_percent(forecast.bound_share)}")
    if limits.matrix_bytes is not None and limits.matrix_bytes <= free:
        ways.append("a run without --threshold the whole matrix")
    return f"{', '.join(ways)}; the same command with --keep-all (keep_all=True) keeps all that is beyond the threshold"


def _format_percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
