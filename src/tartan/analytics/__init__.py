"""Analyses of a matrix: maps, clusters, trees, neighbours, outliers. Independent of how the matrix was computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tartan.base.lazy import lazy_names

if TYPE_CHECKING:
    from tartan.analytics.clusters.dapwc.dapwc import DAPWC
    from tartan.analytics.clusters.davs.davs import DAVS
    from tartan.analytics.clusters.find import cluster
    from tartan.analytics.clusters.outcome import Clustering, NumberCurve
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
    "Clustering",
    "Communicator",
    "Density",
    "Dissimilarities",
    "Embedding",
    "Monitor",
    "NumberCurve",
    "Outliers",
    "Tree",
    "align",
    "as_dissimilarities",
    "cluster",
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

__getattr__, __dir__ = lazy_names(
    "tartan.analytics",
    {
        "tartan.analytics.clusters.dapwc.dapwc": ["DAPWC"],
        "tartan.analytics.clusters.davs.davs": ["DAVS"],
        "tartan.analytics.clusters.find": ["cluster"],
        "tartan.analytics.clusters.outcome": ["Clustering", "NumberCurve"],
        "tartan.analytics.clusters.summary": ["cluster_centres", "extract_clusters", "join_clusters", "merge_labels"],
        "tartan.analytics.maps.align": ["Alignment", "align"],
        "tartan.analytics.maps.damds": ["DAMDS"],
        "tartan.analytics.maps.density": ["Density", "density"],
        "tartan.analytics.maps.embed": ["Embedding", "embed"],
        "tartan.analytics.maps.lmmds.lmmds": ["LMMDS"],
        "tartan.analytics.matrix": ["Check", "Dissimilarities", "as_dissimilarities", "read_matrix", "write_int16"],
        "tartan.analytics.monitor": ["Monitor"],
        "tartan.analytics.neighbours": ["Outliers", "neighbors", "outliers"],
        "tartan.analytics.trees.hierarchy": ["clusters_at", "linkage", "linkage_tree", "upgma"],
        "tartan.analytics.trees.joining": ["neighbor_joining"],
        "tartan.analytics.trees.spanning": ["minimum_spanning_tree"],
        "tartan.analytics.trees.tree": ["Tree", "draw_text", "read_newick"],
        "tartan.comm.communicator": ["Alone", "Communicator", "partition"],
    },
)
