"""Score pairs or triples one by one, on a worker, to see what scores a run will have; nothing of it is kept."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tartan.runtime.compare import score_one
from tartan.workers.executor import WorkerContext


def score_groups(
    context: WorkerContext,
    items: Mapping[int, Any],
    groups: Sequence[tuple[int, ...]],
    uniform: bool,
    dtypes: Mapping[str, str],
    output: str,
    seconds: float,
) -> list[float]:
    """Return an output of some pairs or triples, NaN where it fails or lacks an item; of fewer when the time is up."""
    kinds = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
    deadline = time.monotonic() + seconds
    found: list[float] = []
    for group in groups:
        if found and time.monotonic() > deadline:
            break
        found.append(_score(context, items, group, kinds, output, uniform))
    return found


def _score(
    context: WorkerContext,
    items: Mapping[int, Any],
    group: tuple[int, ...],
    kinds: Mapping[str, np.dtype[Any]],
    output: str,
    uniform: bool,
) -> float:
    if any(index not in items for index in group):
        return float("nan")
    try:
        operands = [np.stack([items[index]]) if uniform else [items[index]] for index in group]
        scores = score_one(context.application, operands, kinds)
        return float("nan") if scores is None else float(scores[output].item())
    except Exception:  # the run itself says what failed
        return float("nan")
