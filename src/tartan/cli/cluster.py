"""``tartan cluster``: clusters of a run or a matrix, as a table of items and clusters."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.analytics.clusters import CLUSTER_METHODS
from tartan.analytics.trees import LINKAGES
from tartan.base.format import clip_middle, name_distance, pluralize, say_conversion
from tartan.base.machine import held_bytes
from tartan.cli.shared.colours import add_color_by, read_color_by
from tartan.cli.shared.known_tables import drep_tables, write_drep, write_sourmash
from tartan.cli.shared.link import add_link, read_ranks_options
from tartan.cli.shared.matrix import (
    add_matrix,
    add_memory,
    item_names,
    matrix_options,
    open_edges,
    open_matrix,
    open_run,
    ranks_open,
    require_items,
    say_in_options,
)
from tartan.cli.shared.memory import say_need, say_of_matrix
from tartan.cli.shared.options import add_trust, count, finite_float, not_negative_float, positive_int
from tartan.cli.shared.output import print_json, say
from tartan.cli.shared.outputs import TABLE, inspector_of, name_written, require_outputs
from tartan.cli.shared.representatives import (
    add_representative,
    choose_representatives,
    rank_items,
    require_numbers,
    require_way,
)
from tartan.cli.shared.tables import add_table_options, write_table
from tartan.errors import ConfigError

_METHODS = {
    "pwc": "pairwise clustering", "greedy": "the greedy method", "hdbscan": "HDBSCAN", "leiden": "the Leiden method",
    "components": "connected components",
}  # fmt: skip

if TYPE_CHECKING:
    from tartan.analytics import Clustering, Dissimilarities, Monitor
    from tartan.analytics.clusters import ClustersWanted, OpenedInput
    from tartan.analytics.matrix import MemoryNeed
    from tartan.result.run import Run
    from tartan.store.maps import StoredMap
    from tartan.view.coordinates import Coloured


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add_matrix(parser)
    how_far = parser.add_mutually_exclusive_group()
    how_far.add_argument("-k", "--clusters", type=positive_int, metavar="K", help="number of clusters")
    how_far.add_argument(
        "--threshold",
        type=not_negative_float,
        metavar="D",
        help="clusters of a linkage (default: single), or of greedy, up to this distance",
    )
    how_far.add_argument(
        "--cut",
        type=finite_float,
        metavar="SCORE",
        help="the same as a score: similarities of SCORE and more, distances of SCORE and less",
    )
    add(
        "--method",
        choices=CLUSTER_METHODS,
        help="pairwise clustering by deterministic annealing (pwc, default with -k), a linkage, greedy (each item near "
        "its representative, these not near each other), or hdbscan; default: what the application declares (photos: "
        "average up to its cut, then joined by their means); of runs that keep pairs (--top-k, --threshold): "
        "components (default), greedy, single, hdbscan or leiden",
    )
    add("--min-size", metavar="N", type=positive_int, help="least size of the clusters of hdbscan; default: 5")
    add("--truth", metavar="FILE", type=Path, help="known labels (key and label, or one label a line): print scores")
    add(
        "--centres",
        metavar="N",
        type=positive_int,
        help="N items that stand for each cluster best, in the JSON object",
    )
    add_representative(parser)
    add("--picture", metavar="FILE.png", type=Path, help="draw the matrix, sorted by cluster")
    add("--curve", metavar="FILE", type=Path, help="draw how the number was chosen, .svg or .png")
    add(
        "--map",
        metavar="FILE",
        type=Path,
        help="of a run that keeps a map (see embed): draw it in the colours of the clusters, or of "
        "--color-by; .png, .svg or .html",
    )
    add_color_by(parser, "the map of --map")
    add("--drep", metavar="FOLDER", type=Path, help="write Cdb.csv, and Wdb.csv of --representative, as dRep does")
    add("--sourmash", metavar="FILE.csv", type=Path, help="write a line a cluster, as sourmash scripts cluster does")
    add("--seed", metavar="N", type=count, default=0, help="seed of pwc, leiden, and of choosing a number; default: 0")
    add(
        "--ranks",
        metavar="P",
        type=positive_int,
        help="processes that share pwc into K clusters, with --link mpi of each node",
    )
    add_link(parser)
    add(
        "--checkpoint",
        metavar="PLACE",
        type=Path,
        help="file (.npz) from which an interrupted pwc is resumed; of a linkage that does not fit into memory, the "
        "folder of its rows on disk, default: of a run a folder in it, else a temporary one, which is not resumed",
    )
    add_memory(parser)
    add_trust(parser, "open the items of a run for --representative, and for a closer look before groups are joined")
    add_table_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Cluster; return the exit status."""
    read_ranks_options(args)
    from tartan import apps
    from tartan.analytics import Monitor
    from tartan.analytics.clusters import OpenedInput, scores_of
    from tartan.base.shown_names import show_names
    from tartan.base.signals import cancel_on_signals
    from tartan.run.inspection import closer_look
    from tartan.view.coordinates import read_labels

    tables = [] if args.drep is None else drep_tables(args.drep, winners=args.representative is not None)
    others = (*((table, None) for table in tables), (args.sourmash, TABLE))
    require_outputs(args, (args.out, TABLE), (args.picture, None), (args.curve, None), (args.map, None), *others)
    run = open_run(args)
    edges = None if run is not None else open_edges(args)
    _refuse_idle_options(args, run, pairs_only=edges is not None)
    if args.representative is not None:
        require_way(args.representative, is_run=run is not None)
    kept = _read_kept_map(args, run)
    wanted, numbers = _read_wanted(args), None
    if args.method == "greedy" and run is not None:
        numbers = _rank_items(args, run.keys, run)
        wanted = replace(wanted, priority=numbers)
    if edges is not None:
        keys = edges.names
        if args.method == "greedy":
            numbers = _rank_items(args, keys, None)
            wanted = replace(wanted, priority=numbers)
        opened = OpenedInput.of(edges, wanted)
    elif run is None:
        matrix = open_matrix(args, says=False)
        keys = item_names(matrix, dropped=True)
        if args.method == "greedy":
            numbers = _rank_items(args, keys, None)
            wanted = replace(wanted, priority=numbers)
        opened = OpenedInput.of(matrix, wanted)
    else:
        if args.trust:
            run.look_closely = closer_look(run.folder, apps, trust=True)
        opened, keys = OpenedInput.of(run, wanted, **matrix_options(args)), run.keys
    if opened.matrix is not None:
        require_items(args, opened.matrix)
    truth = None if args.truth is None else read_labels(args.truth, keys)
    shown = show_names(keys, args.names)
    coloured = read_color_by(args, keys, shown)
    monitor = Monitor(0 if args.quiet else 1, args.checkpoint)
    of_pairs = opened.matrix is None or args.method in ("components", "leiden")  # the latter are refused of a matrix
    need = _say_memory(args, opened, None if of_pairs else opened.matrix)
    with cancel_on_signals(monitor.cancel):
        found = _make_clustering(args, opened, monitor)
    if found.distances is not None:
        if numbers is not None and found.representatives is not None:
            require_numbers(args.representative, numbers, found.representatives, keys)
    elif args.representative is not None:
        inspector = None if run is None else inspector_of(run.folder, args, any_size=True)
        chosen = choose_representatives(args.representative, found, keys, opened.matrix, inspector)
        found = replace(found, representatives=chosen)
    scores = {} if truth is None else scores_of(found.labels, truth)
    keys = shown
    with name_written(args, args.out, args.picture, args.curve, args.map, args.sourmash, *tables):
        with cancel_on_signals(monitor.cancel):
            drawn = _draw(args, opened.matrix, keys, found, kept, coloured, run, monitor)
        _write(args, keys, found, scores)
        _write_known_tables(args, keys, found, run)
    if args.json:
        said = {"memory_need": need.as_dict()}
        print_json(_describe(args, opened.matrix, keys, found, scores) | drawn | said)
    return 0


