"""Alignments of proteins by Biopython: comparisons whose cost differs from pair to pair, in a compiled library.

    pip install biopython
    tartan run align.py:Align proteins.fasta -o align.tartan

A score is that of the best local alignment (Smith and Waterman with affine gaps) over the lesser of the scores of the
two proteins with themselves: 1 for a protein within another, about 0 for strangers. The time of a pair grows with the
product of two lengths; Tartan measures pairs as they come, and needs no word about it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import tartan


class Align(tartan.Application):
    """Local alignment of proteins (FASTA), 0 to 1.

    Parameters
    ----------
    matrix : str
        Substitution matrix, as Biopython calls it.
    first_gap, next_gap : float
        What the first place of a gap costs, and each one after it.
    """

    similarity = True
    item_suffixes = (".fasta", ".fa", ".faa")

    def __init__(self, matrix: str = "BLOSUM62", first_gap: float = 11.0, next_gap: float = 1.0) -> None:
        self.matrix, self.first_gap, self.next_gap = matrix, first_gap, next_gap

    def split(self, key: str, data: bytes) -> Mapping[str, bytes]:
        """Return the proteins of a file by the first words of their titles."""
        records = [record.partition(b"\n") for record in data.replace(b"\r", b"").split(b">")[1:]]
        return {title.split()[0].decode(): b"".join(text.split()) for title, _, text in records}

    def parse(self, key: str, data: bytes) -> tuple[str, float]:
        """Return a protein, and its score with itself."""
        text = data.decode("ascii").upper()
        return text, self._score(text, text)

    def compare_pair(self, a: tuple[str, float], b: tuple[str, float]) -> float:
        """Return the share of the lesser of the two that is aligned."""
        return self._score(a[0], b[0]) / min(a[1], b[1])

    def _score(self, a: str, b: str) -> float:
        return float(_aligner(self.matrix, self.first_gap, self.next_gap).score(a, b))


@functools.cache
def _aligner(matrix: str, first_gap: float, next_gap: float) -> Any:
    """Return Biopython's aligner, made once in each process: it cannot be sent to one."""
    from Bio.Align import PairwiseAligner, substitution_matrices

    made = PairwiseAligner(mode="local")
    made.substitution_matrix = substitution_matrices.load(matrix)
    made.open_gap_score, made.extend_gap_score = -first_gap, -next_gap
    return made
