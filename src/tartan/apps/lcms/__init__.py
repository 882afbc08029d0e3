"""Clusters of LC-MS peaks: the files of an older program, read, clustered, compared and written."""

from __future__ import annotations

from tartan.apps.lcms.clustering import MODES, SETTINGS, LcmsClusters, cluster_peaks, labels_of
from tartan.apps.lcms.comparison import Comparison, compare
from tartan.apps.lcms.files import Earlier, Peaks, read_clusters, read_peaks, write_clusters, write_table
from tartan.apps.lcms.result import describe, parameters, references_of, write_result

__all__ = [
    "MODES",
    "SETTINGS",
    "Comparison",
    "Earlier",
    "LcmsClusters",
    "Peaks",
    "cluster_peaks",
    "compare",
    "describe",
    "labels_of",
    "parameters",
    "read_clusters",
    "read_peaks",
    "references_of",
    "write_clusters",
    "write_result",
    "write_table",
]
