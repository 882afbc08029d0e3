"""The directory of the Rocket paper: who is asked, in which order, and what is loaded in the end."""

from __future__ import annotations

from tartan.core.ranks.homes import Ask, Read, Respond, Send
from tartan.core.ranks.messages import Busy, Elsewhere, Fetch, Member, Yours
from tartan.core.replay.cluster import HopsDirectory

MEMBERS = [Member(rank, "host", f"address {rank}", 1.0, 0) for rank in range(4)]
SPAN = 6  # rank 2 is its point of contact


def directory(rank: int, n_hops: int = 2, resident: tuple[int, ...] = ()) -> HopsDirectory:
    found = HopsDirectory(rank, n_hops, resident.__contains__)
    assert found.view(MEMBERS) == []
    return found


def test_the_point_of_contact_names_those_that_asked_last_and_each_once() -> None:
    contact = directory(2)
    assert contact.on_fetched(0, Fetch(SPAN)) == [Respond(0, Yours(SPAN))]
    assert contact.on_fetched(1, Fetch(SPAN)) == [Respond(1, Elsewhere(SPAN, 0))]
    assert contact.on_fetched(3, Fetch(SPAN)) == [Respond(3, Elsewhere(SPAN, 1))]
    assert contact.on_fetched(3, Fetch(SPAN, missed=(1,))) == [Respond(3, Elsewhere(SPAN, 0))]
    assert contact.on_fetched(3, Fetch(SPAN, missed=(1, 0))) == [Respond(3, Yours(SPAN))]
    assert contact.on_fetched(0, Fetch(SPAN)) == [Respond(0, Elsewhere(SPAN, 3))], "the two that asked last"
    assert contact.on_fetched(0, Fetch(SPAN, missed=(3,))) == [Respond(0, Elsewhere(SPAN, 1))]


def test_a_hit_at_the_second_hop_is_counted_as_such() -> None:
    asker = directory(3)
    assert asker.source(SPAN, stays=True) == [Ask(2, Fetch(SPAN))]
    assert asker.on_answered(2, Elsewhere(SPAN, 1)) == [Ask(1, Fetch(SPAN, sent_on=True))]
    assert asker.on_answered(1, Busy(SPAN)) == [Ask(2, Fetch(SPAN, missed=(1,)))]
    assert asker.on_answered(2, Elsewhere(SPAN, 0)) == [Ask(0, Fetch(SPAN, sent_on=True))]
    assert asker.expects(SPAN, 0)
    assert asker.on_received(SPAN, 0) == []
    assert asker.hits == {2: 1}


def test_a_rank_that_has_a_span_sends_it_and_another_one_says_so() -> None:
    assert directory(1, resident=(SPAN,)).on_fetched(3, Fetch(SPAN, sent_on=True)) == [Send(3, SPAN, None)]
    assert directory(1).on_fetched(3, Fetch(SPAN, sent_on=True)) == [Respond(3, Busy(SPAN))]


def test_what_no_rank_has_or_a_lost_one_was_asked_for_is_loaded() -> None:
    asker = directory(3)
    asker.source(SPAN, stays=False)
    assert asker.view(MEMBERS[:2] + MEMBERS[3:]) == [Read(SPAN, None)]
    asker.read(SPAN)
    own = directory(2)
    assert own.source(SPAN, stays=True) == [Read(SPAN, None)], "it is its own point of contact, and knows of nobody"
    assert own.hits == {0: 1}
    assert own.on_answered(1, Busy(SPAN)) == []
