"""Sets compared by what they share: Jaccard index, containment, cosine, overlap."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.application import Application, Meaning
from tartan.apps.sets.files import SUFFIXES, is_whole, read_record, split_file
from tartan.base.compressed import compression_of, decompress
from tartan.base.records import PART
from tartan.base.shared_counts import shared_counts, sort_hashes
from tartan.errors import ConfigError, ItemError

#: Hashes in ascending order (n,) uint64, and their weights (n,) float64 where the set has them.
HashedSet = tuple[NDArray[Any], ...]

SCORES = ("jaccard", "containment", "within", "cosine", "overlap")
EACH = ("line", "file")
_SHINGLE = re.compile(r"([1-9][0-9]{0,3})([wc])")
_WORD = re.compile(r"\w+")
_NO_WORD = {code: " " for code in range(128) if _WORD.match(chr(code)) is None}
# By arithmetic: numbers of 64 bits are their own hashes.
_HASHES = range(-(2**63), 2**64)


class Sets(Application):
    """Compare sets.

    Parameters
    ----------
    score : {"jaccard", "containment", "within", "cosine", "overlap"}
        Of sets A and B that share s: ``s / (|A| + |B| - s)``; ``s / min(|A|, |B|)``; ``s / |A|``, which is not
        symmetric: how much of A is within B; ``s / sqrt(|A| |B|)``, or the cosine of their weights; s.
    shingle : str, optional
        Texts become sets of their shingles: ``5w`` five words that follow each other, ``9c`` nine letters. Words are
        letters and digits; case does not count, nor how much space stands between words. A text shorter than one
        shingle is one.
    each : {"line", "file"}, optional
        What one item of a file of plain text is. Default: the file with ``shingle``, else a line.
    field : str, optional
        Field of objects, or column of a table, that holds the set or text. Default: set, items, or text.
    max_bytes : int
        Largest file after decompression, in bytes.
    max_ratio : int
        Largest ratio of decompressed to compressed bytes, for files above 16 MiB.

    Notes
    -----
    An item is a set, list, tuple or array of integers, texts or bytes; a mapping of them to weights (score cosine);
    with ``shingle``, a text. In files: one set a line, members parted by blanks; JSON lines, a list each, or an object
    with a field that holds it, or one of weights; a Parquet table with a column of lists. With ``shingle``, fields and
    columns may hold texts, and a file of plain text is one document, or with ``each="line"`` each of its lines.

    Integers of 64 bits are their own hashes, negative ones as if they had no sign (-1 is 2**64 - 1); all else is hashed
    to 64 bits (MurmurHash3), of which two differ for all sets that memory holds. A parsed item is a tuple of the
    hashes, a uint64 array in ascending order, and of their weights over the largest, a float64 array, where it has any.
    Scores are exact but for the rounding to float64. What a file ``.txt`` holds is text, even where it looks like JSON.

    Examples
    --------
    >>> app = Sets()
    >>> items = [app.parse("a", {"red", "green", "blue"}), app.parse("b", ["green", "blue", "blue"])]
    >>> app.compare(items, items, np)["jaccard"].round(3).tolist()
    [[1.0, 0.667], [0.667, 1.0]]
    >>> near = Sets(shingle="2w", score="overlap")
    >>> texts = [near.parse("a", "The cat sat."), near.parse("b", "Here the  cat SAT")]
    >>> near.compare(texts[:1], texts[1:], np)["overlap"].tolist()
    [[2]]
    """

    name: ClassVar[str | None] = "sets"
    releases_gil = True
    similarity = True
    ragged = True
    # By measurement: a run of 10,000 sketches of 4,000 hashes takes twice as long with 1,024, and 4,096 no less.
    tile_side = 2048
    item_suffixes = (*SUFFIXES, *(suffix + ".gz" for suffix in SUFFIXES))

    def __init__(
        self,
        *,
        score: str = "jaccard",
        shingle: str | None = None,
        each: str | None = None,
        field: str | None = None,
        max_bytes: int = 8 << 30,
        max_ratio: int = 200,
    ) -> None:
        if score not in SCORES:
            raise ConfigError(f"score: {score!r} is none of {', '.join(SCORES)}", context={"score": score})
        found = None if shingle is None else _SHINGLE.fullmatch(str(shingle))
        if shingle is not None and found is None:
            raise ConfigError(
                f"shingle: {shingle!r} is neither a number of words, such as 5w, nor of letters, such as 9c",
                context={"shingle": shingle},
            )
        if each not in (None, *EACH):
            raise ConfigError(f"each: {each!r} is neither {EACH[0]} nor {EACH[1]}", context={"each": each})
        for name, value in (("max_bytes", max_bytes), ("max_ratio", max_ratio)):
            if not isinstance(value, (int, np.integer)) or not 0 < value < 2**63:
                raise ConfigError(f"{name}: {value!r} is not a whole number above zero", context={name: value})
        self.score = score
        self.shingle = shingle
        self.each = each
        self.field = field
        self.max_bytes = int(max_bytes)
        self.max_ratio = int(max_ratio)
        self.symmetric = score != "within"
        self.outputs: Mapping[str, Any] = {score: np.int32 if score == "overlap" else np.float64}
        self._shingle = None if found is None else (int(found[1]), found[2] == "w")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that influence scores: ``each`` where it is said, as runs of before do not know it."""
        return {name: value for name, value in super().parameters().items() if (name, value) != ("each", None)}

    def split(self, key: str, data: bytes) -> Sequence[bytes] | Mapping[str, bytes] | None:
        """Split a file into its sets."""
        plain = decompress(data, self.max_bytes, self.max_ratio)
        is_document = self.each == "file" if self.each is not None else self._shingle is not None
        return split_file(key, plain, is_document, self.field, self.max_bytes)

    def describe_alone(self, key: str, data: bytes) -> str:
        """Say how the lines of a file of plain text become items."""
        if PART in key or self.each == "line" or self._shingle is None:
            return ""
        n_lines = len(decompress(data, self.max_bytes, self.max_ratio).split(b"\n"))
        return f"it is one text of {n_lines:,} lines; with --set each=line each line is one" if n_lines > 1 else ""

    def parse(self, key: str, data: Any) -> HashedSet:
        """Hash the members of a set.

        Parameters
        ----------
        key : str
            Name of the item, for messages.
        data : set, list, tuple, array, mapping, text or bytes
            Bytes are one set of a file, see ``Notes`` of the class.

        Raises
        ------
        ItemError
            If it is no set, is empty, or has members or weights that cannot be compared.
        """
        try:
            item = self._hash(self._read(key, data))
        except (ValueError, ItemError) as error:
            raise ItemError(f"{key}: {error}", context={"key": key}) from error
        problem = self.describe_failure(item)
        if problem is not None:
            raise ItemError(f"{key}: {problem}", context={"key": key})
        return item

    def _read(self, key: str, data: Any) -> Any:
        """Return a set, list, mapping, array or text; bytes are those of a file, or of one set of it."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            return data
        plain = bytes(data)
        # What is part of a file was unpacked with it, and a text may begin as bzip2 does.
        if PART not in key or compression_of(plain) != "bzip2":
            plain = decompress(plain, self.max_bytes, self.max_ratio)
        if is_whole(key, plain):
            self.split(key, plain)
        return read_record(key, plain, self.field)

    def _hash(self, record: Any) -> HashedSet:
        if isinstance(record, str):
            if self._shingle is None:
                return (_hash_members(record.split()),)
            n, words = self._shingle
            text = fold_words(record) if words else " ".join(record.casefold().split())
            return (_native.hash_shingles(text, n, words),)
        if self._shingle is not None:
            raise ItemError(f"{type(record).__name__} is not text, and only texts have shingles; leave shingle out")
        if isinstance(record, Mapping):
            return self._hash_weighted(record)
        if isinstance(record, np.ndarray):
            return (_hash_array(record),)
        if isinstance(record, (set, frozenset, list, tuple)):
            return (_hash_members(record),)
        raise ItemError(f"{type(record).__name__} is not a set; give a set, list or array of integers or texts")

    def _hash_weighted(self, record: Mapping[Any, Any]) -> HashedSet:
        if self.score != "cosine":
            raise ItemError(f"it has weights, which {self.score} does not know; say score=cosine, or give lists")
        weights = np.array([_as_weight(member, weight) for member, weight in record.items()], np.float64)
        hashes, places = np.unique(_hash_each(record), return_index=True)
        if len(hashes) < len(record):
            raise ItemError("it has one member under two types, such as 'a' and b'a'; write all members in one way")
        # A cosine does not depend on the scale, and squares of scaled weights neither vanish nor overflow.
        scaled = weights[places] / max(weights.max(initial=0.0), np.finfo(np.float64).tiny)
        kept = scaled > 0
        return hashes[kept], scaled[kept]

    def compare(self, left: Sequence[HashedSet], right: Sequence[HashedSet], xp: Any) -> dict[str, Any]:
        """Return the scores of m with n sets, (m, n)."""
        rows, columns = [one[0] for one in left], [one[0] for one in right]
        if any(len(one) > 1 for one in (*left, *right)):
            weights = [_weights(side) for side in (left, right)]
            sizes = [np.array([one @ one for one in side]) for side in weights]
            shared = shared_counts(rows, columns, (weights[0], weights[1]))
        else:
            sizes = [np.array([one.shape[0] for one in side], np.float64) for side in (rows, columns)]
            shared = shared_counts(rows, columns)
        scores = score_shared(self.score, shared, sizes[0], sizes[1])
        return {self.score: scores if xp is np else xp.asarray(scores)}

    def describe_failure(self, item: HashedSet) -> str | None:
        """Say why a set cannot be compared, or None when it can."""
        return None if item[0].shape[0] else "the set is empty, and an empty set is alike to none; leave it out"

    def describe_item(self, key: str, data: Any) -> dict[str, Any]:
        """Describe a set: how many members it has, and the first of them or the begin of its text.

        Raises
        ------
        ItemError
            If it cannot be read.
        """
        n_members = len(self.parse(key, data)[0])
        record = self._read(key, data)
        kind = "members" if self._shingle is None else "shingles"
        shown = record if isinstance(record, str) else " ".join(str(one) for one in list(record)[:20])
        return {kind: n_members, "begins": " ".join(shown[:200].split())}

    def meaning(self, output: str, shape: tuple[int, ...] | None) -> Meaning:
        """Similarities up to 1, but for the overlap; texts that share four of five shingles are near-duplicates."""
        if output == "overlap":
            return Meaning(
                distance="max-s", why="the more members two sets share, the nearer they are", unit="shared members"
            )
        cut = None if self._shingle is None or output != "jaccard" else 0.8
        why = "texts that share four of five shingles are near-duplicates" if cut else ""
        return Meaning(
            distance="1-s",
            why=f"1 - {output} is 0 where all is shared",
            cut=cut,
            cut_why=why,
            together="near-duplicates",
            apart="no near-duplicates",
            unit=f"{output} similarity",
        )


def fold_words(text: str) -> str:
    """Return the words of a text, parted by blanks, without case.

    Examples
    --------
    >>> fold_words("It's A_1,  nicht?").split(), fold_words("Stra\u00dfe!").split()
    (['it', 's', 'a_1', 'nicht'], ['strasse'])
    """
    if text.isascii():
        # Several times as fast as to look for words.
        return text.lower().translate(_NO_WORD)
    return " ".join(_WORD.findall(text.casefold()))


def score_shared(score: str, shared: NDArray[Any], left: NDArray[np.float64], right: NDArray[np.float64]) -> np.ndarray:
    """Return scores from what sets share.

    Parameters
    ----------
    score : str
        One of ``SCORES``.
    shared : array (m, n)
        Counts, or sums of products of weights.
    left, right : arrays (m,), (n,)
        Sizes, or sums of squared weights; all above 0.
    """
    if score == "overlap":
        return shared
    if score == "within":
        return shared / left[:, None]
    if score == "containment":
        return shared / np.minimum(left[:, None], right)
    if score == "cosine":
        # Equal sets have a cosine of 1; rounding leaves some above it.
        cosines: np.ndarray = np.minimum(shared / np.sqrt(left[:, None] * right), 1.0)
        return cosines
    return np.asarray(shared / (left[:, None] + right - shared))


def _weights(items: Sequence[HashedSet]) -> list[NDArray[np.float64]]:
    return [one[1] if len(one) > 1 else np.ones(one[0].shape[0]) for one in items]


def _as_weight(member: Any, weight: Any) -> float:
    if isinstance(weight, bool) or not isinstance(weight, (int, float, np.integer, np.floating)):
        raise ItemError(f"the weight {weight!r} of {member!r} is not a number")
    try:
        number = float(weight)
    except OverflowError:
        number = math.inf
    if not 0 <= number < np.inf:
        raise ItemError(f"the weight {weight!r} of {member!r} is not a number from 0 on; leave it out or mend it")
    return number


def _hash_members(members: Iterable[Any]) -> NDArray[np.uint64]:
    return sort_hashes(_hash_each(members))


def _hash_each(members: Iterable[Any]) -> NDArray[np.uint64]:
    """Return the hash of each member, in their order."""
    listed = list(members)
    if all(type(one) is int and one in _HASHES for one in listed):
        return np.array([one & (2**64 - 1) for one in listed], np.uint64)
    if all(type(one) is str for one in listed):
        return _native.hash_texts([_encode(one) for one in listed])
    return np.array([_hash_one(one) for one in listed], np.uint64)


def _hash_one(member: Any) -> int:
    if isinstance(member, (int, np.integer)) and not isinstance(member, bool) and int(member) in _HASHES:
        return int(member) & (2**64 - 1)
    if isinstance(member, str):
        return int(_native.hash_texts([_encode(member)])[0])
    if isinstance(member, bytes):
        return int(_native.hash_texts([member])[0])
    raise ItemError(
        f"the member {member!r} is {type(member).__name__}; members are integers of 64 bits, texts or bytes: turn "
        "others into texts"
    )


def _encode(text: str) -> bytes:
    # Half a pair of surrogates, which JSON may hold, has no UTF-8.
    return text.encode("utf-8", "surrogatepass")


def _hash_array(array: np.ndarray) -> NDArray[np.uint64]:
    if array.ndim != 1:
        raise ItemError(f"its shape is {array.shape}; a set has one dimension")
    if array.dtype.kind in "iu":
        # Negative numbers as those of 64 bits.
        wide = array.astype(np.int64) if array.dtype.kind == "i" else array.astype(np.uint64)
        return sort_hashes(wide.view(np.uint64))
    if array.dtype.kind in "UO":
        return _hash_members(array.tolist())
    raise ItemError(f"its members are {array.dtype}; members are integers, texts or bytes")
