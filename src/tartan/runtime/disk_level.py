"""The disk level of a node: ready items that outlive their host slots, found by a digest of all they depend on.

It may forget: an item that the disk cannot take in time is parsed again when it is needed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tartan.base.daemon_pool import ByteBudget, DaemonPool
from tartan.runtime.host import HostItems, Place, UniformItems
from tartan.runtime.kept_items import FORM, from_arrays, to_arrays
from tartan.sources.checked import Versions
from tartan.sources.items import Source
from tartan.store.disk_cache import DiskCache

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
    ) -> None:
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
        digest.update(f"{self._source.keys[index]}\0{version}".encode(errors="surrogatepass"))
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
        except Exception:  # whatever it holds, it is no item that this run put there
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
