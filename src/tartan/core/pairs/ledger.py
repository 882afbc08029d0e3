"""What is known of a pair, and why something failed. The codes are on disk: never renumber them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NOT_COMPUTED = 0
DONE = 1
FAILED_ITEM = 2
FAILED_PAIR = 3
# By format: DONE, and to be compared again since an item was removed; only in what top-k runs store (store/opening.py).
OPENED = 4


@dataclass(frozen=True)
class Failure:
    """One failed item (``j`` is None), pair (``k`` is None) or triple.

    Attributes
    ----------
    i, j : int
        Item index, or the pair with i <= j for symmetric workloads, or the first two of a triple.
    stage : str
        The stage that failed: read, parse, preprocess, compare.
    reason : str
        One line, with the key and the value at fault.
    traceback : str
        Full text where there is one, else "".
    k : int, optional
        Third item of a triple.
    """

    i: int
    j: int | None
    stage: str
    reason: str
    traceback: str = ""
    k: int | None = None

    @property
    def kind(self) -> Literal["item", "pair", "triple"]:
        if self.j is None:
            return "item"
        return "pair" if self.k is None else "triple"
