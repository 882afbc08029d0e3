"""How far genomes are from each other: composition vectors of proteomes."""

from __future__ import annotations

from tartan.apps.phylogeny.app import Phylogeny

__all__ = ["Phylogeny"]
