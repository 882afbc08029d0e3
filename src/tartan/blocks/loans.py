"""Which arrays of an arena functions have views of, also after their end, in this process or in a worker.

Counts of references tell it only where nobody else touches the array at that moment: threads, tracebacks, generators
and libraries hold views a while longer. So each array that a function gets has a *loan*, a word at the end of the
arena. It holds the id of the process that has the views, and 0 as soon as the last view is gone.

All views of an array keep one object alive, its root. A view of a view refers to the array at the bottom, but NumPy
does not look beyond what is not an array: between the root and what a function gets lies a ``memoryview``.
"""

from __future__ import annotations

import os
import weakref

import numpy as np

from tartan.workers.arena import Arena

# By judgement: 262,144 arrays at a time, 2 MiB of addresses, touched as they are used. No benchmark.
_N_LOANS = 1 << 18
# By arithmetic: a word of 8 bytes each.
LOAN_BYTES = 8 * _N_LOANS
"""Of an arena, after the room for arrays; pages are taken as loans are."""


class LoanTable:
    """The loans of an arena, for the one who gives its memory away.

    Parameters
    ----------
    arena : Arena
    """

    def __init__(self, arena: Arena) -> None:
        self._words = _words(arena)
        self._n_used = 0
        self._free: list[int] = []

    def take(self) -> int | None:
        """Return a loan that this process holds until a worker begins; None where there are none left."""
        if self._free:
            loan = self._free.pop()
        elif self._n_used < _N_LOANS:
            loan, self._n_used = self._n_used, self._n_used + 1
        else:
            return None
        self._words[loan] = os.getpid()
        return loan

    def holder(self, loan: int) -> int:
        """Return the process that has views of the array; 0 for none."""
        return int(self._words[loan])

    def give(self, loan: int) -> None:
        """Take a loan back."""
        self._words[loan] = 0
        self._free.append(loan)


def hold(arena: Arena, root: np.ndarray, loan: int) -> None:
    """Let this process hold a loan until an array and all that refers to it are gone."""
    process, words = os.getpid(), _words(arena)
    words[loan] = process
    weakref.finalize(root, _let_go, words, loan, process).atexit = False


def _let_go(words: memoryview, loan: int, process: int) -> None:
    if os.getpid() == process:  # a fork of it has views of its own, and no loan
        words[loan] = 0


def _words(arena: Arena) -> memoryview:
    return arena.view(arena.n_bytes - LOAN_BYTES, (_N_LOANS,), np.uint64).data
