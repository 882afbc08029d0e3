"""Replays of block tasks: traffic of the Unicorn paper, "auto" against its best, bounds, scheduling, throttled links.

All in virtual time but the seconds of scheduling, which are processor time. Words: ``seeds=20``, ``only=`` with some of
``paper,auto,nodes,scheduling,subscribing,links,thousand``, ``side=316`` for the grid of the task that is scheduled.

``subscribing`` is all that a session does with a task before its first order: it asks for the subscriptions, refuses
conflicts, looks up what ranks hold, divides, and orders.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import tartan.plan
from benches.shared._measure import options_of, print_table
from tartan.blocks.applications.matmul import Multiply
from tartan.blocks.directory import BlockDirectory
from tartan.blocks.jobs import RunTable
from tartan.blocks.schedule import BlockSchedule, schedule_subtasks
from tartan.blocks.sources import source_of
from tartan.blocks.space import Space
from tartan.blocks.task import Task, refuse_conflicts
from tartan.core.affinity import TaskNeeds
from tartan.core.blocks.assignment import Assignment, assign
from tartan.core.blocks.placement import Place, place_blocks
from tartan.core.blocks.space import BlockGrid, Box
from tartan.core.blocks.subtask_order import PieceOrder
from tartan.core.blocks.task_divider import TaskDivider
from tartan.core.replay.blocks import BlockNetwork, BlockOptions, BlockPrediction, BlockRank, BlockReplay
from tartan.plan import read_plan
from tartan.plan.blocks import BlockPlan, BlockVariant, Computation, predict_blocks

PAPER = ("local", "transfers", "remote")
PLACEMENTS: tuple[Place, ...] = ("random", "row cyclic", "column cyclic", "centralized")
NODES = 8
#: Computation, affinity, share of the bytes of random dealing, as published; half of the width that is allowed.
PUBLISHED = (("convolution", "remote", 1.18 / 36.2), ("product", "transfers", 0.7075), ("LU", "local", 0.624))
WITHIN = 0.05
OBLIVIOUS_GIB = 36.2


def shipped(name: str) -> BlockPlan:
    """Return a plan that comes with Tartan."""
    plan = read_plan(Path(tartan.plan.__file__).with_name(f"{name}.toml"))
    assert isinstance(plan, BlockPlan)
    return plan


def replayed(computation: Computation, nodes: int = NODES, **options: object) -> BlockPrediction:
    """Replay a computation without stealing, on equal nodes."""
    about = BlockOptions(steal=None, **options)  # type: ignore[arg-type]
    return BlockReplay(computation.workload(), [BlockRank(1e12)] * nodes, BlockNetwork(), about).run()


def moved(computation: Computation, seeds: int, **options: object) -> float:
    """Return the bytes moved, mean over seeds."""
    return float(np.mean([replayed(computation, seed=seed, **options).bytes_moved for seed in range(seeds)]))


def paper(plan: BlockPlan, seeds: int) -> list[str]:
    """Compare the traffic of the paper's policies with the paper, on random placement."""
    lines, failed = [], []
    for (name, affinity, share), computation in zip(PUBLISHED, plan.computations, strict=True):
        base = moved(computation, seeds, affinity="none")
        found = moved(computation, seeds, affinity=affinity) / base
        lines.append([name, affinity, f"{base / 2**30:.2f} GiB", f"{found:.3f}", f"{share:.3f}"])
        if abs(found - share) > WITHIN:
            failed.append(f"{name}: {affinity} moves {found:.3f} of random, the paper {share:.3f}")
        if name == "convolution" and abs(base / 2**30 / OBLIVIOUS_GIB - 1) > 0.05:
            failed.append(f"convolution: dealt at random {base / 2**30:.1f} GiB, the paper {OBLIVIOUS_GIB}")
    print_table(f"{NODES} nodes, mean of {seeds} seeds", lines, ["", "affinity", "random", "moved / random", "paper"])
    return failed


def auto(plan: BlockPlan, seeds: int) -> list[str]:
    """Hold "auto" against random dealing, the paper's best and the two-dimensional bound."""
    lines, failed = [], []
    for computation, placement in product(plan.computations, PLACEMENTS):
        if computation.kind == "stencil" and placement != "random":
            continue
        count = min(seeds, 5) if computation.kind == "stencil" else seeds
        base, best, found = (
            moved(computation, count, placement=placement, affinity="none"),
            min(moved(computation, count, placement=placement, affinity=affinity) for affinity in PAPER),
            moved(computation, count, placement=placement, affinity="auto"),
        )
        bounds = [computation.bound(NODES, placement, seed) for seed in range(count)]
        bound = None if computation.kind != "product" else float(np.mean(bounds))  # type: ignore[arg-type]
        ratio = "" if bound is None else f"{found / bound:.3f}"
        lines.append([computation.name, placement, f"{best / base:.3f}", f"{found / base:.3f}", ratio])
        if bound is not None and found > (1.1 if placement == "random" else 1.2) * bound:
            failed.append(f"product, {placement}: {found / bound:.3f} of the bound")
        if computation.kind == "lu" and placement == "random" and found > 0.48 * base:
            failed.append(f"LU: {found / base:.3f} of random")
        if computation.kind == "stencil" and found > 1.02 * best:
            failed.append(f"convolution: {found / best:.3f} of the paper's best")
    print_table(f"auto, {NODES} nodes", lines, ["", "placement", "best of three / random", "auto / random", "/ bound"])
    return failed


