"""Nearest join: the nearest rows of one table for each row of another, of any size, in and out by Arrow streams.

``streams`` opens what is given, ``spilled`` keeps it on disk while it is joined, ``blocks`` says which rows meet,
``nearest`` computes and writes. No run folder: what is found goes to whoever asks, and nothing can be resumed.
"""

from __future__ import annotations

from tartan.join.nearest import nearest_join, prepare_join

__all__ = ["nearest_join", "prepare_join"]
