"""Whether the items of a request are those that a run folder has scores of.

Files and arrays on disk are told by their stamps, and by their bytes where a stamp differs or is missing; what lies in
memory is told by its bytes. What the bytes were when scores were computed, the run folder keeps as checksums.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.base.checksum import NOT_KNOWN, NOT_TELLING
from tartan.base.format import name_some
from tartan.run.request import Request
from tartan.sources.checked import Sums, checksums_in_memory, checksums_of, leaves_of
from tartan.sources.items import Source
from tartan.store.folder import RunFolder
from tartan.store.manifest import Difference, leaves

_STAMPS_OF_ARRAYS = {"size_bytes": "size", "mtime_ns": "time of change", "ctime_ns": "", "inode": "", "files": ""}
"""Entries of the inputs in a manifest, and what an array is said to have changed where its bytes are not known."""


@dataclass(frozen=True)
class Change:
    """Items that are not as they were.

    Attributes
    ----------
    what : str
        What has changed: size, time of change, content.
    items : int array
        In ascending order.
    said : mapping of int to str
        What is to be said of an item besides its name.
    """

    what: str
    items: NDArray[np.intp]
    said: Mapping[int, str] = field(default_factory=dict)

    def but_for(self, items: Sequence[int]) -> Change:
        """Return the change of all other items."""
        return replace(self, items=np.setdiff1d(self.items, np.asarray(items, np.intp)))

    def describe(self, folder: RunFolder) -> Difference:
        """Return the change for people, with the items by their keys."""
        of = "rows" if folder.manifest.inputs.get("kind") == "array" else "items"
        first = self.items[:4].tolist()
        names = name_some([folder.keys[item] + self.said.get(item, "") for item in first], len(self.items))
        return Difference("input", f"{self.what} of {of} has changed: {names}")


class _AskedItems:
    """The items of a request beside those of a run folder, as many and of the same kind."""

    def __init__(self, folder: RunFolder, asked: Request) -> None:
        self._folder, self._asked = folder, asked
        self._known = folder.checksums
        self._suspects = np.full(asked.source.n_items, bool(asked.options.verify))
        self._live = folder.live if folder.live is not None else np.ones(asked.source.n_items, bool)
        self._kept = None if folder.items is None else folder.items.contents

    def changes(self) -> list[Change]:
        """Return what has changed."""
        found = [*self._of_files(), *self._of_arrays(), *self._of_notes()]
        return [change for change in (*found, self._of_content()) if len(change.items)]

    def _of_files(self) -> Iterator[Change]:
        """Compare the stamps of files; where it is known what their bytes were, these decide."""
        before, now = self._folder.items, self._asked.source.fingerprints()
        if before is None or before.sizes is None or before.mtimes is None or now is None:
            return
        columns = (before.sizes, before.mtimes, before.ctimes, before.identities)
        sized, touched, *other = (_differ(old, new) for old, new in zip(columns, now, strict=True))
        decided_by_bytes = self._known != NOT_KNOWN if self._kept is None else np.ones_like(sized)
        yield Change("size", np.flatnonzero(sized))
        yield Change("time of change", np.flatnonzero(touched & ~sized & ~decided_by_bytes))
        untold = (now.sizes < 0) | (np.maximum(now.mtimes, now.identities) < 0)
        self._suspects = (self._suspects | touched | untold | np.logical_or.reduce(other)) & ~sized

    def _of_notes(self) -> Iterator[Change]:
        """Compare what scores depend on besides the bytes of items; one that had nothing of it failed."""
        before = None if self._folder.items is None else self._folder.items.notes
        if before is None:
            return
        now = [*map(self._asked.app.recall_item, self._folder.keys)]
        pairs = enumerate(zip(before, now, strict=True))
        said = {item: f" ({old}, now {new or 'nothing'})" for item, (old, new) in pairs if old not in (None, new)}
        yield Change("what a table says", np.array([*said], np.intp), said)

    def _of_arrays(self) -> Iterator[Change]:
        """Compare the stamps of arrays; all rows are suspected of one that differs or has none."""
        stamps = dict(_with_starts(self._folder.manifest.inputs))
        for (first, leaf), now in zip(leaves_of(self._asked.source), leaves(self._asked.inputs()), strict=False):
            if leaf.kind == "files":
                continue
            rows = slice(first, first + leaf.n_items)
            differing = _compare_stamps(stamps.get(first, {}), now)
            if differing != []:
                self._suspects[rows] = True
            what = next((said for name in differing or () if (said := _STAMPS_OF_ARRAYS[name])), "")
            if what and not self._known[rows].any():
                yield Change(what, np.arange(rows.start, rows.stop))

    def _of_content(self) -> Change:
        """Read what is suspected and compare its bytes."""
        tellable = (self._known != NOT_KNOWN) & (self._known != NOT_TELLING)
        self._suspects &= self._live
        items = np.flatnonzero(self._suspects & tellable)
        changed = items[checksums_of(self._asked.source, items) != self._known[items]]
        return Change("content", np.union1d(changed, self._by_digests(np.flatnonzero(self._suspects & ~tellable))))

    def _by_digests(self, items: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return which files are not those whose SHA-256 an earlier version of Tartan has kept."""
        if self._kept is None:
            return np.empty(0, np.intp)
        digests = self._asked.digests(items.tolist())
        return items[[digest != self._kept[item] for item, digest in zip(items.tolist(), digests, strict=True)]]


