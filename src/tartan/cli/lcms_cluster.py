"""``tartan lcms cluster``: cluster the LC-MS peaks of one charge and compare them with the reference columns."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.signals import cancel_on_signals
from tartan.cli.shared.link import add_link, read_ranks_options
from tartan.cli.shared.options import add_settings, positive_int, settings
from tartan.cli.shared.output import print_json, print_table, say
from tartan.cli.shared.outputs import add_overwrite, make_folder, require_folder
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.apps.lcms import LcmsClusters, Peaks


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("file", metavar="FILE", type=Path, help="text, plain or gzip: index, m/z, RT, charge, peptide, ...")
    add("-o", "--out", metavar="DIR", type=Path, required=True, help="where to write; made when absent")
    add_overwrite(parser)
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
    add("--checkpoint", type=Path, metavar="FILE", help="from which the same command resumes after a stop")
    add("--ranks", type=positive_int, metavar="P", help="processes that share the work; the same clusters for any")
    add_link(parser)
    add("-q", "--quiet", action="store_true", help="no progress")
    add_settings(parser, "set a parameter of the clustering")


def execute(args: argparse.Namespace) -> int:
    """Cluster, write, compare; return the exit status."""
    read_ranks_options(args)
    from tartan.analytics import Monitor
    from tartan.apps import lcms

    options = _options(args, lcms.parameters())
    require_folder(args.out, overwrite=args.overwrite)
    peaks = lcms.read_peaks(args.file, args.charge)
    earlier = [lcms.read_clusters(path) for path in args.earlier]
    references = lcms.references_of(peaks, args.compare)
    make_folder(args.out, overwrite=args.overwrite)
    monitor = Monitor(0 if args.quiet else 1, args.checkpoint)
    with cancel_on_signals(monitor.cancel):
        found = _cluster(args, peaks, mode=args.mode, earlier=earlier, monitor=monitor, **options)
    about = lcms.describe(peaks, found, references)
    lcms.write_result(args.out, peaks, found, options)
    if args.json:
        print_json(about)
    else:
        print_table(
            [(name, f"{value:.6g}" if isinstance(value, float) else str(value)) for name, value in _flat(about)]
        )
        say(f"clusters in {args.out}")
    return 0


def _cluster(args: argparse.Namespace, peaks: Peaks, **call: Any) -> LcmsClusters:
    from tartan.apps import lcms

    ranks = read_ranks_options(args)
    if ranks is None:
        return lcms.cluster_peaks(peaks, **call)
    from tartan.result.over_ranks import over_ranks

    return over_ranks(ranks, lcms.cluster_peaks, peaks, **call)


def _options(args: argparse.Namespace, known: Sequence[str]) -> dict[str, Any]:
    """Return the settings of ``--set``; numbers separated by commas are several."""
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


def _flat(about: dict[str, Any]) -> list[tuple[str, Any]]:
    rows = [(name, value) for name, value in about.items() if name not in ("occupation", "compared")]
    for name, numbers in about["compared"].items():
        rows += [(f"{name} {what}", value) for what, value in numbers.items()]
    return rows
