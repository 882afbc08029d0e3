"""``tartan embed``: a map of a run or a matrix, as coordinates, picture and page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.analytics.maps import MAP_METHODS
from tartan.base.format import clip_middle, pluralize, say_conversion
from tartan.cli.shared.colours import add_color_by, read_color_by
from tartan.cli.shared.link import add_link, read_ranks_options
from tartan.cli.shared.maps import about_map, print_map, read_kept_map
from tartan.cli.shared.matrix import (
    add_matrix,
    item_names,
    look_at_failed,
    matrix_options,
    open_edges,
    open_matrix,
    open_run,
)
from tartan.cli.shared.memory import say_analysis
from tartan.cli.shared.options import count, positive_int
from tartan.cli.shared.output import print_json, say
from tartan.cli.shared.outputs import PNG, add_overwrite, name_written, require_no_file, require_outputs
from tartan.cli.shared.tables import require_files
from tartan.errors import ConfigError

_WORDS = {"n_iter": "iterations"}

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tartan.analytics import Density, Dissimilarities, Embedding, Monitor
    from tartan.result.run import Run
    from tartan.view.coordinates import Coloured
    from tartan.view.scene import Scene


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add_matrix(parser)
    add(
        "--method",
        choices=MAP_METHODS,
        help="annealing (default), plain SMACOF from the classical solution, or Levenberg-Marquardt",
    )
    add("--dim", type=positive_int, metavar="L", help="dimensions of the map; default: 3, of kept pairs 2")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--extend",
        action="store_true",
        help="of a run: draw the map that it keeps, after placing on it the items that were added since",
    )
    whose.add_argument("--no-keep", dest="keep", action="store_false", help="do not keep the map in the run folder")
    add("-o", "--out", metavar="NAME", help="write NAME.tsv, NAME.png, NAME.html; default: MATRIX-map in this folder")
    add_overwrite(parser)
    add(
        "--labels",
        metavar="FILE",
        type=Path,
        help="cluster of each item for the colours: a line an item, or key, tab, cluster",
    )
    add_color_by(parser, "the points")
    add("--seed", type=count, metavar="N", help="of the random start; default: 0")
    add("--init", metavar="FILE", type=Path, help="coordinates to begin with, by key, or by place in the file")
    add("--pviz", action="store_true", help="write NAME.pviz too")
    add("--svg", action="store_true", help="write NAME.svg too")
    add("--density", metavar="FILE", type=Path, help="write a PNG of how many pairs have which distance and score")
    add(
        "--checkpoint",
        metavar="FILE",
        type=Path,
        help="file from which a stopped map is resumed",
    )
    add(
        "--ranks",
        metavar="P",
        type=positive_int,
        help="processes that share the work, with --link mpi of each node; the map has the same bits for any",
    )
    add_link(parser)
    add("-q", "--quiet", action="store_true", help="no progress and no summary")


def execute(args: argparse.Namespace) -> int:
    """Compute and draw; return the exit status."""
    from tartan.analytics import Monitor
    from tartan.base.shown_names import show_names
    from tartan.base.signals import cancel_on_signals
    from tartan.view.coordinates import read_labels

    read_ranks_options(args)
    require_outputs(args, *((path, None) for path in _files(args).values()), (args.density, PNG))
    require_files(args.labels)
    if args.labels is not None and args.color_by is not None:
        raise ConfigError("--labels and --color-by both say how points are coloured; leave out one")
    run, monitor = _run(args), Monitor(0 if args.quiet else 1, args.checkpoint)
    edges = None if run is not None else open_edges(args)
    _refuse_of_pairs(args, run, edges is not None)
    matrix: Any = edges if edges is not None else open_matrix(args) if run is None else None
    keys = run.keys if run is not None else edges.names if edges is not None else item_names(matrix)
    named = keys if run is not None or edges is not None else item_names(matrix, dropped=True)
    clusters = None if args.labels is None else read_labels(args.labels, named)
    if clusters is not None and run is None and edges is None:
        clusters = [clusters[item] for item in matrix.kept]
    shown = show_names(keys, args.names)  # refused before anything is computed
    coloured = read_color_by(args, keys, shown)
    with cancel_on_signals(monitor.cancel):
        made = _of_matrix(args, matrix, keys, monitor) if run is None else _of_run(args, run, keys, monitor)
    found, pairs = made
    if args.names is not None:
        found = replace(found, keys=tuple(show_names(found.keys, args.names)))
    with name_written(args, *_files(args).values(), args.density):
        seen = _make_scene(args, found, clusters, coloured or (None if clusters else _find_groups(run, edges)))
        written = _write(args, found, clusters, seen)
        if args.density is not None:
            with cancel_on_signals(monitor.cancel):
                written.append(_draw_density(args.density, pairs or _count_density(matrix, run, found, monitor)))
    if not args.quiet:
        said = ", ".join(f"{_WORDS.get(name, name)} {_show(value)}" for name, value in found.numbers.items())
        say(f"wrote {', '.join(map(str, written))}\nmap by {found.method}: {said}")
        if (formula := found.recipe["matrix"].get("distance")) is not None:
            say(say_conversion(formula))
    if args.json:
        about: dict[str, Any] = {"map": _about_map(run, args.names)} if run is not None else {}
        files = list(map(str, written))
        distance = found.recipe["matrix"].get("distance")
        about |= {"distance": distance if isinstance(distance, str) else None}
        print_json({"method": found.method, "n": len(found.keys), **found.numbers, "files": files, **about})
    return 0


def _run(args: argparse.Namespace) -> Run | None:
    """Return the run that the command line names, unless it is another matrix."""
    run = open_run(args, warns=not args.extend)
    if args.extend and args.at is not None:
        raise ConfigError("--extend is for the map of the newest version; leave out --at")
    if run is None and args.extend:
        raise ConfigError(f"--extend is for a run that keeps a map; {args.matrix} is not a run")
    return run


def _refuse_of_pairs(args: argparse.Namespace, run: Run | None, edges: bool) -> None:
    """Refuse what needs the matrix, of a run that keeps pairs instead."""
    if not edges and (run is None or run.manifest.reduce is None):
        return
    for name in ("density", "init", "missing", "checkpoint", "ranks"):
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name} needs the matrix, and {args.matrix} keeps pairs only; leave it out")


def _of_matrix(
    args: argparse.Namespace, matrix: Any, keys: Sequence[str], monitor: Monitor
) -> tuple[Embedding, Density | None]:
    from tartan.analytics import embed
    from tartan.analytics.matrix import are_edges

    wanted = (args.method or "damds", args.dim or (2 if are_edges(matrix) else 3))
    ranks = read_ranks_options(args)
    if ranks is None:
        _say_memory(args, matrix.n, matrix.dtype.itemsize)
        return embed(matrix, *wanted, monitor=monitor, **_read_start(args, keys)), None
    from tartan.result.kept_map import count_map
    from tartan.result.over_ranks import over_ranks

    ways = {"counts": args.density is not None} | matrix_options(args) | _read_start(args, keys)
    return over_ranks(ranks, count_map, args.matrix, *wanted, monitor=monitor, **ways)


def _of_run(
    args: argparse.Namespace, run: Run, keys: Sequence[str], monitor: Monitor
) -> tuple[Embedding, Density | None]:
    from tartan.result.kept_map import embed_run
    from tartan.result.map_growth import extend_map
    from tartan.result.shown_run import show_run

    if args.extend:
        _refuse_decided(args)
        found, growth = extend_map(run, monitor)
        assert growth.map is not None
        print_map(show_run(run, args.names), growth.map, growth.n_new, quiet=args.quiet)
        return found, None
    look_at_failed(args, run)
    if run.manifest.reduce is None and args.ranks is None:
        import pyarrow.parquet  # noqa: F401 - the map is kept by it

        _say_memory(args, run.n_items, _SCORE_BYTES)
    # A map of kept pairs has no rule by which new items could be placed on it: there is nothing to keep it for.
    # Nor for one of an old version: the map that is kept is that of the newest.
    newest = run.folder.version is None or run.folder.version.newest
    keep = args.keep and run.manifest.reduce is None and newest
    ways = {"monitor": monitor} | matrix_options(args) | _read_start(args, keys)
    ways |= {"ranks": read_ranks_options(args), "counts": args.density is not None}
    # Parts that stand side by side are seen best from above.
    dimensions = args.dim or (2 if run.manifest.reduce is not None else 3)
    found, pairs, problem = embed_run(run.folder, args.method or "damds", dimensions, keep=keep, **ways)
    if problem is not None:
        say(f"tartan: warning: {problem}")
    return found, pairs


def _say_memory(args: argparse.Namespace, n: int, itemsize: int) -> None:
    # Their libraries are half of what a small map takes.
    from tartan.analytics import DAMDS, cluster  # noqa: F401
    from tartan.view import map_image  # noqa: F401

    say_analysis(args, "map", n, itemsize)


# By arithmetic: of float32, which scores of runs mostly are.
_SCORE_BYTES = 4


def _read_start(args: argparse.Namespace, keys: Sequence[str]) -> dict[str, Any]:
    """Return what the command line says of the start."""
    given: dict[str, Any] = {"random_state": args.seed or 0}
    if args.init is not None:
        given["start"] = _start(args.init, keys)
    return given


def _start(path: Path, names: Sequence[str]) -> NDArray[np.float64]:
    """Return coordinates in the order of the items: by key where the file has one for each item, else by place."""
    from tartan.view.coordinates import read_coordinates

    found = read_coordinates(path)
    places = {key: place for place, key in enumerate(found.keys or ())}
    if len(places) < len(found.points) or not all(name in places for name in names):
        return found.points
    return found.points[[places[name] for name in names]]


#: Options that a map that is there already has decided.
_DECIDED = (
    "method",
    "dim",
    "seed",
    "init",
    "checkpoint",
    "output",
    "distance",
    "transform",
    "missing",
    "failed",
    "ranks",
    "link",
)


def _refuse_decided(args: argparse.Namespace) -> None:
    for name in _DECIDED:
        if getattr(args, name) is not None:
            raise ConfigError(f"--extend keeps to how the map was made; leave out --{name}, or leave out --extend")


def _about_map(run: Run, names: str | None) -> dict[str, Any] | None:
    from tartan.result.shown_run import show_run

    found = read_kept_map(run)
    return None if found is None else about_map(show_run(run, names), found)


def _count_density(matrix: Dissimilarities | None, run: Run | None, found: Embedding, monitor: Monitor) -> Density:
    from tartan.analytics import density
    from tartan.result.map_growth import matrix_of

    return density(matrix if run is None else matrix_of(run, found), found.points, monitor=monitor)


def _draw_density(path: Path, pairs: Density) -> Path:
    """Draw the pairs by dissimilarity (to the right) and distance (up)."""
    from tartan.base.files import whole_file
    from tartan.base.palette import Scale
    from tartan.view.matrix_image import draw_matrix

    end = f"{pairs.dissimilarity_end:.4g}"
    title = f"Pairs: dissimilarity 0 to {end} (right), distance 0 to {end} (up)"
    with whole_file(path) as unfinished:
        levels, scale = pairs.levels().T[::-1], Scale(0.0, 1.0, "share of the most")
        draw_matrix(levels, scale, title=title, ends=("few pairs", "many pairs")).save(unfinished, format="PNG")
    return path


def _find_groups(run: Run | None, edges: Any) -> Coloured | None:
    """Return the groups of a run, of pairs the connected parts, for the colours of a map; None where there are none."""
    from tartan.view.coordinates import Coloured
    from tartan.view.groups import groups_of, name_groups

    if edges is not None:
        from tartan.analytics import cluster

        return Coloured(tuple(name_groups(cluster(edges, method="components").labels)))
    found = None if run is None else groups_of(run)
    if found is None or found.labels is None:
        return None
    return Coloured(tuple(map(str, found.labels)))


def _write(args: argparse.Namespace, found: Embedding, clusters: list[str] | None, shown: Scene) -> list[Path]:
    from tartan.view.coordinates import write_coordinates
    from tartan.view.map_image import write_map_image
    from tartan.view.pviz import write_pviz
    from tartan.view.scene_page import write_scene_page

    files = _files(args)
    writers = {"png": write_map_image, "html": write_scene_page, "svg": write_map_image, "pviz": write_pviz}
    table = write_coordinates(files.pop("tsv"), found.points, found.keys, clusters)
    return [table, *(writers[kind](shown, path) for kind, path in files.items())]


def _files(args: argparse.Namespace) -> dict[str, Path]:
    """Return what is written, by kind."""
    base = _base(args)
    kinds = ("tsv", "png", "html", *(kind for kind in ("svg", "pviz") if getattr(args, kind)))
    return {kind: Path(f"{base}.{kind}") for kind in kinds}


def _base(args: argparse.Namespace) -> Path:
    """Return what the names of all files begin with; a suffix of one of them is not part of it."""
    if args.out is None:
        return Path(f"{Path(args.matrix).resolve().stem}-map")
    named = Path(args.out)
    if args.out.endswith("/") or named.name in ("", ".."):
        raise ConfigError(f"--out {args.out} is a folder; say what the names of the files in it begin with")
    base = named.with_suffix("")
    if named.suffix in {".tsv", ".png", ".html", ".svg", ".pviz"}:
        return base
    require_no_file(named, "a map is a .tsv, a .png and a .html", f"--out {base} writes all three under this name")
    return named


def _make_scene(
    args: argparse.Namespace, found: Embedding, clusters: list[str] | None, coloured: Coloured | None
) -> Scene:
    from tartan.view.scene import scene

    n_fitted = found.numbers.get("n_fitted", len(found.keys))
    shades, groups = None, clusters
    if clusters is None and coloured is not None and args.color_by is not None:
        shades, groups = coloured.shades, list(coloured.classes)
    elif clusters is None and n_fitted < len(found.keys):
        later = set(found.recipe["later"].tolist())
        groups = ["placed later" if item in later else "made from" for item in range(len(found.keys))]
    elif clusters is None and coloured is not None and len(coloured.classes) == len(found.keys):
        groups = list(coloured.classes)
    title = _say_what_is_shown(args, found)
    return scene(found.points, title=title, labels=found.keys, clusters=groups, colours=shades)


def _say_what_is_shown(args: argparse.Namespace, found: Embedding) -> str:
    """Return the title of a map: what is near, by what colours are, and what must not be read out of it."""
    title = f"{clip_middle(Path(args.matrix).resolve().stem, 30)}: {pluralize(len(found.keys), 'item')}"
    if args.color_by is not None:
        title += f" by {clip_middle(args.color_by.rpartition(':')[2], 20)}"
    if (n_parts := found.numbers.get("n_parts")) is None:
        return f"{title}; near is similar"
    parts = pluralize(int(n_parts), "part")
    return f"{title} in {parts}; distance between parts means nothing" if n_parts > 1 else f"{title}; near is similar"


def _show(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
