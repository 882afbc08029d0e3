"""How alike genomes are: sketches of their DNA, and the average nucleotide identity that these tell."""

from __future__ import annotations

from tartan.apps.genomes.app import Genomes

__all__ = ["Genomes"]
