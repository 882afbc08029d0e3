"""Clusters of LC-MS peaks: the files of an older program, read, clustered and written."""

from __future__ import annotations

from tartan.apps.lcms.lcms import (
    MODES,
    SETTINGS,
    Comparison,
    Earlier,
    LcmsClusters,
    Peaks,
    cluster_peaks,
    compare,
    labels_of,
    read_clusters,
    read_peaks,
    write_clusters,
    write_table,
)

__all__ = [
    "MODES",
    "SETTINGS",
    "Comparison",
    "Earlier",
    "LcmsClusters",
    "Peaks",
    "cluster_peaks",
    "compare",
    "labels_of",
    "read_clusters",
    "read_peaks",
    "write_clusters",
    "write_table",
]
