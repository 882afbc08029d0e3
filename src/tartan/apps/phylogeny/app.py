"""Alignment-free phylogeny: distances of proteomes by their composition vectors (CVTree).

An item is one proteome, a FASTA file, plain or gzip. Its vector says for every string of k amino acids how much more
often it occurs than its parts suggest; the distance of two proteomes is (1 - cosine) / 2. ``tartan.analytics``
makes a tree of the distances.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.application import Application, Meaning
from tartan.apps.phylogeny.cuda import KERNELS, distance_tile
from tartan.apps.phylogeny.describe import described
from tartan.apps.phylogeny.letters import find_dna
from tartan.apps.phylogeny.resampling import resampled_proteome
from tartan.base.machine import memory
from tartan.errors import ConfigError, ItemError

#: Middles, masks of their neighbours, codes and values of the strings that are present, and numbers of the whole.
Vector = tuple[NDArray[Any], ...]

_K = range(3, 15)
_UNKNOWN = ("skip", "map")
_SMALL_BYTES = 1 << 18
_LARGE_BYTES = 64 << 20
_MEMORY_SHARE = 0.9
_UNLIMITED = 1 << 62
# Root mean square of the values of a vector below which they are rounding errors; those of proteomes are near 1.
_LEAST_VALUE = 1e-4
#: Large files are counted one after the other: together they could take more memory than each was allowed.
_ONE_AT_A_TIME = threading.Lock()
_SUFFIXES = (".faa", ".fa", ".fasta", ".fas", ".aa", ".pep")


class Phylogeny(Application):
    """Compare proteomes by composition vectors.

    Parameters
    ----------
    k : int
        Length of the strings, 3 to 14; 5 or 6 for bacteria and archaea.
    unknown : {"skip", "map"}
        What to do with letters outside the 20: leave out every string with one, or replace B, U, X, Z, J, O by
        D, C, G, E, A, A as CVTree does (others are left out).
    max_bytes : int
        Largest proteome after decompression, in bytes.
    max_ratio : int
        Largest ratio of decompressed to compressed bytes, for files above 16 MiB.

    Notes
    -----
    With f(s) the number of occurrences of s within the proteins and n_m the number of strings of length m::

        f0(a1..ak) = f(a1..ak-1) f(a2..ak) / f(a2..ak-1) * n_k n_{k-2} / n_{k-1}^2
        a = (f - f0) / f0 where f0 > 0, else 0
        D = (1 - sum(a b) / sqrt(sum a^2 sum b^2)) / 2, 0 to 1

    A parsed item is a tuple of five arrays, where g middles (strings of length k - 2) have neighbours on both sides and
    p strings of length k are present: middles (g,) uint32 (uint64 above k = 7), masks (g, 2) uint32, codes (p,)
    uint16, values (p,) float32 (a of the strings that are present; absent ones have -1 and take no memory), numbers
    (3,) float64: the norm of the vector, how many strings have f0 > 0, n_k. A bacterium takes 4 to 9 MB at k = 6.
    Parsing takes at most 3 bytes a byte of FASTA for 300 MB at k = 6, the file and the vector included, and otherwise
    about 3 times the vector; a file for which there is not enough memory fails as an item.

    Values are rounded to float32 once; the distances of proteomes have errors near 5e-11, and do not depend on the tile
    or on the number of threads. A proteome in which no string of length k - 2 occurs twice (few proteins, and a k that
    is too large for them) has a vector of rounding errors, and fails as an item.

    ``compare`` uses all cores, or the GPU where the vectors are. There the distances are those of the CPU within 1e-8.

    References
    ----------
    Qi, Wang, Hao: Whole proteome prokaryote phylogeny without sequence alignment: a K-string composition approach.
    J. Mol. Evol. 58 (2004) 1-11.

    Examples
    --------
    >>> app = Phylogeny(k=3)
    >>> a = app.parse("a", b">protein\\nACDEACDFAC")
    >>> b = app.parse("b", b">protein\\nACDFACDF")
    >>> app.compare([a], [a, b], np).round(3).tolist()
    [[0.0, 0.122]]
    """

    name: ClassVar[str | None] = "phylogeny"
    releases_gil = True
    similarity = False
    ragged = True
    tile_side = 64
    outputs: Mapping[str, Any] = {"scores": np.float64}
    item_suffixes = (*_SUFFIXES, *(suffix + ".gz" for suffix in _SUFFIXES))

    def __init__(self, *, k: int = 6, unknown: str = "skip", max_bytes: int = 2 << 30, max_ratio: int = 200) -> None:
        if not isinstance(k, (int, np.integer)) or k not in _K:
            raise ConfigError(f"k: {k!r} is no whole number from {_K[0]} to {_K[-1]}", context={"k": k})
        if unknown not in _UNKNOWN:
            raise ConfigError(f"unknown: {unknown!r} is neither skip nor map", context={"unknown": unknown})
        for name, value in (("max_bytes", max_bytes), ("max_ratio", max_ratio)):
            if not isinstance(value, (int, np.integer)) or not 0 < value < 2**63:
                raise ConfigError(f"{name}: {value!r} is no whole number above zero", context={name: value})
        self.k = int(k)
        self.unknown = unknown
        self.max_bytes = int(max_bytes)
        self.max_ratio = int(max_ratio)

    def parse(self, key: str, data: Any) -> Vector:
        """Read a proteome and count its strings.

        Parameters
        ----------
        key : str
            Name of the file, for messages.
        data : bytes
            The file, plain or gzip.

        Raises
        ------
        ItemError
            If the file is no FASTA, is damaged, holds DNA, digits or gaps, has no protein of k letters, or is larger
            than allowed or than there is memory to count its strings.
        """
        if not isinstance(data, bytes):
            data = _as_bytes(key, data)
        try:
            with _ONE_AT_A_TIME if len(data) >= _LARGE_BYTES else contextlib.nullcontext():
                vector = self._count(data)
        except ValueError as error:
            raise ItemError(f"{key}: {error}", context={"key": key}) from error
        problem = find_dna(data) or self.describe_failure(vector)
        if problem is not None:
            raise ItemError(f"{key}: {problem}", context={"key": key})
        return vector

    def _count(self, data: bytes) -> Vector:
        """Count the strings of a file, within the memory that there is."""
        available = memory().available_bytes if len(data) >= _SMALL_BYTES else _UNLIMITED
        vector: Vector = _native.composition_vector(
            data,
            self.k,
            map_unknown=self.unknown == "map",
            max_bytes=self.max_bytes,
            max_ratio=self.max_ratio,
            memory_bytes=int(available * _MEMORY_SHARE),
        )
        return vector

    def compare(self, left: Sequence[Vector], right: Sequence[Vector], xp: Any) -> Any:
        """Return the distances of m with k vectors, (m, k) float64."""
        if KERNELS.runs_on(xp):
            return distance_tile(left, right, self.k, xp)
        distances = _native.composition_distances(_on_host(left), _on_host(right), self.k)
        return distances if xp is np else xp.asarray(distances)

    def warm_up(self, xp: Any) -> None:
        """Compile the kernels."""
        if KERNELS.runs_on(xp):
            KERNELS.load(xp)

    def resampled(self, seed: int) -> Application:
        """Return an application that draws the proteins of each proteome with replacement."""
        return ResampledPhylogeny(
            seed=seed, k=self.k, unknown=self.unknown, max_bytes=self.max_bytes, max_ratio=self.max_ratio
        )

    def describe_item(self, key: str, data: Any) -> dict[str, Any]:
        """Describe a proteome: its proteins, their lengths, the organism that the first of them names.

        Raises
        ------
        ItemError
            If the file is no FASTA, damaged, or larger than can be shown.
        """
        return described(key, data if isinstance(data, bytes) else _as_bytes(key, data))

    def describe_failure(self, item: Vector) -> str | None:
        """Say why a vector cannot be compared, or None when it can."""
        norm, n_strings, n_windows = item[4].tolist()
        if n_windows == 0:
            return (
                f"no protein has {self.k} known letters in a row, so there is no string of length k={self.k}; "
                "choose a smaller k or leave this file out"
            )
        if norm <= _LEAST_VALUE * math.sqrt(n_strings):
            return (
                f"every string of length k={self.k} occurs as often as its parts suggest, so the vector is zero but "
                "for rounding; "
                "choose a smaller k or leave this file out"
            )
        return None

    def meaning(self, output: str, shape: tuple[int, ...] | None) -> Meaning:
        """D is a distance as it is, of organisms that descend from each other; no value of it parts their groups."""
        return Meaning(why="D = (1 - cosine) / 2 is a distance as it is", tree=True)


class ResampledPhylogeny(Phylogeny):
    """Compare proteomes of as many proteins, drawn from each with replacement.

    Parameters
    ----------
    seed : int
        Of the samples.
    k, unknown, max_bytes, max_ratio
        As of ``Phylogeny``.
    """

    name: ClassVar[str | None] = None

    def __init__(
        self, *, seed: int, k: int = 6, unknown: str = "skip", max_bytes: int = 2 << 30, max_ratio: int = 200
    ) -> None:
        super().__init__(k=k, unknown=unknown, max_bytes=max_bytes, max_ratio=max_ratio)
        self.seed = int(seed)

    def parse(self, key: str, data: Any) -> Vector:
        """Read a proteome, draw as many proteins as it has, and count their strings.

        Raises
        ------
        ItemError
            As ``Phylogeny.parse``, and if there are fewer than two proteins.
        """
        plain = data if isinstance(data, bytes) else _as_bytes(key, data)
        return super().parse(key, resampled_proteome(key, plain, self.seed, self.max_bytes))


def _as_bytes(key: str, data: Any) -> bytes:
    """Accept other containers of bytes, and text."""
    if isinstance(data, str):
        return data.encode()
    try:
        return bytes(memoryview(data))
    except TypeError as error:
        raise ItemError(
            f"{key}: {type(data).__name__} is no FASTA file; give its bytes", context={"key": key}
        ) from error


def _on_host(items: Sequence[Vector]) -> list[Vector]:
    """Return items whose arrays are NumPy's: a device without kernels has its strings compared by the CPU."""

    def fetched(array: Any) -> np.ndarray:
        if isinstance(array, np.ndarray):
            return array
        # CuPy refuses to be converted silently; other namespaces know nothing but the conversion.
        return np.asarray(array.get() if hasattr(array, "get") else array)

    return [tuple(fetched(array) for array in item) for item in items]
