"""``tartan demo``: simulate photos, compare all of them, show which share a camera."""

from __future__ import annotations

import argparse
from pathlib import Path

from tartan.cli.shared.options import count, positive_int


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("folder", metavar="DIR", nargs="?", type=Path, default=Path("demo"), help="where it goes; default: demo")
    add("--photos", type=positive_int, default=48, metavar="N", help="photos to simulate; default: 48")
    add("--cameras", type=positive_int, default=4, metavar="N", help="cameras that took them; default: 4")
    add("--seed", type=count, default=1, metavar="S", help="the same seed, the same photos; default: 1")
    add("-q", "--quiet", action="store_true", help="no progress")


def execute(args: argparse.Namespace) -> int:
    """Run the demonstration; return the exit status."""
    from tartan.view.demo import run_demo

    result = run_demo(
        args.folder,
        n_photos=args.photos,
        n_cameras=args.cameras,
        seed=args.seed,
        quiet=args.quiet,
        json=args.json,
    )
    return 3 if result["n_failed_items"] else 0
