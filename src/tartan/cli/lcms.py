"""``tartan lcms``: cluster the LC-MS peaks of one charge and compare them with the reference columns."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tartan.cli.options import add_settings, settings
from tartan.cli.output import print_json, print_table
from tartan.cli.table import make_folder
from tartan.errors import ConfigError

HELP = "cluster LC-MS peaks: one cluster is one peptide"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("file", metavar="FILE", type=Path, help="text, plain or gzip: index, m/z, RT, charge, peptide, ...")
    add("-o", "--out", metavar="DIR", type=Path, required=True, help="where to write; made when absent")
    add("--charge", type=int, default=2, metavar="Z", help="peaks of this charge; negative: all others; default: 2")
    add("--mode", default="fresh", metavar="MODE", help="fresh (default), sponge, join, factor or report")
    add(
        "--earlier",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="an earlier result, the folder or its text; may be repeated",
    )
    add("--compare", type=Path, action="append", default=[], metavar="DIR", help="compare with such a result, too")
    add("--checkpoint", type=Path, metavar="FILE", help="from which the same command goes on after a stop")
    add("--quiet", action="store_true", help="no progress")
    add_settings(parser, "set a parameter of the clustering")


def execute(args: argparse.Namespace) -> int:
    """Cluster, write, compare; return the exit status."""
    from tartan.analytics.monitor import Monitor
    from tartan.apps import lcms
    from tartan.base.signals import cancel_on_signals

    options = _options(args)
    peaks = lcms.read_peaks(args.file, args.charge)
    earlier = [lcms.read_clusters(path) for path in args.earlier]
    references = _references(peaks, args.compare)
    make_folder(args.out)
    monitor = Monitor(0 if args.quiet else 1, args.checkpoint)
    with cancel_on_signals(monitor.cancel):
        found = lcms.cluster_peaks(peaks, mode=args.mode, earlier=earlier, monitor=monitor, **options)
    about = _about(peaks, found, references)
    _write(args.out, peaks, found, options)
    if args.json:
        print_json(about)
    else:
        print_table(
            [(name, f"{value:.6g}" if isinstance(value, float) else str(value)) for name, value in _flat(about)]
        )
        print(f"clusters in {args.out}", file=sys.stderr)
    return 0


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Return what ``--set`` said; numbers separated by commas are several."""
    from tartan.analytics import DAVS

    known = [name for name in DAVS().get_params() if name not in ("monitor", "communicator", "checkpoint", "verbose")]
    given = settings(args)
    for name in given:
        if name not in known:
            raise ConfigError(f"--set {name}: there is no such parameter; there are {', '.join(known)}")
    return {name: _numbers(name, value) for name, value in given.items()}


def _numbers(name: str, value: Any) -> Any:
    if not isinstance(value, str) or "," not in value:
        return value
    try:
        return tuple(int(text) if text.strip().isdigit() else float(text) for text in value.split(","))
    except ValueError:
        raise ConfigError(f"--set {name}: {value!r} must be numbers, separated by commas") from None


def _references(peaks: Any, paths: list[Path]) -> dict[str, Any]:
    """Return the clusterings to compare with by name, -1 for peaks that they do not have."""
    import numpy as np

    from tartan.apps import lcms

    # Golden clusters begin with 0, those of the other two programs with 1.
    columns = {name: np.where(labels >= (name != "golden"), labels, -1) for name, labels in peaks.references.items()}
    return columns | {str(path): lcms.labels_of(peaks, lcms.read_clusters(path)) for path in paths}


def _about(peaks: Any, found: Any, references: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    from tartan.apps import lcms

    widths, sizes = found.widths(peaks.points), found.sizes
    usual = np.nanmedian(widths[sizes > 1], axis=0) if (sizes > 1).any() else [float("nan")] * 2
    about = {
        "peaks": len(found.labels), "clusters": len(found.centers), "noise": int((found.labels < 0).sum()),
        "median_width_mz": float(usual[0]), "median_width_rt": float(usual[1]), "occupation": found.occupation(),
    }  # fmt: skip
    known = {name: reference for name, reference in references.items() if (reference >= 0).any()}
    return about | {"compared": {name: lcms.compare(found.labels, one).summary() for name, one in known.items()}}


def _flat(about: dict[str, Any]) -> list[tuple[str, Any]]:
    rows = [(name, value) for name, value in about.items() if name not in ("occupation", "compared")]
    for name, numbers in about["compared"].items():
        rows += [(f"{name} {what}", value) for what, value in numbers.items()]
    return rows


def _write(out: Path, peaks: Any, found: Any, options: dict[str, Any]) -> None:
    from dataclasses import replace

    import numpy as np

    from tartan.apps import lcms

    most = options.get("max_clusters") or len(peaks.points)
    lcms.write_clusters(out, "clusters", peaks, found.labels, found.centers, most)
    sigma = np.array(options.get("sigma", lcms.SETTINGS["sigma"]))
    scaled, centers = (np.column_stack([np.log(x[:, 0]), x[:, 1]]) / sigma for x in (peaks.points, found.centers))
    lcms.write_clusters(out, "clustersScaled", replace(peaks, points=scaled), found.labels, centers, most)
    columns = {"index": peaks.index, "mz": peaks.points[:, 0], "rt": peaks.points[:, 1], "cluster": found.labels}
    lcms.write_table(out / "peaks.tsv", columns | {"peptide": peaks.peptides, "experiment": peaks.experiment})
    widths = found.widths(peaks.points)
    of_clusters = {"cluster": np.arange(len(found.centers)), "mz": found.centers[:, 0], "rt": found.centers[:, 1]}
    of_clusters |= {"peaks": found.sizes, "width_mz": widths[:, 0], "width_rt": widths[:, 1]}
    lcms.write_table(out / "clusters.tsv", of_clusters)
