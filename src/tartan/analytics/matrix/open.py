"""Any input as ``Dissimilarities``: arrays, Zarr arrays, runs, and files of every format that is read."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.convert import (
    Function,
    Transform,
    apply_formula,
    apply_transform,
    convert_scores,
    function_of_scores,
    function_of_transform,
    strict,
    with_missing,
)
from tartan.analytics.matrix.dissimilarities import Dissimilarities
from tartan.analytics.matrix.failed import WhatFailed, require_way, without_failed, without_missing
from tartan.analytics.matrix.files import (
    FORMATS,
    RawLayout,
    format_of,
    is_triangle,
    is_zarr,
    open_file,
    square_source,
    zarr_source,
)
from tartan.analytics.matrix.formula import Formula
from tartan.analytics.matrix.materialize import INT16_ONE
from tartan.analytics.matrix.pair_lists import PER_CENT, formula_of, read_pair_list
from tartan.analytics.matrix.sources import MatrixSource, Windowed, fill_masked, native
from tartan.base.checks import POSITIVE, number, path_of
from tartan.base.signatures import require_options, takes_options
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.store.folder import RunFolder

#: How similarities become distances where nobody says it.
UNDECLARED = "max-s"
_UNDECLARED_NOTE = (
    f"the application declares no distance: pairs were measured by how far they are below the best one ({UNDECLARED})"
)


@takes_options(defaults={})
def as_dissimilarities(
    D: Any,
    *,
    missing: str | float | None = None,
    distance: Any = None,
    transform: Transform | None = None,
    maximum: float = 1.0,
    triangle: str | None = None,
    output: str | None = None,
    names: Sequence[str] | None = None,
    failed: str | None = None,
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
    distance : str or callable, optional
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
        Output of a run, or array of a Zarr group; default: the output that the application names for analyses, else
        the first; the only array.
    names : sequence of str, optional
        Names of the items; default: those of the input, if it has any.
    failed : {"drop", "error"}, optional
        Of a run: "drop" leaves out the items that failed. ``dropped`` of the result says which, and its ``over_all``
        puts what is found of the others in the places that they have in the run. "error" refuses a run of which an item
        or a pair failed. Default: failed items stay, without a pair; analyses of a run have the default "drop".
        Of another matrix: "drop" leaves out the fewest items without which no pair is missing, "error" refuses missing
        pairs; NaN means one unless ``missing`` says something else. Default: missing pairs stay.

    Raises
    ------
    ConfigError
        If the input is not a matrix of numbers, or an option does not fit. What the values are is looked at by
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
    return _open_input(D, _InputOptions(missing, distance, transform, maximum, triangle, output, names, failed))


def for_map(D: Any, **options: Any) -> Dissimilarities:
    """Return any input in the form that maps take: similarities of a run are spread where nothing else is said.

    What failed in a run is left out by default.
    """
    return _open_input(D, _options_of(options, spread=True, drops=True))


def for_analysis(D: Any, *, complete: bool = False, **options: Any) -> Dissimilarities:
    """Return any input in the form that analyses without a bound take: what failed in a run is left out by default.

    Similarities of a run without a declared distance are measured by how far they are below the best one; ``note`` of
    the result says so.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    complete : bool
        Whether the analysis needs all pairs: then items of failed pairs are left out, too, as few as possible.
    **options
        As for :func:`as_dissimilarities`.
    """
    return _open_input(D, _options_of(options, undeclared=UNDECLARED, drops=True, complete=complete))


def for_linkage(D: Any, *, complete: bool = False, **options: Any) -> Dissimilarities:
    """Return what :func:`for_analysis` does, but refuse similarities without a declared distance."""
    return _open_input(D, _options_of(options, drops=True, complete=complete))


def in_places(D: Any, matrix: Dissimilarities, values: NDArray[Any], fill: Any) -> NDArray[Any]:
    """Return what was found of each item of a matrix in the places of the run D, if the matrix was opened from one."""
    return values if isinstance(D, Dissimilarities) else matrix.over_all(values, fill)


def _open_input(D: Any, options: _InputOptions) -> Dissimilarities:
    if isinstance(D, str | os.PathLike):
        return _from_path(path_of("D", D), None, RawLayout(), options)
    return _apply_options(D, "D", options)


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
        "tsv" (with or without names), "pairs" (one a line: of FastANI, skani, Mash, sourmash, dRep, or any with two
        names and a score), or the raw formats "int16", "float32", "float64": the square matrix row by row,
        or its pairs i < j, without a header. Default: by what the file begins with or is called.
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
        raise ConfigError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}")
    require_options("read_matrix", options, read_matrix, as_dissimilarities)
    return _from_path(path_of("path", path), format, RawLayout(n, byteorder), _InputOptions(**options))


def grown(
    run: RunFolder,
    n_old: int,
    *,
    missing: str | float | None = None,
    distance: str | None = None,
    transform: str | float | None = None,
    output: str | None = None,
) -> Dissimilarities:
    """Return the dissimilarities of a run that has grown, as they were made when it had ``n_old`` items.

    Formulas with max or mean, and "4D", take these numbers from the first ``n_old`` items, in a pass over them. Values
    that such a formula puts below 0, because a new score is beyond the old ones, are 0.
    """
    _require_same_range(run, distance, transform)
    options = _InputOptions(missing=missing, output=run.manifest.analysed_by(output), distance=distance)
    whole = _with_options(_of_run(run, options), options)
    old = whole.chosen(np.arange(n_old))
    conversions: list[tuple[Any, Any]] = [(distance, function_of_scores), (transform, function_of_transform)]
    for given, function_of in conversions:
        if given is None:
            continue
        function, what = function_of(old, given)
        if "max" in str(given) or "mean" in str(given):
            function = _not_below_zero(function)
        whole, old = apply_formula(whole, function, what), apply_formula(old, function, what)
    return whole


def _require_same_range(run: RunFolder, distance: str | None, transform: str | float | None) -> None:
    """Refuse formulas with numbers of all items, of which some are gone: they would be other formulas."""
    if run.version is None or run.version.is_whole(run.stored.manifest.n_items):
        return
    for given in (one for one in (distance, transform) if isinstance(one, str)):
        if given == "4D" or _names_in(given, "s" if given is distance else "d"):
            raise ConfigError(
                f"{run.path}: its map was made with {given}, which takes numbers from all items that there were, and "
                f"some are gone; make the map afresh: `tartan embed {run.path}`"
            )


def _names_in(given: str, variable: str) -> set[str]:
    """Return which of max and mean a formula needs; the name of a function alone needs none."""
    try:
        return Formula(given, variable).names
    except ConfigError:
        return set()


def folder_of(D: Any) -> RunFolder | None:
    """Return the folder of a run, given as such or by its path; None for anything else."""
    from tartan.store.folder import RunFolder
    from tartan.store.manifest import FILE_NAME
    from tartan.store.version_view import open_version

    if isinstance(D, str | os.PathLike):
        return open_version(Path(D)) if (Path(D) / FILE_NAME).is_file() else None
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


def distance_function(
    run: RunFolder, distance: str | Function, output: str | None = None, items: NDArray[np.int64] | None = None
) -> Function:
    """Return the function that turns the scores of a run into distances, for readers of the run's own blocks.

    Parameters
    ----------
    run : RunFolder
        Of any shape; formulas with max or mean need a symmetric one, and take one pass over it.
    distance : str or callable
        As for :func:`as_dissimilarities`.
    output : str, optional
        Default: the first.
    items : int64 array, optional
        Of which formulas with max or mean take these numbers; default: all.

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
        options = _InputOptions(distance=distance, output=output)
        whole = _of_run(run, options)
        chosen = whole if items is None else whole.chosen(items)
        return strict(*function_of_scores(chosen, distance))
    if callable(distance):
        return strict(distance, "distance")
    formula = Formula(str(distance), "s")
    if formula.names:
        raise ConfigError(f"`distance={distance!r}`: max and mean are those of a symmetric run, and this is none")
    return strict(formula, f"`distance={distance!r}`")


