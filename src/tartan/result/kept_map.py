"""A map of a run, made and kept, for Python and commands alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tartan.errors import TartanError
from tartan.store.folder import RunFolder

if TYPE_CHECKING:
    from tartan.analytics import Density, Embedding, Monitor
    from tartan.comm.communicator import Communicator
    from tartan.result.over_ranks import AskedRanks


def embed_run(
    folder: RunFolder,
    method: str,
    n_components: int,
    *,
    keep: bool,
    ranks: AskedRanks | None = None,
    counts: bool = False,
    **options: Any,
) -> tuple[Embedding, Density | None, str | None]:
    """Make a map of a run, on several ranks if asked, and keep it if asked; see ``tartan.Run.embed``.

    With ``counts`` ranks count the pairs of the map by dissimilarity and distance, too.

    Returns
    -------
    Embedding
    Density or None
    str or None
        Why the map could not be kept.

    Raises
    ------
    ConfigError
        If an option is wrong, or with ``keep`` cannot be written down; before the map is computed.
    """
    from tartan.analytics import embed
    from tartan.analytics.maps import keep_frame, keep_map, require_keepable
    from tartan.result.over_ranks import over_ranks

    if keep:
        require_keepable(options)
    pairs: Density | None = None
    if ranks is None:
        found = embed(folder, method, n_components, **options)
    else:
        given = str(folder.path) if folder.version is None else folder  # each rank opens it, at this version
        found, pairs = over_ranks(ranks, count_map, given, method, n_components, counts=counts, **options)
    if keep:
        if folder.version is not None and options.get("start") is None:
            found = keep_frame(folder, found)
        try:
            keep_map(folder, found)
        except TartanError as error:
            return found, pairs, f"the map is not kept for tartan add: {error}"
    return found, pairs, None


def count_map(
    matrix: str | RunFolder,
    method: str,
    n_components: int,
    *,
    counts: bool,
    monitor: Monitor,
    communicator: Communicator,
    **options: Any,
) -> tuple[Embedding, Density | None]:
    """Make a map and, if asked, count its pairs by dissimilarity and distance; on each rank of a communicator."""
    from tartan.analytics import as_dissimilarities, density, embed

    found = embed(matrix, method, n_components, monitor=monitor, communicator=communicator, **options)
    if not counts:
        return found, None
    shown = as_dissimilarities(matrix, **found.recipe["matrix"])
    return found, density(shown, found.points, monitor=monitor, communicator=communicator)
