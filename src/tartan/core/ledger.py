"""What is known of a pair, and why something failed. The codes are on disk: never renumber them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NOT_COMPUTED = 0
DONE = 1
FAILED_ITEM = 2
FAILED_PAIR = 3


@dataclass(frozen=True)
class Failure:
    """One failed item (``j`` is None) or pair.

    Attributes
    ----------
    i, j : int
        Item index, or the pair with i <= j for symmetric workloads.
    stage : str
        The stage that failed: read, parse, preprocess, compare.
    reason : str
        One line, with the key and the value at fault.
    traceback : str
        Full text where there is one, else "".
    """

    i: int
    j: int | None
    stage: str
    reason: str
    traceback: str = ""

    @property
    def kind(self) -> Literal["item", "pair"]:
        return "item" if self.j is None else "pair"