def _not_below_zero(function: Any) -> Any:
    return lambda values: np.maximum(function(values), 0.0)


@dataclass(frozen=True)
class _InputOptions:
    """Options of ``as_dissimilarities``."""

    missing: str | float | None = None
    distance: Any = None
    transform: Transform | None = None
    maximum: float = 1.0
    triangle: str | None = None
    output: str | None = None
    names: Sequence[str] | None = None
    failed: str | None = None
    drops: bool = False  # of a run what failed, unless ``failed`` says something else
    complete: bool = False  # whether all pairs are needed
    spread: bool = False  # of similarities where the application's distance would make a flat map
    undeclared: str | None = None  # of similarities for which the application declares no distance


def _options_of(options: dict[str, Any], **own: Any) -> _InputOptions:
    """Return options that an analysis hands on, and what it says itself."""
    require_options("as_dissimilarities", options, as_dissimilarities)
    return _InputOptions(**options, **own)


def _from_path(path: Path, kind: str | None, layout: RawLayout, options: _InputOptions) -> Dissimilarities:
    if not path.exists():
        raise ConfigError(f"there is no file {path}", context={"path": str(path)})
    if not (path.is_file() or path.is_dir()):
        raise ConfigError(
            f"{path} is a pipe or a device, and a matrix is read more than once: write it to a file first"
        )
    kind = kind or format_of(path)
    names: tuple[str, ...] | None
    distance = said = None
    if kind == "pairs":
        listed = read_pair_list(path, options.output)
        content, names, distance, said = listed.square, listed.names, listed.distance, listed.said
        options = replace(options, output=None)
    else:
        content, names = open_file(path, kind, layout)
    if kind == "phylip" and options.distance is None:
        distance, said = find_identities(path, content)
    if options.names is None and names is not None:
        options = replace(options, names=names)
    if options.distance is None and distance is not None:
        if distance == PER_CENT:
            content /= 100.0  # so that a cut is a share, as in runs of genomes
            distance, said = "1-s", f"{said}; per cent are read as shares"
            if isinstance(options.missing, (int, float)):
                options = replace(options, missing=options.missing / 100.0)
        said = f"{said}; distances are {distance}"
        options = replace(options, distance=distance)
        if distance != UNDECLARED and options.missing is None and options.failed is None:
            said += _fill_unlisted(content)
    made = _apply_options(content, str(path), options)
    made.note = "; ".join(filter(None, (said, made.note))) or None
    return made


