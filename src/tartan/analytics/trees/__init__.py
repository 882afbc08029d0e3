"""Trees: linkages, neighbour joining, Newick.

Public names are in ``tartan.analytics``; this package exports what commands, runs and pictures share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tartan.base.lazy import lazy_names

if TYPE_CHECKING:
    from tartan.analytics.methods import LINKAGES, TREE_METHODS
    from tartan.analytics.trees.drawing import depths
    from tartan.analytics.trees.hierarchy import build_tree
    from tartan.analytics.trees.joined_rows import note_on_ward
    from tartan.analytics.trees.joining import note_on_unknown
    from tartan.analytics.trees.spanning import SpanningTree, spanning_tree
    from tartan.analytics.trees.support import with_support

__all__ = [
    "LINKAGES",
    "TREE_METHODS",
    "SpanningTree",
    "build_tree",
    "depths",
    "note_on_unknown",
    "note_on_ward",
    "spanning_tree",
    "with_support",
]

__getattr__, __dir__ = lazy_names(
    "tartan.analytics.trees",
    {
        "tartan.analytics.methods": ["LINKAGES", "TREE_METHODS"],
        "tartan.analytics.trees.drawing": ["depths"],
        "tartan.analytics.trees.hierarchy": ["build_tree"],
        "tartan.analytics.trees.joined_rows": ["note_on_ward"],
        "tartan.analytics.trees.joining": ["note_on_unknown"],
        "tartan.analytics.trees.spanning": ["SpanningTree", "spanning_tree"],
        "tartan.analytics.trees.support": ["with_support"],
    },
)
