"""``tartan neighbors``: the nearest items of each item, as a table."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.cli.shared.matrix import (
    add_matrix,
    item_names,
    look_at_failed,
    matrix_options,
    open_edges,
    open_matrix,
    open_run,
)
from tartan.cli.shared.options import positive_int
from tartan.cli.shared.output import print_json
from tartan.cli.shared.outputs import TABLE, require_outputs
from tartan.cli.shared.tables import add_table_options, write_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_matrix(parser)
    parser.add_argument("-k", "--count", type=positive_int, default=10, metavar="K", help="how many; default: 10")
    add_table_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Find them; return the exit status."""
    require_outputs(args, (args.out, TABLE))
    found = _of_run(args) if _is_plain_run(args) else _of_matrix(args)
    if args.out is not None or not args.json:
        write_table(args, ("item", "rank", "neighbor", found.measure), found.rows())
    if args.json:
        print_json({"n": len(found.keys), "k": args.count, "neighbors": found.list_rows()})
    return 0


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

    run = open_run(args)
    assert run is not None
    look_at_failed(args, run)
    square = run.manifest.workload["kind"] != "rectangle"
    indices, scores = run.neighbors(min(args.count, max(1, run.n_items - 1)), output=args.output)
    n = len(indices)
    keys = show_names(run.keys, args.names)
    return _Nearest(keys[:n], keys if square else keys[n:], indices, scores, "score")


def _of_matrix(args: argparse.Namespace) -> _Nearest:
    from tartan.analytics import Monitor, neighbors
    from tartan.base.shown_names import show_names
    from tartan.base.signals import cancel_on_signals

    edges = open_edges(args)
    if edges is not None:
        from tartan.analytics.matrix import neighbors_of_pairs

        shown = show_names(edges.names, args.names)
        return _Nearest(shown, shown, *neighbors_of_pairs(edges, min(args.count, edges.n - 1)), "distance")
    monitor = Monitor(0 if args.quiet else 1)
    matrix = open_matrix(args)
    keys = show_names(item_names(matrix), args.names)
    with cancel_on_signals(monitor.cancel):
        # There are no more neighbours than other items: no memory is taken for them.
        indices, distances = neighbors(matrix, min(args.count, max(1, matrix.n - 1)), monitor=monitor)
    return _Nearest(keys, keys, indices, distances, "distance")
