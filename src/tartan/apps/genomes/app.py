"""Genomes by sketches of their DNA: average nucleotide identity (ANI), containment, Jaccard index.

An item is one genome, a file of FASTA or FASTQ, or a signature of sourmash. Its sketch holds, of the hashes of all
strings of k letters, one in ``scaled``: the smallest ones (FracMinHash).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.application import Application, Meaning
from tartan.apps.genomes.quality import read_quality
from tartan.apps.genomes.signatures import is_signature, max_hash, open_signatures, read_signature, write_genome
from tartan.base.compressed import compression_of, decompress
from tartan.base.machine import memory
from tartan.base.records import EACH, PART, check_each, split_records
from tartan.base.shared_counts import shared_counts, sort_hashes
from tartan.errors import ConfigError, ItemError

#: Hashes in ascending order, (n,) uint64.
Sketch = NDArray[np.uint64]
#: A sketch; with a table of completeness, its hashes and (2,) float64: completeness, and share of the file that is own.
Sketched = Sketch | tuple[Sketch, NDArray[np.float64]]

# By contract: K_RANGE of crates/tartan-kernels/src/sketch.
_K = range(7, 256)
# By judgement: as _LARGE_BYTES of phylogeny.
_LARGE_BYTES = 64 << 20
# By judgement: the rest is for others meanwhile.
_MEMORY_SHARE = 0.9
_UNLIMITED = 1 << 62
# By measurement: of 1,138 pairs of 100 real assemblies, 61 are above 0.95 here and below it by FastANI with k = 31,
# none at a cut of 0.96; with k = 21 23 are. Where mutations are unevenly spread, long strings survive in what is
# conserved.
_CUT_LIKE_ALIGNERS = "close species that FastANI separates need a cut of 0.96 (docs/howto-species.md)"
# By measurement, as _CUT_LIKE_ALIGNERS: between the k of 21 and 31 that were measured.
_SHORT = 25
_SEQUENCES = (".fna", ".fa", ".fasta", ".fas", ".ffn", ".fsa", ".fastq", ".fq")
_STREAMED, _UNPACKED = ("", ".gz", ".bgz"), (".bz2", ".xz", ".zst")
_COMPRESSED = (*_STREAMED, *_UNPACKED)
# By arithmetic: a letter takes 2 bits where it is packed well, and what is unpacked is there twice while its parts are
# joined.
_UNPACKED_TIMES = 1.0 + 2 * 4


class Genomes(Application):
    """Compare genomes by FracMinHash sketches, as sourmash makes them.

    Parameters
    ----------
    k : int
        Length of the strings, 7 to 255: 31 within a species or genus, 21 for genomes further apart.
    scaled : int
        One string in so many is kept. Sketches of 30 hashes and fewer tell little: choose less for viruses and
        plasmids.
    each : {"file", "record"}
        What one item is: a file, or each record of a file (viruses, plasmids, contigs), called ``file#name``.
    completeness : path, optional
        A table (CSV, TSV) as CheckM writes it: names of genomes in the first column, and columns Completeness and
        Contamination, in percent. ANI is then that of the whole genomes. It belongs to the run: lines may be added.
    min_share : float
        0 to 1: pairs in which the smaller genome can cover less of the larger one have ANI 0, as if nothing were
        shared, so that plasmids, phages and fragments join no species by their ANI alone.
    max_bytes : int
        Largest genome after decompression, in bytes.
    max_ratio : int
        Largest ratio of decompressed to compressed bytes, for files above 16 MiB.

    Notes
    -----
    A string and its reverse complement count as one, the lesser of both in upper case; strings with other letters than
    A, C, G, T are left out (U is read as T). Kept are hashes (MurmurHash3, x64, 128 bits, seed 42, the first half) up
    to ``2**64 / scaled``. Strand, order of contigs, line ends and case change no bit. A parsed item is a uint64 array
    of these hashes, in ascending order.

    Of two sketches A and B, with n the size of the smaller::

        shared      = |A and B|
        containment = shared / n
        jaccard     = shared / (|A| + |B| - shared)
        ani         = containment ** (1 / k); 0 where nothing is shared
        ani_error   = its standard error

    The containment of the smaller in the larger one counts, so one incomplete genome does not lower the ANI; where both
    are incomplete, or one is contaminated and the other incomplete, ANI is a lower bound. With ``completeness`` it is
    corrected for what is missing and foreign, as far as the table is right and what is missing is so by chance.

    Programs that align ask for an aligned share of both genomes. Here what the smaller one does not align lowers its
    ANI: of one of which a half is aligned, without a difference, it is ``0.5 ** (1 / k)``, 0.978. Which share of the
    larger one is aligned is estimated for ``min_share`` from the sizes of both, as if the smaller one were aligned as
    a whole: an upper bound.

    ``ani_error`` has two parts: that of a binomial share of n hashes, with one hash shared and one not added (so that
    equal sketches have an error, too); and, which counts where nearly all hashes are kept, that strings which overlap
    are lost together. Where nothing is shared, ANI is unknown: it is given as 0, and ``ani_error`` is the ANI of
    genomes that would share one hash on average.

    References
    ----------
    Irber et al.: Lightweight compositional analysis of metagenomes with FracMinHash and minimum metagenome covers
    (2022). Hera, Pierce-Ward, Koslicki: Deriving confidence intervals for mutation rates across a wide range of
    evolutionary distances using FracMinHash. Genome Res. 33 (2023) 1061-1068.

    Examples
    --------
    >>> app = Genomes(k=7, scaled=1)
    >>> a = app.parse("a", b">contig\\nACGTACGGATTACAGATTA")
    >>> b = app.parse("b", b">contig\\nTAATCTGTAATCCGTACGT")
    >>> app.compare([a], [b], np)["ani"].tolist()
    [[1.0]]
    """

    name: ClassVar[str | None] = "genomes"
    releases_gil = True
    similarity = True
    ragged = True
    compare_into = True
    # By measurement: a run of 10,000 sketches of 4,000 hashes takes twice as long with 1,024, and 4,096 no less.
    tile_side = 2048
    outputs: Mapping[str, Any] = {
        "ani": np.float32,
        "ani_error": np.float32,
        "containment": np.float32,
        "jaccard": np.float32,
        "shared": np.int32,
    }
    # Measured with FASTA, plain and gzip: sequences are sketched while they are read and unpacked.
    parse_memory: Mapping[str, float] = {
        "": 4.0,
        **{sequence + end: 1.0 for sequence in _SEQUENCES for end in _STREAMED},
        **{sequence + end: _UNPACKED_TIMES for sequence in _SEQUENCES for end in _UNPACKED},
    }
    item_suffixes = (
        *(sequence + compressed for sequence in _SEQUENCES for compressed in _COMPRESSED),
        ".sig",
        ".sig.gz",
    )

    def __init__(
        self,
        *,
        k: int = 31,
        scaled: int = 1000,
        each: str = EACH[0],
        completeness: str | os.PathLike[str] | None = None,
        min_share: float = 0.0,
        max_bytes: int = 16 << 30,
        max_ratio: int = 200,
    ) -> None:
        if not isinstance(k, (int, np.integer)) or k not in _K:
            raise ConfigError(f"k: {k!r} is not a whole number from {_K[0]} to {_K[-1]}", context={"k": k})
        for name, value in (("scaled", scaled), ("max_bytes", max_bytes), ("max_ratio", max_ratio)):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 0 < value < 2**63:
                raise ConfigError(f"{name}: {value!r} is not a whole number above zero", context={name: value})
        if isinstance(min_share, bool) or not isinstance(min_share, (int, float)) or not 0 <= min_share <= 1:
            raise ConfigError(f"min_share: {min_share!r} is not a share from 0 to 1", context={"min_share": min_share})
        check_each(each)
        self.each = each
        self.min_share = float(min_share)
        self.k = int(k)
        self.scaled = int(scaled)
        # Absolute, so that the run is resumed from any folder.
        self.completeness = None if completeness is None else os.path.abspath(os.path.expanduser(completeness))  # noqa: PTH100, PTH111
        self._quality = None if self.completeness is None else read_quality(self.completeness)
        self.max_bytes = int(max_bytes)
        self.max_ratio = int(max_ratio)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that influence scores: those that are as in runs of before are none of them."""
        unsaid = (("each", EACH[0]), ("completeness", None), ("min_share", 0.0))
        return {name: value for name, value in super().parameters().items() if (name, value) not in unsaid}

    def split(self, key: str, data: bytes) -> Mapping[str, bytes] | None:
        """Split a file of signatures of several genomes, and one of sequences where each record is an item."""
        plain = self._unpack_signatures(data)
        if plain is None:
            is_genome = self.each == EACH[0]
            return None if is_genome else split_records(decompress(data, self.max_bytes, self.max_ratio))
        genomes = open_signatures(plain, self.k, self.scaled, self.max_bytes, self.max_ratio)
        if len(genomes) == 1 and not plain.startswith(b"PK"):
            return None
        return {name: write_genome(genome) for name, genome in genomes.items()}

    def parse(self, key: str, data: Any) -> Sketched:
        """Sketch a genome, or read its signature.

        Parameters
        ----------
        key : str
            Name of the file, for messages.
        data : bytes, or array of shape (n,)
            The file: FASTA, FASTQ, or a signature; plain, gzip, bzip2, xz or zstd. Or the hashes of a sketch, uint64.

        Raises
        ------
        ItemError
            If the file is neither, is damaged, holds protein, is larger than allowed, or keeps no hash.
        """
        try:
            if self.each != EACH[0] and isinstance(data, bytes) and PART not in key:
                self.split(key, data)  # what it refuses comes here as a whole
            hashes = self._take_hashes(data) if isinstance(data, np.ndarray) else self._sketch(_as_bytes(data))
        except (ValueError, ItemError) as error:
            raise ItemError(f"{key}: {error}", context={"key": key}) from error
        return self._finish(key, hashes)

    def group(self, key: str, files: Sequence[tuple[str, bytes]]) -> Sketched:
        """Sketch a genome whose sequences lie in several files, such as one of each chromosome or plasmid."""
        sketches = []
        for name, data in files:
            try:
                sketches.append(self._sketch(data))
            except (ValueError, ItemError) as error:
                raise ItemError(f"{key}: {name}: {error}", context={"key": key, "file": name}) from error
        return self._finish(key, np.unique(np.concatenate(sketches)))

    def _finish(self, key: str, hashes: Sketch) -> Sketched:
        """Return a sketch with what is known of the quality of its genome; refuse one that tells nothing."""
        try:
            quality = None if self._quality is None else self._quality.of(key)
        except (ValueError, ItemError) as error:
            raise ItemError(f"{key}: {error}", context={"key": key}) from error
        problem = self.describe_failure(hashes)
        if problem is not None:
            raise ItemError(f"{key}: {problem}", context={"key": key})
        return hashes if quality is None else (hashes, np.array([quality[0], 1 - quality[1]]))

    def _take_hashes(self, hashes: np.ndarray) -> Sketch:
        if hashes.dtype != np.uint64 or hashes.ndim != 1:
            raise ItemError(f"it is {hashes.dtype} of shape {hashes.shape}; hashes are uint64 of one dimension")
        ordered = sort_hashes(hashes)
        return ordered[ordered <= np.uint64(max_hash(self.scaled))]

    def _sketch(self, data: bytes) -> Sketch:
        signatures = self._unpack_signatures(data)
        if signatures is None:
            return self._read_sequences(data)[0]
        genomes = [*open_signatures(signatures, self.k, self.scaled, self.max_bytes, self.max_ratio).values()]
        if len(genomes) != 1:
            raise ItemError(f"it holds the signatures of {len(genomes)} genomes; give it as a file, which is split")
        return read_signature(genomes[0], self.k, self.scaled)

    def _unpack_signatures(self, data: bytes) -> bytes | None:
        """Return the plain text of a file of signatures, a zip file as it is; None for sequences."""
        if compression_of(data) == "gzip" and is_signature(_head(data)):
            return decompress(data, self.max_bytes, self.max_ratio)
        return data if is_signature(data) else None

    def _read_sequences(self, data: bytes) -> tuple[Sketch, NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the sketch of a file, the lengths of its records, and how many letters are what."""
        # The kernel unpacks gzip while it reads.
        plain = data if compression_of(data) == "gzip" else decompress(data, self.max_bytes, self.max_ratio)
        available = memory().available_bytes if len(plain) >= _LARGE_BYTES else _UNLIMITED
        return _native.sketch_dna(
            plain,
            self.k,
            max_hash(self.scaled),
            max_bytes=self.max_bytes,
            max_ratio=self.max_ratio,
            memory_bytes=int(available * _MEMORY_SHARE),
        )

    def compare(
        self,
        left: Sequence[Sketched],
        right: Sequence[Sketched],
        xp: Any,
        out: dict[str, np.ndarray] | np.ndarray | None = None,
    ) -> dict[str, Any]:
        """Return the outputs of m with n sketches, (m, n) each, or those that are asked for in ``out``."""
        shared = shared_counts([*map(hashes_of, left)], [*map(hashes_of, right)])
        extents = [np.array([_extent(one) for one in side]).reshape(-1, 3) for side in (left, right)]
        if xp is not np or not isinstance(out, dict):
            found = self._score(shared, *extents)
            return found if xp is np else {name: xp.asarray(array) for name, array in found.items()}
        # By judgement: a sixteenth of a tile of 2,048 rows; scores of a whole one are 84 MB beside those of ``out``.
        step = 128
        for start in range(0, len(shared), step):
            rows = slice(start, start + step)
            for name, scores in self._score(shared[rows], extents[0][rows], extents[1]).items():
                if name in out:
                    out[name][rows] = scores
        return out

    def _score(
        self, shared: NDArray[np.int32], left: NDArray[np.float64], right: NDArray[np.float64]
    ) -> dict[str, np.ndarray]:
        scores = compare_sketches(shared, left, right, self.k, self.scaled)
        if self.min_share:
            scores["ani"][estimate_shares(left, right) < self.min_share] = 0
        return scores

    def recall_item(self, key: str) -> str | None:
        """Return what the table of completeness says of a genome; None where it says nothing, or there is none."""
        try:
            quality = None if self._quality is None else self._quality.of(key)
        except ItemError:
            return None
        return None if quality is None else f"completeness {quality[0]!r}, contamination {quality[1]!r}"

    def describe_failure(self, item: Sketched) -> str | None:
        """Say why a sketch cannot be compared, or None when it can."""
        if hashes_of(item).shape[0]:
            return None
        return (
            f"no string of k={self.k} letters A, C, G, T has a hash that is kept (one in {self.scaled}); choose a "
            "smaller scaled, or a smaller k where contigs are short, or leave this file out"
        )

    def describe_item(self, key: str, data: Any) -> dict[str, Any]:
        """Describe a genome: its length, contigs, N50, share of G and C, size of its sketch.

        Raises
        ------
        ItemError
            If it cannot be read.
        """
        try:
            plain = _as_bytes(data)
            if self._unpack_signatures(plain) is not None:
                return {"hashes kept": len(self._sketch(plain)), "read from": "a signature"}
            hashes, lengths, numbers = self._read_sequences(plain)
        except (ValueError, ItemError) as error:
            raise ItemError(f"{key}: {error}", context={"key": key}) from error
        n_letters, n_known, n_gc, n_records = numbers.tolist()
        about: dict[str, Any] = {"letters": n_letters}
        if lengths.size:
            about |= {"contigs": n_records, "N50": n50(lengths)}
        else:
            about["reads"] = n_records
        if n_known:
            about["G and C"] = f"{n_gc / n_known:.1%}"
        if n_known < n_letters:
            about["other than A, C, G, T"] = n_letters - n_known
        return about | {"hashes kept": len(hashes)}

    def meaning(self, output: str, shape: tuple[int, ...] | None) -> Meaning | None:
        """ANI, containment and Jaccard are similarities up to 1; a species ends near an ANI of 0.95."""
        if output == "ani":
            return Meaning(
                distance="1-s",
                why="1 - ANI is the share of letters that differ; genomes that share no hash are at distance 1",
                cut=0.95,
                cut_why="genomes of one species have an ANI of 0.95 and more (Jain et al. 2018)"
                + (f"; {_CUT_LIKE_ALIGNERS}" if self.k > _SHORT else ""),
                together="same species",
                apart="different species",
                tree=True,
                unknown=0.0,
                unit="ANI",
            )
        if output in ("containment", "jaccard"):
            why = f"1 - {output} is 0 for equal sketches and 1 where nothing is shared"
            return Meaning(distance="1-s", why=why, unit=f"{output} of sketches")
        if output == "shared":
            return Meaning(distance="max-s", why="the more hashes are shared, the nearer", unit="shared hashes")
        return None


def hashes_of(item: Sketched) -> Sketch:
    """Return the hashes of a parsed item."""
    return item[0] if isinstance(item, tuple) else item


def _extent(item: Sketched) -> tuple[float, float, float]:
    """Return the size of a sketch, how many hashes are of the genome, and which share of the genome is there."""
    size = float(hashes_of(item).shape[0])
    if not isinstance(item, tuple):
        return size, size, 1.0
    complete, own = item[1].tolist()
    return size, size * own, complete


def compare_sketches(
    shared: NDArray[np.int32], left: NDArray[np.float64], right: NDArray[np.float64], k: int, scaled: int
) -> dict[str, np.ndarray]:
    """Return the outputs of ``Genomes`` from shared hashes.

    Parameters
    ----------
    shared : array (m, n)
        How many hashes each pair shares.
    left, right : float64 arrays (m, 3), (n, 3)
        Of each sketch its size, how many hashes are of the genome itself, and which share of the genome is there; all
        above 0.
    k, scaled : int
        Length of the strings; one hash in so many is kept.
    """
    ani, error, containment, jaccard = _native.score_sketches(shared, left, right, k, float(scaled))
    return {"ani": ani, "ani_error": error, "containment": containment, "jaccard": jaccard, "shared": shared}


def estimate_shares(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return which share of the larger genome of each pair (m, n) the smaller one covers, if all of it is aligned.

    It is the ratio of both containments, and so of the sizes of the genomes, with a relative standard error of
    ``sqrt(1/a + 1/b)`` where a and b hashes are kept: an upper bound of the aligned share of the larger genome. What is
    not aligned of the smaller one a sketch cannot tell from letters that differ: it lowers the ANI.

    Parameters
    ----------
    left, right : float64 arrays (m, 3), (n, 3)
        As of ``compare_sketches``; the genomes are whole by their completeness.
    """
    rows, columns = (side[:, 1] / side[:, 2] for side in (left, right))
    return np.minimum(rows[:, None], columns) / np.maximum(rows[:, None], columns)


def n50(lengths: NDArray[np.uint64]) -> int:
    """Return the length of the contig at which the longest ones hold half of all letters.

    Examples
    --------
    >>> n50(np.array([2, 8, 3, 3], np.uint64))
    8
    """
    ordered = np.sort(lengths)[::-1]
    sums = np.cumsum(ordered, dtype=np.float64)
    return int(ordered[np.searchsorted(sums, sums[-1] / 2)]) if ordered.size else 0


def _head(data: bytes) -> bytes:
    """Return the first bytes that a gzip file holds; none where it is damaged."""
    import zlib

    try:
        return zlib.decompressobj(wbits=31).decompress(data[:4096], 64)
    except zlib.error:
        return b""


def _as_bytes(data: Any) -> bytes:
    """Accept other containers of bytes, and text."""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes):
        return data
    try:
        return bytes(memoryview(data))
    except TypeError as error:
        raise ItemError(f"{type(data).__name__} is not a file of a genome; give its bytes") from error
