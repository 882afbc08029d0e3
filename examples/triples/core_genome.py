"""The core of three genomes: how much of all that three proteomes have is in every one of them.

    tartan run core_genome.py:CoreGenome "proteomes/*.faa.gz" --arity 3 --top-k 3 -o core.tartan

A proteome is the set of words of k amino acids in its proteins, one bit for each of the 20^k words; the score of three
is the number of words that all three have over the number that any of them has: the Jaccard index of three sets. Pairs
have one too, so the same application compares them: leave out ``--arity 3``.
"""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np

import tartan

LETTERS = b"ACDEFGHIKLMNPQRSTVWY"
UNKNOWN = len(LETTERS)
LONGEST_WORD = 6  # 8 MB an item


class CoreGenome(tartan.Application):
    """Jaccard index of the words of two or three proteomes (FASTA, plain or gzip).

    Parameters
    ----------
    k : int
        Length of a word.
    """

    similarity = True
    releases_gil = True
    item_suffixes = (".faa", ".fasta", ".fa", ".faa.gz", ".fasta.gz", ".fa.gz")

    def __init__(self, k: int = 5) -> None:
        if not 1 <= k <= LONGEST_WORD:
            raise ValueError(f"k is {k}; it must be 1 to {LONGEST_WORD}")
        self.k = k

    def parse(self, key: str, data: bytes) -> np.ndarray:
        """Return which words a proteome has, packed into 64-bit numbers."""
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        proteins = [b"".join(record.split(b"\n")[1:]) for record in text.replace(b"\r", b"").split(b">")[1:]]
        found = np.zeros(-(-(len(LETTERS) ** self.k) // 64) * 64, bool)
        for protein in proteins:
            found[self._words(protein)] = True
        if not found.any():
            raise ValueError(f"{key} has no protein of {self.k} amino acids or more")
        return np.packbits(found).view(np.uint64)

    def _words(self, protein: bytes) -> np.ndarray:
        codes = _CODES[np.frombuffer(protein, np.uint8)]
        if len(codes) < self.k:
            return np.empty(0, np.int64)
        windows = np.lib.stride_tricks.sliding_window_view(codes, self.k)
        known = windows[(windows != UNKNOWN).all(axis=1)]
        return known @ (len(LETTERS) ** np.arange(self.k, dtype=np.int64))

    def compare(self, left: Any, right: Any, xp: Any) -> np.ndarray:
        """Return the share of common words of two groups of items."""
        scores = np.zeros((len(left), len(right)))
        for i, first in enumerate(left):
            for j, second in enumerate(right):
                scores[i, j] = _count(first & second) / _count(first | second)
        return scores

    def compare_triples(self, a: Any, b: Any, c: Any, xp: Any) -> np.ndarray:
        """Return the share of words that all three have, for three groups of items."""
        scores = np.zeros((len(a), len(b), len(c)))
        for i, first in enumerate(a):
            for j, second in enumerate(b):
                both, either = first & second, first | second
                for k, third in enumerate(c):
                    scores[i, j, k] = _count(both & third) / _count(either | third)
        return scores


def _count(bits: np.ndarray) -> int:
    return int(np.bitwise_count(bits).sum(dtype=np.int64))


_CODES = np.full(256, UNKNOWN, np.int64)
for _number, _letter in enumerate(LETTERS):
    _CODES[[_letter, _letter + 32]] = _number
