"""The names of methods, for analyses and for commands, which import nothing else to know them."""

from __future__ import annotations

LINKAGES = ("single", "complete", "average", "weighted", "ward")
TREE_METHODS = ("nj", "upgma", *LINKAGES)
MAP_METHODS = ("damds", "smacof", "lmmds")

#: Into a given number of clusters.
DIVIDING_METHODS = ("pwc", *LINKAGES)
PAIR_METHODS = ("components", "greedy", "single", "hdbscan", "leiden")
CLUSTER_METHODS = tuple(dict.fromkeys((*DIVIDING_METHODS, "greedy", "hdbscan", *PAIR_METHODS)))
