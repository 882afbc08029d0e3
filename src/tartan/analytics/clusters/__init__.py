"""Clusters of a matrix or of points.

Public names are in ``tartan.analytics``; this package exports what commands and runs share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tartan.base.lazy import lazy_names

if TYPE_CHECKING:
    from tartan.analytics.clusters.choose import clustered, scores_of

__all__ = ["clustered", "scores_of"]

__getattr__, __dir__ = lazy_names("tartan.analytics.clusters", {"tartan.analytics.clusters.choose": __all__})