def _fill_unlisted(square: NDArray[Any]) -> str:
    """Give pairs that a program left out, because they are too far apart, the similarity 0; say how many they are."""
    absent = np.isnan(square)
    n_absent, n = int(np.count_nonzero(absent)) // 2, len(square)
    if not n_absent:
        return ""
    square[absent] = 0.0
    return (
        f"; {n_absent:,} of {n * (n - 1) // 2:,} pairs are not there, and are at distance 1 (`missing='nan'`: missing)"
    )


def _apply_options(content: Any, label: str, options: _InputOptions) -> Dissimilarities:
    """Apply all options to an input."""
    require_way(options.failed)
    undeclared, failed = False, None
    if isinstance(content, Dissimilarities):
        _refuse_idle(content.label, options, ("output", "triangle", "maximum", "failed"))
        plain = content
    elif _is_run(content):
        _refuse_idle(str(content.path), options, ("triangle", "maximum"))
        options = replace(options, output=content.manifest.analysed_by(options.output))
        undeclared = options.undeclared is not None and _lacks_distance(content, options)
        options, failed = _with_meaning(content, options), WhatFailed.of(content)
        plain = _of_run(content, options)
    else:
        # Who leaves out missing pairs, or refuses them, need not say that NaN means one.
        missing = "nan" if options.missing is None and options.failed is not None else options.missing
        options = replace(options, spread=options.distance == "spread", missing=missing)
        plain = _of_array(content, label, options)
    plain = _with_options(plain, options)
    if failed is not None:
        ways = {"drops": options.drops, "complete": options.complete}
        plain = without_failed(plain, failed, options.failed, **ways)
    elif options.failed is not None:
        plain = without_missing(plain, options.failed)
    distance = options.distance
    if options.spread and distance is not None:
        distance = choose_spreading_formula(plain, distance)
    if distance is not None:
        plain = convert_scores(plain, distance)
    made = plain if options.transform is None else apply_transform(plain, options.transform)
    made.unknown = content.manifest.meaning(options.output).get("unknown") if _is_run(content) else plain.unknown
    noted = content.manifest.notes if _is_run(content) else ()
    made.note = "; ".join([*([_UNDECLARED_NOTE] if undeclared else []), *noted]) or made.note
    if distance is not None:
        made.conversion = distance if isinstance(distance, str) else None
    return made


def _lacks_distance(run: RunFolder, options: _InputOptions) -> bool:
    """Whether a run has similarities, and nobody says how they become distances."""
    declared = run.manifest.meaning(options.output).get("distance")
    return run.manifest.larger_is_nearer and options.distance is None and declared is None


def _with_meaning(run: RunFolder, options: _InputOptions) -> _InputOptions:
    """Take what the application declares where nothing is said; "spread" begins with that, too."""
    asked, near = options.distance, run.manifest.larger_is_nearer
    if asked is not None and asked != "spread":
        return replace(options, spread=False)
    said = run.manifest.meaning(options.output).get("distance")
    spread = (options.spread or asked == "spread") and near
    if said is None and near:
        said = UNDECLARED if spread else options.undeclared
    if said is None and near:
        raise ConfigError(
            f"{run.path} has similarities, and its application declares no distance; say how they become distances, "
            "such as `distance='max-s'` (how far a pair is below the best one)"
        )
    return replace(options, distance=said, spread=spread)


