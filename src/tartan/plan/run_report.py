"""Report what a finished run did, its replay, and the prediction of another run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tartan.base.format import format_memory
from tartan.core.memory import MemoryNeed
from tartan.plan.cluster import clock
from tartan.plan.from_run import MeasuredRun, OtherRun
from tartan.plan.report import RESOURCES, Prediction

_HEAD = ("", "items", "pairs", "loads", "R", "R_min", "time", "efficiency", *RESOURCES)


@dataclass(frozen=True)
class PredictionReport:
    """A finished run beside its replay and a prediction.

    Attributes
    ----------
    name : str
    measured : dict
    replayed : Prediction
    predicted : Prediction or None
        None where nothing was to differ.
    need : MemoryNeed or None
        What the run needs of memory at most, or the one that is predicted.
    """

    name: str
    measured: dict[str, Any]
    replayed: Prediction
    predicted: Prediction | None = None
    need: MemoryNeed | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "run": self.name,
            "measured": self.measured,
            "replayed": self.replayed.as_dict(),
            "predicted": None if self.predicted is None else self.predicted.as_dict(),
            "memory_need": None if self.need is None else self.need.as_dict(),
        }

    def as_text(self) -> str:
        """Return a table of three lines."""
        rows = [list(_HEAD), _row("measured", self.measured), _row("replayed", vars(self.replayed))]
        if self.predicted is not None:
            rows.append(_row("predicted", vars(self.predicted)))
        said = "" if self.need is None else f"; {format_memory(self.need.total_bytes, self.need.parts)}"
        return table(f"{self.name}{said}", rows)


def run_report(run: MeasuredRun, other: OtherRun) -> PredictionReport:
    """Replay a run, and predict another one where something differs."""
    predicted = run.predict(other) if other != OtherRun() else None
    return PredictionReport(run.name, run.measured(), run.predict(), predicted, run.need(other))


def table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Return rows below a title, in columns; the first to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]).rstrip()
        for row in rows
    ]
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _row(name: str, found: dict[str, Any]) -> list[str]:
    busy = found.get("busy") or {}
    return [
        name,
        f"{found['n_items']:,}",
        f"{found['n_pairs']:,}",
        f"{found['loads']:,}",
        f"{found['load_factor']:.2f}",
        f"{found['load_factor_bound']:.2f}",
        clock(found["seconds"]),
        f"{found['system_efficiency']:.1%}",
        *(f"{busy[name]:.0%}" if busy else "" for name in RESOURCES),
    ]
