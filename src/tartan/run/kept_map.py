"""A map of a run, made and kept, for Python and commands alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tartan.errors import TartanError
from tartan.store.folder import RunFolder

if TYPE_CHECKING:
    from tartan.analytics import Embedding


def embedded(
    folder: RunFolder, method: str, n_components: int, *, keep: bool, n_ranks: int | None = None, **options: Any
) -> tuple[Embedding, str | None]:
    """Make a map of a run, on several ranks if asked, and keep it if asked; see ``tartan.Run.embed``.

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
    from tartan.run.over_ranks import over_ranks

    if keep:
        require_keepable(options)
    if n_ranks is None:
        found = embed(folder, method, n_components, **options)
    else:
        found = over_ranks(n_ranks, embed, str(folder.path), method, n_components, **options)
    if keep:
        try:
            keep_map(folder, found)
        except TartanError as error:
            return found, f"the map is not kept for tartan add: {error}"
    return found, None
