"""Maps: points whose distances follow a matrix.

Public names are in ``tartan.analytics``; this package exports what keeps and extends the map of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tartan.base.lazy import lazy_names

if TYPE_CHECKING:
    from tartan.analytics.maps.run_map import extend_map, fit_of, keep_frame, keep_map, require_keepable
    from tartan.analytics.methods import MAP_METHODS

__all__ = ["MAP_METHODS", "extend_map", "fit_of", "keep_frame", "keep_map", "require_keepable"]

__getattr__, __dir__ = lazy_names(
    "tartan.analytics.maps", {"tartan.analytics.methods": __all__[:1], "tartan.analytics.maps.run_map": __all__[1:]}
)
