"""Files that hold several items: how many, and one of them, without reading the file for each.

How a file is cut is a function of bytes that the application gives; the same file gives the same items.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence

#: The items of a file, in order: numbered, or by name.
Items = Sequence[bytes] | Mapping[str, bytes]
Split = Callable[..., Items | None]
# By judgement: items of a file come one after the other, and as many threads read (IO_THREADS).
_KEPT_FILES = 4


class Splitter:
    """Cuts files into items and keeps those of the last few.

    Parameters
    ----------
    split : callable
        Takes the name and the bytes of a file; returns its items, or None where it is one. Of a file with a suffix of
        ``companions`` it also takes the bytes of the file beside it, or None where there is none.
    companions : mapping of str to str
        Suffixes of files, and those of the local files beside them that say more of them.
    """

    def __init__(self, split: Split, companions: Mapping[str, str] | None = None) -> None:
        self._split = split
        self._companions = dict(companions or {})
        self._kept: OrderedDict[Hashable, Items | None] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Splitter], tuple[Split, dict[str, str]]]:
        """Travel without what is kept."""
        return Splitter, (self._split, self._companions)

    def companion(self, path: str) -> str | None:
        """Return the path of the file that would lie beside a local one, None where it has no companion."""
        stem, suffix = os.path.splitext(path)  # noqa: PTH122 - paths are texts here, as in ``paths``
        other = self._companions.get(suffix.lower())
        return None if other is None else stem + other

    def items(
        self,
        identity: Hashable,
        name: str,
        read: Callable[[], bytes],
        read_beside: Callable[[], bytes | None] = lambda: None,
    ) -> Items | None:
        """Return the items of a file, None where it is one; ``identity`` changes with it and the file beside it."""
        with self._lock:
            if identity not in self._kept:
                more = () if self.companion(name) is None else (read_beside(),)
                self._kept[identity] = self._split(name, read(), *more)
                if len(self._kept) > _KEPT_FILES:
                    self._kept.popitem(last=False)
            return self._kept[identity]
