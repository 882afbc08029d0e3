"""The matrix that a command of the analytics reads, and the options that say how: shared by all of them."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.format import pluralize
from tartan.cli.shared.options import add_at, size
from tartan.cli.shared.output import say, say_version, warn_unfinished
from tartan.cli.shared.wording import in_options
from tartan.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tartan.analytics import Dissimilarities
    from tartan.analytics.matrix import KeptPairs, WhatFailed
    from tartan.result.run import Run

# Written out, because importing the analytics takes time; a test compares.
FORMATS = ("npy", "zarr", "phylip", "csv", "tsv", "pairs", "int16", "float32", "float64")
EDGES = "edges"
_OF_FILES = ("format", "byteorder", "triangle")
_OPTIONS = ("transform", "distance", "missing", "output", "failed")


def add_matrix(parser: argparse.ArgumentParser) -> None:
    """Add ``RUN|MATRIX`` and the options of ``tartan.analytics.as_dissimilarities``."""
    add = parser.add_argument
    add(
        "matrix",
        metavar="RUN|MATRIX",
        help="folder of a run, or a file: .npy, PHYLIP, CSV, a list of pairs, raw int16 or float32, Zarr; for "
        "clusters, neighbours and maps also kept pairs: Parquet, or .npz of SciPy",
    )
    add(
        "--format",
        choices=(*FORMATS, EDGES),
        metavar="F",
        help=f"of a file: {', '.join(FORMATS)}; {EDGES}: a list of pairs of which the others are farther; default: by "
        "its contents or name",
    )
    add("--byteorder", choices=("little", "big"), help="of a raw file; default: as its values make sense")
    add("--triangle", choices=("upper", "lower"), help="read this triangle of a matrix, whatever the other one holds")
    add(
        "--output",
        metavar="NAME",
        help="output of the run, array of a Zarr group, or column of a list; default: the first",
    )
    add(
        "--distance",
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
        type=read_missing,
        help="which values stand for pairs that are missing: nan, negative, a number, or error (none may be missing)",
    )
    add(
        "--failed",
        choices=("drop", "error"),
        help="of a run: leave out what failed and name it (drop, the default), or refuse such a run (error); of a "
        "file: leave out and name items until no pair is missing (drop), or refuse missing pairs (error)",
    )
    add_at(parser)
    add_names(parser)


def add_memory(parser: argparse.ArgumentParser) -> None:
    """Add ``--memory``."""
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        type=size,
        help="most memory for the rows of a linkage; what does not fit lies on disk. Default: half of what is free",
    )


def add_names(parser: argparse.ArgumentParser) -> None:
    """Add ``--names``."""
    parser.add_argument(
        "--names",
        metavar="full|stem|TABLE",
        type=read_way_of_names,
        help="what items are called in outputs: full, the default; stem, without suffixes; or the second column of a "
        "CSV or TSV file whose first one holds items",
    )


def read_way_of_names(text: str) -> str:
    """Read what items are called: a way, or a table that can be read."""
    from tartan.base.shown_names import require_names

    try:
        require_names(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def transform_of(text: str) -> str | float:
    """Read a transform: a number is an exponent."""
    try:
        return float(text)
    except ValueError:
        return text


def read_missing(text: str) -> str | float:
    """Read what means a missing pair."""
    if text in ("nan", "negative", "error"):
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not nan, negative, error or a number") from None


def matrix_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the matrix that were given, for a run also what is the default."""
    given = {name: value for name in _OPTIONS if (value := getattr(args, name, None)) is not None}
    return {"failed": "drop"} | given if _is_run(args) else given


def _is_run(args: argparse.Namespace) -> bool:
    return (Path(args.matrix) / "manifest.json").is_file()


def open_matrix(args: argparse.Namespace, *, complete: bool = False, says: bool = True) -> Dissimilarities:
    """Open the matrix that the command line names, and say what is left out, because it failed or is missing.

    Parameters
    ----------
    args : namespace
    complete : bool
        Whether all pairs are needed: then items of failed pairs are left out, too.
    says : bool
        Whether what is left out is said here.

    Raises
    ------
    ConfigError
        If it has fewer than two items.
    """
    from tartan.analytics.matrix import for_analysis

    run = open_run(args)
    if args.format == EDGES:
        raise ConfigError(f"--format {EDGES} is for cluster, neighbors and embed; this needs all pairs")
    if run is None:
        ways = {"byteorder": args.byteorder, "triangle": args.triangle}
        matrix = _read(args.matrix, args.format, **ways, **matrix_options(args))
    else:
        matrix = for_analysis(run, complete=complete, **matrix_options(args))
    if says and matrix.left_out is not None:
        say(f"tartan: warning: {matrix.left_out}")
    if matrix.note is not None and not args.quiet:
        say(say_in_options(matrix.note))
    return require_items(args, matrix)