def changes(folder: RunFolder, asked: Request) -> list[Change]:
    """Return which items are not those that a run has scores of, as far as that can be told.

    Parameters
    ----------
    folder : RunFolder
    asked : Request
        With as many items as the run, of the same kind.
    """
    return _AskedItems(folder, asked).changes()


def cannot_tell(folder: RunFolder, asked: Request) -> bool:
    """Whether nothing tells if the items are those that were compared: an earlier version of Tartan noted nothing."""
    if asked.source.kind == "files" or folder.checksums.any() or not folder.counts()[1:].any():
        return False
    return any(not _stamps(one) for one in leaves(folder.manifest.inputs))


def _differ(old: NDArray[Any] | None, new: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where both are known and not equal."""
    if old is None:
        return np.zeros(len(new), bool)
    return np.asarray((old != new) & (old >= 0) & (new >= 0))


def _with_starts(inputs: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Return what was given at once, with the index of its first item; rows alone say how many they are."""
    found, first = [], 0
    for leaf in leaves(dict(inputs)):
        found.append((first, leaf))
        first += (leaf.get("shape") or [0])[0]
    return found


def _stamps(leaf: Mapping[str, Any]) -> list[str]:
    return [name for name in _STAMPS_OF_ARRAYS if name in leaf]


def _compare_stamps(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str] | None:
    """Return which stamps of an array differ; None where it has none, or another number of rows."""
    both = [name for name in _stamps(before) if name in now]
    if not both or before.get("shape") != now.get("shape"):
        return None
    return [name for name in both if before[name] != now[name]]


class Noted:
    """Notes the checksums of items that are loaded, and records them in the run folder before scores are.

    May be called from any thread.

    Parameters
    ----------
    folder : RunFolder
        Locked for writing, or joined.
    source : Source
        What is in memory is noted at once.
    """

    def __init__(self, folder: RunFolder, source: Source) -> None:
        self._folder = folder
        self._known = folder.checksums
        if folder.live is not None:
            self._known[~folder.live] = NOT_TELLING  # others stand in for what was removed
        self._new: list[tuple[NDArray[np.intp], Sums]] = []
        self._lock = threading.Lock()
        if not self._known.all():
            self(0, checksums_in_memory(source))

    def __call__(self, first: int, sums: Sums) -> NDArray[np.intp]:
        """Note the checksums of items from ``first`` on; return which of them, from 0, are not as noted before."""
        with self._lock:
            before = self._known[first : first + len(sums)]
            told = (sums != NOT_KNOWN) & (sums != NOT_TELLING)
            changed = np.flatnonzero(told & (before != sums) & (before != NOT_KNOWN) & (before != NOT_TELLING))
            new = np.flatnonzero((before == NOT_KNOWN) & (sums != NOT_KNOWN))
            if len(new):
                self._new.append((new + first, sums[new]))
                before[new] = sums[new]
        return changed

    def write(self) -> None:
        """Record what is new; when this returns, it is recorded, whichever thread did it."""
        with self._lock:
            if self._new:
                items, sums = (np.concatenate(column) for column in zip(*self._new, strict=True))
                self._folder.note_checksums(items, sums)
                self._new = []
