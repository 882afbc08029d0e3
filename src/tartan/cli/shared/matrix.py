"""The matrix that a command of the analytics reads, and the options that say how: shared by all of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.cli.shared.output import say, warn_unfinished
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics import Dissimilarities
    from tartan.run.result import Run

# Written out, because importing the analytics takes time; a test compares.
FORMATS = ("npy", "zarr", "phylip", "csv", "tsv", "int16", "float32", "float64")
_OF_FILES = ("format", "byteorder", "triangle")
_OPTIONS = ("transform", "similarity", "missing", "output", "drop_failed")


def add_matrix(parser: argparse.ArgumentParser) -> None:
    """Add ``RUN|MATRIX`` and the options of ``tartan.analytics.as_dissimilarities``."""
    add = parser.add_argument
    add(
        "matrix",
        metavar="RUN|MATRIX",
        help="folder of a run, or a file: .npy, PHYLIP, CSV, raw int16 or float32, Zarr",
    )
    add("--format", choices=FORMATS, metavar="F", help=f"of a file: {', '.join(FORMATS)}; default: by its name")
    add("--byteorder", choices=("little", "big"), help="of a raw file; default: as its values make sense")
    add("--triangle", choices=("upper", "lower"), help="read this triangle of a matrix, whatever the other one holds")
    add("--output", metavar="NAME", help="output of the run, or array of a Zarr group; default: the first")
    add(
        "--similarity",
        metavar="FORMULA",
        help="how scores become distances, such as 'max-s' or 'sqrt(2-2s)'; default: what the application declares",
    )
    add(
        "--transform",
        metavar="FORMULA",
        type=transform_of,
        help="of the distances, such as '-log(1-2d)' or 'sqrt'; an exponent; 4D",
    )
    add(
        "--missing",
        metavar="WHAT",
        type=missing_of,
        help="what means a missing pair: nan, negative, error, or a number",
    )
    add("--drop-failed", action="store_true", default=None, help="leave out the items of a run that failed")


def transform_of(text: str) -> str | float:
    """Read a transform: a number is an exponent."""
    try:
        return float(text)
    except ValueError:
        return text


def missing_of(text: str) -> str | float:
    """Read what means a missing pair."""
    if text in ("nan", "negative", "error"):
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not nan, negative, error or a number") from None


def matrix_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the matrix that were given."""
    return {name: value for name in _OPTIONS if (value := getattr(args, name, None)) is not None}


def open_matrix(args: argparse.Namespace) -> Dissimilarities:
    """Open the matrix that the command line names."""
    from tartan.analytics import read_matrix
    from tartan.analytics.matrix import for_analysis

    run = open_run(args)
    if run is None:
        ways = {"byteorder": args.byteorder, "triangle": args.triangle}
        return read_matrix(args.matrix, args.format, **ways, **matrix_options(args))
    matrix = for_analysis(run, **matrix_options(args))
    if matrix.note is not None and not args.quiet:
        say(matrix.note)
    return matrix


def open_run(args: argparse.Namespace, *, warns: bool = True) -> Run | None:
    """Open the run that the command line names, with a warning where it is not finished; None for another matrix.

    Raises
    ------
    ConfigError
        If an option of files is given for a run, or for several ranks.
    """
    import tartan

    given = next((name for name in _OF_FILES if getattr(args, name) is not None), None)
    if not (Path(args.matrix) / "manifest.json").is_file():
        if given is not None and getattr(args, "ranks", None) is not None:
            raise ConfigError(f"--{given} is for one process; leave out --ranks, or write the matrix as .npy first")
        return None
    if given is not None:
        raise ConfigError(f"--{given} is for files of matrices, and {args.matrix} is a run; leave it out")
    run = tartan.open(args.matrix)
    if warns:
        warn_unfinished(run)
    return run


def item_names(matrix: Dissimilarities, *, dropped: bool = False) -> Sequence[str]:
    """Return the names of the items, or their numbers; on request those of a run's dropped items too."""
    if dropped and matrix.input_names is not None:
        return matrix.input_names
    return tuple(map(str, range(matrix.n))) if matrix.names is None else matrix.names
