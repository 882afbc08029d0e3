"""What transcripts say: commands of several lines, both streams, statuses, wildcards; and what they let not pass."""

from __future__ import annotations

import pytest

from support.transcript import agree, generalize, parse, render, replay

TEXT = """\
$ cat > a.txt <<END
> one
>
> END
$ tartan info a.txt
2> tartan: error: a.txt is not a run
[2]
"""


def test_a_transcript_is_divided_into_commands():
    first, second = parse(TEXT)
    assert (first.text, first.printed) == ("cat > a.txt <<END\none\n\nEND", ())
    assert (second.text, second.printed) == ("tartan info a.txt", ("2> tartan: error: a.txt is not a run", "[2]"))
    with pytest.raises(ValueError, match="begins with a command"):
        parse("tartan info a.txt\n")


def test_what_is_printed_becomes_lines():
    progress = "19.0 %  120 of 630 pairs  12.8 pairs/s  40 s left"
    assert render("a\n\nb \n\n", f"{progress}\nc\n", 3) == (
        "a",
        "",
        "b",
        "2> c",
        "[3]",
    )
    assert render("", "", 0) == ()


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (["a"], ["a"], True),
        (["a"], ["a", "b"], False),
        (["a"], [], False),
        ([], ["a"], False),
        (["a.c"], ["abc"], False),
        (["in ... s"], ["in 0.3 s"], True),
        (["in ... s"], ["in 0.3 s", "and more s"], False),
        (["..."], [], True),
        (["a", "...", "b"], ["a", "x", "y", "b"], True),
        (["a", "...", "b"], ["a", "x", "y", "b", "z"], False),
        (["a", "...", "[2]"], ["a"], False),
    ],
)
def test_wildcards(expected, printed, same):
    assert agree(tuple(expected), tuple(printed)) is same


def test_what_differs_from_run_to_run_becomes_a_wildcard():
    printed = (
        "2>      0.0 s  check  rows 8  of 8",
        "2>      0.1 s  pairs  rows 8  of 8",
        "2> 28 of 28 pairs in 0.011 s (2.49 kpairs/s); 8 loads, R 1.00; peak memory 128 MB",
        "created  2026-01-02T03:04:05+00:00",
        "efficiency  5.6%",
        "2> usage: tartan sort [-h] SRC",
        "2>                    DST",
        "2> tartan sort: error: no SRC",
        "2>   item a [parse] 12 bytes",
    )
    assert generalize(printed) == (
        "...",
        "2> 28 of 28 pairs in ... s (...); 8 loads, R 1.00; peak memory ... MB",
        "created  ...",
        "efficiency  ...%",
        "2> usage: tartan sort ...",
        "...",
        "2> tartan sort: error: no SRC",
        "2>   item a [parse] 12 bytes",
    )
    assert agree(generalize(printed), printed)


def test_a_replay_changes_what_is_no_longer_true_and_nothing_else():
    text = "$ one\nin ... s\n$ two\nold\n"
    said = {"one": ("in 0.2 s",), "two": ("took 0.5 s", "[1]")}
    assert replay(text, said.__getitem__) == "$ one\nin ... s\n$ two\ntook ... s\n[1]\n"
    assert replay(text, {"one": ("in 0.2 s",), "two": ("old",)}.__getitem__) == text
