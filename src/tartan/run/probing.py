"""What a few items of a run show: their form and size, what a load and a pair cost.

One of them later takes the place of items that fail.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tartan.application import Application, compares_pairs, output_dtypes
from tartan.base.entries import ENTRY
from tartan.base.machine import memory
from tartan.base.signals import wait_for
from tartan.core.pairs.sizing import COSTLY_CALL_SECONDS, Costs
from tartan.core.pairs.verdict import HOPELESS_DEATHS, Look
from tartan.devices.protocol import Device
from tartan.errors import ConfigError, RunCancelledError, RunFailedError, TartanError
from tartan.options import RunOptions
from tartan.runtime.items import ItemFailure, ItemForm, takes_rows
from tartan.runtime.tasks import Probe, ProbedCost, probe_compare, probe_item, probe_rows, try_cell
from tartan.sources.items import Source, payload_of
from tartan.sources.rows.entries import give_whole_rows
from tartan.store.manifest import Manifest
from tartan.workers.executor import Cancelled, Completed, Died, Executor, Outcome, Raised, TimedOut

# PROBES and MOST_PROBES, by judgement: three items tell that sizes differ, spread over the run; up to 16 are tried
# where some cannot be read. Each costs a load. No benchmark.
PROBES = 3
MOST_PROBES = 16
# SLOW_PAIR_SECONDS and SLOW_FIRST_SECONDS, by judgement: 10 ms a pair make 10**6 pairs, a tile of LARGEST_TILE, three
# hours in one call; a first call alone may have loaded a model, so it counts from a second. No benchmark.
SLOW_PAIR_SECONDS = 0.01
SLOW_FIRST_SECONDS = 1.0
# By judgement: a tile of DEFAULT_SIDE has 4,096 triples, 4 s at this cost, which LONGEST_SECONDS then cuts. No
# benchmark.
SLOW_TRIPLE_SECONDS = 1e-3
# By judgement: a hundredth of the pairs is below what times of runs vary by. No benchmark.
PROBE_SHARE = 0.01
# By arithmetic: six are a twentieth of 120.
LEAST_PROBED = 6
"""Pairs that are compared to learn what one costs, where a run has 120 or more: two calls of one pair, one of four."""

# By judgement: as LONGEST_SECONDS of mirroring.
LOOK_SECONDS = 20.0
"""What trying pairs from all over a run may take: its other work waits for that, once."""


@dataclass(frozen=True)
class ItemFacts:
    """What a few items of a run show.

    Attributes
    ----------
    form, parsed : ItemForm or None
        Of ready and of parsed items; None when items differ in size or are not arrays.
    item_bytes : float
        Mean size of a ready item.
    largest_bytes : int
    substitute : object
        A good ready item.
    parsed_substitute : object
        The same, parsed.
    costs : Costs
        Of a new run; what fixes its grid.
    item_seconds : float
        Time to parse and preprocess an item.
    stage_seconds : tuple of float
        Of parse and of preprocess, each the least: a first call may load modules.
    compact : bool
        Whether ``form`` is that of ``Application.compact_form``; the substitute is a parsed item then.
    """

    form: ItemForm | None
    parsed: ItemForm | None
    item_bytes: float
    largest_bytes: int
    substitute: Any
    parsed_substitute: Any
    costs: Costs
    item_seconds: float
    compact: bool = False
    stage_seconds: tuple[float, float] = (0.0, 0.0)

    def make_compact(self, app: Application, devices: Sequence[Device]) -> ItemFacts:
        """Return the facts of items in their compact form, where all devices can have it."""
        if self.form is None or self.parsed is None or any(device.shares_host_memory for device in devices):
            return self
        found = [app.compact_form(self.form.dtype, self.form.shape, device.xp) for device in devices]
        forms = {None if one is None else ItemForm(np.dtype(one[0]), tuple(one[1])) for one in found}
        form = forms.pop()
        if forms or form is None or self.parsed.nbytes > form.nbytes:
            return self
        return replace(self, form=form, item_bytes=form.nbytes, substitute=self.parsed_substitute, compact=True)


def form_in(manifest: Manifest) -> ItemForm | None:
    """Return the form that the items of a run have; None where each has its own."""
    item = manifest.application["item"]
    return None if item is None else ItemForm(np.dtype(item["dtype"]), tuple(item["shape"]))


def mismatch(manifest: Manifest | None, probe: Probe) -> str | None:
    """Say why an item does not belong to a run that exists, or None."""
    form = None if manifest is None else form_in(manifest)
    if form is None or probe.ready == form or _is_longer(form, probe):
        return None
    return f"it is {probe.ready}, where the items of this run are {form}"


def _is_longer(form: ItemForm, probe: Probe) -> bool:
    """Whether items differ from a form in their length alone, and are entries, of which a row may have any number."""
    ready, parsed = probe.ready, probe.parsed
    entries = parsed is not None and parsed.dtype == ENTRY
    return entries and ready is not None and ready.dtype == form.dtype and len(ready.shape) == len(form.shape) == 1


def ask(executor: Executor, function: Callable[..., Any], *args: Any, timeout: float | None = None) -> Outcome:
    """Run one function on a worker and wait for it; a timeout of None or 0 seconds is none."""
    ended = threading.Event()
    outcomes: list[Outcome] = []

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        ended.set()

    executor.submit(function, args, done, timeout_seconds=timeout or None)
    wait_for(ended)
    return outcomes[0]


def learn(
    app: Application,
    source: Source,
    executor: Executor,
    options: RunOptions,
    n_pairs: int | None,
    manifest: Manifest | None = None,
) -> ItemFacts:
    """Load a few items and compare one with itself.

    Parameters
    ----------
    n_pairs : int or None
        Pairs of the run: at most a hundredth as many, and at least one, are compared to learn what a pair costs. None:
        no pair is compared.
    manifest : Manifest, optional
        Of a run that exists: its items keep their form, whatever new ones look like.

    Raises
    ------
    RunFailedError
        If none of the first items can be loaded.
    """
    probes = _probe_rows(app, source, executor, manifest) or _probe_items(app, source, executor, options, manifest)
    form, parsed = _common_form(app, probes, manifest)
    costs = Costs()
    if manifest is None and n_pairs is not None:
        costs = _costs(app, executor, _smallest(probes), form is not None, options, n_pairs)
    mean_bytes, largest_bytes = _sizes(probes, source if form is None else None)
    return ItemFacts(
        form,
        parsed,
        mean_bytes,
        largest_bytes,
        _smallest(probes).item,
        _smallest(probes).parsed_item,
        costs,
        float(np.mean([p.parse_seconds + p.preprocess_seconds for p in probes])),
        stage_seconds=(min(p.parse_seconds for p in probes), min(p.preprocess_seconds for p in probes)),
    )


def _probe_rows(app: Application, source: Source, executor: Executor, manifest: Manifest | None) -> list[Probe]:
    """Look at the first rows of an array that goes to the application a block at a time."""
    if source.kind != "array" or not takes_rows(app) or app.ragged:
        return []
    for start in range(0, min(source.n_items, 4096), 64):
        stop = min(source.n_items, start + 64)
        try:
            rows = np.array(source.read_block(start, stop))
        except TartanError:
            continue  # a part of it is damaged; others may do
        found = _value(ask(executor, probe_rows, source.keys[start:stop], rows))
        if isinstance(found, Probe) and mismatch(manifest, found) is None:
            return [found]
        if isinstance(found, Probe) and give_whole_rows(source):
            return _probe_rows(app, source, executor, manifest)  # a run of before there were entries
    return []


def _probe_items(
    app: Application, source: Source, executor: Executor, options: RunOptions, manifest: Manifest | None
) -> list[Probe]:
    wanted = 1 if app.ragged is False or (manifest is not None and form_in(manifest) is not None) else PROBES
    probes: list[Probe] = []
    failures: list[ItemFailure] = []
    for index in spread(source.n_items, MOST_PROBES):
        found = load_one(source, executor, index, options)
        if isinstance(found, ItemFailure):
            failures.append(found)
        elif (why := mismatch(manifest, found)) is not None:
            failures.append(ItemFailure("preprocess", f"{source.keys[index]}: {why}"))
        else:
            probes = _with_smallest([*probes, found._replace(position=index)])
        if len(probes) == min(wanted, source.n_items):
            break
    if not probes:
        first = failures[0]
        raise RunFailedError(
            f"none of the {len(failures)} items that were tried can be loaded; first: {first.reason}",
            code="no-good-item",
            context={"traceback": first.traceback, "reason": first.reason},
        )
    return probes


def _with_smallest(probes: list[Probe]) -> list[Probe]:
    """Keep only the smallest of the items that were loaded, as the substitute: others may be large."""
    smallest = _smallest(probes)
    return [probe if probe is smallest else probe._replace(item=None, parsed_item=None) for probe in probes]


def _smallest(probes: Sequence[Probe]) -> Probe:
    return min(probes, key=lambda probe: probe.n_bytes)


def _sizes(probes: Sequence[Probe], source: Source | None) -> tuple[float, int]:
    """Return the mean and the largest size of items; of files of unequal size, as their lengths make expect."""
    known = np.array([probe.n_bytes for probe in probes], np.float64)
    stamps = None if source is None else source.fingerprints()
    if stamps is not None:
        lengths = np.maximum(stamps[0], 0).astype(np.float64)
        # A file beyond all memory fails when it is read: nothing is planned for it.
        lengths[lengths > memory().total_bytes] = 0
        looked_at = lengths[[probe.position for probe in probes]].sum()
        if looked_at > 0:
            growth = known.sum() / looked_at
            return float(growth * lengths.mean()), int(max(known.max(), growth * lengths.max()))
    return float(known.mean()), int(known.max())


def spread(n: int, most: int) -> list[int]:
    """Return up to ``most`` indices, far apart and the ends first."""
    return list(dict.fromkeys([0, n - 1, n // 2, *np.linspace(0, n - 1, min(n, most)).astype(int).tolist()]))


def load_one(source: Source, executor: Executor, index: int, options: RunOptions) -> Probe | ItemFailure:
    """Load one item on a worker to see what it is; wait for it."""
    key = source.keys[index]
    try:
        payload = payload_of(source, index, files=executor.in_processes)
    except Exception as error:
        return ItemFailure("read", str(error))
    outcome = ask(executor, probe_item, key, payload, timeout=options.tile_timeout)
    if isinstance(outcome, Died):
        return ItemFailure("parse", f"{key}: the worker ended ({outcome.how}) while it was parsed", outcome.traceback)
    if isinstance(outcome, TimedOut):
        return ItemFailure("parse", f"{key}: it took more than {outcome.seconds:g} s to parse")
    value = _value(outcome)
    assert isinstance(value, Probe | ItemFailure)
    return value


def try_some(
    app: Application, source: Source, executor: Executor, options: RunOptions, *, arity: int, uniform: bool
) -> Look:
    """Try pairs, or triples, of items that lie far apart, until one succeeds.

    Up to 16 items are loaded: where half of all items are bad, two good ones are among them in 9,997 of 10,000 runs.
    """
    deadline = time.monotonic() + LOOK_SECONDS
    items = [load_one(source, executor, index, options) for index in spread(source.n_items, MOST_PROBES)]
    good = [item.item for item in items if isinstance(item, Probe)]
    dtypes = {name: dtype.str for name, dtype in output_dtypes(app).items()}
    n_tried = n_deaths = 0
    for group in itertools.combinations(good, arity):
        left = deadline - time.monotonic()
        if left <= 0 or n_deaths == HOPELESS_DEATHS:
            break
        seconds = min(left, options.tile_timeout or left)
        outcome = ask(executor, try_cell, group, uniform, dtypes, timeout=seconds)
        n_tried, n_deaths = n_tried + 1, n_deaths + isinstance(outcome, Died)
        if isinstance(outcome, Completed) and outcome.value:
            return Look(n_tried, 1)
    return Look(n_tried, 0)


def _value(outcome: Outcome) -> Any:
    if isinstance(outcome, Completed):
        return outcome.value
    if isinstance(outcome, Raised):
        raise outcome.error
    if isinstance(outcome, Cancelled):
        raise RunCancelledError("the run was stopped before it began")
    return ItemFailure("parse", str(outcome))


def _common_form(
    app: Application, probes: Sequence[Probe], manifest: Manifest | None
) -> tuple[ItemForm | None, ItemForm | None]:
    """Return the form that all items have, ready and parsed, if they have one."""
    if app.ragged if manifest is None else form_in(manifest) is None:
        return None, None
    forms = {probe.ready for probe in probes}
    if None in forms or probes[0].ready is None or probes[0].ready.dtype.hasobject:
        if app.ragged is False:
            raise ConfigError(f"{type(app).__name__} declares ragged = False, but its items are not plain arrays")
        return None, None
    if len(forms) > 1:
        if app.ragged is False:
            first, second = list(forms)[:2]
            raise ConfigError(f"items differ ({first} and {second}); bring them to one size")
        return None, None
    parsed = {probe.parsed for probe in probes}
    return probes[0].ready, probes[0].parsed if len(parsed) == 1 else None


def _costs(
    app: Application, executor: Executor, probe: Probe, uniform: bool, options: RunOptions, n_pairs: int
) -> Costs:
    """Measure what a pair costs, for the size of tiles.

    The shapes of tiles decide the last bits of scores, so two runs of the same input must choose the same: of
    applications that take a tile at a time only the order of magnitude of very slow pairs counts.
    """
    dtypes = {name: dtype.str for name, dtype in output_dtypes(app).items()}
    least = 1 if compares_pairs(app) or n_pairs < 20 * LEAST_PROBED else LEAST_PROBED
    most = max(least, int(n_pairs * PROBE_SHARE))
    timeout = options.tile_timeout
    outcome = ask(executor, probe_compare, probe.item, uniform, dtypes, 2, most, timeout=timeout)
    found = outcome.value if isinstance(outcome, Completed) else ProbedCost(0.0, 0)
    if compares_pairs(app):
        seconds = found.seconds
        return Costs(compare_seconds=2.0 ** round(np.log2(seconds)) if seconds > 1e-6 else 0.0)
    return measure_costs(found)


def triple_seconds(app: Application, n_items: int, facts: ItemFacts, executor: Executor, options: RunOptions) -> float:
    """Measure what a triple costs, where it costs much: the same input shall be cut the same way each time."""
    dtypes = {name: dtype.str for name, dtype in output_dtypes(app).items()}
    most = max(1, int(n_items**3 * PROBE_SHARE / 6))
    args = (facts.substitute, facts.form is not None, dtypes, 3, most)
    outcome = ask(executor, probe_compare, *args, timeout=options.tile_timeout)
    found = outcome.value if isinstance(outcome, Completed) else None
    if not isinstance(found, ProbedCost) or found.seconds < SLOW_TRIPLE_SECONDS or found.n_compared < 2:
        return 0.0
    power = 10.0
    while power > found.seconds:
        power /= 10
    return power


def measure_costs(found: ProbedCost) -> Costs:
    """Return what cuts a run: the order of magnitude of slow pairs and of costly calls, nothing of others."""
    # One call says little: it is the first.
    slow = SLOW_PAIR_SECONDS if found.n_compared > 1 else SLOW_FIRST_SECONDS
    costs = Costs(compare_seconds=10.0 ** round(np.log10(found.seconds)) if found.seconds > slow else 0.0)
    if found.call_seconds < COSTLY_CALL_SECONDS:
        return costs
    return replace(costs, tile_seconds=10.0 ** round(np.log10(found.call_seconds)))
