"""The map that a run keeps: made, extended, and what is wrong where it was not; one place for Python and commands."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tartan.base.signals import cancel_on_signals
from tartan.errors import RunCancelledError, TartanError

if TYPE_CHECKING:
    from tartan.analytics import Dissimilarities, Embedding, Monitor
    from tartan.run.result import Run
    from tartan.store.maps import StoredMap

__all__ = ["MapGrowth", "embedded", "extended", "grow_map", "matrix_of"]


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


def embedded(run: Run, method: str, n_components: int, *, keep: bool, **options: Any) -> tuple[Embedding, str | None]:
    """Make a map of a run, and keep it if asked; see ``tartan.Run.embed``.

    Returns
    -------
    Embedding
    str or None
        Why the map could not be kept.

    Raises
    ------
    ConfigError
        If an option is wrong, or with ``keep`` cannot be written down; before the map is computed.
    """
    from tartan.analytics import embed
    from tartan.analytics.maps import keep_map, require_keepable

    if keep:
        require_keepable(options)
    found = embed(run.folder, method, n_components, **options)
    if keep:
        try:
            keep_map(run.folder, found)
        except TartanError as error:
            return found, f"the map is not kept for tartan add: {error}"
    return found, None


def extended(run: Run, monitor: Monitor) -> tuple[Embedding, MapGrowth]:
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
    found = Embedding(made.points, tuple(run.keys), made.method, numbers, None, made.stress, dict(made.recipe))
    return found, MapGrowth(made, len(made) - len(before or made))


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
    RunCancelledError
        On SIGINT or SIGTERM.
    """
    from tartan.analytics import Monitor

    monitor = Monitor(0 if quiet else 1)
    try:
        before = run.map
        if before is None:
            return MapGrowth()
        with cancel_on_signals(monitor.cancel):
            made = run.extend_map(monitor)
    except RunCancelledError as error:
        message = (
            "stopped while new items were placed on the map; all scores are there; "
            f"`tartan embed {shlex.quote(str(run.path))} --extend` places the items"
        )
        raise RunCancelledError(message, context=error.context) from error
    except Exception as error:
        # Broad on purpose: no defect of maps may turn a run that has all its scores into a failed one.
        return MapGrowth(problem=str(error) if isinstance(error, TartanError) else f"{type(error).__name__}: {error}")
    return MapGrowth(made, len(made) - len(before))
