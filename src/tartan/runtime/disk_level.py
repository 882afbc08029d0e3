"""The disk level of a node: ready items that outlive their host slots, found by a digest of all they depend on.

It may forget: an item that the disk cannot take in time is parsed again when it is needed.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tartan.base.daemon_pool import ByteBudget, DaemonPool
from tartan.base.keys import same_seal, seal
from tartan.runtime.codec import encode_parts
from tartan.runtime.host import HostItems, Place, UniformItems
from tartan.sources.checked import Versions
from tartan.sources.items import Source
from tartan.store.disk_cache import DiskCache

# By judgement: what waits for a slow disk is memory beside the caches; 256 MiB are a second or two of a local disk. At
# half of it bursts are dropped sooner. No benchmark.
BEHIND_BYTES = 256 << 20


class DiskLevel:
    """Finds and keeps ready items on disk.

    Parameters
    ----------
    cache : DiskCache
    source : Source
        For keys and versions.
    items : HostItems
        Form of the items.
    digest_base : bytes
        What the digest of an item depends on, besides the item.
    io : DaemonPool
        Its threads write.
    key : bytes, optional
        Seals items that need a pickle. Without one these are not kept, and no pickle is read.
    behind_bytes : int
        Most bytes that wait to be written.
    recall : callable, optional
        Returns what an item of a name depends on besides its bytes (``Application.recall_item``).
    """

    def __init__(
        self,
        cache: DiskCache,
        source: Source,
        items: HostItems,
        digest_base: bytes,
        io: DaemonPool,
        *,
        key: bytes | None = None,
        behind_bytes: int = BEHIND_BYTES,
        recall: Callable[[str], str | None] | None = None,
    ) -> None:
        self._recall = recall
        self._cache = cache
        self._source = source
        self._form = items.form if isinstance(items, UniformItems) else None
        self._digest_base = digest_base
        self._io = io
        self._key = key
        self._behind = ByteBudget(behind_bytes)
        self._unwritten: dict[int, Any] = {}  # by index
        self._spans: set[int] = set()
        self._lock = threading.Lock()
        self._written = threading.Condition(self._lock)
        self._versions = Versions(source)

    @property
    def n_unwritten(self) -> int:
        """Number of items that wait to be written."""
        return len(self._unwritten)

    def digest(self, index: int) -> str | None:
        """Return what an item is found by: the hash of all that it depends on; None where that is not known."""
        version = self._versions.of(index)
        if version is None:
            return None
        digest = hashlib.sha256(FORM + self._digest_base)
        key = self._source.keys[index]
        digest.update(f"{key}\0{version}".encode(errors="surrogatepass"))
        if self._recall is not None and (note := self._recall(key)) is not None:
            digest.update(f"\0{note}".encode(errors="surrogatepass"))
        return digest.hexdigest()

    def find(self, place: Place) -> list[Any] | None:
        """Return the ready items of a place, if all of them are there."""
        found = []
        for index in range(place.first, place.first + place.length):
            item = self._item(index)
            if item is None:
                self._spans.discard(place.span)
                return None
            found.append(item)
        self._spans.add(place.span)
        return found

    def has(self, span: int) -> bool:
        """Whether all items of a span were here the last time they were kept or found; waits for nothing."""
        return span in self._spans

    def _item(self, index: int) -> Any:
        """Return a ready item from the disk or on its way there, or None."""
        with self._lock:
            if index in self._unwritten:
                return self._unwritten[index]
        digest = self.digest(index)
        arrays = None if digest is None else self._cache.get(digest)
        if digest is None or arrays is None:
            return None
        if self._form is not None:
            sound = len(arrays) == 1 and self._form.mismatch(arrays[0]) is None
            return arrays[0] if sound else None
        try:
            return from_arrays(arrays, digest, self._key)
        except Exception:  # whatever it holds, it is not an item that this run put there
            return None

    def keep(self, place: Place, ready: Callable[[], Sequence[Any]], failed: set[int], n_bytes: int) -> bool:
        """Write the ready items of a place, unless the disk is too far behind.

        Parameters
        ----------
        ready : callable
            Returns the items, which must not change afterwards; called at once, or not at all.
        failed : set of int
            Positions of items that are none.
        n_bytes : int
            About what they take.

        Returns
        -------
        bool
            Whether they will be written.
        """
        if not self._behind.offer(n_bytes):
            return False
        items = {place.first + at: item for at, item in enumerate(ready()) if at not in failed}
        with self._lock:
            self._unwritten.update(items)  # found here before they are written
        if not failed:
            self._spans.add(place.span)
        self._io.submit(partial(self._write, items, n_bytes))
        return True

    def finish(self, deadline_seconds: float) -> None:
        """Wait until all that is kept is written; what a disk has not taken by then is parsed again another time."""
        with self._written:
            self._written.wait_for(lambda: not self._unwritten, deadline_seconds)

    def _write(self, items: dict[int, Any], n_bytes: int) -> None:
        try:
            for index, item in items.items():
                digest = self.digest(index)
                if digest is None:
                    continue
                arrays = [item] if self._form is not None else to_arrays(item, digest, self._key)
                if arrays is not None:
                    self._cache.put(digest, arrays)
        finally:
            with self._lock:
                for index in items:
                    self._unwritten.pop(index, None)
                self._written.notify_all()
            self._behind.give(n_bytes)


# Items of unequal size as arrays for the disk level, which anyone who wrote the run folder may have filled.
#
# Arrays, numbers, texts, bytes, and tuples, lists and dicts of these are described by JSON that names their arrays:
# reading them back runs nothing. Everything else needs a pickle, and a pickle runs what it holds. Such items are kept
# only with a key that the user alone has, and read back only where the seal over all their bytes and their name is of
# that key. Built-in applications get no key.

FORM = b"items 2"
"""Part of every digest: what an older form kept is not found."""
_PURPOSE = "kept item"
# By judgement: items nest a few levels; deeper ones are not kept on disk instead of ending the interpreter's stack. No
# benchmark.
_DEEPEST = 32
_NUMBERS = "biufcmMSU"


class _NotPlainError(Exception):
    """The item holds an object that JSON and arrays cannot describe."""


def to_arrays(item: Any, name: str, key: bytes | None) -> list[np.ndarray] | None:
    """Return an item as plain arrays.

    Parameters
    ----------
    item : object
    name : str
        What the arrays are found by.
    key : bytes or None
        Seals items that need a pickle.

    Returns
    -------
    list of array or None
        A header, then what it names; None for an item that needs a pickle, without a key.
    """
    arrays: list[np.ndarray] = []
    try:
        header: dict[str, Any] = {"plain": _describe(item, arrays, _DEEPEST)}
    except _NotPlainError:
        if key is None:
            return None
        arrays = [np.frombuffer(part, np.uint8) for part in encode_parts(item)[0]]
        header = {"seal": _seal(arrays, name, key)}
    return [np.frombuffer(json.dumps(header).encode(), np.uint8), *arrays]


def from_arrays(arrays: Sequence[np.ndarray], name: str, key: bytes | None) -> Any:
    """Return the item that ``to_arrays`` took apart; arrays in it may be views.

    Raises
    ------
    ValueError, TypeError, KeyError, LookupError, RecursionError
        If they are not an item, or a pickle that was not sealed with this key under this name.
    """
    header = json.loads(arrays[0].tobytes())
    if "seal" not in header:
        return _restore(header["plain"], arrays[1:], _DEEPEST)
    if key is None or not same_seal(header["seal"], _seal(arrays[1:], name, key)):
        raise ValueError("a pickle that this user did not write")
    return pickle.loads(arrays[1].tobytes(), buffers=arrays[2:])


def _seal(arrays: Sequence[np.ndarray], name: str, key: bytes) -> str:
    return seal(key, _PURPOSE, [name.encode(), *(array.tobytes() for array in arrays)])


def _describe(item: Any, arrays: list[np.ndarray], depth: int) -> Any:
    """Return JSON for an item, and put its arrays into the list; exact types only, so that it comes back as it was."""
    kind = type(item)
    if depth == 0:
        raise _NotPlainError
    if item is None or kind in (bool, str) or (kind is int and abs(item) < 2**53):
        return item
    if kind is float:
        return item if math.isfinite(item) else {"float": repr(item)}
    if kind in (tuple, list):
        return {kind.__name__: [_describe(part, arrays, depth - 1) for part in item]}
    if kind is dict and all(type(name) is str for name in item):
        return {"dict": [[name, _describe(part, arrays, depth - 1)] for name, part in item.items()]}
    return {_array_word(item, kind): _add(item, arrays)}


def _array_word(item: Any, kind: type) -> str:
    if kind is bytes:
        return "bytes"
    dtype = item.dtype if kind is np.ndarray or isinstance(item, np.generic) else None
    if dtype is None or dtype.kind not in _NUMBERS:
        raise _NotPlainError
    return "array" if kind is np.ndarray else "number"


def _add(item: Any, arrays: list[np.ndarray]) -> int:
    arrays.append(np.frombuffer(item, np.uint8) if type(item) is bytes else np.asarray(item))
    return len(arrays) - 1


def _restore(value: Any, arrays: Sequence[np.ndarray], depth: int) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError("a list without a kind")
        return value
    if depth == 0:
        raise ValueError("nested too deeply")
    ((kind, content),) = value.items()
    return _RESTORE[kind](content, arrays, depth - 1)


def _parts(content: Any, arrays: Sequence[np.ndarray], depth: int) -> list[Any]:
    return [_restore(part, arrays, depth) for part in content]


def _array_at(content: Any, arrays: Sequence[np.ndarray]) -> np.ndarray:
    if type(content) is not int or content < 0:
        raise ValueError("no index of an array")
    return arrays[content]


_RESTORE: dict[str, Callable[[Any, Sequence[np.ndarray], int], Any]] = {
    "float": lambda content, arrays, depth: float(content),
    "list": _parts,
    "tuple": lambda content, arrays, depth: tuple(_parts(content, arrays, depth)),
    "dict": lambda content, arrays, depth: {str(name): _restore(part, arrays, depth) for name, part in content},
    "bytes": lambda content, arrays, depth: _array_at(content, arrays).tobytes(),
    "array": lambda content, arrays, depth: _array_at(content, arrays),
    "number": lambda content, arrays, depth: _array_at(content, arrays)[()],
}