def _say_memory(args: argparse.Namespace, opened: OpenedInput, matrix: Dissimilarities | None) -> MemoryNeed:
    if matrix is None:
        from tartan.analytics.matrix import need_of_kept

        n_pairs = 0 if opened.pairs is None else len(opened.pairs.i)
        return say_need(args, need_of_kept("clusters", n_pairs))
    # What is imported late is a third of what a small matrix takes, and most of it with scikit-learn.
    import scipy.cluster.hierarchy  # noqa: F401

    from tartan.analytics import DAPWC  # noqa: F401

    if opened.method == "hdbscan":
        import sklearn.cluster  # noqa: F401
    held = held_bytes()  # before a matrix in a file is read, whose pages count apart
    near = opened.estimate_near_pairs() if opened.method == "greedy" else 0
    return say_of_matrix(args, opened.method, matrix, near, opened.n_drawn, held)


def _read_wanted(args: argparse.Namespace) -> ClustersWanted:
    from tartan.analytics.clusters import ClustersWanted

    size = {} if args.min_size is None else {"min_size": args.min_size}
    memory = None if args.memory is None else str(args.memory)
    return ClustersWanted(args.clusters, args.method, args.threshold, args.cut, seed=args.seed, memory=memory, **size)


def _rank_items(args: argparse.Namespace, keys: Sequence[str], run: Run | None) -> Any:
    """Return a number of each item for greedy; None: by how many are near."""
    if run is None or args.representative is None:
        return rank_items(args.representative, keys)
    inspector = inspector_of(run.folder, args, any_size=True)
    failed = [failure.i for failure in run.failures if failure.kind == "item"]
    return rank_items(args.representative, keys, inspector, failed)


