"""Name items that have no keys of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class IndexKeys(Sequence[str]):
    """The keys "0", "1", ... of n items, made when asked for."""

    def __init__(self, n_items: int) -> None:
        self._indices = range(n_items)

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [str(i) for i in self._indices[index]]
        return str(self._indices[index])
