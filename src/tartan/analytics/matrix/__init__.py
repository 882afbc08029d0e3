"""Matrices of dissimilarities: one form for every input, read by blocks of rows.

``as_dissimilarities`` takes arrays, files and runs; ``read_matrix`` takes files and has the options of each format.
Both return ``Dissimilarities``, which is what the algorithms see.
"""

from tartan.analytics.matrix.check import Check
from tartan.analytics.matrix.dissimilarities import Dissimilarities
from tartan.analytics.matrix.edges import are_edges, neighbors_of_pairs, read_edges, say_edges
from tartan.analytics.matrix.failed import WhatFailed, require_some, require_way
from tartan.analytics.matrix.formula import Formula
from tartan.analytics.matrix.kept import KeptPairs
from tartan.analytics.matrix.need import need_of_kept, need_of_matrix
from tartan.analytics.matrix.open import (
    as_dissimilarities,
    distance_function,
    for_analysis,
    for_linkage,
    grown,
    in_places,
    read_matrix,
    require_precomputed,
)
from tartan.analytics.matrix.write import write_int16
from tartan.core.memory import MemoryNeed

__all__ = [
    "Check",
    "Dissimilarities",
    "Formula",
    "KeptPairs",
    "MemoryNeed",
    "WhatFailed",
    "are_edges",
    "as_dissimilarities",
    "distance_function",
    "for_analysis",
    "for_linkage",
    "grown",
    "in_places",
    "need_of_kept",
    "need_of_matrix",
    "neighbors_of_pairs",
    "read_edges",
    "read_matrix",
    "require_precomputed",
    "require_some",
    "require_way",
    "say_edges",
    "write_int16",
]
