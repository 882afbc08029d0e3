"""Alignment-free phylogeny: distances of proteomes by their composition vectors (CVTree).

An item is one proteome, a FASTA file, plain or gzip. Its vector says for every string of k amino acids how much more
often it occurs than its parts suggest; the distance of two proteomes is (1 - cosine) / 2. ``tartan.analytics``
makes a tree of the distances.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import math
import re
import string
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.application import Application, Meaning
from tartan.base.compressed import decompress
from tartan.base.kernels import CudaFile
from tartan.base.machine import memory
from tartan.base.products import multiply_slices
from tartan.base.records import EACH, PART, check_each, split_records
from tartan.errors import ConfigError, ItemError

#: Middles, masks of their neighbours, codes and values of the strings that are present, and numbers of the whole.
Vector = tuple[NDArray[Any], ...]

_K = range(3, 15)
_UNKNOWN = ("skip", "map")
_SCORES = ("distance", "identity")
# Measured: asking the system for its free memory takes 0.5 ms, too much beside counting so small a file.
# By judgement: asking for free memory costs more than it saves for so small a file.
_SMALL_BYTES = 1 << 18
# By judgement: two genomes of 64 MB counted at once take some GB (`tartan bench phylogeny`: 2.3 bytes a byte at k = 6,
# more beyond).
_LARGE_BYTES = 64 << 20
# By judgement: the rest is for others meanwhile.
_MEMORY_SHARE = 0.9
_UNLIMITED = 1 << 62
# Root mean square of the values of a vector below which they are rounding errors; those of proteomes are near 1.
# By arithmetic: float32 in sums of thousands.
_LEAST_VALUE = 1e-4
# Distances up to this one may be those of equal vectors, by rounding.
# By arithmetic: float64 in sums of 10**7.
_ROUNDING = 1e-9
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
    each : {"file", "record"}
        What one item is: a file, or each protein of a file, called ``file#name``. Single proteins want k = 3 or 4.
    score : {"distance", "identity"}
        D as below, or an estimate of the average amino acid identity (AAI).
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

    Values are rounded to float32 once; the distances of proteomes have errors near 5e-11, are exactly 0 where all
    strings occur equally often (on a GPU but for these errors), and do not depend on the tile or on the number of
    threads. A proteome in which no string of length k - 2 occurs twice (few proteins, and a k that is too large for
    them) has a vector of rounding errors, and fails as an item.

    The identity is an estimate: ``max(0, 1 - 2 D) ** (1 / (k + 1))``, the share of letters that must be kept where the
    cosine falls as that share to the power of k + 1. Of simulated proteomes of the same genes (1,000 to 6,000 proteins,
    natural frequencies of letters) it is within 0.02 of the truth from 0.5 up at k = 5 and 6; of 300 proteins up to
    0.03 too low. Genes that only one proteome has lower it; unrelated proteomes have 0 to 0.35, which means nothing.

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

    def __init__(
        self,
        *,
        k: int = 6,
        unknown: str = "skip",
        each: str = EACH[0],
        score: str = _SCORES[0],
        max_bytes: int = 2 << 30,
        max_ratio: int = 200,
    ) -> None:
        if score not in _SCORES:
            raise ConfigError(f"score: {score!r} is neither distance nor identity", context={"score": score})
        if not isinstance(k, (int, np.integer)) or k not in _K:
            raise ConfigError(f"k: {k!r} is not a whole number from {_K[0]} to {_K[-1]}", context={"k": k})
        if unknown not in _UNKNOWN:
            raise ConfigError(f"unknown: {unknown!r} is neither skip nor map", context={"unknown": unknown})
        for name, value in (("max_bytes", max_bytes), ("max_ratio", max_ratio)):
            if not isinstance(value, (int, np.integer)) or not 0 < value < 2**63:
                raise ConfigError(f"{name}: {value!r} is not a whole number above zero", context={name: value})
        check_each(each)
        self.each = each
        self.score = score
        self.similarity = score == "identity"
        self.k = int(k)
        self.unknown = unknown
        self.max_bytes = int(max_bytes)
        self.max_ratio = int(max_ratio)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that influence scores: those that are as in runs of before are none of them."""
        unsaid = (("each", EACH[0]), ("score", _SCORES[0]))
        return {name: value for name, value in super().parameters().items() if (name, value) not in unsaid}

    def split(self, key: str, data: bytes) -> Mapping[str, bytes] | None:
        """Split a file where each protein is an item."""
        return None if self.each == EACH[0] else split_records(decompress(data, self.max_bytes, self.max_ratio))

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
            If the file is not FASTA, is damaged, holds DNA, digits or gaps, has no protein of k letters, or is larger
            than allowed or than there is memory to count its strings.
        """
        if not isinstance(data, bytes):
            data = _as_bytes(key, data)
        try:
            if PART not in key:
                self.split(key, data)  # what it refuses comes here as a whole
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
        """Return the distances of m with k vectors, or the estimates of their identity, (m, k) float64."""
        distances = self._compare_vectors(left, right, xp)
        return distances if self.score == "distance" else estimate_identity(distances, self.k, xp)

    def _compare_vectors(self, left: Sequence[Vector], right: Sequence[Vector], xp: Any) -> Any:
        if KERNELS.runs_on(xp):
            return distance_tile(left, right, self.k, xp)
        rows, columns = _on_host(left), _on_host(right)
        distances = _native.composition_distances(rows, columns, self.k)
        _clear_equal(rows, columns, distances)
        return distances if xp is np else xp.asarray(distances)

    def warm_up(self, xp: Any) -> None:
        """Compile the kernels."""
        if KERNELS.runs_on(xp):
            KERNELS.load(xp)

    def resampled(self, seed: int) -> Application:
        """Return an application that draws the proteins of each proteome with replacement."""
        return ResampledPhylogeny(
            seed=seed,
            k=self.k,
            unknown=self.unknown,
            score=self.score,
            max_bytes=self.max_bytes,
            max_ratio=self.max_ratio,
        )

    def describe_item(self, key: str, data: Any) -> dict[str, Any]:
        """Describe a proteome: its proteins, their lengths, the organism that the first of them names.

        Raises
        ------
        ItemError
            If the file is not FASTA, damaged, or larger than can be shown.
        """
        return describe_proteome(key, data if isinstance(data, bytes) else _as_bytes(key, data))

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
        if self.score == "identity":
            return Meaning(
                distance="-log(max(0.01,s))",
                why="-log(identity) grows by what changes along a branch, as far as the estimate is right",
                tree=True,
                unit="identity",
            )
        return Meaning(why="D = (1 - cosine) / 2 is a distance as it is", tree=True, unit="distance D")


class ResampledPhylogeny(Phylogeny):
    """Compare proteomes of as many proteins, drawn from each with replacement.

    Parameters
    ----------
    seed : int
        Of the samples.
    k, unknown, score, max_bytes, max_ratio
        As of ``Phylogeny``.
    """

    name: ClassVar[str | None] = None

    def __init__(
        self,
        *,
        seed: int,
        k: int = 6,
        unknown: str = "skip",
        score: str = _SCORES[0],
        max_bytes: int = 2 << 30,
        max_ratio: int = 200,
    ) -> None:
        super().__init__(k=k, unknown=unknown, score=score, max_bytes=max_bytes, max_ratio=max_ratio)
        self.seed = int(seed)

    def parse(self, key: str, data: Any) -> Vector:
        """Read a proteome, draw as many proteins as it has, and count their strings.

        Raises
        ------
        ItemError
            As ``Phylogeny.parse``, and if there are fewer than two proteins.
        """
        plain = data if isinstance(data, bytes) else _as_bytes(key, data)
        return super().parse(key, resample_proteome(key, plain, self.seed, self.max_bytes))


def estimate_identity(distances: Any, k: int, xp: Any = np) -> Any:
    """Return estimates of the amino acid identity (m, n) from distances of composition vectors of strings of length k.

    Were only the strings compared that are the same in both, the cosine would fall as identity to the power of k; what
    is expected of them changes as well, by their neighbours. By measurement k + 1 fits from an identity of 0.5 up
    (test_the_identity_of_simulated_proteomes).

    Examples
    --------
    >>> estimate_identity(np.array([0.0, 0.2, 0.5]), 6).round(3).tolist()
    [1.0, 0.93, 0.0]
    """
    return xp.maximum(1 - 2 * distances, 0) ** (1 / (k + 1))


def _as_bytes(key: str, data: Any) -> bytes:
    """Accept other containers of bytes, and text."""
    if isinstance(data, str):
        return data.encode()
    try:
        return bytes(memoryview(data))
    except TypeError as error:
        raise ItemError(
            f"{key}: {type(data).__name__} is not a FASTA file; give its bytes", context={"key": key}
        ) from error


def _clear_equal(left: Sequence[Vector], right: Sequence[Vector], distances: NDArray[np.float64]) -> None:
    """Set the distances of equal vectors to exactly 0, in place: rounding leaves some a little above it."""
    for i, j in np.argwhere((distances > 0) & (distances <= _ROUNDING)).tolist():
        if all(map(np.array_equal, left[i], right[j])):
            distances[i, j] = 0.0


def _on_host(items: Sequence[Vector]) -> list[Vector]:
    """Return items whose arrays are NumPy's: a device without kernels has its strings compared by the CPU."""

    def fetched(array: Any) -> np.ndarray:
        if isinstance(array, np.ndarray):
            return array
        # CuPy refuses to be converted silently; other namespaces know nothing but the conversion.
        return np.asarray(array.get() if hasattr(array, "get") else array)

    return [tuple(fetched(array) for array in item) for item in items]


