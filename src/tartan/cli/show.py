"""``tartan show RUN A B``: two items side by side, their scores, and how near each is to the other."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.cli.shared.matrix import add_names
from tartan.cli.shared.options import add_at, add_trust
from tartan.cli.shared.output import print_json, put, say, warn_unfinished
from tartan.cli.shared.outputs import inspector_of

if TYPE_CHECKING:
    from tartan.result.pair import NeighbourRank, Pair
    from tartan.run.inspection import Portrait


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("run", metavar="RUN", help="folder of the run")
    add("a", metavar="A", help="an item: its name, its number from 0, or a part of the name that no other one has")
    add("b", metavar="B", help="another item")
    add_names(parser)
    add_at(parser)
    add_trust(parser, "open the items, and run the application, that RUN names")


def execute(args: argparse.Namespace) -> int:
    """Show them; return the exit status."""
    import tartan
    from tartan.result.lookup import read_facts, two_items
    from tartan.result.pair import inspect_pair, say_decision
    from tartan.result.shown_run import show_run

    run = tartan.open(args.run, args.at)
    n_left = run.manifest.workload.get("n_left")
    shown = show_run(run, args.names).keys
    a, b = two_items(run.keys, n_left, (args.a, args.b), shown)
    pair = inspect_pair(run.folder, a, b)
    if pair.state == "not computed":
        warn_unfinished(run)
    inspector = inspector_of(run.folder, args)
    portraits = [inspector.portrait(item) for item in (a, b)]
    facts = [read_facts(run.folder, item) | dict(p.facts) for item, p in zip((a, b), portraits)]
    together = inspector.describe_pair(a, b)
    decision = say_decision(run.manifest, pair.scores)
    names = shown[a], shown[b]
    if args.json:
        numbers = [item if n_left is None or item < n_left else item - n_left for item in (a, b)]
        print_json(
            _describe(pair, numbers, names, facts, portraits) | {"decision": decision or None, "together": together}
        )
    else:
        put("\n".join([*([decision] if decision else []), *_text(pair, names, facts, portraits, together)]))
    return 0


def _describe(
    pair: Pair, numbers: list[int], names: tuple[str, str], facts: list[dict[str, str]], portraits: list[Portrait]
) -> dict[str, Any]:
    items = [
        {"item": item, "key": name, "facts": known, "not_opened": portrait.problem or None}
        for item, name, known, portrait in zip(numbers, names, facts, portraits)
    ]
    return {
        "a": items[0],
        "b": items[1],
        "state": pair.state,
        "scores": {name: _plain(value) for name, value in pair.scores.items()},
        "rank_of_b": _rank(pair.b_for_a),
        "rank_of_a": _rank(pair.a_for_b),
        "reasons": list(pair.reasons),
    }


def _text(
    pair: Pair,
    names: tuple[str, str],
    facts: list[dict[str, str]],
    portraits: list[Portrait],
    together: Mapping[str, str],
) -> Iterator[str]:
    """Yield the lines for people: the answer, then both items in two columns."""
    from tartan.view.page import clip_text

    shown = [clip_text(name, 60) for name in names]
    scores = {name: f"{value:.6g}" for name, value in pair.scores.items()}
    a, b = shown
    yield from _columns([[name, value] for name, value in (scores or {"score": pair.state}).items()])
    yield from (f"{name}: {text}" for name, text in together.items())
    yield from (clip_text(reason, 400) for reason in pair.reasons)
    yield ""
    if pair.b_for_a is not None and pair.a_for_b is not None:
        yield f"{b} is {_place(pair.b_for_a)} {a}"
        yield f"{a} is {_place(pair.a_for_b)} {b}"
        yield ""
    named = list(dict.fromkeys(name for known in facts for name in known))
    cells = [[clip_text(name, 40), *(clip_text(known.get(name, "-"), 60) for known in facts)] for name in named]
    yield from _columns([["", *shown], *cells])
    for problem in dict.fromkeys(portrait.problem for portrait in portraits if portrait.problem):
        say(f"tartan: not opened: {clip_text(problem, 400)}")


def _rank(found: NeighbourRank | None) -> dict[str, int | None] | None:
    return None if found is None else {"rank": found.rank, "of": found.of}


def _plain(score: Any) -> Any:
    """Return a score as JSON has it: a complex one as its two parts."""
    return {"real": score.real, "imag": score.imag} if isinstance(score, complex | np.complexfloating) else score


def _place(rank: NeighbourRank) -> str:
    if rank.rank is None:
        return f"not among the {rank.of:,} items that have a score with"
    return f"number {rank.rank:,} of the {rank.of:,} neighbours of"


def _columns(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "   ".join(f"{cell:{width}}" for cell, width in zip(row, widths)).rstrip()
