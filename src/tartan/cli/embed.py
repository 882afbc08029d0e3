"""``tartan embed``: a map of a run or a matrix, as coordinates, picture and page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.cli.matrix_options import add_matrix, open_matrix
from tartan.cli.options import count, positive_int
from tartan.cli.output import print_json
from tartan.cli.table import require_files, require_folders

if TYPE_CHECKING:
    from tartan.analytics import Embedding
    from tartan.analytics.matrix import Dissimilarities
    from tartan.view.scene import Scene

HELP = "draw a map: coordinates, a picture, and a page to turn it in"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add_matrix(parser)
    add(
        "--method",
        choices=("damds", "smacof", "lmmds"),
        default="damds",
        help="annealing (default), plain SMACOF from the classical solution, or Levenberg-Marquardt",
    )
    add("--dim", type=positive_int, default=3, metavar="L", help="dimensions of the map; default: 3")
    add("-o", "--out", metavar="NAME", help="write NAME.tsv, NAME.png, NAME.html; default: MATRIX-map in this folder")
    add(
        "--labels",
        metavar="FILE",
        type=Path,
        help="cluster of each item for the colours: a line an item, or key, tab, cluster",
    )
    add("--seed", type=count, default=0, metavar="N", help="of the random start; default: 0")
    add("--init", metavar="FILE", type=Path, help="coordinates to begin with")
    add("--pviz", action="store_true", help="write NAME.pviz too")
    add("--svg", action="store_true", help="write NAME.svg too")
    add("--density", metavar="FILE", type=Path, help="write a PNG of how many pairs have which distance and score")
    add("--checkpoint", metavar="FILE", type=Path, help="where a stopped map goes on when it is called again")
    add("--quiet", action="store_true", help="no progress and no summary")


def execute(args: argparse.Namespace) -> int:
    """Compute and draw; return the exit status."""
    from tartan.analytics import Monitor
    from tartan.analytics._monitor import cancel_on_signals

    require_folders(args.out, args.density)
    require_files(args.labels)
    matrix, monitor = open_matrix(args), Monitor(0 if args.quiet else 1, args.checkpoint)
    with cancel_on_signals(monitor):
        found = _embedded(args, matrix, monitor)
        counted = [] if args.density is None else [_draw_density(args, matrix, found, monitor)]
    written = _write(args, found) + counted
    if not args.quiet:
        said = ", ".join(f"{name} {_shown(value)}" for name, value in found.numbers.items())
        print(f"{found.method}: {said}\nwrote {', '.join(map(str, written))}", file=sys.stderr)
    if args.json:
        print_json({"method": found.method, "n": len(found.keys), **found.numbers, "files": list(map(str, written))})
    return 0


def _embedded(args: argparse.Namespace, matrix: Dissimilarities, monitor: Any) -> Embedding:
    from tartan.analytics import embed
    from tartan.view.coordinates import read_coordinates

    given: dict[str, Any] = {"random_state": args.seed}
    if args.init is not None:
        given["start"] = read_coordinates(args.init).points
    return embed(matrix, args.method, args.dim, monitor=monitor, **given)


def _draw_density(args: argparse.Namespace, matrix: Dissimilarities, found: Embedding, monitor: Any) -> Path:
    """Draw the pairs by dissimilarity (to the right) and distance (up)."""
    from tartan.analytics import density
    from tartan.view.matrix_image import draw_matrix

    pairs = density(matrix, found.points, monitor=monitor)
    end = f"{pairs.dissimilarity_end:.4g}"
    title = f"Pairs: dissimilarity 0 to {end} (right), distance 0 to {end} (up)"
    draw_matrix(pairs.levels().T[::-1], title=title, limits=(0.0, 1.0)).save(args.density, format="PNG")
    return Path(args.density)


def _write(args: argparse.Namespace, found: Embedding) -> list[Path]:
    from tartan.view.coordinates import read_labels, write_coordinates
    from tartan.view.map_image import write_map_image
    from tartan.view.pviz import write_pviz
    from tartan.view.scene_page import write_scene_page

    base = _base(args)
    clusters = None if args.labels is None else read_labels(args.labels, found.keys)
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
    return named.with_suffix("") if named.suffix in {".tsv", ".png", ".html"} else named


def _scene(args: argparse.Namespace, found: Embedding, clusters: list[str] | None) -> Scene:
    from tartan.view.scene import scene

    title = f"{Path(args.matrix).resolve().stem}: {found.method}"
    return scene(found.points, title=title, labels=found.keys, clusters=clusters)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