# Tiles of distances of composition vectors on a GPU, by the kernels of ``composition.cu``.

KERNELS = CudaFile(Path(__file__).with_name("composition.cu"))
"""Kernels of composition vectors."""

# By convention of CUDA: four warps, one for each of _PAIRS_OF_A_BLOCK. No benchmark: no GPU measured yet.
_THREADS = 128
# By construction: a warp each.
_PAIRS_OF_A_BLOCK = 4
# By contract: SHARDS of crates/tartan-kernels/src/sparse/shards.rs, so that sums have the same order.
_SHARDS = 64
_COUNT_SHIFT = np.uint32(20)
# By format of a composition vector.
_ARRAYS = 5
# By format: 20 x 20 letters to both sides of a middle.
_STRINGS = 400  # of a middle
# By judgement: rows of 12,000 numbers, which products like. No benchmark: no GPU measured yet.
_SPAN = 10  # middles of a slice
# By arithmetic: high and low part of a value, and the high part again for hh, hl and lh.
_HALVES = 3  # float16 numbers of a string in a row
# By judgement: as _PART_BYTES of forensics/cuda.
_PART_BYTES = 2**28
# By judgement: tensor cores do some hundred times what a merge does. No benchmark: no GPU measured yet.
_DENSE_SHARE = 256
_DENSE_K = range(4, 8)


