"""The map of a run that has grown: new items are placed on it, for Python and commands alike."""

from __future__ import annotations

import shlex
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tartan.base.signals import cancel_on_signals
from tartan.errors import RunCancelledError, TartanError

if TYPE_CHECKING:
    from tartan.analytics import Dissimilarities, Embedding, Monitor
    from tartan.result.run import Run
    from tartan.store.maps import StoredMap


@dataclass(frozen=True)
class MapGrowth:
    """What became of the map of a run that has grown.

    Attributes
    ----------
    map : StoredMap or None
        The map as it is now; None where the run keeps none, or it was not extended.
    n_new : int
        Items that were placed on it.
    problem : str or None
        Why it was not extended.
    """

    map: StoredMap | None = None
    n_new: int = 0
    problem: str | None = None


def extend_map(run: Run, monitor: Monitor) -> tuple[Embedding, MapGrowth]:
    """Return the map that a run keeps as an embedding, after placing on it the items that were added since.

    Raises
    ------
    ConfigError, StoreError
        As ``tartan.Run.extend_map``.
    """
    from tartan.analytics import Embedding

    before = run.map
    made = run.extend_map(monitor)
    numbers = {**made.numbers, "n_fitted": made.n_fitted, "n_placed": len(made) - made.n_fitted}
    recipe = dict(made.recipe) | {"later": np.flatnonzero(~made.is_fitted)}
    found = Embedding(made.points, tuple(run.keys), made.method, numbers, None, made.stress, recipe)
    return found, MapGrowth(made, _count_new(before or made, made))


def _count_new(before: StoredMap, made: StoredMap) -> int:
    """Return how many items were placed."""
    return len(made) - len(before) + len(before.waiting) - len(made.waiting)


def matrix_of(run: Run, found: Embedding) -> Dissimilarities:
    """Return the matrix that a map of a run shows, with the items that were added since it was made."""
    from tartan.analytics.matrix import grown

    ways = found.recipe["matrix"]
    if "n_fitted" in found.numbers:
        return grown(run.folder, found.numbers["n_fitted"], **ways)
    return run.dissimilarities(**ways)


def grow_map(run: Run, *, quiet: bool) -> MapGrowth:
    """Place added items on the map of a run, if it keeps one; whatever goes wrong, the scores stay.

    Raises
    ------
    KeyboardInterrupt, RunCancelledError
        On SIGINT, on SIGTERM.
    """
    from tartan.analytics import Monitor

    monitor = Monitor(0 if quiet else 1)
    with cancel_on_signals(monitor.cancel):
        return _grow(run, monitor)


def _grow(run: Run, monitor: Monitor) -> MapGrowth:
    try:
        before = run.map
        if before is None:
            return MapGrowth()
        made = run.extend_map(monitor)
    except RunCancelledError as error:
        message = (
            "stopped while new items were placed on the map; all scores are there; "
            f"`tartan embed {shlex.quote(str(run.path))} --extend --overwrite` places the items"
        )
        raise RunCancelledError(message, context=error.context) from error
    except Exception as error:
        # Broad on purpose: no defect of maps may turn a run that has all its scores into a failed one.
        return MapGrowth(problem=str(error) if isinstance(error, TartanError) else f"{type(error).__name__}: {error}")
    return MapGrowth(made, _count_new(before, made))


def grow_map_or_warn(run: Run, *, quiet: bool) -> None:
    """Place added items on the map of a run, if it keeps one; warn where that fails."""
    problem = grow_map(run, quiet=quiet).problem
    if problem is not None:
        warnings.warn(
            f"all scores of {run.path} are there, but its map was not extended: {problem}; mend that and call "
            "extend_map(), or make the map afresh by embed(keep=True)",
            RuntimeWarning,
            stacklevel=3,
        )
