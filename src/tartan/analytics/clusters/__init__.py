"""Clusters of a matrix or of points.

Public names are in ``tartan.analytics``; this package exports what commands and runs share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tartan.base.lazy import lazy_names

if TYPE_CHECKING:
    from tartan.analytics.clusters.choose import label_clusters, scores_of
    from tartan.analytics.clusters.find import ClustersWanted, OpenedInput
    from tartan.analytics.methods import CLUSTER_METHODS

__all__ = ["CLUSTER_METHODS", "ClustersWanted", "OpenedInput", "label_clusters", "scores_of"]

__getattr__, __dir__ = lazy_names(
    "tartan.analytics.clusters",
    {
        "tartan.analytics.methods": ["CLUSTER_METHODS"],
        "tartan.analytics.clusters.choose": ["label_clusters", "scores_of"],
        "tartan.analytics.clusters.find": ["ClustersWanted", "OpenedInput"],
    },
)
