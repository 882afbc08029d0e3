"""``tartan neighbors``: the nearest items of each item, or with ``--of`` the nearest rows of another table."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.files import arrow_file, whole_file
from tartan.cli.shared.matrix import (
    add_matrix,
    item_names,
    look_at_failed,
    matrix_options,
    open_edges,
    open_matrix,
    open_run,
)
from tartan.cli.shared.memory import say_need, say_of_matrix
from tartan.cli.shared.options import finite_float, positive_int, size
from tartan.cli.shared.output import print_json, say, say_notes
from tartan.cli.shared.outputs import TABLE, FileKind, require_outputs
from tartan.cli.shared.tables import add_table_options, write_table
from tartan.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# By format: text, and what Arrow writes.
_JOINED = FileKind("a table", (*TABLE.suffixes, ".parquet", ".arrow", ".feather"))


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_matrix(parser)
    add = parser.add_argument
    add("-k", "--count", type=positive_int, metavar="K", help="how many; default: 10, with --within no limit")
    add(
        "--of",
        metavar="TABLE",
        help="join two tables of vectors, .parquet or .arrow: the nearest rows of this one for each row of the other",
    )
    add("--within", metavar="D", type=finite_float, help="with --of: only rows up to this distance")
    add("--on", metavar="COLUMN", help="with --of: the column of vectors; default: the only one with lists of numbers")
    add("--by", metavar="COLUMN", action="append", help="with --of: only rows equal in this column meet; repeatable")
    add("--how", choices=("inner", "left"), help="with --of: leave rows without a match out (default), or keep them")
    add("--metric", metavar="NAME", help="with --of: as of the application vectors; default: cosine")
    add("--memory", metavar="SIZE", type=size, help="with --of: most memory of the process; default: half of the free")
    add_table_options(parser, "; with --of also .parquet or .arrow")


def execute(args: argparse.Namespace) -> int:
    """Find them; return the exit status."""
    if args.of is not None:
        return _join(args)
    for name in ("within", "on", "by", "how", "metric", "memory"):
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name} is for two tables of vectors; name the other one with --of, or leave it out")
    args.count = 10 if args.count is None else args.count
    require_outputs(args, (args.out, TABLE))
    found = _of_run(args) if _is_plain_run(args) else _of_matrix(args)
    if args.out is not None or not args.json:
        write_table(args, ("item", "rank", "neighbor", found.measure), found.rows())
    if args.json:
        print_json({"n": len(found.keys), "k": args.count, "neighbors": found.list_rows()})
    return 0


def _join(args: argparse.Namespace) -> int:
    """Join two tables; return the exit status."""
    from tartan.join import prepare_join

    given = [name for name in matrix_options(args) if getattr(args, name, None) is not None]
    if given:
        raise ConfigError(f"--{given[0]} is for runs and matrices; leave it out with --of")
    if args.json:
        raise ConfigError("--json is for runs and matrices; with --of, -o FILE.parquet writes a table for programs")
    require_outputs(args, (args.out, _JOINED))
    said = {"how": args.how, "metric": args.metric, "memory": None if args.memory is None else str(args.memory)}
    ways = {name: value for name, value in said.items() if value is not None}
    need, reader = prepare_join(args.matrix, args.of, args.on, k=args.count, within=args.within, by=args.by, **ways)
    say_need(args, need)
    if args.out is None or args.out.suffix.lower() in TABLE.suffixes:
        rows = (row for batch in reader for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        write_table(args, reader.schema.names, (["" if cell is None else cell for cell in row] for row in rows))
        return 0
    _write_batches(args.out, reader)
    if not args.quiet:
        say(f"table in {args.out}")
    return 0


def _write_batches(out: Path, reader: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with whole_file(out) as unfinished, arrow_file(unfinished, "wb") as file:
        parquet = out.suffix.lower() == ".parquet"
        with pq.ParquetWriter(file, reader.schema) if parquet else pa.ipc.new_file(file, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)


@dataclass(frozen=True)
class _Nearest:
    """The nearest items of each item."""

    keys: Sequence[str]
    others: Sequence[str]  # what the indices count; those of an A x B run are items of B
    indices: NDArray[np.int64]
    values: NDArray[Any]
    measure: str  # what the values are

    def rows(self) -> Iterator[tuple[Any, ...]]:
        for key, row, values in zip(self.keys, self.indices.tolist(), self.values.tolist()):
            for rank, (item, value) in enumerate(zip(row, values), 1):
                if item >= 0:
                    yield key, rank, self.others[item], value

    def list_rows(self) -> list[dict[str, Any]]:
        found = []
        for key, row, values in zip(self.keys, self.indices, self.values):
            known = row >= 0
            names = [self.others[item] for item in row[known].tolist()]
            found.append({"item": key, "neighbors": names, self.measure + "s": values[known]})
        return found


def _is_plain_run(args: argparse.Namespace) -> bool:
    """Whether the scores of a run are asked for as they are; they may be similarities, and only the best ones."""
    return (Path(args.matrix) / "manifest.json").exists() and not matrix_options(args).keys() - {"output", "failed"}


def _of_run(args: argparse.Namespace) -> _Nearest:
    from tartan.base.shown_names import show_names
    from tartan.run.memory import need_of_neighbors

    run = open_run(args)
    assert run is not None
    look_at_failed(args, run)
    say_notes(run, quiet=args.quiet)
    square = run.manifest.workload["kind"] != "rectangle"
    count = min(args.count, max(1, run.n_items - 1))
    say_need(args, need_of_neighbors(run.manifest, count))
    indices, scores = run.neighbors(count, output=args.output)
    n = len(indices)
    keys = show_names(run.keys, args.names)
    return _Nearest(keys[:n], keys if square else keys[n:], indices, scores, "score")


def _of_matrix(args: argparse.Namespace) -> _Nearest:
    from tartan.analytics import Monitor, neighbors
    from tartan.base.shown_names import show_names
    from tartan.base.signals import cancel_on_signals

    edges = open_edges(args)
    if edges is not None:
        from tartan.analytics.matrix import need_of_kept, neighbors_of_pairs

        shown, count = show_names(edges.names, args.names), min(args.count, edges.n - 1)
        say_need(args, need_of_kept("neighbors", len(edges.i), edges.n * count))
        return _Nearest(shown, shown, *neighbors_of_pairs(edges, count), "distance")
    monitor = Monitor(0 if args.quiet else 1)
    matrix = open_matrix(args)
    keys = show_names(item_names(matrix), args.names)
    say_of_matrix(args, "neighbors", matrix, n_near=matrix.n * min(args.count, max(1, matrix.n - 1)))
    with cancel_on_signals(monitor.cancel):
        # There are no more neighbours than other items: no memory is taken for them.
        indices, distances = neighbors(matrix, min(args.count, max(1, matrix.n - 1)), monitor=monitor)
    return _Nearest(keys, keys, indices, distances, "distance")
