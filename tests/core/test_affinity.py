"""Affinity: what a piece of work costs where, and how pieces are dealt."""

from __future__ import annotations

import numpy as np
import pytest

from tartan.core.affinity import chosen, deal, marginal, missing_weight, moved_weight


def test_a_piece_costs_what_is_not_there() -> None:
    needs = {"a": 5.0, ("row", 3): 2.0, 7: 1.0}
    assert missing_weight(needs, {"a", 9}) == 3
    assert marginal(needs, thief={"a"}, victim={7}) == 3 - 7


def test_cheap_pieces_go_first_then_the_last_ones_and_never_too_much() -> None:
    size = {"a": 4.0, "b": 4.0, "c": 4.0, "d": 100.0}
    cost = {"a": 1.0, "b": 2.0, "c": 2.0, "d": 0.0}
    assert chosen("abcd", 9, size.__getitem__, cost.__getitem__) == ["a", "c"]
    assert chosen("abcd", 3, size.__getitem__, cost.__getitem__) == []


def pair_needs(n_blocks: int) -> np.ndarray:
    """Return what all pairs of blocks need."""
    rows, columns = np.triu_indices(n_blocks)
    needs = np.zeros((len(rows), n_blocks))
    needs[np.arange(len(rows)), rows] = 1
    needs[np.arange(len(rows)), columns] = 1
    return needs


@pytest.mark.parametrize("score", ["marginal", "local", "transfers", "remote"])
def test_every_piece_is_dealt_in_equal_shares(score: str) -> None:
    needs, held = pair_needs(16), np.arange(16) % 4 == np.arange(4)[:, None]
    owners = deal(needs, held, score, np.random.default_rng(0))  # type: ignore[arg-type]
    assert np.bincount(owners).tolist() == [34, 34, 34, 34]
    again = deal(needs, held, score, np.random.default_rng(0))  # type: ignore[arg-type]
    np.testing.assert_array_equal(owners, again)


def test_what_a_node_is_bound_to_fetch_counts() -> None:
    """With the blocks of all pairs in turn on the nodes, looking at what lies there does not help."""
    needs, held = pair_needs(32), np.arange(32) % 8 == np.arange(8)[:, None]
    moved = {
        score: moved_weight(needs, held, deal(needs, held, score, np.random.default_rng(1)))
        for score in ("marginal", "local", "remote")
    }
    assert moved["marginal"] < 0.7 * min(moved["local"], moved["remote"])


def test_a_unit_is_moved_once_to_each_node() -> None:
    needs = np.array([[2.0, 1.0, 0.0], [2.0, 0.0, 4.0]])
    held = np.array([[False, True, False], [False, False, False]])
    assert moved_weight(needs, held, np.array([0, 0])) == 6
    assert moved_weight(needs, held, np.array([0, 1])) == 2 + 6
