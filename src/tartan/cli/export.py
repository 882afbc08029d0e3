"""``tartan export``: write the result in a format that other programs read."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tartan.cli.shared.matrix import add_names, say_left_out
from tartan.cli.shared.options import add_at, add_trust, count
from tartan.cli.shared.output import print_json, say, say_notes, say_version, warn_unfinished
from tartan.cli.shared.outputs import add_overwrite, inspector_of
from tartan.errors import ConfigError

# Written out, because importing the exports takes time; a test compares.
SIGNATURES = (".sig", ".sig.gz", ".zip")
FORMATS = ("npy", "npy-condensed", "phylip", "phylip-strict", "csv", "tsv", "int16", "int16-be", "float32", "parquet")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("run", metavar="RUN", help="folder of the run")
    add(
        "file",
        metavar="FILE",
        type=Path,
        help="what to write; its suffix chooses the format; .svg: the matrix with names and a dendrogram; of genomes "
        ".sig, .sig.gz and .zip: their sketches as signatures of sourmash",
    )
    add("--format", choices=FORMATS, metavar="F", help=f"one of {', '.join(FORMATS)}; default: by the suffix")
    add("--output", metavar="NAME", help="which output of the application; default: the first")
    add(
        "--distance",
        metavar="FORMULA",
        help="how similarities become distances, such as 'max-s' or 'sqrt(2-2s)'; default: as the application "
        "declares, in formats of distances (PHYLIP, int16, npy-condensed)",
    )
    add("--pairs", action="store_true", help="CSV, TSV: a line i,j,score for each pair, instead of the matrix")
    add_names(parser)
    add("--diagonal", type=float, metavar="X", help="what stands on a diagonal that was not computed")
    add(
        "--missing",
        type=float,
        metavar="X",
        help="what stands for missing and failed scores; default: nan, in int16 -1, in PHYLIP nothing",
    )
    add(
        "--failed",
        choices=("drop", "error"),
        help="of matrices: leave out what failed and name it (drop), or refuse such a run (error); default: what "
        "failed has the value of missing scores; without one, in PHYLIP and .svg, it is left out",
    )
    add("--clip", action="store_true", help="int16 only: scores outside 0..1 become 0 or 1, not an error")
    add("--sorted", dest="sort", action="store_true", help="CSV, Parquet: the pairs in the order of their scores")
    add("--threshold-count", type=count, metavar="K", help="CSV, Parquet: the K best pairs of all, in order")
    add("--ascending", action="store_true", default=None, help="the smallest scores are the best; default: the nearest")
    add("--descending", dest="ascending", action="store_false", help="the largest scores are the best")
    add("--memory", metavar="SIZE", help="most memory to sort with; default: 1GB")
    add("--tmp", metavar="DIR", type=Path, action="append", help="folder for temporary files of sorting; repeat it")
    add_at(parser)
    add_trust(parser, "open the genomes that the folder names for signatures")
    add_overwrite(parser)


def execute(args: argparse.Namespace) -> int:
    """Write it; return the exit status."""
    import tartan

    chosen = {"output": args.output, "diagonal": args.diagonal, "missing": args.missing, "clip": args.clip or None}
    chosen |= {"sort": args.sort or None, "count": args.threshold_count, "ascending": args.ascending}
    chosen |= {"memory": args.memory, "tmp": args.tmp, "pairs": args.pairs or None, "names": args.names}
    chosen |= {"distance": args.distance}
    options = {name: value for name, value in chosen.items() if value is not None}
    if str(args.file) == "-":
        raise ConfigError("export writes files, and - is not one: name it, such as D.csv")
    run = tartan.open(args.run, args.at)
    if args.file.suffix.lower() == ".svg" and args.format is None:
        written = _draw(run, args, options)
    elif args.file.name.lower().endswith(SIGNATURES) and args.format is None:
        written = _save_signatures(run, args, options)
    else:
        way = _way(run, args)
        options |= {"failed": way} if way is not None else {}  # of no use to triples
        written = run.export(args.file, args.format, overwrite=args.overwrite, **options)
    warn_unfinished(run)
    say_version(run)
    say_notes(run)
    size = Path(written).stat().st_size
    if args.json:
        print_json({"file": written, "size_bytes": size})
    else:
        say(f"{written}: {size:,} bytes")
    return 0


def _way(run: Any, args: argparse.Namespace) -> str | None:
    """Name what is left out, because it failed; return the way that does so."""
    from tartan.result.exports import what_is_left_out
    from tartan.store.export import ExportOptions, format_of

    kind = "parquet" if args.sort or args.threshold_count is not None else format_of(args.file, args.format)
    options = ExportOptions(missing=args.missing, pairs=args.pairs)
    found, left_out = what_is_left_out(run.folder, kind, options, args.failed)
    say_left_out(found, left_out)
    return "drop" if len(left_out) else args.failed


def _draw(run: Any, args: argparse.Namespace, options: Mapping[str, Any]) -> Path:
    from tartan.analytics.matrix import WhatFailed
    from tartan.view.matrix_svg import save_matrix_svg

    idle = sorted(options.keys() - {"output", "distance", "names"})
    if idle:
        raise ConfigError(f"{args.file} is a picture of the matrix, which has no use for {', '.join(idle)}")
    found, failed = WhatFailed.of(run), args.failed or "drop"
    if failed == "drop":
        say_left_out(found, found.list_left_out(complete=True))
    return save_matrix_svg(run, args.file, overwrite=args.overwrite, failed=failed, **options)


def _save_signatures(run: Any, args: argparse.Namespace, options: Mapping[str, Any]) -> Path:
    """Sketch the genomes of a run again, and write what sourmash reads."""
    from tartan.apps.genomes.app import hashes_of
    from tartan.apps.genomes.signatures import save_signatures
    from tartan.base.shown_names import show_names

    about = run.manifest.application
    if about["name"] != "genomes":
        raise ConfigError(f"{args.file}: signatures are of genomes, and {args.run} is a run of {about['name']}")
    idle = sorted(options.keys() - {"names"})
    if idle or args.failed is not None:
        raise ConfigError(
            f"{args.file} holds sketches and no scores, which have no use for {', '.join(idle) or 'failed'}"
        )
    failed = {failure.i for failure in run.failures if failure.j is None}
    names = show_names(run.keys, args.names)
    inspector = inspector_of(run.folder, args, any_size=True)
    genomes = ((names[item], hashes_of(inspector.parse(item))) for item in range(len(names)) if item not in failed)
    parameters = about["parameters"]
    return save_signatures(args.file, genomes, parameters["k"], parameters["scaled"], overwrite=args.overwrite)
