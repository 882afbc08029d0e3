"""Statistics of a run: what all its executions and writers did, added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tartan.base.format import format_bytes
from tartan.core.pairs.bound import workload_bound
from tartan.core.pairs.triples import triples_bound
from tartan.core.ranks.placement import STORAGE_RANKS
from tartan.store.folder import RunFolder

COUNTS = (
    "loads",
    "parses",
    "disk_hits",
    "host_hits",
    "uploads",
    "pairs_computed",
    "bytes_between_ranks",
    "wall_seconds",
)
"""What an execution counts."""
DEVICE_SECONDS = "device_seconds"
"""Entry of the statistics: where the time of what compares went, by cause."""
RANK = "rank"
"""Entry of the statistics of one of several ranks: its name."""
RANK_TIMES = "rank_times"
"""Entry of the statistics of a run on several ranks: what each did in its last execution."""
ITEMS_PER_STAGE = "items_per_stage"
"""Entry of the statistics: how many items were parsed and preprocessed beside the data, and with those that compute."""
_PARTS = ("bytes_per_level", "seconds_per_stage", DEVICE_SECONDS)
_LARGEST = ("host_slots", "host_peak", "result_buffer_bytes")
STOPPED = "stopped"
"""Entry of the statistics: why the last execution ended before the run did."""
_BOUND = "largest_bound"
_OF_RANKS = ("steals", "ranks_lost")


def statistics_of(folder: RunFolder) -> dict[str, Any]:
    """Return the statistics of a run, with what several writers have done and no later execution has added up yet."""
    stats = folder.stats
    for one in folder.writers_stats().values():
        stats = _sum(folder, stats, one)
    return stats


def bound_loads(folder: RunFolder, slots: int) -> float:
    """Return R_min."""
    if folder.cubes is None:
        return workload_bound(folder.pairs.workload, slots)
    return triples_bound(folder.manifest.n_items, slots) / folder.manifest.n_items


def _sum(folder: RunFolder, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Add the statistics of two writers; seconds are those of all processes."""
    n = folder.manifest.n_items
    counts = {name: one.get(name, 0) + other.get(name, 0) for name in (*COUNTS, "executions")}
    largest = {name: max(one.get(name, 0), other.get(name, 0)) for name in _LARGEST}
    stopped = other.get(STOPPED) or one.get(STOPPED)
    measured = [(each.get("wall_seconds", 0), each.get("system_efficiency") or 0) for each in (one, other)]
    return {
        **counts,
        "n_items": n,
        "load_factor": counts["loads"] / n,
        "load_factor_bound": bound_loads(folder, max(2, largest["host_slots"])),
        **largest,
        **sum_screened(one, other),
        **_sum_of_ranks(one, other, counts["parses"] / n),
        **({STOPPED: stopped} if stopped else {}),
        "sizing": one.get("sizing") or other.get("sizing"),
        "energy": _one_energy([each["energy"] for each in (one, other) if each.get("energy")]),
        **{name: _sum_by_key(one.get(name) or {}, other.get(name) or {}) for name in _PARTS},
        **_sum_stages(one, other),
        "system_efficiency": sum(seconds * share for seconds, share in measured)
        / max(sum(seconds for seconds, _ in measured), 1e-9),
    }


def _one_energy(known: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the energy of the only process; of several none is known, as each reads the counters of a machine."""
    if len(known) < 2:
        return known[0] if known else None
    return {"joules": 0.0, "pairs": 0, "unknown": "several processes computed it, and counters are those of machines"}


def joules_per_million(stats: dict[str, Any]) -> float | None:
    """Return the joules that a million pairs took, None where they are not known."""
    energy = stats.get("energy") or {}
    return 1e6 * energy["joules"] / energy["pairs"] if energy.get("pairs") and energy.get("joules") else None


def sum_screened(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Add the pairs that each stage of a screen decided, take the larger bound; empty where nothing was screened."""
    found = [said for said in (one.get("screened"), other.get("screened")) if said]
    if not found:
        return {}
    bound = max(said.get(_BOUND, 0.0) for said in found)
    return {"screened": {**_sum_by_key(found[0], found[1] if found[1:] else {}), _BOUND: bound}}


def _sum_stages(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Add the items that each stage had at each place; empty where nobody counted them."""
    found = _sum_by_key(one.get(ITEMS_PER_STAGE) or {}, other.get(ITEMS_PER_STAGE) or {})
    return {ITEMS_PER_STAGE: found} if found else {}


def describe_stages(stats: Mapping[str, Any]) -> str | None:
    """Say where each stage ran, and what ranks beside the data sent; None where there were none."""
    sent = (stats.get("bytes_per_level") or {}).get(STORAGE_RANKS, 0)
    if not sent:
        return None
    places = {"storage": "beside the data", "compute": "where pairs are computed"}
    counts, said = stats.get(ITEMS_PER_STAGE) or {}, []
    for stage in ("parse", "preprocess"):
        by = {place: int(counts.get(f"{place}:{stage}", 0)) for place in places}
        shown = [f"{where} ({by[place]:,})" for place, where in places.items() if by[place]]
        if shown:
            said.append(f"{stage} {' and '.join(shown)}")
    return "; ".join([*said, f"{format_bytes(sent)} from storage ranks"])


def _sum_of_ranks(one: dict[str, Any], other: dict[str, Any], storage_load_factor: float) -> dict[str, Any]:
    """Add what only the driver of several ranks writes; nothing where there was none."""
    n_ranks = max(one.get("n_ranks", 0), other.get("n_ranks", 0))
    if not n_ranks:
        return {}
    counts = {name: one.get(name, 0) + other.get(name, 0) for name in _OF_RANKS}
    return {"n_ranks": n_ranks, "storage_load_factor": storage_load_factor, **counts}


def _sum_by_key(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
