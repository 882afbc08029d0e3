"""``tartan cluster``: clusters of a run or a matrix, as a table of items and clusters."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.cli.matrix_options import add_matrix, item_names, open_matrix
from tartan.cli.options import count, distance, positive_int
from tartan.cli.output import print_json
from tartan.cli.table import add_table_options, require_folders, write_table
from tartan.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tartan.analytics import Monitor
    from tartan.analytics.matrix import Dissimilarities

HELP = "cluster items by their distances; labels on stdout or in a file"
METHODS = ("pwc", "single", "complete", "average", "weighted")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add_matrix(parser)
    how_far = parser.add_mutually_exclusive_group(required=True)
    how_far.add_argument("-k", "--clusters", type=positive_int, metavar="K", help="number of clusters")
    how_far.add_argument(
        "--threshold", type=distance, metavar="D", help="clusters of a linkage (default: single) up to this distance"
    )
    add(
        "--method",
        choices=METHODS,
        help="pairwise clustering by deterministic annealing (default with -k), or a linkage",
    )
    add("--truth", metavar="FILE", type=Path, help="known labels (key and label, or one label a line): print scores")
    add(
        "--centres",
        metavar="N",
        type=positive_int,
        help="N items that stand for each cluster best, in the JSON object",
    )
    add("--seed", metavar="N", type=count, default=0, help="seed of pwc; default: 0")
    add("--checkpoint", metavar="FILE.npz", type=Path, help="file from which an interrupted pwc goes on")
    add_table_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Cluster; return the exit status."""
    from tartan.analytics import Monitor
    from tartan.analytics._clustering import scores_of
    from tartan.analytics._monitor import cancel_on_signals
    from tartan.view.coordinates import read_labels

    require_folders(args.out)
    args.method = args.method or ("single" if args.clusters is None else "pwc")
    _refuse_idle_options(args)
    matrix = open_matrix(args)
    keys = item_names(matrix)
    truth = None if args.truth is None else read_labels(args.truth, keys)
    monitor = Monitor(0 if args.quiet else 1, args.checkpoint)
    with cancel_on_signals(monitor):
        labels = _labels(args, matrix, monitor)
    scores = {} if truth is None else scores_of(labels, truth)
    _write(args, keys, labels.tolist(), scores)
    if args.json:
        print_json(_described(args, matrix, keys, labels, scores))
    return 0


def _labels(args: argparse.Namespace, matrix: Dissimilarities, monitor: Monitor) -> NDArray[np.int64]:
    from tartan.analytics import clusters_at
    from tartan.analytics._clustering import clustered

    if args.clusters is None:
        return clusters_at(matrix, args.threshold, args.method, monitor=monitor)
    options = {"random_state": args.seed} if args.method == "pwc" else {}
    return clustered(matrix, args.clusters, args.method, monitor=monitor, **options)


def _refuse_idle_options(args: argparse.Namespace) -> None:
    """Refuse what would be left unheard."""
    if args.clusters is None and args.method == "pwc":
        raise ConfigError("--threshold is for a linkage; --method pwc takes a number of clusters (-k)")
    if args.checkpoint is not None and args.method != "pwc":
        raise ConfigError(f"--checkpoint is for --method pwc; {args.method} linkage is over in seconds and keeps none")
    if args.centres is not None and not args.json:
        raise ConfigError("--centres is told in the JSON object only; add --json")


def _write(args: argparse.Namespace, keys: Sequence[str], labels: Sequence[int], scores: dict[str, float]) -> None:
    if args.out is not None or not args.json:
        write_table(args, ("item", "cluster"), zip(keys, labels))
    if not args.quiet:
        print(f"{args.method}: {len(set(labels))} clusters of {len(keys):,} items", file=sys.stderr)
    for name, score in scores.items():
        print(f"{name.replace('_', ' ')}: {score:.4f}", file=sys.stderr)


def _described(args: argparse.Namespace, matrix: Any, keys: Sequence[str], labels: Any, scores: Any) -> dict[str, Any]:
    sizes = [int((labels == k).sum()) for k in range(int(labels.max()) + 1)]
    found: dict[str, Any] = {"method": args.method, "n_clusters": len(sizes), "sizes": sizes}
    found["labels"] = dict(zip(keys, labels.tolist()))
    if scores:
        found["scores"] = scores
    if args.centres is not None:
        from tartan.analytics import cluster_centres

        chosen = cluster_centres(matrix, labels, n_centres=args.centres)
        found["centres"] = {
            kind: [[keys[item] for item in row if item >= 0] for row in rows.tolist()] for kind, rows in chosen.items()
        }
    return found
