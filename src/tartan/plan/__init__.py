"""Read plans of machines and workloads in TOML, replay them side by side and report.

The three files here are those of the Rocket paper; docs/plan.md describes the format.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tartan.plan.file import read_plan
from tartan.plan.report import VARIANTS, PlanReport, predict
from tartan.plan.side_by_side import predict_all

__all__ = ["plan_report", "read_plan", "shipped_plans"]


def shipped_plans() -> list[Path]:
    """Return the plan files that come with Tartan: the three workloads of the Rocket paper."""
    return [Path(__file__).with_name(f"{name}.toml") for name in ("forensics", "bioinformatics", "microscopy")]


def plan_report(files: Sequence[Path] = (), *, processes: int | None = None) -> PlanReport:
    """Replay every plan in both orders, with and without the disk level.

    Parameters
    ----------
    files : sequence of Path
        TOML files; none means those of the Rocket paper.
    processes : int, optional
        Replays at a time; default: one per core. With 1, everything runs in this process.

    Raises
    ------
    ConfigError
        If a file cannot be read or has a wrong entry.

    Notes
    -----
    Each replay is a function of its plan and variant alone, so the number of processes changes nothing but time.

    Examples
    --------
    >>> from tartan.plan import plan_report, shipped_plans
    >>> report = plan_report(shipped_plans()[2:])  # doctest: +SKIP
    >>> print(report.as_text())  # doctest: +SKIP
    """
    plans = [read_plan(path) for path in files or shipped_plans()]
    tasks = [(plan, order, disk_level) for plan in plans for order, disk_level in VARIANTS]
    if (processes or len(os.sched_getaffinity(0))) == 1:
        return PlanReport(plans, [predict(*task) for task in tasks])
    return PlanReport(plans, predict_all(tasks, processes or len(os.sched_getaffinity(0))))