def _make_clustering(args: argparse.Namespace, opened: OpenedInput, monitor: Monitor) -> Clustering:
    ranks, wanted = read_ranks_options(args), opened.wanted
    if ranks is None:
        return opened.in_places(opened.clusters(monitor))
    from tartan.analytics import cluster
    from tartan.result.over_ranks import over_ranks

    ways = {"threshold": wanted.threshold, "cut": wanted.cut, "min_size": wanted.min_size, "random_state": wanted.seed}
    given = (ranks_open(args), wanted.n_clusters, wanted.method)  # each rank opens it
    return over_ranks(ranks, cluster, *given, monitor=monitor, **matrix_options(args), **ways)


def _refuse_idle_options(args: argparse.Namespace, run: Run | None, *, pairs_only: bool) -> None:
    """Refuse options that would have no effect."""
    from tartan.view.curve_image import require_drawing

    bound = "--threshold" if args.threshold is not None else "--cut" if args.cut is not None else None
    if bound is not None and args.method == "pwc":
        raise ConfigError(f"{bound} is for a linkage; --method pwc takes a number of clusters (-k)")
    method = args.method or ("pwc" if bound is None else "single")
    if args.checkpoint is not None and method not in ("pwc", *LINKAGES[1:]):
        raise ConfigError(f"--checkpoint is for --method pwc and for linkages; {method} is over soon and keeps none")
    if args.memory is not None and args.method in ("pwc", "single", "greedy", "hdbscan", "components", "leiden"):
        raise ConfigError(f"--memory is for linkages that keep rows; --method {args.method} keeps none")
    if args.method == "greedy" and args.ranks is not None:
        raise ConfigError("--ranks shares --method pwc; greedy is over soon, leave --ranks out")
    if args.centres is not None and not args.json:
        raise ConfigError("--centres appears in the JSON object only; add --json")
    if args.min_size is not None and args.method != "hdbscan":
        raise ConfigError("--min-size is for --method hdbscan")
    pairs_only = pairs_only or (run is not None and run.manifest.reduce is not None)
    for name in ("picture", "centres") if pairs_only else ():
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name} needs the matrix, and {args.matrix} keeps pairs only; leave it out")
    if args.curve is not None:
        require_drawing(args.curve)
        _require_choice(args, run, pairs_only)


def _require_choice(args: argparse.Namespace, run: Run | None, pairs_only: bool) -> None:
    """Refuse to draw the choice of a number where none is chosen."""
    own = args.distance is not None or args.transform is not None or args.method == "pwc"
    declared = None if run is None or own else run.manifest.meaning(run.manifest.analysed_by(args.output)).get("cut")
    number_given = any(value is not None for value in (args.clusters, args.threshold, args.cut))
    if number_given or pairs_only or args.method == "hdbscan" or declared is not None:
        what = "the application's cut decides here: add --method pwc" if declared is not None else "none is chosen here"
        raise ConfigError(f"--curve draws how a number of clusters was chosen, and {what}, or leave out --curve")


def _read_kept_map(args: argparse.Namespace, run: Run | None) -> StoredMap | None:
    """Return the map to draw; refuse pictures that cannot be made, before anything is computed."""
    from tartan.view.matrix_image import require_png

    if args.picture is not None:
        require_png(args.picture)
    if args.map is None:
        if args.color_by is not None:
            raise ConfigError("--color-by colours the map; add --map FILE, or leave it out")
        return None
    if args.map.suffix.lower() not in (".png", ".svg", ".html"):
        raise ConfigError(f"{args.map}: maps are drawn as .png, .svg or .html")
    quoted = shlex.quote(str(args.matrix))
    found = None if run is None else run.map
    if found is None:
        raise ConfigError(
            f"{args.matrix} keeps no map; for a run `tartan embed {quoted}` makes one, for another matrix "
            f"`tartan embed {quoted} --labels FILE` draws one in the colours of a table of clusters"
        )
    return found


