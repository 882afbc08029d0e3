"""What is known of an unfinished output."""

from __future__ import annotations

from itertools import accumulate

import pytest

from tartan.core.blocks.output_record import ABSENT, ChunkSeal, chunks_in, differences, format_line, is_due

SEALS = {(0, 0): ChunkSeal(10, 4_000_000_000), (0, 11): ChunkSeal(ABSENT, 0), (3, 2): ChunkSeal(7, 1)}
LINES = [format_line(index, seal) for index, seal in SEALS.items()]


def test_lines_are_read_as_written_and_the_last_of_a_chunk_counts() -> None:
    assert chunks_in(b"".join(LINES)) == SEALS
    assert chunks_in(b"".join([*LINES, format_line((0, 0), ChunkSeal(11, 5))])) == {**SEALS, (0, 0): ChunkSeal(11, 5)}
    assert chunks_in(format_line((4,), ChunkSeal(1, 2))) == {(4,): ChunkSeal(1, 2)}
    assert chunks_in(b"") == {}


def test_a_record_that_is_cut_anywhere_says_nothing_wrong_and_hides_no_later_line() -> None:
    whole = b"".join(LINES)
    ends = list(accumulate(map(len, LINES)))
    later = format_line((5, 5), ChunkSeal(9, 9))
    for length in range(len(whole)):
        n_whole = sum(length >= end - 1 for end in ends)  # but for its end of line
        found = chunks_in(whole[:length] + later)
        assert found == {**dict(list(SEALS.items())[:n_whole]), (5, 5): ChunkSeal(9, 9)}


@pytest.mark.parametrize("at", range(len(LINES[0])))
def test_a_changed_byte_is_noticed(at: int) -> None:
    changed = bytearray(LINES[0])
    changed[at] ^= 1
    assert chunks_in(bytes(changed)) in ({}, {(0, 0): SEALS[0, 0]})


def test_other_commands_are_told_apart() -> None:
    one = {"block": 64, "boundary": "zero", "/a.npy": [8, 1, 2, 3]}
    assert differences(one, dict(one)) == []
    assert differences(one, {**one, "/a.npy": [8, 1, 2, 4]}) == ["/a.npy has changed"]
    assert differences(one, {**one, "block": None}) == ["block was 64, not None"]
    assert differences(one, {"block": 64, "boundary": "zero"}) == ["/a.npy has changed"]


def test_saving_takes_a_fiftieth_of_the_time() -> None:
    assert is_due(50.0, 1.0)
    assert not is_due(49.0, 1.0)