def _refuse_idle(label: str, options: _InputOptions, names: Sequence[str]) -> None:
    """Refuse options of arrays where the input is none."""
    for name in names:
        if getattr(options, name) != getattr(_InputOptions, name):
            raise ConfigError(
                f"{label}: `{name}={getattr(options, name)!r}` is for arrays and files, and this is none; give it "
                "where the matrix is opened"
            )


def _with_options(plain: Dissimilarities, options: _InputOptions) -> Dissimilarities:
    names = plain.names if options.names is None else _list_names(plain, options.names)
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


def _list_names(plain: Dissimilarities, names: Any) -> tuple[str, ...]:
    try:
        return tuple(map(str, names))
    except TypeError:
        raise ConfigError(f"{plain.label}: names is {names!r}; it must be a name for each of {plain.n} items") from None


def _of_array(given: Any, label: str, options: _InputOptions) -> Dissimilarities:
    """Take an array of numbers, square or condensed; masked values are missing."""
    if is_zarr(given):
        source: MatrixSource = zarr_source(given, label, options.output, options.triangle)
        return _scale(source, label, options, masked=False)
    masked = isinstance(given, np.ma.MaskedArray)
    names = _column_names(given)
    if options.output is not None:
        raise ConfigError(f"{label} is one matrix; `output={options.output!r}` is for runs and groups of Zarr arrays")
    values = fill_masked(given) if masked else _as_array(given, label)
    if values.dtype.kind not in "fiub":
        raise ConfigError(f"{label}: dissimilarities must be numbers; these have the type {values.dtype}")
    plain = _scale(square_source(values, label, options.triangle), label, options, masked=masked)
    if names is not None:
        plain.names = names
    return plain


def _as_array(given: Any, label: str) -> np.ndarray[Any, Any]:
    if hasattr(given, "nnz") and hasattr(given, "toarray"):
        raise ConfigError(f"{label} is sparse, and what it leaves out would be at distance 0: give {label}.toarray()")
    try:
        values = np.asarray(given)
    except ValueError as error:  # lists of different lengths
        raise ConfigError(f"{label} is not a matrix: its rows have different lengths") from error
    if values.dtype.kind != "O":
        return values
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{label}: dissimilarities are numbers; one of these objects is none: {error}") from error


def _scale(source: MatrixSource, label: str, options: _InputOptions, *, masked: bool) -> Dissimilarities:
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
    from tartan.store.view import require_real

    label = str(run.path)
    view = run.view(options.output)
    if run.manifest.workload["kind"] == "rectangle":
        raise ConfigError(f"{label} compares two sets of items; this needs the pairs within one")
    require_real(view.name, view.dtype, "distances are")
    if not run.manifest.symmetric_in(view.name):
        raise ConfigError(
            f"{label} is not symmetric; this needs one distance for both directions of a pair, such as their mean: in "
            f"Python, F = tartan.open({label!r}).to_pandas({view.name!r}), and "
            "((F + F.T) / 2).to_csv('mean.csv'), then mean.csv in place of the run"
        )
    diagonal = None if options.distance is not None else 0.0
    source = Windowed(
        run.manifest.n_items, view.dtype, lambda rows, columns: view.window(rows, columns, diagonal), symmetric=True
    )
    names = tuple(map(str, run.keys))
    whole = Dissimilarities(source, names=names, label=label, missing_allowed=True)
    whole.run = run
    return whole


def open_output(run: RunFolder, output: str, items: NDArray[np.int64]) -> Dissimilarities:
    """Return an output of a run as it is stored, of some of its items, in ascending order."""
    return _of_run(run, replace(_InputOptions(), output=output)).chosen(items)


# A formula that makes distances of similarities that do not all look alike, found from the scores.
#
# Most pairs of a large set have nothing in common, and their scores crowd at one value; alike pairs lie far above it,
# some ten times as far as others. By 1 - s, or below the best pair, most of these look as far apart as all else: a map
# is flat.

# Was 64: quartiles of 256 rows scatter half as much. No benchmark; by judgement.
_SAMPLED_ROWS = 256
#: Distances are spread where an item is at most this far from its nearest one, as a share of a typical distance.
#: By judgement: in groups the nearest item is far closer than a typical one; within a third of it there are groups to
#: speak of. `tartan bench answers` has contrasts from 0.005 on.
_SPREAD = 1 / 3