def _draw(
    args: argparse.Namespace,
    matrix: Dissimilarities | None,
    keys: Sequence[str],
    found: Clustering,
    kept: StoredMap | None,
    coloured: Coloured | None,
    run: Run | None,
    monitor: Monitor,
) -> dict[str, str]:
    """Draw what was asked for; return what the JSON object says of it."""
    from tartan.view.curve_image import save_curve_image
    from tartan.view.map_image import save_cluster_image, write_map_image
    from tartan.view.scene import scene
    from tartan.view.scene_page import write_scene_page

    drawn: dict[str, str] = {}
    shown = ["none" if label < 0 else label for label in found.labels.tolist()]
    title = f"{Path(args.matrix).resolve().stem}: {found.n_clusters} clusters by {found.method}"
    if args.picture is not None:
        there = shown if matrix is None else [shown[item] for item in matrix.kept]
        unit = "distance" if run is None else run.manifest.name_score(run.manifest.analysed_by(args.output))
        named = {"title": title, "scale_name": name_distance(found.conversion, unit)}
        drawn["picture"] = str(save_cluster_image(matrix, there, args.picture, **named, monitor=monitor))
    if args.curve is not None and found.curve is not None:
        drawn["curve_picture"] = str(save_curve_image(found.curve, args.curve, title=Path(args.matrix).resolve().stem))
    if kept is not None:
        n = len(kept)
        if coloured is None:
            seen = scene(kept.points, title=title, labels=keys[:n], clusters=shown[:n])
        else:
            title = f"{Path(args.matrix).resolve().stem} by {clip_middle(coloured.column, 20)}"
            classes, shades = coloured.classes[:n], coloured.shades
            seen = scene(kept.points, title=title, labels=keys[:n], clusters=classes, colours=shades)
        write = write_scene_page if args.map.suffix.lower() == ".html" else write_map_image
        drawn["map"] = str(write(seen, args.map))
    for name, file in drawn.items():
        if not args.quiet:
            say(f"{name.replace('_', ' ')} in {file}")
    return drawn


def _write(args: argparse.Namespace, keys: Sequence[str], found: Clustering, scores: dict[str, float]) -> None:
    if args.out is not None or not args.json:
        names = ("item", "cluster", "representative", "distance")
        n_columns = 2 if found.representatives is None else 3 if found.distances is None else 4
        write_table(args, names[:n_columns], _rows(keys, found))
    if not args.quiet:
        many = f"{pluralize(found.n_clusters, 'cluster')} of {pluralize(len(keys), 'item')}"
        by = "" if found.found_by in ("", found.method) else f"; {found.found_by} found the best ones"
        say(f"{many} by {_METHODS.get(found.method, f'{found.method} linkage')}: {found.reason}{by}")
        for note in found.notes:
            say(say_in_options(note))
        if found.conversion is not None:
            say(say_conversion(found.conversion))
    for name, score in scores.items():
        say(f"{name.replace('_', ' ')}: {score:.4f}")


def _write_known_tables(args: argparse.Namespace, keys: Sequence[str], found: Clustering, run: Run | None) -> None:
    """Write what scripts that follow other programs read."""
    if args.drep is not None:
        compared = "" if run is None else str(run.manifest.application["name"])
        write_drep(args.drep, keys, found, compared, winners=args.representative is not None)
    if args.sourmash is not None:
        write_sourmash(args.sourmash, keys, found)
    written = [str(path) for path in (args.drep, args.sourmash) if path is not None]
    if written and not args.quiet:
        say(f"tables in {' and '.join(written)}")


def _rows(keys: Sequence[str], found: Clustering) -> Iterator[tuple[Any, ...]]:
    chosen = found.representatives
    distances = [] if found.distances is None else found.distances.tolist()
    for item, (key, label) in enumerate(zip(keys, found.labels.tolist())):
        if chosen is None:
            yield key, label
        elif not distances:
            yield key, label, keys[int(chosen[label])] if label >= 0 else ""
        else:
            yield key, label, *((keys[int(chosen[label])], distances[item]) if label >= 0 else ("", ""))


def _describe(
    args: argparse.Namespace, matrix: Any, keys: Sequence[str], found: Clustering, scores: dict[str, float]
) -> dict[str, Any]:
    import numpy as np

    labels = found.labels
    about: dict[str, Any] = {
        "method": found.method,
        "n_clusters": found.n_clusters,
        "reason": found.reason,
        "found_by": found.found_by,
        "notes": list(found.notes),
        "threshold": found.threshold,
        "cut": found.cut,
        "distance": found.conversion,
        "sizes": np.bincount(labels[labels >= 0], minlength=found.n_clusters),
        "labels": labels.tolist(),
        "items": list(keys),
    }
    if found.curve is not None:
        about["curve"] = {
            "clusters": found.curve.numbers,
            "mean_silhouette": found.curve.silhouettes,
            "by_chance": found.curve.by_chance,
            "margin": found.curve.margin,
            "highest": found.curve.highest,
            "level": found.curve.level,
        }
    if found.representatives is not None:
        about["representatives"] = [keys[item] for item in found.representatives.tolist()]
    if found.distances is not None:
        about["distances"] = found.distances
    if scores:
        about["scores"] = scores
    if args.centres is not None:
        from tartan.analytics import cluster_centres

        names = item_names(matrix)
        chosen = cluster_centres(matrix, labels[matrix.kept], n_centres=args.centres)
        about["centres"] = {
            kind: [[names[item] for item in row if item >= 0] for row in rows.tolist()] for kind, rows in chosen.items()
        }
    return about