def nodes(plan: BlockPlan, seeds: int) -> list[str]:
    """Hold "auto" against random dealing and the paper's best for 2 to 10 nodes on every placement."""
    lines, failed = [], []
    for computation in plan.computations:
        shorter = replace(computation, repeats=min(3, computation.repeats))
        for count in range(2, 11):
            ratios = []
            for placement in PLACEMENTS:
                options = {"nodes": count, "placement": placement, "seed": seeds}
                found = replayed(shorter, affinity="auto", **options).bytes_moved
                best = min(replayed(shorter, affinity=a, **options).bytes_moved for a in PAPER)
                base = replayed(shorter, affinity="none", **options).bytes_moved
                ratios.append(found / best)
                if found > base or found > 1.02 * best:
                    failed.append(f"{computation.name}, {placement}, {count} nodes: {found / best:.3f} of the best")
            lines.append([computation.name, str(count), *(f"{ratio:.3f}" for ratio in ratios)])
    print_table("auto / best of the paper's three", lines, ["", "nodes", *PLACEMENTS])
    return failed


def scheduling(plan: BlockPlan, side: int) -> list[str]:
    """Time the division and the order of a large product and stencil on 16 ranks, and of the paper's product."""
    lines, failed = [], []
    for name, task in (("product", _large_product(side)), ("stencil", _large_stencil(side))):
        seconds = min(busy(partial(assign, task)) for _ in range(3))
        ordering = busy(partial(ordered, task, assign(task)))
        each = [1e6 * value / task.demand.n_pieces for value in (seconds, ordering)]
        lines.append([name, str(task.demand.n_pieces), *(f"{value:.2f}" for value in each)])
        if name == "product" and each[0] > 5:
            failed.append(f"scheduling takes {each[0]:.1f} us a subtask")
    print_table("scheduling, us a subtask, 16 ranks", lines, ["", "subtasks", "divided", "ordered"])
    computation = plan.computations[1]
    replay = predict_blocks(plan, BlockVariant(computation.name, NODES, "random", "auto")).seconds
    workload = computation.workload()
    task = next(workload.tasks())
    about = Assignment(task.demand, workload.count_held("random", NODES), np.ones(NODES), task.index)
    seconds = min(busy(partial(assign, about)) for _ in range(3))
    print(f"  product of the paper: divided in {seconds:.3f} s, {seconds / replay:.1%} of the {replay:.2f} s replayed")
    if seconds > 0.01 * replay:
        failed.append(f"dividing the paper's product takes {seconds / replay:.1%} of its time")
    return failed


def subscribing(plan: BlockPlan, side: int) -> list[str]:
    """Time a product from its subscriptions to the order of subtasks on 16 ranks, both ways of subscribing."""
    lines, failed, found = [], [], []
    for at_once, bar in ((True, 5.0), (False, 25.0)):
        times = []
        for _ in range(3):
            directory = _placed_operands(side)
            start = time.process_time()
            found.append(_scheduled_product(directory, at_once=at_once))
            times.append(1e6 * (time.process_time() - start) / side**2)
        lines.append(["at once" if at_once else "one by one", f"{min(times):.1f}", f"{bar:.0f}"])
        if min(times) > bar:
            failed.append(f"a subtask that subscribes {lines[-1][0]} is scheduled in {min(times):.1f} us")
    if any(schedule != found[0] for schedule in found):
        failed.append("both ways of subscribing do not give the same schedule")
    print_table(f"product of {side**2} subtasks, 16 ranks", lines, ["subscribed", "us a subtask", "bar"])
    return failed


def _placed_operands(side: int, n_ranks: int = 16) -> BlockDirectory:
    """Return two matrices spread over ranks at random, and one of zeros."""
    directory = BlockDirectory()
    grid = BlockGrid((1024 * side, 1024 * side), (1024, 1024))
    source = source_of(None, grid.shape, "f4")
    for number in range(3):
        placed = place_blocks(grid.counts, "random", n_ranks, number).tolist() if number < 2 else None
        directory.add(Space(number, source, grid, _no_values, _no_file, directory), placed)
    return directory


def _scheduled_product(directory: BlockDirectory, *, at_once: bool, n_ranks: int = 16) -> BlockSchedule:
    a, b, c = directory.spaces.values()

    def wants(i: Any, j: Any) -> Any:
        rows, columns = c.block(i, j)
        return a.read[rows, :], b.read[:, columns], c.write[rows, columns]

    task = Task(Multiply(4096, adds=False), c.grid, wants, at_once=at_once, releases_gil=True)
    refuse_conflicts([task])
    jobs = RunTable(1, [(task.table, task.function)], directory.parts_of)
    return schedule_subtasks(jobs, directory, TaskDivider(), range(n_ranks), np.inf)