def least_dense(k: int) -> float:
    """Return how many of the 20^k strings a vector has from which on it is multiplied as a dense row.

    A product takes 6 * 20^k operations a pair on tensor cores, a merge reads both vectors. At k = 6 a bacterium is well
    above, a virus below; at k = 7 nearly all are below. At k = 3 all values can be so small that rows of float16 are
    wrong by more than 1e-6; from k = 8 on no proteome has so many strings.
    """
    return 20**k / _DENSE_SHARE if k in _DENSE_K else math.inf


def distance_tile(left: Sequence[Any], right: Sequence[Any], k: int, xp: Any, n_dense: float | None = None) -> Any:
    """Return the distances of m with n vectors on the current stream, (m, n) float64; nothing returns to the host.

    Parameters
    ----------
    left, right : sequences of vectors
        As ``Phylogeny.parse`` returns them, of the GPU.
    k : int
        Length of the strings.
    n_dense : float, optional
        Pairs of vectors that both have at least so many strings are multiplied as dense rows, all others are merged:
        how a pair is compared depends on its two vectors alone. By default that of ``least_dense``.
    """
    vectors = {id(vector): vector for vector in (*left, *right)}  # a tile of the diagonal has each once
    numbers = {name: number for number, name in enumerate(vectors)}
    packed = _pack(list(vectors.values()), xp)
    least = least_dense(k) if n_dense is None else n_dense
    sides = [
        [(place, numbers[id(one)], one[2].shape[0] >= least) for place, one in enumerate(s)] for s in (left, right)
    ]
    out = xp.empty((len(left), len(right)), dtype=np.float64)
    rows, columns = ([entry[:2] for entry in side] for side in sides)
    dense_rows, dense_columns = ([entry[:2] for entry in side if entry[2]] for side in sides)
    other_rows, other_columns = ([entry[:2] for entry in side if not entry[2]] for side in sides)
    if not (dense_rows and dense_columns):
        _write(packed, rows, columns, out, k, xp, dense=False)
        return out
    _write(packed, dense_rows, dense_columns, out, k, xp, dense=True)
    _write(packed, other_rows, columns, out, k, xp, dense=False)
    _write(packed, dense_rows, other_columns, out, k, xp, dense=False)
    return out


