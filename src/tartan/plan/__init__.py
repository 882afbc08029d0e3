"""Read plans of machines and workloads in TOML, replay them side by side and report.

Most files here are those of the Rocket paper; docs/plan-file.md describes the format.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tartan.errors import ConfigError
from tartan.plan.blocks import BlockPlan, block_variants, predict_blocks
from tartan.plan.cache_curve import CacheCurve, cache_curves
from tartan.plan.cluster import variants
from tartan.plan.file import read_plan
from tartan.plan.from_run import MeasuredRun
from tartan.plan.report import VARIANTS, Plan, PlanReport, Prediction, predict, predict_nodes
from tartan.plan.side_by_side import PredictionCall, predict_all
from tartan.plan.sorting import NodeSortPlan, predict_sort, sort_variants
from tartan.plan.triples import TriplePlan, predict_triples

__all__ = ["list_shipped_plans", "plan_report", "read_plan"]

CLUSTERS = ("rocket-nodes", "rocket-unlike", "rocket-cartesius", "million", "unicorn", "thousand", "depsort")


def list_shipped_plans() -> list[Path]:
    """Return the plan files that come with Tartan: the three workloads of the Rocket paper on one node."""
    return [Path(__file__).with_name(f"{name}.toml") for name in ("forensics", "bioinformatics", "microscopy")]


def _find_plan(file: Path) -> Path:
    """Return a file, or that of a shipped plan by its name."""
    names = {
        path.stem: path for path in (*list_shipped_plans(), *(Path(__file__).with_name(f"{n}.toml") for n in CLUSTERS))
    }
    if Path(file).exists():
        return file
    if str(file) not in names:
        raise ConfigError(
            f"there is no plan {str(file)!r}; name a file that is there, or one of {', '.join(names)}",
            context={"file": str(file)},
        )
    return names[str(file)]


def cache_report(
    files: Sequence[Path], run: MeasuredRun | None = None, *, processes: int | None = None
) -> list[CacheCurve]:
    """Replay plans, or a finished run, with caches of all sizes.

    Parameters
    ----------
    files : sequence of Path
        As ``plan_report``; of no matter with a run.
    run : MeasuredRun, optional
    processes : int, optional
        Replays at a time; default: one per core.

    Raises
    ------
    ConfigError
        If a plan cannot be read, is of several nodes, or describes block tasks.
    """
    plans = [] if run is not None else [read_plan(_find_plan(path)) for path in files or list_shipped_plans()]
    other = next((plan for plan in plans if not isinstance(plan, Plan)), None)
    if other is not None:
        what = {BlockPlan: "block tasks", NodeSortPlan: "a sort"}.get(type(other), "triples")
        raise ConfigError(f"{other.name} describes {what}: caches of all sizes are for pairs of items")
    sources = [run] if run is not None else [plan for plan in plans if isinstance(plan, Plan)]
    return cache_curves(sources, processes=processes or len(os.sched_getaffinity(0)))


def plan_report(files: Sequence[Path] = (), *, processes: int | None = None, fail: int = 0) -> PlanReport:
    """Replay every plan: on one node in both orders, with and without the disk level; on several; block tasks.

    Parameters
    ----------
    files : sequence of Path
        TOML files, or names of plans that come with Tartan; none means those of the Rocket paper on one node.
    fail : int
        Nodes of a cluster that are lost on the way.
    processes : int, optional
        Replays at a time; default: one per core. With 1, everything runs in this process.

    Raises
    ------
    ConfigError
        If a file cannot be read or has a wrong entry, or nodes should be lost of a plan that has one.

    Notes
    -----
    Each replay is a function of its plan and variant alone, so the number of processes changes nothing but time.

    Examples
    --------
    >>> from tartan.plan import plan_report, list_shipped_plans
    >>> report = plan_report(list_shipped_plans()[2:])  # doctest: +SKIP
    >>> print(report.as_text())  # doctest: +SKIP
    """
    plans = [read_plan(_find_plan(path)) for path in files or list_shipped_plans()]
    fixed = (TriplePlan, NodeSortPlan)
    alone = next((p for p in plans if isinstance(p, fixed) or (isinstance(p, Plan) and p.cluster is None)), None)
    if fail and alone is not None:
        why = "is a sort" if isinstance(alone, NodeSortPlan) else "has one node, so none can be lost"
        raise ConfigError(f"{alone.name} {why}: --fail is for plans with [cluster] or [blocks]")
    tasks = [task for plan in plans for task in _tasks(plan, fail)]
    processes = processes or len(os.sched_getaffinity(0))
    found = [task() for task in tasks] if processes == 1 else predict_all(tasks, processes)
    predictions = [one for one in found if isinstance(one, Prediction)]
    return PlanReport(plans, predictions, [row for row in found if not isinstance(row, Prediction)])


def _tasks(plan: Plan | BlockPlan | TriplePlan | NodeSortPlan, fail: int) -> list[PredictionCall]:
    if isinstance(plan, NodeSortPlan):
        return [partial(predict_sort, plan, *variant) for variant in sort_variants(plan)]
    if isinstance(plan, TriplePlan):
        return [partial(predict_triples, plan)]
    if isinstance(plan, BlockPlan):
        return [partial(predict_blocks, plan, variant, fail) for variant in block_variants(plan)]
    if plan.cluster is None:
        return [partial(predict, plan, order, disk_level) for order, disk_level in VARIANTS]
    return [partial(predict_nodes, plan, variant, fail) for variant in variants(plan.cluster)]