def _no_values(space: Space, box: Box) -> np.ndarray:
    raise AssertionError("the bench runs nothing")


def _no_file(space: Space, path: str | Path, overwrite: bool) -> None:
    raise AssertionError("the bench runs nothing")


def busy(call: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def ordered(task: Assignment, owners: np.ndarray) -> None:
    """Order the pieces of every rank."""
    order = PieceOrder(task.demand, task.index)
    for rank in range(task.n_ranks):
        order.of(np.flatnonzero(owners == rank), task.missing[rank])


def _large_product(side: int, n_ranks: int = 16) -> Assignment:
    rows, columns = (part.ravel() for part in np.indices((side, side)))
    demand = TaskNeeds(
        np.arange(side**2 + 1) * 2, np.stack([rows, side + columns], axis=1).ravel(), np.full(2 * side, 1.0 * side)
    )
    lies = np.random.default_rng(0).integers(0, n_ranks, (2 * side, side))
    held = np.stack([(lies == rank).sum(axis=1) for rank in range(n_ranks)]).astype(float)
    return Assignment(demand, held, np.ones(n_ranks), np.stack([rows, columns], axis=1))


def _large_stencil(side: int, n_ranks: int = 16) -> Assignment:
    rows, columns = (part.ravel() for part in np.indices((side, side)))
    around = [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)]
    blocks = [np.clip(rows + a, 0, side - 1) * side + np.clip(columns + b, 0, side - 1) for a, b in around]
    units = np.stack([part * side**2 + block for part, block in enumerate(blocks)], axis=1).ravel()
    sizes = np.repeat([1000.0, 15.0, 15.0, 15.0, 15.0], side**2)
    lies = np.tile(np.random.default_rng(0).integers(0, n_ranks, side**2), 5)
    held = (lies == np.arange(n_ranks)[:, None]) * sizes
    return Assignment(
        TaskNeeds(np.arange(side**2 + 1) * 5, units, sizes), held, np.ones(n_ranks), np.stack([rows, columns], axis=1)
    )


def links(plan: BlockPlan, seeds: int) -> list[str]:
    """Throttle links so that a rank of four receives for 0.5 and 0.9 of the time that it computes."""
    lines, failed = [], []
    for blocks, share, placement in product((16, 32, 64), (0.5, 0.9), ("random", "row cyclic", "grid")):
        computation = Computation("product", "product", (blocks, blocks), 64)
        work = 2.0 * 64**3 * blocks
        options = BlockOptions(placement=placement, seed=seeds)
        ranks = [BlockRank(work)] * 4
        whole = blocks**2 / 4
        free = BlockReplay(computation.workload(), ranks, BlockNetwork(), replace(options, steal=None)).run()
        network = BlockNetwork(free.bytes_moved / 4 / (whole * share), latency_seconds=0.0)
        found = BlockReplay(computation.workload(), ranks, network, options).run().seconds / whole
        bound = bound_of_equal_lines(blocks, share)
        lines.append([str(blocks), f"{share}", placement, f"{found:.3f}", f"{bound:.3f}"])
        if found > max(1.1, 1.05 * bound):
            failed.append(f"{blocks} blocks, {share}, {placement}: {found:.3f} of the time to compute")
    head = ["blocks", "transfer / compute", "placement", "time / compute", "bound of equal lines"]
    print_table("product on 4 ranks, throttled links", lines, head)
    return failed


def bound_of_equal_lines(blocks: int, share: float) -> float:
    """Return the least time of a product over that of the work alone, on 4 ranks that hold no whole line of blocks.

    With u lines there a rank can compute at most (u / 2)^2 of its subtasks; lines come in for a share of its work.
    """
    there = np.arange(2, blocks + 1)
    return float((share * there / blocks + 1 - (there // 2) * ((there - 1) // 2) / (blocks**2 / 4)).max())


def thousand(plan: BlockPlan, seeds: int) -> list[str]:
    """Time the replay of a million subtasks on a thousand nodes."""
    large = shipped("thousand")
    start = time.perf_counter()
    row = predict_blocks(large, BlockVariant("product", 1000, "random", "auto"))
    seconds = time.perf_counter() - start
    assert row.bytes_bound is not None
    print(f"a million subtasks on 1,000 nodes: {seconds:.0f} s, {row.bytes_moved / row.bytes_bound:.3f} of the bound")
    return [] if seconds <= 600 else [f"a million subtasks take {seconds:.0f} s"]


def main(words: list[str]) -> int:
    """Replay, print, and hold the bars."""
    chosen = options_of(words, seeds=20, only="paper,auto,nodes,scheduling,subscribing,links,thousand", side=316)
    plan = shipped("unicorn")
    parts = {"paper": paper, "auto": auto, "nodes": nodes, "links": links, "thousand": thousand}
    of_side = {"scheduling": scheduling, "subscribing": subscribing}
    failed: list[str] = []
    for name in chosen.only.split(","):
        failed += of_side[name](plan, chosen.side) if name in of_side else parts[name](plan, chosen.seeds)
    for text in failed:
        print(f"NOT HELD: {text}", file=sys.stderr)
    return 1 if failed else 0
