"""``tartan fuse``: one particle of all particles of a run of microscopy."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.files import disk_errors
from tartan.cli.shared.output import print_json
from tartan.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tartan.apps.microscopy.fused_files import Detail
    from tartan.apps.microscopy.fusion import Fusion, PairMotions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of a finished run of microscopy")
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help="folder for what is written")


def execute(args: argparse.Namespace) -> int:
    """Fuse; return the exit status."""
    import numpy as np

    import tartan
    from tartan import apps
    from tartan.apps.microscopy import fused_files as files
    from tartan.apps.microscopy.fusion import fuse, groups, pair_weights
    from tartan.run.contents import parsed_items
    from tartan.store.manifest import FILE_NAME
    from tartan.view.particle_image import save_particle_image

    run = tartan.open(args.run)
    _require(run)
    if (args.out / FILE_NAME).exists():
        raise ConfigError(f"{args.out} holds a run; choose another folder for the fusion", context={"option": "--out"})
    symmetry = int(run.manifest.application["parameters"].get("symmetry", 1))
    good, points = _points(parsed_items(run.folder, apps))
    motions = _motions(run).of(good)
    if len(good) < 2:
        raise ConfigError(f"{run.path} has {len(good)} particles that could be read; fusion takes two or more")
    group = groups(pair_weights(motions.scores, np.array([len(one) for one in points])))
    members = np.flatnonzero(group == 0)
    if len(members) < 2:
        raise ConfigError(f"no pairs of {run.path} connect two particles; nothing can be fused")
    chosen, its_motions = [points[k] for k in members], motions.of(members)
    found = fuse(chosen, its_motions, symmetry)
    keys = [str(run.keys[good[k]]) for k in members]
    with disk_errors(args.out):
        args.out.mkdir(parents=True, exist_ok=True)
        for name in ("frc.csv", "fused.png"):  # of another fusion; not every one has them
            (args.out / name).unlink(missing_ok=True)
    placed, particle = files.fused_points(chosen, found)
    files.write_points(args.out, placed, particle, keys)
    rows = [
        (key, found.angles[k], *found.shifts[k], found.weights[k], "yes" if found.fits[k] else "no")
        for k, key in enumerate(keys)
    ]
    files.write_rows(args.out / "particles.csv", ("particle", "angle", "x", "y", "weight", "fits"), rows)
    apart = [(str(run.keys[good[k]]), int(group[k])) for k in np.flatnonzero(group > 0)]
    files.write_rows(args.out / "apart.csv", ("particle", "group"), apart)
    if found.trusted:
        best = np.argsort(-found.weights, kind="stable")[:4]
        single = [found.moved(chosen[k], k) for k in best]
        save_particle_image(args.out / "fused.png", files.spread(placed, particle, symmetry), single)
    detail = files.measure_detail(chosen, its_motions, symmetry) if len(chosen) >= 4 else None
    if detail is not None:
        curve = list(zip(detail.frequencies.tolist(), detail.correlation.tolist()))
        files.write_rows(args.out / "frc.csv", ("frequency", "correlation"), curve)
    _report(args, {"n_points": len(placed), "n_apart": len(apart), "n_pairs_failed": run.n_pairs_failed}, found, detail)
    return 0


def _require(run: Any) -> None:
    """Refuse runs that have no motions of all pairs."""
    manifest = run.manifest
    if manifest.application.get("source") != "builtin:microscopy" and manifest.application["name"] != "microscopy":
        raise ConfigError(f"{run.path} is a run of {manifest.application['name']}; fuse takes one of microscopy")
    if manifest.workload["kind"] == "rectangle" or manifest.reduce is not None:
        raise ConfigError(f"{run.path} keeps not all motions of one set of particles; run again without that")
    if run.n_pairs_left:
        raise ConfigError(f"{run.path} is not finished: {run.n_pairs_left:,} pairs are left; tartan resume finishes it")


def _points(items: list[Any]) -> tuple[NDArray[np.intp], list[NDArray[np.float64]]]:
    """Return the particles that could be read, and their points."""
    import numpy as np

    good = [at for at, item in enumerate(items) if item is not None]
    return np.array(good, np.intp), [items[at][0] for at in good]


def _motions(run: Any) -> PairMotions:
    from tartan.apps.microscopy.fusion import PairMotions

    return PairMotions(*(run.matrix(output=name) for name in ("scores", "theta", "tx", "ty")))


def _report(args: argparse.Namespace, counts: dict[str, int], found: Fusion, detail: Detail | None) -> None:
    import numpy as np

    n, n_fitting = len(found.fits), int(found.fits.sum())
    weight = float(np.median(found.weights))
    about = {"folder": args.out, "n_particles": n, "n_fitting": n_fitting, **counts}
    about |= {"weight": weight, "trusted": found.trusted}
    lengths = (None, None) if detail is None else (_known(detail.fused), _known(detail.single))
    about |= dict(zip(("resolution", "resolution_of_single"), lengths))
    if not found.trusted:
        print(
            f"tartan: warning: pairs agree with these poses little more than by chance (median weight {weight:.2f}), "
            "so no picture is drawn: too few sites are labelled, or there are too few particles",
            file=sys.stderr,
        )
    if args.json:
        print_json(about)
        return
    print(args.out / "fused.parquet")
    said = f"{n_fitting} of {n} particles fused into {counts['n_points']:,} points"
    said += f", {counts['n_apart']} not connected" if counts["n_apart"] else ""
    said += f", {counts['n_pairs_failed']:,} pairs failed" if counts["n_pairs_failed"] else ""
    of_halves, of_single = ("unknown" if length is None else f"{length:.3g}" for length in lengths)
    said += f"; resolution {of_halves} of two halves, {of_single} of single particles" if detail is not None else ""
    print(f"{said}; result in {args.out}", file=sys.stderr)


def _known(length: float) -> float | None:
    return length if math.isfinite(length) else None
