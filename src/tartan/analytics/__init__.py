"""What is in a matrix: maps, clusters, trees, neighbours, outliers. Knows nothing of how the matrix was computed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tartan.analytics._align import Alignment, align
    from tartan.analytics._clusters import cluster_centres, extract_clusters, join_clusters, merge_labels
    from tartan.analytics._damds import DAMDS
    from tartan.analytics._dapwc import DAPWC
    from tartan.analytics._davs import DAVS
    from tartan.analytics._density import Density, density
    from tartan.analytics._embed import Embedding, embed
    from tartan.analytics._hierarchy import clusters_at, linkage, linkage_tree, minimum_spanning_tree
    from tartan.analytics._lmmds import LMMDS
    from tartan.analytics._monitor import Monitor
    from tartan.analytics._neighbors import Outliers, neighbors, outliers
    from tartan.analytics.communicator import Alone, Communicator, partition
    from tartan.analytics.matrix import Check, Dissimilarities, as_dissimilarities, read_matrix, write_int16
    from tartan.analytics.tree import Tree, draw_text, neighbor_joining, read_newick, upgma

__all__ = [
    "DAMDS",
    "DAPWC",
    "DAVS",
    "LMMDS",
    "Alignment",
    "Alone",
    "Check",
    "Communicator",
    "Density",
    "Dissimilarities",
    "Embedding",
    "Monitor",
    "Outliers",
    "Tree",
    "align",
    "as_dissimilarities",
    "cluster_centres",
    "clusters_at",
    "density",
    "draw_text",
    "embed",
    "extract_clusters",
    "join_clusters",
    "linkage",
    "linkage_tree",
    "merge_labels",
    "minimum_spanning_tree",
    "neighbor_joining",
    "neighbors",
    "outliers",
    "partition",
    "read_matrix",
    "read_newick",
    "upgma",
    "write_int16",
]

# Where each name is defined: one line a module, imported when a name is asked for.
_MODULES = {
    "_clusters": ("cluster_centres", "extract_clusters", "join_clusters", "merge_labels"),
    "_dapwc": ("DAPWC",),
    "_davs": ("DAVS",),
    "_align": ("Alignment", "align"),
    "_density": ("Density", "density"),
    "_embed": ("Embedding", "embed"),
    "_lmmds": ("LMMDS",),
    "_damds": ("DAMDS",),
    "_monitor": ("Monitor",),
    "_neighbors": ("Outliers", "neighbors", "outliers"),
    "communicator": ("Alone", "Communicator", "partition"),
    "_hierarchy": ("clusters_at", "linkage", "linkage_tree", "minimum_spanning_tree"),
    "matrix": ("Check", "Dissimilarities", "as_dissimilarities", "read_matrix", "write_int16"),
    "tree": ("Tree", "draw_text", "neighbor_joining", "read_newick", "upgma"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tartan.analytics' has no attribute {name!r}")
    return getattr(import_module(f"tartan.analytics.{_HOMES[name]}"), name)
