"""Affinity: what a piece of work costs where."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tartan.core.affinity import TaskNeeds, choose_pieces, choose_stolen, count_moved_bytes, marginal, weigh_missing


def test_a_piece_costs_what_is_not_there() -> None:
    needs = {"a": 5.0, ("row", 3): 2.0, 7: 1.0}
    assert weigh_missing(needs, {"a", 9}) == 3
    assert marginal(needs, thief={"a"}, victim={7}) == 3 - 7


def test_cheap_pieces_go_first_then_the_last_ones_and_never_too_much() -> None:
    size = {"a": 4.0, "b": 4.0, "c": 4.0, "d": 100.0}
    cost = {"a": 1.0, "b": 2.0, "c": 2.0, "d": 0.0}
    assert choose_pieces("abcd", 9, size.__getitem__, cost.__getitem__) == ["a", "c"]
    assert choose_pieces("abcd", 3, size.__getitem__, cost.__getitem__) == []


def test_a_thief_gets_what_it_has_the_units_for_or_simply_the_last() -> None:
    needs = {"ab": {"a": 2.0, "b": 1.0}, "bc": {"b": 1.0, "c": 3.0}, "cd": {"c": 3.0, "d": 1.0}}
    pieces = [*needs]
    assert choose_stolen(pieces, 1, needs.__getitem__, {"a"}, {"c"}) == ["ab"]
    assert choose_stolen(pieces, 2, needs.__getitem__, {"c"}, {"a", "b"}) == ["cd", "bc"]
    assert choose_stolen(pieces, 2, needs.__getitem__, {"a"}, {"c"}, "plain") == ["cd", "bc"]
    assert choose_stolen(pieces, 9, needs.__getitem__, set(), set()) == ["cd", "bc", "ab"]


def demand_of(*needs: dict[str, float]) -> tuple[TaskNeeds, list[object]]:
    """Return the demand of pieces with these needs."""
    return TaskNeeds.of(range(len(needs)), needs.__getitem__)  # type: ignore[return-value]


def test_a_demand_holds_what_pieces_say() -> None:
    demand, units = demand_of({"a": 2.0, "b": 1.0}, {}, {"b": 1.0, "c": 4.0})
    assert units == ["a", "b", "c"]
    assert (demand.n_pieces, demand.n_units) == (3, 3)
    np.testing.assert_array_equal(demand.sums(demand.sizes), [3, 0, 5])
    np.testing.assert_array_equal(demand.sums(np.eye(3)), [[1, 1, 0], [0, 0, 0], [0, 1, 1]])
    starts, pieces = demand.needers
    assert [pieces[a:b].tolist() for a, b in pairwise(starts)] == [[0], [0, 2], [2]]
    part = demand.part(np.array([2, 1]))
    np.testing.assert_array_equal(part.sums(demand.sizes), [5, 0])


def test_a_unit_is_moved_once_to_each_rank() -> None:
    demand, _ = demand_of({"a": 2.0, "b": 1.0}, {"a": 2.0, "c": 4.0})
    held = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.5]])
    assert count_moved_bytes(demand, held, np.array([0, 0])).tolist() == [6, 0]
    assert count_moved_bytes(demand, held, np.array([0, 1])).tolist() == [2, 5.5]


def test_units_that_the_same_pieces_need_become_one() -> None:
    demand, _ = demand_of({"a": 2.0, "b": 1.0, "c": 3.0}, {"b": 1.0, "a": 2.0, "d": 5.0}, {"d": 5.0})
    held = np.array([[2.0, 0.0, 3.0, 0.0], [0.0, 1.0, 0.0, 5.0]])
    merged, together = demand.merge(held)
    assert sorted(merged.sizes) == [3, 3, 5]
    assert merged.n_pieces == 3
    np.testing.assert_array_equal(merged.sums(together.T), demand.sums(held.T))
    for owners in np.ndindex(2, 2, 2):
        owners = np.array(owners)
        assert count_moved_bytes(merged, together, owners).sum() == count_moved_bytes(demand, held, owners).sum()
