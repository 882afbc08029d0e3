"""``tartan sort``: sort files of numbers or records that are larger than memory."""

from __future__ import annotations

import argparse
from typing import Any

from tartan.cli.shared.options import positive_float, positive_int, size
from tartan.cli.shared.output import print_json, say
from tartan.cli.shared.outputs import add_overwrite
from tartan.errors import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add(
        "paths",
        metavar="SRC... DST",
        nargs="+",
        help="files, folders or quoted globs: raw, .npy, Parquet, Arrow, or text: .csv, .tsv, .txt, also .gz and .zst, "
        "- for a pipe; the last is the result; its suffix says whether a table or text is written",
    )
    add("--dtype", metavar="T", help="records of raw files: int64, '>f4', record:100, key:u4,score:f8")
    add(
        "--key",
        metavar="K",
        help="fields or columns: score:desc,key; of CSV also name:text, size:number, name:natural (chr2 before chr10), "
        "2 (the second); names with a comma within quotes; bytes: 0:10 (offset:length); "
        "default: the whole record or line; tables, CSV: none",
    )
    add("--format", choices=("lines", "csv", "tsv"), help="text of other names, and of pipes")
    add("--quote", choices=("double", "none"), help="how CSV and TSV quote values; default: double in CSV, none in TSV")
    add("--separator", metavar="C", help="between values of CSV: ';', '|', tab; default: a comma")
    add(
        "--no-header",
        action="store_true",
        help="CSV and TSV have no line of names; columns are named by numbers from 1",
    )
    add("--unique", action="store_true", help="tables, text: of rows with equal keys only the first of the input")
    add("--top", type=positive_int, metavar="N", help="tables, text: only the first N rows of the order")
    add("--total-order", action="store_true", help="minus zero comes before zero; default: they are equal")
    add("--descending", action="store_true", help="large values first")
    add("--memory", type=size, metavar="SIZE", help="most memory of the whole process; default: half of what is free")
    add("--tmp", metavar="DIR", action="append", help="folder for run files; may be repeated; default: that of DST")
    add("--pack", choices=("auto", "always", "never"), default="auto", help="pack run files; default: auto")
    add("--threads", type=positive_int, metavar="N", help="threads that sort; default: all cores")
    add("--in-place", action="store_true", help="replace the only SRC when its sorted copy is whole")
    add_overwrite(parser)
    add("--fresh", action="store_true", help="use no run files of an earlier attempt")
    add("--columns", metavar="A,B", help="tables, CSV: columns that are carried along; default: all")
    add(
        "--nulls",
        choices=("last", "first"),
        default="last",
        help="tables: where rows without a value go; default: last",
    )
    add(
        "--compression",
        metavar="C",
        help="tables: codec of the result, or none; default: that of the source, of text snappy in Parquet",
    )
    add("--on", metavar="WHERE", help="sort on several ranks, at local:4 or tls://host:port of a Dask scheduler")
    add("--scheduler-file", metavar="FILE", help="the file that `dask scheduler --scheduler-file` wrote")
    add("--insecure", action="store_true", help="accept a cluster whose connections are not encrypted")
    add("--rank-timeout", type=positive_float, metavar="SECONDS", help="a rank silent for longer is lost; default: 15")
    add("-q", "--quiet", action="store_true", help="no progress and no summary")


def execute(args: argparse.Namespace) -> int:
    """Sort; return the exit status."""
    from tartan.sort import sort_file

    sources, destination = _split(args)
    if destination == "-" and args.json:
        raise ConfigError("the sorted text and the JSON object would both go to stdout; name a file, or omit --json")
    result = sort_file(sources, destination, **_options(args))
    if not args.quiet:
        say(result.summary())
    if args.json:
        print_json(result.to_dict())
    return 0


def _split(args: argparse.Namespace) -> tuple[list[str], str | None]:
    if args.in_place:
        return args.paths, None
    if len(args.paths) < 2:
        raise ConfigError(f"{args.paths[0]} is all that is named; name a destination too, or add --in-place")
    return args.paths[:-1], args.paths[-1]


def _options(args: argparse.Namespace) -> dict[str, Any]:
    names = ("dtype", "key", "descending", "memory", "tmp", "pack", "threads", "in_place", "overwrite", "quiet",
             "nulls", "compression", "format", "quote", "total_order", "separator",
             "unique", "top", "insecure", "rank_timeout")  # fmt: skip
    from tartan.sort.quoted_names import split_names, unquote

    columns = None if args.columns is None else [unquote(name) for name in split_names(args.columns)]
    where = {"resume": not args.fresh, "header": not args.no_header, "columns": columns, "on": _where(args)}
    return {name: getattr(args, name) for name in names} | where


def _where(args: argparse.Namespace) -> Any:
    if args.scheduler_file is None:
        return args.on
    from tartan.cluster.launch import parse_cluster

    return parse_cluster(args.on, scheduler_file=args.scheduler_file, insecure=args.insecure)
