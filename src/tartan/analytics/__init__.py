"""What is in a matrix: maps, clusters, trees, neighbours, outliers. Knows nothing of how the matrix was computed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tartan.analytics.clusters.dapwc.dapwc import DAPWC
    from tartan.analytics.clusters.davs.davs import DAVS
    from tartan.analytics.clusters.summary import cluster_centres, extract_clusters, join_clusters, merge_labels
    from tartan.analytics.maps.align import Alignment, align
    from tartan.analytics.maps.damds import DAMDS
    from tartan.analytics.maps.density import Density, density
    from tartan.analytics.maps.embed import Embedding, embed
    from tartan.analytics.maps.lmmds.lmmds import LMMDS
    from tartan.analytics.matrix import Check, Dissimilarities, as_dissimilarities, read_matrix, write_int16
    from tartan.analytics.monitor import Monitor
    from tartan.analytics.neighbours import Outliers, neighbors, outliers
    from tartan.analytics.trees.hierarchy import clusters_at, linkage, linkage_tree, upgma
    from tartan.analytics.trees.joining import neighbor_joining
    from tartan.analytics.trees.spanning import minimum_spanning_tree
    from tartan.analytics.trees.tree import Tree, draw_text, read_newick
    from tartan.comm.communicator import Alone, Communicator, partition

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
    "clusters.summary": ("cluster_centres", "extract_clusters", "join_clusters", "merge_labels"),
    "clusters.dapwc.dapwc": ("DAPWC",),
    "clusters.davs.davs": ("DAVS",),
    "maps.align": ("Alignment", "align"),
    "maps.density": ("Density", "density"),
    "maps.embed": ("Embedding", "embed"),
    "maps.lmmds.lmmds": ("LMMDS",),
    "maps.damds": ("DAMDS",),
    "monitor": ("Monitor",),
    "neighbours": ("Outliers", "neighbors", "outliers"),
    "trees.hierarchy": ("clusters_at", "linkage", "linkage_tree", "upgma"),
    "trees.joining": ("neighbor_joining",),
    "trees.spanning": ("minimum_spanning_tree",),
    "matrix": ("Check", "Dissimilarities", "as_dissimilarities", "read_matrix", "write_int16"),
    "trees.tree": ("Tree", "draw_text", "read_newick"),
}
_HOMES = {name: f"tartan.analytics.{module}" for module, names in _MODULES.items() for name in names}
_HOMES |= dict.fromkeys(("Alone", "Communicator", "partition"), "tartan.comm.communicator")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tartan.analytics' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