@dataclass(frozen=True)
class _Packed:
    """The vectors of a tile, one behind the other, and where each begins."""

    middles: Any
    masks: Any
    ends: Any
    codes: Any
    values: Any
    starts: Any
    numbers: Any

    @property
    def strings(self) -> tuple[Any, ...]:
        return self.middles, self.masks, self.ends, self.codes, self.values, self.starts

    @property
    def suffix(self) -> str:
        return f"u{self.middles.dtype.itemsize}"


def _pack(vectors: Sequence[Any], xp: Any) -> _Packed:
    middles, masks, codes, values, numbers = (
        xp.concatenate([vector[part] for vector in vectors]) for part in range(_ARRAYS)
    )
    starts = np.cumsum([0, *(vector[0].shape[0] for vector in vectors)], dtype=np.int64)
    ends = xp.cumsum(masks[:, 0] >> _COUNT_SHIFT, dtype=np.int64)
    return _Packed(middles, masks, ends, codes, values, xp.asarray(starts), numbers)


def _write(
    packed: _Packed,
    left: list[tuple[int, int]],
    right: list[tuple[int, int]],
    out: Any,
    k: int,
    xp: Any,
    *,
    dense: bool,
) -> None:
    """Write the distances of some rows with some columns, each given by its place in ``out`` and its vector."""
    if not (left and right):
        return
    lines, rows, places, columns = (xp.asarray(np.array(side, np.int32)) for side in (*zip(*left), *zip(*right)))
    parts = (_multiply if dense else _merge)(packed, rows, columns, k, xp)
    m, n = rows.shape[0], columns.shape[0]
    sizes = (np.int32(parts.shape[0]), np.int32(m), np.int32(n), np.int32(out.shape[1]))
    given = (parts, packed.numbers, rows, columns, lines, places, out, *sizes)
    KERNELS.launch(xp, "composition_distances", (-(-m * n // _THREADS),), (_THREADS,), given)


def _merge(packed: _Packed, rows: Any, columns: Any, k: int, xp: Any) -> Any:
    """Return parts of the sums of products of all pairs, (shards, m n) float64."""
    m, n = rows.shape[0], columns.shape[0]
    parts = xp.empty((_SHARDS, m * n), dtype=np.float64)
    span = np.uint64(-(-(20 ** (k - 2)) // _SHARDS))
    given = (*packed.strings, rows, columns, parts, np.int32(m), np.int32(n), span)
    KERNELS.launch(xp, f"composition_{packed.suffix}", (-(-m * n // _PAIRS_OF_A_BLOCK), _SHARDS), (_THREADS,), given)
    return parts


def _multiply(packed: _Packed, rows: Any, columns: Any, k: int, xp: Any) -> Any:
    """Return the sums of products of all pairs, (1, m n) float64: ranges of middles are expanded and multiplied."""
    sides = (rows, columns)
    m, n = (side.shape[0] for side in sides)
    scales = xp.empty((packed.starts.shape[0] - 1,), dtype=np.float32)
    KERNELS.launch(
        xp, "composition_scales", scales.shape, (_THREADS,), (packed.ends, packed.values, packed.starts, scales)
    )
    sums = xp.zeros((1, m * n), dtype=np.float64)
    n_slices, step = 20 ** (k - 2) // _SPAN, slices_at_once(m, n)
    memory = [
        xp.empty((side.shape[0] * min(step, n_slices) * _HALVES * _SPAN * _STRINGS,), dtype=np.float16)
        for side in sides
    ]
    for first in range(0, n_slices, step):
        count = min(step, n_slices - first)
        operands = []
        for is_right, (side, numbers) in enumerate(zip(sides, memory)):
            shape = (side.shape[0], count * _HALVES * _SPAN * _STRINGS)
            operands.append(numbers[: shape[0] * shape[1]].reshape(shape))
            where = (np.uint64(first * _SPAN), np.int32(count), np.int32(is_right))
            given = (*packed.strings, side, scales, operands[-1].view(np.uint32), *where)
            KERNELS.launch(xp, "composition_rows", (count, shape[0]), (_THREADS,), given)
        products = multiply_slices(operands[0], operands[1], xp, n_slices=_HALVES * count)
        added = (products, scales, rows, columns, sums, np.int32(count), np.int32(m), np.int32(n))
        KERNELS.launch(xp, "composition_add", (-(-m * n // _THREADS),), (_THREADS,), added)
    return sums


def slices_at_once(m: int, n: int) -> int:
    """Return how many slices of m and n rows take at most about 256 MB for each operand and for their products."""
    a_row, a_product = _HALVES * _SPAN * _STRINGS * 2 * max(m, n), _HALVES * 4 * m * n
    return max(1, _PART_BYTES // max(a_row, a_product))


# Describe a proteome in a few facts for people who look at it; nothing here takes part in a comparison.

# By judgement: proteomes have ten MB; a bound against strangers' files.
_MOST_BYTES: Final = 256 * 2**20
# By judgement: the bound is looked at once a megabyte.
_PIECE_BYTES: Final = 1 << 20
_GZIP_MARK: Final = b"\x1f\x8b"


def describe_proteome(key: str, data: bytes) -> dict[str, Any]:
    """Return facts of a FASTA file, plain or gzip.

    Raises
    ------
    ItemError
        If it is not FASTA, damaged, or larger than 256 MiB when decompressed.
    """
    text = b"".join(_plain(key, data))
    if not text.lstrip().startswith(b">"):
        raise ItemError(f"{key}: no FASTA file", context={"key": key})
    records = text.lstrip()[1:].split(b"\n>")
    lengths = np.array([_n_letters(record) for record in records])
    about: dict[str, Any] = {}
    organism = re.search(rb"\[([^\[\]\r\n]{1,120})\]\s*$", records[0].partition(b"\n")[0])
    if organism:
        about["organism"] = organism.group(1).decode("utf-8", errors="replace")
    about |= {"proteins": len(records), "amino acids": int(lengths.sum())}
    return about | {"median length": float(np.median(lengths)), "longest": int(lengths.max())}


def _n_letters(record: bytes) -> int:
    letters = record.partition(b"\n")[2]
    return len(letters) - sum(letters.count(blank) for blank in (b"\n", b"\r", b" ", b"\t", b"*"))


def _plain(key: str, data: bytes) -> Iterator[bytes]:
    """Yield the text in pieces, and refuse one that grows too large."""
    if not data.startswith(_GZIP_MARK):
        yield data
        return
    total = 0
    while data.startswith(_GZIP_MARK):  # members follow each other
        reader = zlib.decompressobj(wbits=31)
        while not reader.eof:
            try:
                piece = reader.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise ItemError(f"{key}: damaged gzip: {error}", context={"key": key}) from error
            data = reader.unconsumed_tail
            total += len(piece)
            if total > _MOST_BYTES:
                raise ItemError(f"{key}: more than {_MOST_BYTES:,} bytes when decompressed", context={"key": key})
            if not piece and not data and not reader.eof:
                raise ItemError(f"{key}: truncated gzip", context={"key": key})
            yield piece
        data = reader.unused_data


# Draw the proteins of a proteome with replacement.

_GZIP_BYTES = b"\x1f\x8b"


def resample_proteome(key: str, data: bytes, seed: int, max_bytes: int) -> bytes:
    """Return a FASTA file of as many records as another one has, drawn from them with replacement.

    Parameters
    ----------
    key : str
        Of the item; the records that are drawn depend on it and on ``seed``.
    data : bytes
        The file, plain or gzip.
    seed : int
    max_bytes : int
        Most bytes after decompression.

    Raises
    ------
    ItemError
        If the file is damaged or too large, or has fewer than two records.
    """
    text = _decompress(key, data, max_bytes)
    records = [b">" + record.rstrip() for record in text.strip().removeprefix(b">").split(b"\n>")]
    if len(records) < 2:
        raise ItemError(f"{key}: a proteome of one protein cannot be resampled", context={"key": key})
    digest = hashlib.sha256(f"{seed} {key}".encode(errors="surrogateescape")).digest()
    random = np.random.default_rng(np.frombuffer(digest, np.uint32))
    return b"\n".join(records[choice] for choice in random.integers(0, len(records), len(records)))


def _decompress(key: str, data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_GZIP_BYTES):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            text = file.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ItemError(f"{key}: {error}", context={"key": key}) from error
    if len(text) > max_bytes:
        raise ItemError(f"{key}: more than max_bytes={max_bytes:,} after decompression", context={"key": key})
    return text


# Tell proteins from DNA and RNA by their letters.

# By judgement. `tartan bench phylogeny` measures the reading.
_LOOKED_AT: Final = 1 << 16  # bytes: hundreds of proteins, and a hundredth of the time in which a file is counted
_BEFORE_HEADERS: Final = b"\xef\xbb\xbf \t"
_NO_LETTERS: Final = bytes(set(range(256)) - set(string.ascii_letters.encode()))
_BASES: Final = b"ACGTUNacgtun"
#: Share of A, C, G, T, U, N among the letters from which a file is DNA or RNA; in proteomes it is near 0.3.
#: By judgement: between 0.3 and 1, far from both.
_DNA: Final = 0.9


def find_dna(data: bytes) -> str | None:
    """Say that the first sequences of a FASTA file, plain or gzip and known to be sound, are DNA; None if not."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) if data.startswith(_GZIP_MARK) else io.BytesIO(data) as stream:
        lines = stream.read(_LOOKED_AT).splitlines()
    text = b"".join(line for line in lines if not line.lstrip(_BEFORE_HEADERS).startswith(b">"))
    letters = text.translate(None, _NO_LETTERS)
    n_bases = len(letters) - len(letters.translate(None, _BASES))
    if n_bases == 0 or n_bases < _DNA * len(letters):
        return None
    return (
        f"{n_bases / len(letters):.0%} of its first {len(letters):,} letters are A, C, G, T, U or N: this is DNA or "
        "RNA, and phylogeny compares proteins; compare it with genomes instead, or give the proteins of its genes "
        "(translated, as gene finders such as Prodigal write them)"
    )
