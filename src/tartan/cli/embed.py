"""``tartan embed``: a map of a run or a matrix, as coordinates, picture and page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.cli.shared.maps import about_map, kept, print_map
from tartan.cli.shared.matrix import add_matrix, item_names, matrix_options, open_matrix
from tartan.cli.shared.options import count, positive_int
from tartan.cli.shared.output import print_json
from tartan.cli.shared.tables import require_files, require_folders
from tartan.errors import ConfigError, TartanError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tartan.analytics import Dissimilarities, Embedding, Monitor
    from tartan.run.result import Run
    from tartan.view.scene import Scene

HELP = "draw a map: coordinates, a picture, and a page to turn it in"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add_matrix(parser)
    add(
        "--method",
        choices=("damds", "smacof", "lmmds"),
        help="annealing (default), plain SMACOF from the classical solution, or Levenberg-Marquardt",
    )
    add("--dim", type=positive_int, metavar="L", help="dimensions of the map; default: 3")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--extend",
        action="store_true",
        help="of a run: draw the map that it keeps, after placing on it the items that were added since",
    )
    whose.add_argument("--no-keep", dest="keep", action="store_false", help="do not keep the map in the run folder")
    add("-o", "--out", metavar="NAME", help="write NAME.tsv, NAME.png, NAME.html; default: MATRIX-map in this folder")
    add(
        "--labels",
        metavar="FILE",
        type=Path,
        help="cluster of each item for the colours: a line an item, or key, tab, cluster",
    )
    add("--seed", type=count, metavar="N", help="of the random start; default: 0")
    add("--init", metavar="FILE", type=Path, help="coordinates to begin with, by key, or by place in the file")
    add("--pviz", action="store_true", help="write NAME.pviz too")
    add("--svg", action="store_true", help="write NAME.svg too")
    add("--density", metavar="FILE", type=Path, help="write a PNG of how many pairs have which distance and score")
    add("--checkpoint", metavar="FILE", type=Path, help="where a stopped map goes on when it is called again")
    add("--quiet", action="store_true", help="no progress and no summary")


def execute(args: argparse.Namespace) -> int:
    """Compute and draw; return the exit status."""
    from tartan.analytics import Monitor
    from tartan.base.signals import cancel_on_signals

    require_folders(args.out, args.density)
    require_files(args.labels)
    _base(args)
    run, monitor = _run(args), Monitor(0 if args.quiet else 1, args.checkpoint)
    matrix = None if args.extend else open_matrix(args)
    clusters = _clusters(args, matrix, run)
    with cancel_on_signals(monitor.cancel):
        found = _extended(args, run, monitor) if matrix is None else _embedded(args, matrix, run, monitor)
    written = _write(args, found, clusters)
    if args.density is not None:
        with cancel_on_signals(monitor.cancel):
            written.append(_draw_density(args, matrix, run, found, monitor))
    if not args.quiet:
        said = ", ".join(f"{name} {_shown(value)}" for name, value in found.numbers.items())
        print(f"{found.method}: {said}\nwrote {', '.join(map(str, written))}", file=sys.stderr)
    if args.json:
        about = {"map": _about_map(run)} if run is not None else {}
        files = list(map(str, written))
        print_json({"method": found.method, "n": len(found.keys), **found.numbers, "files": files, **about})
    return 0


def _clusters(args: argparse.Namespace, matrix: Dissimilarities | None, run: Run | None) -> list[str] | None:
    """Return the cluster of each item; what is wrong with the file is told before the work."""
    from tartan.view.coordinates import read_labels

    if args.labels is None:
        return None
    if matrix is None:
        assert run is not None  # what is extended is the map of a run
        return read_labels(args.labels, run.keys)
    return read_labels(args.labels, item_names(matrix))


def _run(args: argparse.Namespace) -> Run | None:
    """Return the run that the command line names, unless it is another matrix."""
    import tartan

    if (Path(args.matrix) / "manifest.json").is_file():
        return tartan.open(args.matrix)
    if args.extend:
        raise ConfigError(f"--extend is for a run that keeps a map; {args.matrix} is no run")
    return None


def _embedded(args: argparse.Namespace, matrix: Dissimilarities, run: Run | None, monitor: Monitor) -> Embedding:
    from tartan.analytics import embed

    given: dict[str, Any] = {"random_state": args.seed or 0}
    if args.init is not None:
        given["start"] = _start(args.init, item_names(matrix))
    found = embed(matrix, args.method or "damds", args.dim or 3, monitor=monitor, **given)
    found = replace(found, recipe={**found.recipe, "matrix": matrix_options(args)})
    if run is not None and args.keep:
        _keep(run, found)
    return found


def _start(path: Path, names: Sequence[str]) -> NDArray[np.float64]:
    """Return coordinates in the order of the items: by key where the file has one for each item, else by place."""
    from tartan.view.coordinates import read_coordinates

    found = read_coordinates(path)
    places = {key: place for place, key in enumerate(found.keys or ())}
    if len(places) < len(found.points) or not all(name in places for name in names):
        return found.points
    return found.points[[places[name] for name in names]]


def _keep(run: Run, found: Embedding) -> None:
    """Leave the map where ``tartan add`` finds it; the map is drawn even if that cannot be."""
    from tartan.analytics.maps import keep_map

    try:
        keep_map(run.folder, found)
    except TartanError as error:
        print(f"tartan: warning: the map is not kept for tartan add: {error}", file=sys.stderr)


#: Options that a map that is there already has decided.
_DECIDED = ("method", "dim", "seed", "init", "checkpoint", "output", "similarity", "transform", "missing")


def _extended(args: argparse.Namespace, run: Run | None, monitor: Monitor) -> Embedding:
    """Return the map that a run keeps, with a place for every item."""
    from tartan.analytics import Embedding

    assert run is not None
    for name in _DECIDED:
        if getattr(args, name) is not None:
            raise ConfigError(f"--extend keeps to how the map was made; leave out --{name}, or leave out --extend")
    before = kept(run)
    made = run.extend_map(monitor)
    print_map(run, made, len(made) - len(before or made), quiet=args.quiet)
    numbers = {**made.numbers, "n_fitted": made.n_fitted, "n_placed": len(made) - made.n_fitted}
    return Embedding(made.points, tuple(run.keys), made.method, numbers, None, made.stress, dict(made.recipe))


def _about_map(run: Run) -> dict[str, Any] | None:
    found = kept(run)
    return None if found is None else about_map(run, found)


def _draw_density(
    args: argparse.Namespace, matrix: Dissimilarities | None, run: Run | None, found: Embedding, monitor: Monitor
) -> Path:
    """Draw the pairs by dissimilarity (to the right) and distance (up)."""
    from tartan.analytics import density
    from tartan.analytics.matrix import grown
    from tartan.base.files import whole_file
    from tartan.view.matrix_image import draw_matrix

    if matrix is None:
        assert run is not None
        matrix = grown(run.folder, found.numbers["n_fitted"], **found.recipe["matrix"])
    pairs = density(matrix, found.points, monitor=monitor)
    end = f"{pairs.dissimilarity_end:.4g}"
    title = f"Pairs: dissimilarity 0 to {end} (right), distance 0 to {end} (up)"
    with whole_file(args.density) as unfinished:
        draw_matrix(pairs.levels().T[::-1], title=title, limits=(0.0, 1.0)).save(unfinished, format="PNG")
    return Path(args.density)


def _write(args: argparse.Namespace, found: Embedding, clusters: list[str] | None) -> list[Path]:
    from tartan.view.coordinates import write_coordinates
    from tartan.view.map_image import write_map_image
    from tartan.view.pviz import write_pviz
    from tartan.view.scene_page import write_scene_page

    base = _base(args)
    written = [write_coordinates(f"{base}.tsv", found.points, found.keys, clusters)]
    shown = _scene(args, found, clusters)
    written.append(write_map_image(shown, f"{base}.png"))
    written.append(write_scene_page(shown, f"{base}.html"))
    if args.svg:
        written.append(write_map_image(shown, f"{base}.svg"))
    if args.pviz:
        written.append(write_pviz(shown, f"{base}.pviz"))
    return written


def _base(args: argparse.Namespace) -> Path:
    """Return what the names of all files begin with; a suffix of one of them is not part of it."""
    if args.out is None:
        return Path(f"{Path(args.matrix).resolve().stem}-map")
    named = Path(args.out)
    if args.out.endswith("/") or named.name in ("", ".."):
        raise ConfigError(f"--out {args.out} is a folder; say what the names of the files in it begin with")
    return named.with_suffix("") if named.suffix in {".tsv", ".png", ".html", ".svg", ".pviz"} else named


def _scene(args: argparse.Namespace, found: Embedding, clusters: list[str] | None) -> Scene:
    from tartan.view.scene import scene

    title = f"{Path(args.matrix).resolve().stem}: {found.method}"
    n_fitted = found.numbers.get("n_fitted", len(found.keys))
    if clusters is None and n_fitted < len(found.keys):
        clusters = ["made from"] * n_fitted + ["placed later"] * (len(found.keys) - n_fitted)
    return scene(found.points, title=title, labels=found.keys, clusters=clusters)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
