"""``tartan tree``: the tree of a matrix of distances, as Newick, as a drawing, compared with another tree."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tartan.cli.shared.matrix import add_matrix, open_matrix
from tartan.cli.shared.output import print_json
from tartan.cli.shared.tables import require_folders, write_text
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics import Tree

METHODS = ("nj", "upgma", "single", "complete", "average", "weighted")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_matrix(parser)
    add = parser.add_argument
    add("--method", choices=METHODS, default="nj", help="neighbour joining (default), UPGMA, or another linkage")
    add("-o", "--out", metavar="FILE.nwk", type=Path, help="write Newick here, not to stdout")
    add("--draw", action="store_true", help="draw the tree as text")
    add("--picture", metavar="FILE", type=Path, help="draw the tree into a .png, .svg or .pdf file (needs matplotlib)")
    add(
        "--compare",
        metavar="OTHER.nwk",
        type=Path,
        help="print how many splits only one of this tree and another one has (Robinson and Foulds)",
    )
    add("--quiet", action="store_true", help="no progress and no summary")


def execute(args: argparse.Namespace) -> int:
    """Build it; return the exit status."""
    require_folders(args.out, args.picture)
    if args.picture is not None:
        from tartan.view.tree_image import require_picture

        require_picture(args.picture)
    other = None if args.compare is None else _read(args.compare)
    tree = _built(args)
    compared = {} if other is None else tree.compare(other)
    _write(args, tree)
    if args.json:
        print_json({"method": args.method, "newick": tree.newick(), **compared})
        return 0
    if args.draw:
        print(tree.draw())
    if compared:
        print(
            f"Robinson-Foulds distance: {compared['robinson_foulds']:.0f} of {compared['n_splits']:.0f} splits "
            f"({compared['normalized']:.3f})"
        )
    if not (args.out or args.draw or args.picture or compared):
        print(tree.newick())
    return 0


def _built(args: argparse.Namespace) -> Tree:
    from tartan.analytics import Monitor
    from tartan.analytics.trees import build_tree
    from tartan.base.signals import cancel_on_signals

    matrix, monitor = open_matrix(args), Monitor(0 if args.quiet else 1)
    with cancel_on_signals(monitor.cancel):
        return build_tree(matrix, args.method, monitor=monitor)


def _read(path: Path) -> Tree:
    from tartan.analytics import read_newick

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        return read_newick(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", context=error.context) from error


def _write(args: argparse.Namespace, tree: Tree) -> None:
    written = []
    if args.out is not None:
        write_text(args.out, tree.newick() + "\n")
        written.append(f"tree in {args.out}")
    if args.picture is not None:
        from tartan.view.tree_image import save_tree_image

        title = f"{Path(args.matrix).resolve().stem}: {args.method}"
        written.append(f"picture in {save_tree_image(tree, args.picture, title=title)}")
    if written and not args.quiet:
        print("\n".join(written), file=sys.stderr)
