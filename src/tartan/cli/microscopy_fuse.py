"""``tartan microscopy fuse``: one particle of all particles of a run of microscopy."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from tartan.cli.shared.matrix import add_names
from tartan.cli.shared.options import add_trust
from tartan.cli.shared.output import print_json, put, say
from tartan.cli.shared.outputs import add_overwrite, require_folder

if TYPE_CHECKING:
    from tartan.apps.microscopy.fused_run import FusedParticle


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of a finished run of microscopy")
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help="folder for the results")
    parser.add_argument(
        "--keep",
        metavar="SHARE",
        type=float,
        help="fuse this share of the particles, above 0 to 1, those that overlap most with the others; default: where "
        "overlaps are of two kinds, the particles of the larger ones",
    )
    add_names(parser)
    add_overwrite(parser)
    add_trust(parser, "open the particles that RUN names")


def execute(args: argparse.Namespace) -> int:
    """Fuse; return the exit status."""
    import tartan
    from tartan.view.particle_image import save_particle_image

    require_folder(args.out, overwrite=args.overwrite)
    found = tartan.fuse(args.run, args.out, keep=args.keep, names=args.names, trust=args.trust)
    if found.fusion.trusted:
        save_particle_image(args.out / "fused.png", found.spread(), found.single)
    _report(args, found)
    return 0 if found.fusion.trusted else 1


def _report(args: argparse.Namespace, fused: FusedParticle) -> None:
    import numpy as np

    found, detail = fused.fusion, fused.detail
    n, n_fitting = len(found.fits), int(found.fits.sum())
    weight = float(np.median(found.weights[found.fits]))
    counts = {"n_points": len(fused.points), "n_apart": len(fused.apart), "n_pairs_failed": fused.n_pairs_failed}
    about = {"folder": args.out, "n_particles": n, "n_fitting": n_fitting, **counts}
    about |= {"weight": weight, "trusted": found.trusted}
    lengths = (None, None) if detail is None else (_read_known(detail.fused), _read_known(detail.single))
    about |= dict(zip(("resolution", "resolution_of_single"), lengths))
    if not found.trusted:
        say(
            "tartan: no structure is found: particles agree with these poses little more than by chance (median weight "
            f"{weight:.2f}, overlap {found.contrast:.2f} times that of displaced ones), so there is no resolution and "
            "no picture: too few sites are labelled, there are too few particles, or they show different things"
        )
    if args.json:
        print_json(about)
        return
    put(args.out / "fused.parquet")
    said = f"{n_fitting} of {n} particles fused into {counts['n_points']:,} points"
    said += f", {counts['n_apart']} not connected" if counts["n_apart"] else ""
    said += f", {counts['n_pairs_failed']:,} pairs failed" if counts["n_pairs_failed"] else ""
    of_halves, of_single = ("unknown" if length is None else f"{length:.3g}" for length in lengths)
    said += f"; resolution {of_halves} of two halves, {of_single} of single particles" if detail is not None else ""
    say(f"{said}; result in {args.out}")


def _read_known(length: float) -> float | None:
    return length if math.isfinite(length) else None
