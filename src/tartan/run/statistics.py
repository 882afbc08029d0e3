"""Statistics of a run: what one execution did, added to what earlier ones did."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tartan.base.energy import EnergyMeter
from tartan.core.replay.model import StageTimes, system_efficiency
from tartan.errors import DiskFullError, TartanError
from tartan.result.statistics import (
    COUNTS,
    DEVICE_SECONDS,
    ITEMS_PER_STAGE,
    RANK,
    STOPPED,
    bound_loads,
    statistics_of,
    sum_screened,
)
from tartan.store.folder import RunFolder

if TYPE_CHECKING:  # what only shows a run imports nothing that computes one
    from tartan.core.pairs.setup import NodePlan
    from tartan.runtime.execution import NodeStats

_FIRST = ("costs", "tile_side")


class Statistics:
    """Writes what all executions of a run did, those before this one included.

    Parameters
    ----------
    folder : RunFolder
        Locked for writing.
    plan : NodePlan
    n_workers : int
        Workers that compare where a device has no memory of its own.
    sizing : mapping
        What a prediction of another run must know, as plain values.
    meter : EnergyMeter, optional
        Default: that of this machine, from now on.
    rank : str
        Name of the rank that this is one of several.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: NodePlan,
        n_workers: int,
        sizing: Mapping[str, Any],
        meter: EnergyMeter | None = None,
        rank: str = "",
    ) -> None:
        self._folder = folder
        self._meter = EnergyMeter() if meter is None else meter
        self._stopped = ""
        self._rank = {RANK: rank} if rank else {}
        self._sizing = dict(sizing)
        self._plan = plan
        self._lanes = sum(1 if room is not None else n_workers for room in plan.device_rooms)
        self._before: dict[str, Any] = {}
        if not folder.is_shared:  # one of several writers counts what it does itself
            with contextlib.suppress(TartanError):  # damaged: what earlier executions did is lost
                self._before = folder.stats

    @contextlib.contextmanager
    def note_why(self) -> Iterator[None]:
        """Let the statistics that are written afterwards say why what is done meanwhile stopped."""
        try:
            yield
        except BaseException as error:
            self._stopped = why_stopped(error)
            raise

    def write(self, new: NodeStats) -> None:
        """Write what this execution did so far, added to what earlier ones did; a full disk stops no run."""
        with contextlib.suppress(TartanError):
            self._folder.write_stats(self._add(new))

    def _add(self, new: NodeStats) -> dict[str, Any]:
        before, n = self._before, self._folder.manifest.n_items
        counts = {name: before.get(name, 0) + getattr(new, name) for name in COUNTS}
        seconds = self._total("seconds_per_stage", new)
        slots = max(self._plan.slots, before.get("host_slots", 0))
        times = _stage_times(counts, seconds, self._plan)
        measured = max(counts["wall_seconds"], 1e-9)
        return {
            **counts,
            "n_items": n,
            "load_factor": counts["loads"] / n,
            # Of the largest room that any execution had: with less, more loads would be needed.
            "load_factor_bound": bound_loads(self._folder, slots),
            "host_slots": slots,
            "host_peak": new.host_peak,
            "result_buffer_bytes": new.result_buffer_bytes,
            "bytes_per_level": self._total("bytes_per_level", new),
            "seconds_per_stage": seconds,
            **({ITEMS_PER_STAGE: per_stage} if (per_stage := self._total(ITEMS_PER_STAGE, new)) else {}),
            DEVICE_SECONDS: self._total(DEVICE_SECONDS, new),
            **self._rank,
            **sum_screened(before, {"screened": new.screened}),
            "system_efficiency": system_efficiency(n, counts["pairs_computed"], times, measured, self._lanes),
            "executions": before.get("executions", 0) + 1,
            "energy": add_energy(before.get("energy") or {}, self._meter, new.pairs_computed),
            # What a pair costs was measured before the first execution only.
            "sizing": {**self._sizing, **{k: v for k, v in (before.get("sizing") or {}).items() if k in _FIRST}},
            **({STOPPED: self._stopped} if self._stopped else {}),
        }

    def _total(self, name: str, new: NodeStats) -> dict[str, Any]:
        old = self._before.get(name) or {}
        return {key: old.get(key, 0) + value for key, value in getattr(new, name).items()}


def add_energy(before: Mapping[str, Any], meter: EnergyMeter, n_pairs: int) -> dict[str, Any]:
    """Return joules and the pairs that they were for, of all executions that could be measured, or why one could not.

    Parameters
    ----------
    before : mapping
        What this returned for earlier executions.
    meter : EnergyMeter
    n_pairs : int
        Computed since the meter was made.
    """
    joules = meter.joules()
    measured = (0.0, 0) if joules is None else (joules, n_pairs)
    return {
        "joules": before.get("joules", 0.0) + measured[0],
        "pairs": before.get("pairs", 0) + measured[1],
        **({"unknown": meter.problem} if meter.problem else {}),
    }


def why_stopped(error: BaseException) -> str:
    """Return why an execution ended before its end, for ``tartan info`` and the report."""
    if isinstance(error, TartanError):
        return str(error)
    return "it was interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"


def collect_statistics(folder: RunFolder) -> None:
    """Add up what several writers did; the caller holds the folder alone."""
    done = folder.writers_stats()
    if not done:
        return
    try:
        folder.write_stats(statistics_of(folder), counted=done)
    except DiskFullError:
        return  # they stay until there is room
    except TartanError:  # damaged: what earlier executions did is lost
        pass
    folder.forget_writers_stats(done)


def _stage_times(counts: dict[str, Any], seconds: dict[str, Any], plan: NodePlan) -> StageTimes:
    """Return what an item and a pair cost on what compares: a device with memory of its own parses nothing."""
    on_host = any(room is None for room in plan.device_rooms)
    item_seconds = seconds["preprocess"] if on_host or plan.prepare_on_device else 0.0
    item_seconds += seconds["parse"] if on_host else 0.0
    return StageTimes(
        preprocess=item_seconds / max(1, counts["parses"]),
        compare=seconds["compare"] / max(1, counts["pairs_computed"]),
    )