def choose_spreading_formula(D: Dissimilarities, formula: str = "max-s") -> str:
    """Return a formula of s whose distances spread.

    It is the given one if that does: if the distance of a typical item to its nearest one is at most a third of that of
    a typical pair. Else it is c / (c + s - b), and 1 for scores below b: b is the median score, and c a quarter of what
    the median nearest score has above b, so that typical neighbours are at 0.2.

    Parameters
    ----------
    D : Dissimilarities
        Of similarities as they are. Up to 256 rows are read, and all for a formula with max or mean.
    formula : str
    """
    formula = "max-s" if formula == "spread" else formula
    typical, near = _typical(D)
    if not near > typical:  # nothing stands out, or there is no pair
        return formula
    far, close = function_of_scores(D, formula)[0](np.array([typical, near]))
    if close <= _SPREAD * far:
        return formula
    scale = f"{(near - typical) / 4:.4g}"
    return f"{scale}/({scale}+max(0,s{-typical:+.4g}))"


def _typical(D: Dissimilarities) -> tuple[float, float]:
    """Return the median score, and the median of the largest score of each item."""
    scores, largest = [], []
    for row in np.unique(np.linspace(0, D.n - 1, min(D.n, _SAMPLED_ROWS)).astype(np.int64)).tolist():
        values: NDArray[np.float64] = D.values(slice(row, row + 1), slice(0, D.n))[0]
        values = np.delete(values, row)
        known = values[np.isfinite(values)]
        if len(known):
            scores.append(known)
            largest.append(known.max())
    if not scores:
        return np.nan, np.nan
    return float(np.median(np.concatenate(scores))), float(np.median(largest))


# Files of distances that look like similarities: nothing in a triangle of numbers says which they are.

# _PERCENT and _MOST_ITEMS, by judgement: percentages of similarity end at 100, and hardly any distances lie between 20
# and 100 in so small a table. A question to the user, no error.
_PERCENT = (20.0, 100.0)
# By judgement, see _PERCENT.
_MOST_ITEMS = 40
# By format: FastANI and skani give no identity below 70 to 80 %.
_LEAST_IDENTITY = 50.0


def find_identities(path: Path, square: NDArray[Any]) -> tuple[str | None, str | None]:
    """Return the formula of distances of a matrix of identities in percent, as programs that compare genomes write it.

    A diagonal of 100 tells them. Without one only a guess is possible: where a triangle is parted by tabs and nothing
    lies between 0 and 50, as FastANI and skani write it, they are taken for such; else a warning is given.

    Returns
    -------
    tuple
        The formula, and what was found; None twice for anything else.
    """
    if len(square) < 2:
        return None, None
    triangle, with_tabs = is_triangle(path)
    with np.errstate(invalid="ignore"):
        beyond = bool((square > _PERCENT[1]).any())
        between = bool(((square > 0) & (square < _LEAST_IDENTITY)).any())
    if not triangle:
        is_percent = bool((square.diagonal() == _PERCENT[1]).all()) and not beyond
        return (formula_of(_PERCENT[1]), f"{path}: identities in percent") if is_percent else (None, None)
    if beyond or not _look_like_identities(square, sure=with_tabs and not between):
        return None, None
    if with_tabs and not between:
        return formula_of(_PERCENT[1]), f"{path}: a triangle of identities in percent"
    warnings.warn(
        f"{path} has no diagonal, and its numbers, up to {np.nanmax(square):g}, look like similarities in percent; "
        "if they are, make distances of them with `distance='100-s'`",
        RuntimeWarning,
        stacklevel=2,
    )
    return None, None


def _look_like_identities(square: NDArray[Any], *, sure: bool) -> bool:
    """Whether of most three items the two smaller numbers are alike; of distances it is the two larger ones.

    Identities that were too low to be measured are 0, which distances of unlike items are not. Where all else speaks
    for identities (``sure``), half of them are enough, as none of none.
    """
    n = len(square)
    largest = max((float(np.nanmax(row, initial=0.0)) for row in square), default=0.0)
    if not _PERCENT[0] < largest <= _PERCENT[1]:
        return False
    some = np.unique(np.linspace(0, n - 1, min(n, _MOST_ITEMS)).astype(np.int64))
    i, j, k = np.array(list(itertools.combinations(some.tolist(), 3)), np.int64).reshape(-1, 3).T
    low, middle, high = np.sort([square[i, j], square[i, k], square[j, k]], axis=0)
    with np.errstate(invalid="ignore"):
        known = ~np.isnan(high)
        alike = (middle - low < high - middle) | (high > 1.01 * (low + middle))  # no way round is that much shorter
    n_alike, n_known = int((alike & known).sum()), int(known.sum())
    return 2 * n_alike > n_known or (sure and 2 * n_alike == n_known)
