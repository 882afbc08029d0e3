"""Any input as ``Dissimilarities``: arrays, Zarr arrays, runs, and files of every format that is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.convert import (
    Function,
    Transform,
    applied,
    from_similarity,
    function_of_similarity,
    function_of_transform,
    strict,
    transformed,
    with_missing,
)
from tartan.analytics.matrix.dissimilarities import Dissimilarities
from tartan.analytics.matrix.files import FORMATS, RawLayout, format_of, is_zarr, open_file, square_source, zarr_source
from tartan.analytics.matrix.formula import Formula
from tartan.analytics.matrix.materialize import INT16_ONE
from tartan.analytics.matrix.sources import MatrixSource, Windowed, filled, native
from tartan.analytics.matrix.spread import spreading
from tartan.base.checks import POSITIVE, number, path_of
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.store.folder import RunFolder

#: How similarities become distances where nobody says it.
UNDECLARED = "max-s"
_UNDECLARED_NOTE = (
    f"the application declares no distance: pairs were measured by how far they are below the best one ({UNDECLARED})"
)


def as_dissimilarities(
    D: Any,
    *,
    missing: str | float | None = None,
    similarity: Any = None,
    transform: Transform | None = None,
    maximum: float = 1.0,
    triangle: str | None = None,
    output: str | None = None,
    names: Sequence[str] | None = None,
    drop_failed: bool = False,
) -> Dissimilarities:
    """Return any input in the form that the algorithms take.

    Parameters
    ----------
    D : array_like (n, n) or (n (n - 1) / 2,), Dissimilarities, Run, Zarr array, or path
        Condensed arrays have the pairs i < j row by row, as scipy's ``squareform`` orders them. For the formats of
        files see :func:`read_matrix`. int16 means 32767 for ``maximum``, negative for missing.
    missing : {"nan", "negative", "error"} or number, optional
        What marks a pair without a dissimilarity. Default: negative in int16, masked values of masked arrays, and
        scores that a run does not have; a NaN anywhere else is an error. "error" makes negative int16 one too. A
        number is a value as it is stored.
    similarity : str or callable, optional
        How similarities become dissimilarities: a formula of s such as "max-s", "sqrt(2-2s)", "-log(s)", "1-s", or a
        function of float64 arrays. Items are then at distance 0 from themselves, whatever the diagonal has. "spread": a
        formula that keeps maps from being flat, found from the scores. Default, of runs: what the application
        declares.
    transform : str, float or callable, optional
        Applied to the dissimilarities: an exponent, a formula of d such as "sqrt(d)", "-log(1-2d)" or
        "min(1,d)^0.125", "4D" or "sqrt(4D)" (Gamma law to four dimensions, divided by its largest value), or a
        function of float64 arrays.
    maximum : float
        What 32767 stands for in int16.
    triangle : {"upper", "lower"}, optional
        Read only this triangle of a square array; the other may hold anything.
    output : str, optional
        Output of a run, or array of a Zarr group; default: the first output, the only array.
    names : sequence of str, optional
        Names of the items; default: those of the input, if it has any.
    drop_failed : bool
        Of a run: leave out the items that failed. ``dropped`` of the result says which, and its ``over_all`` puts what
        is found of the others in the places that they have in the run.

    Raises
    ------
    ConfigError
        If the input is no matrix of numbers, or an option does not fit. What the values are is looked at by
        ``check``.

    Notes
    -----
    Nothing is copied here and no value is read, except that formulas with max or mean and "4D" take one pass.

    Examples
    --------
    >>> D = as_dissimilarities(np.array([0.5, 1.0, 0.8]), transform="sqrt", names="abc")
    >>> D.block(0, 1).round(3)
    array([[0.   , 0.707, 1.   ]])
    """
    return _opened(D, _InputOptions(missing, similarity, transform, maximum, triangle, output, names, drop_failed))


def for_map(D: Any, **options: Any) -> Dissimilarities:
    """Return any input in the form that maps take: similarities of a run are spread where nothing else is said."""
    return _opened(D, _InputOptions(**options, spread=True))


def for_analysis(D: Any, **options: Any) -> Dissimilarities:
    """Return any input in the form that analyses without a bound take.

    Similarities of a run without a declared distance are measured by how far they are below the best one; ``note`` of
    the result says so.
    """
    return _opened(D, _InputOptions(**options, undeclared=UNDECLARED))


def _opened(D: Any, options: _InputOptions) -> Dissimilarities:
    if isinstance(D, str | os.PathLike):
        return _from_path(path_of("D", D), None, RawLayout(), options)
    return _built(D, "D", options)


def read_matrix(
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002 - as in Run.export
    *,
    n: int | None = None,
    byteorder: str | None = None,
    **options: Any,
) -> Dissimilarities:
    """Open the matrix in a file or folder; files of numbers are memory-mapped.

    Parameters
    ----------
    path : path
    format : str, optional
        "npy" (square or condensed), "zarr", "run" (a Tartan run), "phylip" (square, lower or upper triangle), "csv" or
        "tsv" (with or without names), or the raw formats "int16", "float32", "float64": the square matrix row by row,
        or its pairs i < j, without a header. Default: by what the file is called or begins with.
    n : int, optional
        Number of items, for raw files; default: by the size of the file.
    byteorder : {"little", "big"}, optional
        For raw files; default: found out from the values.
    **options
        As for :func:`as_dissimilarities`.

    Raises
    ------
    ConfigError
        If the file is not of its format, or of the wrong size or byte order.

    Notes
    -----
    Text is read once into an array: in memory up to 1 GB, beyond it in a mapped temporary file.
    """
    if format is not None and format not in FORMATS:
        raise ConfigError(f"format is {format!r}; it is one of {', '.join(FORMATS)}")
    return _from_path(path_of("path", path), format, RawLayout(n, byteorder), _InputOptions(**options))


def grown(
    run: RunFolder,
    n_old: int,
    *,
    missing: str | float | None = None,
    similarity: str | None = None,
    transform: str | float | None = None,
    output: str | None = None,
) -> Dissimilarities:
    """Return the dissimilarities of a run that has grown, as they were made when it had ``n_old`` items.

    Formulas with max or mean, and "4D", take these numbers from the first ``n_old`` items, in a pass over them. Values
    that such a formula puts below 0, because a new score is beyond the old ones, are 0.
    """
    options = _InputOptions(missing=missing, output=output, similarity=similarity)
    whole = _with_options(_of_run(run, options), options)
    old = whole.chosen(np.arange(n_old))
    conversions: list[tuple[Any, Any]] = [(similarity, function_of_similarity), (transform, function_of_transform)]
    for given, function_of in conversions:
        if given is None:
            continue
        function, what = function_of(old, given)
        if "max" in str(given) or "mean" in str(given):
            function = _not_below_zero(function)
        whole, old = applied(whole, function, what), applied(old, function, what)
    return whole


def folder_of(D: Any) -> RunFolder | None:
    """Return the folder of a run, given as such or by its path; None for anything else."""
    from tartan.store.folder import RunFolder
    from tartan.store.manifest import FILE_NAME

    if isinstance(D, str | os.PathLike):
        return RunFolder.open(Path(D)) if (Path(D) / FILE_NAME).is_file() else None
    found = D if isinstance(D, RunFolder) else getattr(D, "folder", None)
    return found if isinstance(found, RunFolder) else None


def require_precomputed(metric: Any) -> None:
    """Refuse a metric other than "precomputed": estimators of matrices are given dissimilarities.

    Raises
    ------
    ConfigError
    """
    if metric != "precomputed":
        raise ConfigError(
            f"metric is {metric!r}; only 'precomputed' is possible: give dissimilarities, such as the run that "
            "tartan.allpairs(Vectors(metric=...), points) returns",
            context={"option": "metric"},
        )


def similarity_function(run: RunFolder, similarity: str | Function, output: str | None = None) -> Function:
    """Return the function that turns the scores of a run into distances, for readers of the run's own blocks.

    Parameters
    ----------
    run : RunFolder
        Of any shape; formulas with max or mean need a symmetric one, and take one pass over it.
    similarity : str or callable
        As for :func:`as_dissimilarities`.
    output : str, optional
        Default: the first.

    Returns
    -------
    callable
        Takes and returns float64 arrays; NaN, where there is no score, stays.

    Raises
    ------
    ConfigError
        If the formula cannot be read. The function raises it for a score that makes no distance.
    """
    if run.manifest.symmetric_in(output):
        options = _InputOptions(similarity=similarity, output=output)
        return strict(*function_of_similarity(_of_run(run, options), similarity))
    if callable(similarity):
        return strict(similarity, "similarity")
    formula = Formula(str(similarity), "s")
    if formula.names:
        raise ConfigError(f"`similarity={similarity!r}`: max and mean are those of a symmetric run, and this is none")
    return strict(formula, f"`similarity={similarity!r}`")


def _not_below_zero(function: Any) -> Any:
    return lambda values: np.maximum(function(values), 0.0)


@dataclass(frozen=True)
class _InputOptions:
    """Options of ``as_dissimilarities``."""

    missing: str | float | None = None
    similarity: Any = None
    transform: Transform | None = None
    maximum: float = 1.0
    triangle: str | None = None
    output: str | None = None
    names: Sequence[str] | None = None
    drop_failed: bool = False
    spread: bool = False  # of similarities where the application's distance would make a flat map
    undeclared: str | None = None  # of similarities for which the application declares no distance


def _from_path(path: Path, kind: str | None, layout: RawLayout, options: _InputOptions) -> Dissimilarities:
    if not path.exists():
        raise ConfigError(f"there is no file {path}", context={"path": str(path)})
    content, names = open_file(path, kind or format_of(path), layout)
    if options.names is None and names is not None:
        options = replace(options, names=names)
    return _built(content, str(path), options)


def _built(content: Any, label: str, options: _InputOptions) -> Dissimilarities:
    """Apply all options to an input."""
    undeclared = False
    if isinstance(content, Dissimilarities):
        _refuse_idle(content.label, options, ("output", "triangle", "maximum", "drop_failed"))
        plain = content
    elif _is_run(content):
        _refuse_idle(str(content.path), options, ("triangle", "maximum"))
        undeclared = options.undeclared is not None and _lacks_distance(content, options)
        options = _with_meaning(content, options)
        plain = _of_run(content, options)
    else:
        options = replace(options, spread=options.similarity == "spread")
        plain = _of_array(content, label, options)
    plain = _with_options(plain, options)
    similarity = options.similarity
    if options.spread and similarity is not None:
        similarity = spreading(plain, similarity)
    if similarity is not None:
        plain = from_similarity(plain, similarity)
    made = plain if options.transform is None else transformed(plain, options.transform)
    if undeclared:
        made.note = _UNDECLARED_NOTE
    if similarity is not None:
        made.conversion = similarity if isinstance(similarity, str) else None
    return made


def _lacks_distance(run: RunFolder, options: _InputOptions) -> bool:
    """Whether a run has similarities, and nobody says how they become distances."""
    declared = run.manifest.meaning(options.output).get("distance")
    return run.manifest.larger_is_nearer and options.similarity is None and declared is None


def _with_meaning(run: RunFolder, options: _InputOptions) -> _InputOptions:
    """Take what the application declares where nothing is said; "spread" begins with that, too."""
    asked, near = options.similarity, run.manifest.larger_is_nearer
    if asked is not None and asked != "spread":
        return replace(options, spread=False)
    said = run.manifest.meaning(options.output).get("distance")
    spread = (options.spread or asked == "spread") and near
    if said is None and near:
        said = UNDECLARED if spread else options.undeclared
    if said is None and near:
        raise ConfigError(
            f"{run.path} has similarities, and its application declares no distance; say how they become distances, "
            "such as `similarity='max-s'` (how far a pair is below the best one)"
        )
    return replace(options, similarity=said, spread=spread)


def _refuse_idle(label: str, options: _InputOptions, names: Sequence[str]) -> None:
    """Refuse options of arrays where the input is none."""
    for name in names:
        if getattr(options, name) != getattr(_InputOptions, name):
            what = "runs" if name == "drop_failed" else "arrays and files"
            raise ConfigError(
                f"{label}: `{name}={getattr(options, name)!r}` is for {what}, and this is none; give it where the "
                "matrix is opened"
            )


def _with_options(plain: Dissimilarities, options: _InputOptions) -> Dissimilarities:
    names = plain.names if options.names is None else _listed_names(plain, options.names)
    if names is not None and len(names) != plain.n:
        raise ConfigError(f"{plain.label}: {len(names)} names for {plain.n} items")
    allowed = plain.missing_allowed
    if options.missing is not None:
        allowed = options.missing != "error"
    if (options.missing, names, allowed) == (None, plain.names, plain.missing_allowed):
        return plain
    source = with_missing(plain.source, options.missing, plain.label)
    made = Dissimilarities(source, scale=plain.scale, names=names, label=plain.label, missing_allowed=allowed)
    return made.like(plain)


def _listed_names(plain: Dissimilarities, names: Any) -> tuple[str, ...]:
    try:
        return tuple(map(str, names))
    except TypeError:
        raise ConfigError(f"{plain.label}: names is {names!r}; it is a name for each of {plain.n} items") from None


def _of_array(given: Any, label: str, options: _InputOptions) -> Dissimilarities:
    """Take an array of numbers, square or condensed; masked values are missing."""
    _refuse_idle(label, options, ("drop_failed",))
    if is_zarr(given):
        source: MatrixSource = zarr_source(given, label, options.output, options.triangle)
        return _scaled(source, label, options, masked=False)
    masked = isinstance(given, np.ma.MaskedArray)
    names = _column_names(given)
    if options.output is not None:
        raise ConfigError(f"{label} is one matrix; `output={options.output!r}` is for runs and groups of Zarr arrays")
    values = filled(given) if masked else _as_array(given, label)
    if values.dtype.kind not in "fiub":
        raise ConfigError(f"{label}: dissimilarities are numbers; these are {values.dtype}")
    plain = _scaled(square_source(values, label, options.triangle), label, options, masked=masked)
    if names is not None:
        plain.names = names
    return plain


def _as_array(given: Any, label: str) -> np.ndarray[Any, Any]:
    if hasattr(given, "nnz") and hasattr(given, "toarray"):
        raise ConfigError(f"{label} is sparse, and what it leaves out would be at distance 0: give {label}.toarray()")
    try:
        values = np.asarray(given)
    except ValueError as error:  # lists of unlike lengths
        raise ConfigError(f"{label} is no matrix: its rows have unlike lengths") from error
    if values.dtype.kind != "O":
        return values
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{label}: dissimilarities are numbers; one of these objects is none: {error}") from error


def _scaled(source: MatrixSource, label: str, options: _InputOptions, *, masked: bool) -> Dissimilarities:
    integer = native(source.dtype) == np.int16
    maximum = number("maximum", options.maximum, ("what 32767 stands for, a number above 0", POSITIVE[1]))
    scale = maximum / INT16_ONE if integer else 1.0
    return Dissimilarities(source, scale=scale, label=label, missing_allowed=integer or masked)


def _column_names(given: Any) -> tuple[str, ...] | None:
    """Return the row names of a data frame."""
    index = getattr(given, "index", None)
    if index is None or callable(index) or not hasattr(given, "columns") or len(index) != len(given):
        return None
    return tuple(map(str, index))


def _is_run(given: Any) -> bool:
    # Runs are recognised by what they have, so that arrays need no import of the store.
    return all(hasattr(given, name) for name in ("view", "manifest", "keys"))


def _of_run(run: RunFolder, options: _InputOptions) -> Dissimilarities:
    """Take an output of a run; scores that it does not have are missing."""
    label = str(run.path)
    view = run.view(options.output)
    if not run.manifest.symmetric_in(view.name):
        raise ConfigError(f"{label} is not symmetric; this needs the scores of all pairs of one set of items")
    if view.dtype.kind == "c":
        raise ConfigError(f"{label}: dissimilarities are numbers; those of output {view.name!r} are {view.dtype}")
    diagonal = None if options.similarity is not None else 0.0
    source = Windowed(
        run.manifest.n_items, view.dtype, lambda rows, columns: view.window(rows, columns, diagonal), symmetric=True
    )
    names = tuple(map(str, run.keys))
    whole = Dissimilarities(source, names=names, label=label, missing_allowed=True)
    whole.failed = _failed_items(run)
    return _without_failed(whole) if options.drop_failed and len(whole.failed) else whole


def _failed_items(run: Any) -> NDArray[np.int64]:
    known: Any = getattr(run, "failures", ())
    found = known() if callable(known) else known
    return np.array(sorted({failure.i for failure in found if failure.j is None}), np.int64)


def _without_failed(whole: Dissimilarities) -> Dissimilarities:
    good = np.setdiff1d(np.arange(whole.n), whole.failed)
    if not len(good):
        raise ConfigError(f"{whole.label}: all {whole.n} items failed; there is nothing left without them")
    chosen = whole.chosen(good)
    chosen.dropped, chosen.input_names = whole.failed, whole.names
    return chosen
