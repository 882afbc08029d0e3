"""How two photos lie on each other best: all eight turns of one, at all shifts, of any two sizes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tartan.apps.forensics.prnu import noise_pattern, pce


class Turn(NamedTuple):
    """A turn by quarters of a circle, after a reflection or without one, as three flips, one after the other."""

    transposed: bool
    rows: bool
    columns: bool

    def undone(self) -> Turn:
        """Return the turn that takes it back."""
        return _find_turn(find_quarters(self).T)


#: What is done to the second photo, by name. Directions are those in which people see the photo turn.
TURNS = {
    "as it is": Turn(False, False, False),
    "turned left": Turn(True, True, False),
    "turned by half a circle": Turn(False, True, True),
    "turned right": Turn(True, False, True),
    "mirrored": Turn(False, False, True),
    "mirrored, turned left": Turn(True, False, False),
    "mirrored, turned by half a circle": Turn(False, True, False),
    "mirrored, turned right": Turn(True, True, True),
}


def find_quarters(turn: Turn) -> np.ndarray:
    """Return where a turn takes a step (rows, columns): int (2, 2)."""
    matrix: np.ndarray = np.array([[0, 1], [1, 0]] if turn.transposed else [[1, 0], [0, 1]])
    matrix[0] *= -1 if turn.rows else 1
    matrix[1] *= -1 if turn.columns else 1
    return matrix


def compose(second: Turn, first: Turn) -> Turn:
    """Return the turn that ``second`` after ``first`` is."""
    return _find_turn(find_quarters(second) @ find_quarters(first))


def _find_turn(quarters: np.ndarray) -> Turn:
    return next(turn for turn in TURNS.values() if np.array_equal(find_quarters(turn), quarters))


class BestTurn(NamedTuple):
    """Where two photos agree best.

    Attributes
    ----------
    turn : str
        What is done to the second one; a name of ``TURNS``.
    pce : float
        Signed peak-to-correlation energy there.
    row, column : int
        So far down and to the right lies the corner of the second photo, turned, from that of the first.
    chance : float
        Chance that photos of two cameras agree as well at any turn and shift, for white patterns; at most 1.
    """

    turn: str
    pce: float
    row: int
    column: int
    chance: float


def turn_photo(photo: np.ndarray, turn: str) -> np.ndarray:
    """Return a photo (h, w), turned; ``turn`` is a name of ``TURNS``."""
    transposed, rows, columns = TURNS[turn]
    moved = photo.T if transposed else photo
    return np.ascontiguousarray(moved[:: -1 if rows else 1, :: -1 if columns else 1])


def find_best_turn(a: np.ndarray, b: np.ndarray) -> BestTurn:
    """Correlate two photos at all turns of the second one and all shifts.

    Parameters
    ----------
    a, b : uint16 arrays (h, w)
        Grey photos in units of 1/257, of any two sizes.

    Notes
    -----
    Nine transforms of the larger sides: 1 s a turn at 6 megapixels, memory 60 bytes a pixel.
    """
    first, second = noise_pattern(a, np), noise_pattern(b, np)
    side = max(b.shape)
    frame = max(a.shape[0], side), max(a.shape[1], side)
    here = _put_into(first, frame)
    best: tuple[float, str, int, int] | None = None
    for turn in TURNS:
        found = pce(here, _put_into(turn_photo(second, turn), frame))
        if best is None or found.pce > best[0]:
            best = (found.pce, turn, found.shift[0], found.shift[1])
    assert best is not None
    n_places = len(TURNS) * frame[0] * frame[1]
    chance = n_places * 0.5 * math.erfc(math.sqrt(max(best[0], 0.0) / 2))
    return BestTurn(best[1], best[0], best[2], best[3], min(1.0, chance))


def _put_into(pattern: np.ndarray, frame: tuple[int, int]) -> Any:
    if pattern.shape == frame:
        return pattern
    wide = np.zeros(frame, np.float32)
    wide[: pattern.shape[0], : pattern.shape[1]] = pattern
    return wide
