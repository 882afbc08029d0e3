"""The order of pieces within a rank."""

from __future__ import annotations

import numpy as np
import pytest

from tartan.core.affinity import TaskNeeds
from tartan.core.blocks.subtask_order import PieceOrder

INDEX = np.array(list(np.ndindex(6, 4)))


def product() -> TaskNeeds:
    """Return the needs of a product of six rows and four columns, one byte each."""
    needs, _ = TaskNeeds.of(INDEX.tolist(), lambda piece: {("row", piece[0]): 1.0, ("column", piece[1]): 1.0})
    return needs


def loads(needs: TaskNeeds, order: np.ndarray, room: int) -> int:
    """Count what is fetched with room for some units, if what is used last, or never again, goes first."""
    uses = needs.part(order).units.tolist()
    there: set[int] = set()
    count = 0
    for turn, unit in enumerate(uses):
        if unit not in there:
            count += 1
            if len(there) == room:
                rest = uses[turn:]
                there.remove(max(there, key=lambda held: rest.index(held) if held in rest else len(rest)))
            there.add(unit)
    return count


def test_what_can_be_computed_grows_as_a_square() -> None:
    needs = product()
    order = PieceOrder(needs, INDEX).of(np.arange(24), needs.sizes)
    assert sorted(order.tolist()) == list(range(24))
    for fetched in range(2, 11):
        computable = sum(len(np.unique(needs.part(order[:k]).units)) <= fetched for k in range(1, 25))
        assert computable >= int((fetched / 10) ** 2 * 24 * 0.75)


def test_lines_that_are_there_come_first() -> None:
    needs = product()
    missing = needs.sizes.copy()
    held = np.unique(needs.part(np.array([2 * 4 + 3])).units)
    missing[held] = 0.0
    assert PieceOrder(needs, INDEX).of(np.arange(24), missing)[0] == 2 * 4 + 3


def test_the_side_stays_that_costs_the_least() -> None:
    needs = product()
    for room, most in ((6, 10), (5, 4 + 6 + 2), (4, 4 + 2 * 6), (3, 24)):
        order = PieceOrder(needs, INDEX).of(np.arange(24), needs.sizes, room=float(room))
        assert sorted(order.tolist()) == list(range(24))
        assert loads(needs, order, room) <= most, room


@pytest.mark.slow
def test_other_pieces_come_by_what_is_there() -> None:
    needs, _ = TaskNeeds.of(["ab", "cd", "bc", "ad"], lambda piece: dict.fromkeys(piece, 1.0))
    order = PieceOrder(needs).of(np.arange(4), np.array([1.0, 1.0, 0.0, 1.0]))
    assert order.tolist() == [1, 2, 0, 3]
    assert PieceOrder(needs).of(np.array([3, 1]), needs.sizes).tolist() == [1, 3]
    assert PieceOrder(needs).of(np.array([], dtype=int), needs.sizes).tolist() == []
