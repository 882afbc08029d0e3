"""``tartan run``: compare all pairs or triples; an unfinished run is resumed, a finished one says so."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from tartan.cli.shared.inputs import INPUTS, add_choice, read_inputs
from tartan.cli.shared.options import (
    add_execution_options,
    add_settings,
    execution_options,
    options_of_pairs,
    positive_int,
    read_setting_texts,
)
from tartan.cli.shared.output import conclude, describe_parts, say, say_notices
from tartan.cli.shared.outputs import require_no_file
from tartan.cli.shared.row_names import add_keys, add_raw, keys_option, name_parts, open_named, say_rows
from tartan.errors import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("app", metavar="APP", help="cameras, forensics, genomes, microscopy, phylogeny, sets, vectors, or file.py:NAME")
    add("inputs", metavar="INPUT", nargs="+", help=INPUTS)
    add("-o", "--out", metavar="RUN", required=True, help="folder of the result")
    add("--overwrite", action="store_true", help="compute afresh in place of a run that is at RUN")
    add_settings(parser, "set a parameter of the application")
    add(
        "--arity",
        type=int,
        choices=(2, 3),
        default=2,
        help="items that are compared at a time; 3 compares all triples, and needs --top-k or --threshold",
    )
    add("--against", metavar="INPUT", nargs="+", help="compare INPUTs with these, not among themselves")
    add_choice(parser)
    add_keys(parser, "the rows of an array")
    add_raw(parser)
    add(
        "--group",
        metavar="folders|TABLE",
        help="make items of several files: each folder that is named is one, or TABLE has columns file and group",
    )
    add(
        "--pairs",
        metavar="FILE",
        type=Path,
        help="compare only these pairs: CSV or TSV with the header key_i,key_j (keys) or i,j (places from 0), or "
        "none; Parquet with such columns, or .npy",
    )
    add("--tile", type=positive_int, metavar="N", help="side of a chunk of the result; fixed for the run")
    add(
        "--part",
        metavar="I/N",
        help="compute part I of N beside other processes; `tartan resume RUN` finishes when all have ended",
    )
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--top-k", type=positive_int, metavar="K", help="keep the K best of each item, no matrix")
    kept.add_argument("--threshold", type=float, metavar="X", help="keep what is beyond X, no matrix")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--largest", action="store_true", default=None, help="large scores are the best")
    which.add_argument("--smallest", dest="largest", action="store_false", help="small scores are the best")
    add_execution_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Run it; return the exit status."""
    import tartan
    from tartan import apps
    from tartan.cli.shared.chosen import choose_items
    from tartan.workers.shipping import load_application

    out = Path(args.out)
    require_no_file(
        out, "a run is a folder", f"name it {out.with_suffix('.tartan')}, and `tartan export` writes files from it"
    )
    named = load_application(args.app, read_setting_texts(args), apps, args.arity)
    given = name_parts(args, read_inputs(args.inputs))
    if args.group is not None and args.pairs is not None:
        raise ConfigError(
            "--group and --pairs exclude each other: give the groups as --against", context={"option": "--group"}
        )
    with say_notices():
        items: Any = open_named(given) if named.app.rows else given
    options = execution_options(args) | keys_option(args, items) | ({"overwrite": True} if args.overwrite else {})
    if not args.quiet:
        say_rows(items)
    args.inputs = choose_items(args, named.app, items, options.get("keys"))
    if args.inputs is not items:  # opened, with keys and groups
        items = args.inputs
        options.pop("keys", None)
        args.group = None
    if args.tile is not None:
        options["tile"] = args.tile
    if args.arity == 3:
        return _triples(args, named, options)
    if args.against:
        args.against = name_parts(args, read_inputs(args.against))
        options["against"] = args.against
    if args.pairs is not None:
        items, options["pairs"] = _pairs(args, named.app, items, options.pop("keys", None))
    reduce = _reduction(args)
    if reduce is not None:
        options["reduce"] = reduce
    if args.part is not None:
        options["part"] = args.part
    if args.group is not None:
        options["group"] = args.group
    with say_notices():
        run = tartan.allpairs(named, items, args.out, **options)
    if args.part is None:
        return conclude(run, args, finished_before=run.found_finished)
    status = conclude(run, args, finished_before=run.found_finished, parts=describe_parts(run))
    if not args.quiet:
        _say_what_is_left(run, args.part)
    return status


def _triples(args: argparse.Namespace, named: Any, options: dict[str, Any]) -> int:
    """Compare triples; return the exit status."""
    import tartan
    from tartan.run.triples import refuse_of_pairs

    of_pairs = ["against", "group", "pairs", "part", "scheduler_file", *options_of_pairs()]
    refuse_of_pairs({"--" + name.replace("_", "-"): getattr(args, name) for name in of_pairs})
    run = tartan.alltuples(named, args.inputs, args.out, keep=_reduction(args), **options)
    return conclude(run, args, finished_before=run.found_finished)


def _say_what_is_left(run: Any, part: str) -> None:
    parts = run.parts
    ended = sum(each.state == "finished" for each in parts)
    rest = f"when all have ended, `tartan resume {shlex.quote(str(run.path))}` finishes the run"
    left = "the run is finished" if run.finished else rest
    say(f"tartan: part {part} has ended; {ended} of {len(parts)} parts are finished; {left}")


def _reduction(args: argparse.Namespace) -> dict[str, Any] | None:
    if args.top_k is not None:
        return {"kind": "top-k", "k": args.top_k, "largest": args.largest}
    if args.threshold is not None:
        return {"kind": "threshold", "threshold": args.threshold, "largest": args.largest}
    return None


def _pairs(args: argparse.Namespace, application: Any, items: Any, keys: Any) -> tuple[Any, Any]:
    from tartan.cli.shared.pairs_file import read_pairs
    from tartan.run.inputs import open_items
    from tartan.sources.items import join_sources

    source = open_items(application, items, keys)
    if not args.against:
        return source, read_pairs(args.pairs, source.keys, by_place=not args.exclude)
    both = join_sources(source, open_items(application, args.against), allow_repeats=True)
    return source, read_pairs(args.pairs, both.keys, by_place=not args.exclude)
