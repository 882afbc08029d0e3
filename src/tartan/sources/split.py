"""Files that hold several items: how many, and one of them, without reading the file for each.

How a file is cut is a function of bytes that the application gives; the same file gives the same items.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence

#: The items of a file, in order: numbered, or by name.
Items = Sequence[bytes] | Mapping[str, bytes]
Split = Callable[[str, bytes], Items | None]
# By judgement: items of a file come one after the other, and as many threads read (IO_THREADS).
_KEPT_FILES = 4


class Splitter:
    """Cuts files into items and keeps those of the last few.

    Parameters
    ----------
    split : callable
        Takes the name and the bytes of a file; returns its items, or None where it is one.
    """

    def __init__(self, split: Split) -> None:
        self._split = split
        self._kept: OrderedDict[Hashable, Items | None] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Splitter], tuple[Split]]:
        """Travel without what is kept."""
        return Splitter, (self._split,)

    def items(self, identity: Hashable, name: str, read: Callable[[], bytes]) -> Items | None:
        """Return the items of a file, None where it is one; ``identity`` changes with the file."""
        with self._lock:
            if identity not in self._kept:
                self._kept[identity] = self._split(name, read())
                if len(self._kept) > _KEPT_FILES:
                    self._kept.popitem(last=False)
            return self._kept[identity]