def open_edges(args: argparse.Namespace) -> KeptPairs | None:
    """Open pairs that were kept elsewhere, and say what they were taken for; None for another input.

    Raises
    ------
    ConfigError
        If they cannot be read, or an option needs a matrix.
    """
    if _is_run(args) or (args.format not in (None, EDGES)):
        return None
    from tartan.analytics.matrix import are_edges, read_edges, say_edges

    if args.format == EDGES and not Path(args.matrix).is_file():
        raise ConfigError(f"--format {EDGES}: {args.matrix} is not a file; name a table of pairs or a .npz file")
    if not are_edges(args.matrix, args.format):
        return None
    for name in ("byteorder", "triangle", "missing", "failed"):
        if getattr(args, name, None) is not None:
            raise ConfigError(f"--{name} is for a matrix, and {args.matrix} is kept pairs; leave it out")
    try:
        pairs = read_edges(args.matrix, **matrix_options(args))
    except ConfigError as error:
        raise ConfigError(say_in_options(str(error)), code=error.code, context=error.context) from error
    if not args.quiet:
        say(say_edges(pairs))
    return pairs


def _read(path: str, format: str | None, **options: Any) -> Dissimilarities:  # noqa: A002
    """Read a file; warnings are said in the words of the command line."""
    from tartan.analytics import read_matrix

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", RuntimeWarning)
        matrix = read_matrix(path, format, **options)
    for warning in heard:
        say(f"tartan: warning: {say_in_options(str(warning.message))}")
    return matrix


def say_in_options(text: str) -> str:
    """Return what the analytics say with the options of a matrix for their arguments."""
    words = argparse.ArgumentParser()
    add_matrix(words)
    return in_options(text, words)


def require_items(args: argparse.Namespace, matrix: Dissimilarities) -> Dissimilarities:
    """Return a matrix; refuse one of a single item, whose result would look like one that went well.

    Raises
    ------
    ConfigError
    """
    if matrix.n < 2:
        where = args.matrix if matrix.left_out is None else f"{args.matrix}, without what failed,"
        raise ConfigError(f"{where} has {pluralize(matrix.n, 'item')}; 2 or more are needed", code="no-input")
    return matrix


def ranks_open(args: argparse.Namespace) -> Any:
    """Return what each rank opens: a path, or a version of a run."""
    run = open_run(args, warns=False)
    return args.matrix if run is None or run.folder.version is None else run.folder


def open_pairs(path: str, version: int | None = None) -> Run:
    """Open a run of pairs, at a version; default: the newest.

    Raises
    ------
    ConfigError
        If it is one of triples.
    """
    import tartan

    run = tartan.open(path, version)
    if not isinstance(run, tartan.Run):
        raise ConfigError(f"{path} is a run of triples, and keeps no pairs; `tartan export` has what it keeps")
    return run


def open_run(args: argparse.Namespace, *, warns: bool = True) -> Run | None:
    """Open the run that the command line names, with a warning where it is not finished; None for another matrix.

    Raises
    ------
    ConfigError
        If an option of files is given for a run, or for several ranks.
    """
    given = next((name for name in _OF_FILES if getattr(args, name) is not None), None)
    if not _is_run(args):
        if given is not None and getattr(args, "ranks", None) is not None:
            raise ConfigError(f"--{given} is for one process; leave out --ranks, or write the matrix as .npy first")
        if getattr(args, "at", None) is not None:
            raise ConfigError(f"--at names a version of a run, and {args.matrix} is a file; leave it out")
        return None
    if given is not None:
        raise ConfigError(f"--{given} is for files of matrices, and {args.matrix} is a run; leave it out")
    run = open_pairs(args.matrix, args.at)
    if warns:
        warn_unfinished(run)
        say_version(run, quiet=bool(getattr(args, "quiet", False)))
    return run


def look_at_failed(args: argparse.Namespace, run: Run) -> None:
    """Name the items of a run that failed, or refuse it, as ``--failed`` says; for commands that open no matrix.

    Raises
    ------
    ConfigError
    """
    from tartan.analytics.matrix import WhatFailed

    found = WhatFailed.of(run)
    if args.failed == "error":
        found.refuse()
    say_left_out(found, found.items)


def say_left_out(found: WhatFailed, left_out: NDArray[np.int64]) -> None:
    """Name what is left out of a run, because it failed."""
    said = found.say(left_out)
    if said is not None:
        say(f"tartan: warning: {said}")


def item_names(matrix: Dissimilarities, *, dropped: bool = False) -> Sequence[str]:
    """Return the names of the items, or their numbers; on request those of a run's dropped items too."""
    if dropped and matrix.input_names is not None:
        return matrix.input_names
    return tuple(map(str, range(matrix.n))) if matrix.names is None else matrix.names
