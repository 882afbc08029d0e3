"""``tartan plan``: predict time, loads and efficiency of a run on a described machine, or from a finished run."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tartan.cli.shared.options import positive_int
from tartan.cli.shared.output import print_json, put
from tartan.cli.shared.outputs import add_overwrite, require_outputs
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.plan.cache_curve import CachePoint
    from tartan.plan.from_run import MeasuredRun, OtherRun


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "files",
        metavar="FILE.toml",
        nargs="*",
        type=Path,
        help="machines and workloads (docs/plan.md), or names of plans that come with Tartan: forensics, "
        "bioinformatics, microscopy on one node (the default); rocket-nodes, rocket-unlike, rocket-cartesius, million "
        "on several; unicorn, thousand: block tasks; depsort: a sort",
    )
    parser.add_argument(
        "--from", dest="run", metavar="RUN", type=Path, help="take costs and bandwidths from a finished run instead"
    )
    parser.add_argument("--items", type=positive_int, metavar="N", help="with --from: predict N items")
    parser.add_argument(
        "--devices", type=positive_int, metavar="N", help="with --from: predict N devices like those of the run"
    )
    parser.add_argument(
        "--host-cache", metavar="SIZE", help="with --from: predict another host cache, as 40GB, 60items"
    )
    parser.add_argument("--device-cache", metavar="SIZE", help="with --from: predict another cache of each device")
    parser.add_argument(
        "--chart", metavar="FILE", type=Path, help="efficiency by cache size, drawn into an .svg or .png file"
    )
    add_overwrite(parser)
    parser.add_argument(
        "--fail", type=positive_int, default=0, metavar="N", help="nodes of a cluster that are lost on the way"
    )
    parser.add_argument("--workers", type=positive_int, metavar="N", help="replays at a time; default: all cores")


def execute(args: argparse.Namespace) -> int:
    """Replay the plans in virtual time and print what comes out."""
    from tartan.plan import plan_report
    from tartan.plan.run_report import run_report

    other = _other(args)
    run = None if args.run is None else _read_measured(args)
    if args.chart is not None:
        return _chart(args, run)
    report = plan_report(args.files, processes=args.workers, fail=args.fail) if run is None else run_report(run, other)
    if args.json:
        print_json(report.as_dict())
    else:
        put(report.as_text())
    return 0


def _other(args: argparse.Namespace) -> OtherRun:
    """Return how the predicted run differs."""
    from tartan.options import parse_size
    from tartan.plan.from_run import OtherRun

    caches = {
        option: None
        if (text := getattr(args, option.replace("-", "_"))) is None
        else parse_size(text, option=f"--{option}")
        for option in ("host-cache", "device-cache")
    }
    other = OtherRun(args.items, args.devices, caches["host-cache"], caches["device-cache"])
    if other == OtherRun():
        return other
    if args.run is None:
        raise ConfigError("--items, --devices, --host-cache and --device-cache change a finished run: give --from RUN")
    if args.chart is not None:
        raise ConfigError("--chart varies the cache of a run as it is; leave the other sizes out")
    return other


def _read_measured(args: argparse.Namespace) -> MeasuredRun:
    """Read a finished run."""
    import tartan
    from tartan.plan.from_run import measure_run
    from tartan.run.session import folder_grid

    if args.files or args.fail:
        raise ConfigError("--from takes one run and no plans; leave the files and --fail out")
    run = tartan.open(args.run)
    if run.n_pairs_left:
        raise ConfigError(
            f"{run.path} is not finished: {run.n_pairs_left:,} pairs are left; "
            f"`tartan resume {shlex.quote(str(run.path))}` finishes it"
        )
    return measure_run(str(run.path), folder_grid(run.folder), run.folder.pairs.workload, run.n_pairs, run.stats)


def _chart(args: argparse.Namespace, run: MeasuredRun | None) -> int:
    """Draw efficiency against cache size, and print the figures."""
    from tartan.plan import cache_report
    from tartan.view.cache_image import DrawnCurve, save_cache_image
    from tartan.view.curve_image import require_drawing

    require_outputs(args, (args.chart, None))
    require_drawing(args.chart)
    curves = cache_report(args.files, run, processes=args.workers)
    drawn = [DrawnCurve(one.name, _places(one.points), _places(one.known), one.known_by) for one in curves]
    save_cache_image(drawn, args.chart)
    if args.json:
        print_json({"chart": str(args.chart), "curves": [curve.as_dict() for curve in curves]})
    else:
        put("\n\n".join(curve.as_text() for curve in curves))
    return 0


def _places(points: Sequence[CachePoint]) -> list[tuple[float, float]]:
    return [(one.share, one.system_efficiency) for one in points if one.system_efficiency is not None]
