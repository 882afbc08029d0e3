"""``tartan cluster``: clusters of a run or a matrix, as a table of items and clusters."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.cli.shared.matrix import add_matrix, item_names, open_matrix
from tartan.cli.shared.options import count, distance, positive_int
from tartan.cli.shared.output import print_json
from tartan.cli.shared.tables import add_table_options, require_folders, write_table
from tartan.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tartan.analytics import Dissimilarities, Monitor
    from tartan.store.maps import StoredMap

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
    add("--picture", metavar="FILE.png", type=Path, help="draw the matrix, sorted by cluster")
    add(
        "--map",
        metavar="FILE",
        type=Path,
        help="of a run that keeps a map (see embed): draw it in the colours of the clusters, .png, .svg or .html",
    )
    add("--seed", metavar="N", type=count, default=0, help="seed of pwc; default: 0")
    add("--checkpoint", metavar="FILE.npz", type=Path, help="file from which an interrupted pwc is resumed")
    add_table_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Cluster; return the exit status."""
    from tartan.analytics import Monitor
    from tartan.analytics.clusters import scores_of
    from tartan.base.signals import cancel_on_signals
    from tartan.view.coordinates import read_labels

    require_folders(args.out, args.picture, args.map)
    args.method = args.method or ("single" if args.clusters is None else "pwc")
    _refuse_idle_options(args)
    kept = _kept_map(args)
    matrix = open_matrix(args)
    keys = item_names(matrix)
    if args.json:
        _require_own_names(matrix, keys)
    truth = None if args.truth is None else read_labels(args.truth, keys)
    monitor = Monitor(0 if args.quiet else 1, args.checkpoint)
    with cancel_on_signals(monitor.cancel):
        labels = _labels(args, matrix, monitor)
        drawn = _draw(args, matrix, labels, kept, monitor)
    scores = {} if truth is None else scores_of(labels, truth)
    _write(args, keys, labels.tolist(), scores)
    if args.json:
        print_json(_described(args, matrix, keys, labels, scores) | drawn)
    return 0


def _require_own_names(matrix: Dissimilarities, keys: Sequence[str]) -> None:
    """Refuse names of several items: the JSON object has labels by name."""
    if len(set(keys)) < len(keys):
        twice = next(key for key, count in Counter(keys).items() if count > 1)
        raise ConfigError(
            f"{matrix.label}: {keys.count(twice)} items are called {twice!r}, and the JSON object has labels by name; "
            "leave out --json, or give each item a name of its own"
        )


def _labels(args: argparse.Namespace, matrix: Dissimilarities, monitor: Monitor) -> NDArray[np.int64]:
    from tartan.analytics import clusters_at
    from tartan.analytics.clusters import clustered

    if args.clusters is None:
        return clusters_at(matrix, args.threshold, args.method, monitor=monitor)
    options = {"random_state": args.seed} if args.method == "pwc" else {}
    return clustered(matrix, args.clusters, args.method, monitor=monitor, **options)


def _refuse_idle_options(args: argparse.Namespace) -> None:
    """Refuse options that would have no effect."""
    if args.clusters is None and args.method == "pwc":
        raise ConfigError("--threshold is for a linkage; --method pwc takes a number of clusters (-k)")
    if args.checkpoint is not None and args.method != "pwc":
        raise ConfigError(f"--checkpoint is for --method pwc; {args.method} linkage is over soon and keeps none")
    if args.centres is not None and not args.json:
        raise ConfigError("--centres appears in the JSON object only; add --json")


def _kept_map(args: argparse.Namespace) -> StoredMap | None:
    """Return the map to draw; refuse pictures that cannot be made, before anything is computed."""
    import tartan
    from tartan.view.cluster_image import require_png

    if args.picture is not None:
        require_png(args.picture)
    if args.map is None:
        return None
    if args.map.suffix.lower() not in (".png", ".svg", ".html"):
        raise ConfigError(f"{args.map}: maps are drawn as .png, .svg or .html")
    found = tartan.open(args.matrix).map if (Path(args.matrix) / "manifest.json").is_file() else None
    if found is None:
        raise ConfigError(
            f"{args.matrix} keeps no map; for a run `tartan embed {args.matrix}` makes one, for another matrix "
            f"`tartan embed {args.matrix} --labels FILE` draws one in the colours of a table of clusters"
        )
    return found


def _draw(
    args: argparse.Namespace,
    matrix: Dissimilarities,
    labels: NDArray[np.int64],
    kept: StoredMap | None,
    monitor: Monitor,
) -> dict[str, str]:
    """Draw what was asked for; return what the JSON object says of it."""
    import numpy as np

    from tartan.view.cluster_image import save_cluster_image
    from tartan.view.map_image import write_map_image
    from tartan.view.scene import scene
    from tartan.view.scene_page import write_scene_page

    drawn: dict[str, str] = {}
    title = f"{Path(args.matrix).resolve().stem}: {len(np.unique(labels))} clusters by {args.method}"
    if args.picture is not None:
        drawn["picture"] = str(save_cluster_image(matrix, labels.tolist(), args.picture, title=title, monitor=monitor))
    if kept is not None:
        n = len(kept)
        shown = scene(kept.points, title=title, labels=item_names(matrix)[:n], clusters=labels[:n].tolist())
        write = write_scene_page if args.map.suffix.lower() == ".html" else write_map_image
        drawn["map"] = str(write(shown, args.map))
    for name, file in drawn.items():
        if not args.quiet:
            print(f"{name} in {file}", file=sys.stderr)
    return drawn


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
