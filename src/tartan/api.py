"""The Python interface: compare, resume, add, open."""

from __future__ import annotations

import contextlib
import datetime
import math
import operator
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.application import Application, as_application, output_dtypes
from tartan.errors import ConfigError
from tartan.options import RunOptions, Size, parse_size
from tartan.run.result import Run

if TYPE_CHECKING:
    from tartan.core.workload import Workload
    from tartan.run.execute import Session
    from tartan.sources.items import Source
    from tartan.store.folder import RunFolder
    from tartan.store.items import ItemTable
    from tartan.store.manifest import Manifest

__all__ = ["Run", "add", "allpairs", "open", "resume"]


def allpairs(
    app: Any,
    items: Any,
    out: str | Path | None = None,
    *,
    against: Any = None,
    pairs: Any = None,
    reduce: dict[str, Any] | None = None,
    tile: int | None = None,
    application_source: dict[str, Any] | None = None,
    **options: Any,
) -> Run:
    """Compare all pairs of items; a run that exists at ``out`` is resumed.

    Parameters
    ----------
    app : Application, subclass of it, or function of two items
    items : str, path, array, or sequence
        A glob, a folder, files, URLs, the rows of an array, or any objects (``tartan.sources.items.open_source``).
    out : path, optional
        Run folder; without one the result lives in a temporary folder as long as the returned object.
    against : like items, optional
        Compare each of ``items`` with each of these (A x B) instead of with each other.
    pairs : int array (m, 2), optional
        Compare these pairs of indices only.
    reduce : dict, optional
        Keep less than the matrix: ``{"kind": "top-k", "k": 10, "largest": True}`` or
        ``{"kind": "threshold", "threshold": 0.3, "largest": True}``.
    tile : int, optional
        Side of a chunk of the result.
    application_source : dict, optional
        Where the application comes from, as ``load_application`` returned it.
    host_cache, device_cache, disk_cache : str or int
        Room for items: "500MB", "500MiB", "60items", or bytes.
    workers : int
        Threads or processes; default all cores.
    order : {"panel", "quadrant"}
    device : str or sequence of str
        "cpu", "cuda", "cuda:1", "sim".
    on_error : {"skip", "raise"}
    max_failures : int
    tile_timeout : float
        Seconds that one compare call may take.
    verify, trace : bool
    quiet : bool
        Default True.

    Returns
    -------
    Run

    Raises
    ------
    ConfigError
        If an option, a parameter or the input is wrong.
    StoreError
        If ``out`` holds something else, or inputs have changed since.
    RunFailedError, RunCancelledError, DiskFullError
        If the run stopped before its end; call again to resume.

    Examples
    --------
    >>> run = allpairs(lambda a, b: abs(a - b), [1.0, 2.0, 4.0], workers=1)
    >>> run.condensed().tolist()
    [1.0, 3.0, 2.0]
    """
    from tartan.run.execute import Session
    from tartan.sources.items import join_sources, open_source
    from tartan.store.pairs import digest

    application = as_application(app)
    source = open_source(items, suffixes=application.item_suffixes)
    workload: dict[str, Any] = {"kind": "all"}
    if against is not None:
        workload = {"kind": "rectangle", "n_left": source.n_items}
        source = join_sources(source, open_source(against, suffixes=application.item_suffixes), allow_repeats=True)
    if pairs is not None:
        workload = {"kind": "candidates", "file": "candidates.npy", "digest": digest(_indices(pairs))}
    chosen = _options(options, tile)
    reduce = None if reduce is None else _reduction(reduce, output_dtypes(application))
    with contextlib.ExitStack() as stack:
        if out is None:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tartan-"))) / "run.tartan"
        path = Path(out)
        with Session(application, source, chosen) as session:
            asked = _manifest(application, application_source, source, workload, reduce, chosen)
            folder = _folder(path, asked, session, pairs)
            if not _finished(folder):
                session.execute(folder)
        run = Run(path)
        # Readers of the result hold the folder, also when nobody holds the run any more.
        weakref.finalize(run.folder, stack.pop_all().close)
    return run


def resume(path: str | Path, **options: Any) -> Run:
    """Go on with a run, from what its folder says of application and inputs.

    Chunks of the result that are damaged or gone are computed again, in a finished run too.

    Raises
    ------
    ConfigError
        If the application was an object of a program: call ``allpairs`` there again.
    """
    from tartan.run.execute import Session
    from tartan.store.folder import RunFolder

    folder = RunFolder.open(path, writable=True)
    if _finished(folder) and folder.missing():
        with folder.lock():
            folder.missing()  # what is damaged is no longer known: whoever has the application computes it
    if not _finished(folder):
        application, source = _reopen(folder)
        chosen = _options(options, None)
        _check_unchanged(folder, application, source, chosen)
        with Session(application, source, chosen) as session:
            session.execute(folder)
    return Run(path)


def add(
    path: str | Path, items: Any, *, app: Any = None, previous: Any = None, extend_map: bool = True, **options: Any
) -> Run:
    """Add items to a run: only pairs with a new item are computed.

    Parameters
    ----------
    path : path
        The run; an unfinished one is completed with the new items.
    items : like ``allpairs``
        The new items.
    app, previous : optional
        The application and the old items, where the folder cannot tell (objects of a program, arrays in memory).
    extend_map : bool
        Place the new items on the map that the run keeps, if it keeps one (``Run.extend_map``). Where that fails there
        is a RuntimeWarning; the scores are there all the same.

    Raises
    ------
    ConfigError
        If an item is in the run already, or the run is A x B or a candidate list.
    """
    from tartan.run.execute import Session
    from tartan.sources.items import join_sources, open_source
    from tartan.store.folder import RunFolder

    folder = RunFolder.open(path, writable=True)
    if folder.manifest.workload["kind"] != "all":
        raise ConfigError(f"{path} compares {folder.manifest.workload['kind']}; only runs of all pairs take new items")
    application, old = _reopen(folder, app, previous)
    chosen = _options(options, None)
    _check_unchanged(folder, application, old, chosen)
    source = join_sources(old, open_source(items, suffixes=application.item_suffixes))
    with Session(application, source, chosen) as session:
        session.expect(folder.manifest)
        session.facts  # noqa: B018 - nothing is extended before an item of the run could be loaded
        with folder.lock():
            folder.extend(source.n_items, _item_table(source, chosen), _inputs(source))
        session.execute(folder)
    run = Run(path)
    if extend_map:
        _extend_map(run)
    return run


def open(path: str | Path) -> Run:  # noqa: A001 - tartan.open, as zarr.open
    """Open a run, finished or not.

    Raises
    ------
    RunNotFoundError
        If there is none.
    """
    return Run(Path(path))


# -- inside ------------------------------------------------------------------------------------------------------


_SIZES = ("host_cache", "device_cache", "disk_cache")
_PLAIN = ("workers", "order", "on_error", "max_failures", "verify", "trace", "quiet")


def _options(given: dict[str, Any], tile: int | None) -> RunOptions:
    """Check the options of a call."""
    known = {*_SIZES, *_PLAIN, "device", "tile_timeout"}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]!r}; there are {', '.join(sorted(known | {'tile'}))}")
    values: dict[str, Any] = {name: given[name] for name in _PLAIN if given.get(name) is not None}
    for name in _SIZES:
        if given.get(name) is not None:
            values[name] = _size(given[name], name)
    device = given.get("device")
    if device is not None:
        values["device"] = (device,) if isinstance(device, str) else tuple(device)
        if not values["device"]:
            raise ConfigError("device: no device is named; choose cpu, cuda or sim", context={"option": "--device"})
    if given.get("tile_timeout") is not None:
        values["tile_timeout_seconds"] = _number(given["tile_timeout"], "tile_timeout", above=0.0)
    _check("order", values.get("order", "panel"), ("panel", "quadrant"))
    _check("on_error", values.get("on_error", "skip"), ("skip", "raise"))
    for name, least in (("workers", 1), ("max_failures", 0)):
        if name in values:
            values[name] = _whole(values[name], name, least)
    return RunOptions(tile=None if tile is None else _whole(tile, "tile", 1), **values)


def _whole(value: Any, name: str, least: int) -> int:
    """Read a whole number, of Python or of NumPy."""
    context = {"option": "--" + name.replace("_", "-")}
    try:
        number = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name}: {value!r} is not a whole number", context=context) from None
    if number < least:
        raise ConfigError(f"{name}: {number} must be at least {least}", context=context)
    return number


def _number(value: Any, name: str, above: float = -math.inf) -> float:
    """Read a finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not above < number < math.inf:
        wanted = "a number" if above == -math.inf else f"a number above {above:g}"
        raise ConfigError(f"{name}: {value!r} is not {wanted}", context={"option": "--" + name.replace("_", "-")})
    return number


def _size(value: Any, name: str) -> Size:
    return parse_size(value, option="--" + name.replace("_", "-"))


def _check(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}: {value!r} is unknown; choose {' or '.join(choices)}", context={"option": name})


def _reduction(reduce: Any, dtypes: Mapping[str, np.dtype[Any]]) -> dict[str, Any]:
    """Check what a run shall keep; return it with every entry that counts."""
    outputs = tuple(dtypes)
    example = 'write {"kind": "top-k", "k": 10, "largest": True} or {"kind": "threshold", "threshold": 0.3}'
    rule = dict(reduce) if isinstance(reduce, Mapping) else {}
    number = {"top-k": "k", "threshold": "threshold"}.get(rule.get("kind", ""))
    unknown = set(rule) - {"kind", number, "largest", "output"}
    if number is None or number not in rule or unknown:
        raise ConfigError(f"reduce: {reduce!r} is not understood; {example}", context={"option": "reduce"})
    if rule.get("output", outputs[0]) not in outputs:
        raise ConfigError(f"reduce: there is no output {rule['output']!r}, only {', '.join(outputs)}")
    for name, dtype in dtypes.items():
        if dtype.kind == "c":
            raise ConfigError(f"reduce: output {name!r} is {dtype}; tables of pairs hold real numbers")
    if number == "k":
        rule["k"] = _whole(rule["k"], "k", 1)
    else:
        rule["threshold"] = _number(rule["threshold"], "threshold")
    return rule | {"largest": bool(rule.get("largest", False))}


def _manifest(
    app: Application,
    described: dict[str, Any] | None,
    source: Source,
    workload: dict[str, Any],
    reduce: dict[str, Any] | None,
    options: RunOptions,
) -> Manifest:
    """Describe the run that is asked for; its grid is still empty."""
    from tartan import apps
    from tartan.base.machine import package_version, tartan_version
    from tartan.store.manifest import Manifest
    from tartan.workers.shipping import describe_application

    application = dict(described or describe_application(app, apps))
    application |= {
        "outputs": {name: dtype.str for name, dtype in output_dtypes(app).items()},
        "symmetric": app.symmetric,
        "diagonal": app.diagonal,
        "releases_gil": app.releases_gil,
        "similarity": app.similarity,
        "ragged": app.ragged,
        "item": None,
    }
    return Manifest(
        application=application,
        workload=workload,
        n_items=source.n_items,
        grid={},
        reduce=reduce,
        inputs=_inputs(source),
        options={"tile": options.tile, "order": options.order, "device": list(options.device)},
        versions={"tartan": tartan_version(), **{n: package_version(n) for n in ("numpy", "zarr")}},
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _inputs(source: Source) -> dict[str, Any]:
    return dict(source.describe())


def _item_table(source: Source, options: RunOptions) -> ItemTable | None:
    from tartan.store.items import ItemTable

    if source.kind == "array":
        return None
    stamps = source.fingerprints()
    sizes, mtimes = stamps if stamps is not None else (None, None)
    contents = _contents(source) if options.verify and source.kind == "files" else None
    return ItemTable(list(source.keys), sizes, mtimes, contents)


def _contents(source: Source) -> list[str]:
    """Return a digest of the contents of each file; "" where one cannot be read."""
    import hashlib

    from tartan.errors import ItemError

    digests = []
    for index in range(source.n_items):
        try:
            digests.append(hashlib.sha256(source.read(index)).hexdigest())
        except ItemError:
            digests.append("")
    return digests


def _folder(path: Path, asked: Manifest, session: Session, pairs: Any) -> RunFolder:
    """Create the run folder, or open it and refuse what would not fit."""
    from tartan.base.files import disk_errors
    from tartan.run.plan import plan_grid
    from tartan.store.folder import RunFolder
    from tartan.store.manifest import compare, refuse_differences

    table = _item_table(session.source, session.options)
    with disk_errors(path):
        exists = (path / "manifest.json").exists()
    if exists:
        folder = RunFolder.open(path, writable=True)
        refuse_differences(compare(folder.manifest, asked, folder.items, table), path)
        return folder
    _refuse_unwritable(path)
    workload, candidates = _workload(asked, pairs)
    facts = session.facts
    asked.application["item"] = (
        {"dtype": facts.form.dtype.str, "shape": list(facts.form.shape)} if facts.form is not None else None
    )
    grid = plan_grid(workload, facts, session.options, session.devices, session.app)
    asked.grid = grid.parameters()
    return RunFolder.create(path, asked, table, candidates=candidates)


def _refuse_unwritable(path: Path) -> None:
    """Say at once that a folder cannot be used, before anything is computed for it."""
    from tartan.base.files import disk_errors
    from tartan.store.layout import refuse_occupied

    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    refuse_occupied(path)


def _workload(asked: Manifest, pairs: Any) -> tuple[Workload, np.ndarray | None]:
    from tartan.core.workload import AllPairs, Candidates, Rectangle

    n = asked.n_items
    if asked.workload["kind"] == "rectangle":
        return Rectangle(int(asked.workload["n_left"]), n), None
    if asked.workload["kind"] == "candidates":
        candidates = np.sort(_indices(pairs), axis=1)
        return Candidates(n, candidates), candidates
    return AllPairs(n, bool(asked.application["diagonal"])), None


def _indices(pairs: Any) -> np.ndarray:
    """Read pairs of indices: int64 (m, 2)."""
    given = np.asarray(pairs)
    if given.size and (given.dtype.kind not in "iu" or given.ndim != 2 or given.shape[1] != 2):
        raise ConfigError(
            f"pairs: {given.dtype} {given.shape} is no list of pairs; give whole numbers of shape (m, 2)",
            context={"option": "pairs"},
        )
    return given.astype(np.int64).reshape(-1, 2)


def _finished(folder: RunFolder) -> bool:
    if folder.manifest.reduce is not None and not (folder.path / "result.parquet").exists():
        return False
    return int(folder.counts()[0]) == 0


def _reopen(folder: RunFolder, app: Any = None, previous: Any = None) -> tuple[Application, Source]:
    """Load the application and the inputs of a run as its manifest names them."""
    from tartan import apps
    from tartan.run.reopen import open_inputs
    from tartan.sources.items import open_source
    from tartan.workers.shipping import load_application

    about = folder.manifest.application
    if app is not None:
        application = as_application(app)
    elif about["kind"] == "object":
        raise ConfigError(
            f"{folder.path} was computed by {about['name']}, which exists only in the program that defined it; call "
            "tartan.allpairs there again, or give the application as file.py:NAME"
        )
    else:
        application, _ = load_application(about["source"], about["parameters"], apps)
    suffixes = application.item_suffixes
    if previous is not None:
        return application, open_source(previous, suffixes=suffixes)
    return application, open_inputs(folder.path, folder.manifest, folder.items, suffixes)


def _extend_map(run: Run) -> None:
    """Place new items on the map of a run, if it keeps one; a failure is no failure of the run."""
    import warnings

    from tartan.errors import RunCancelledError

    try:
        if run.map is not None:
            run.extend_map()
    except RunCancelledError:
        raise
    except Exception as error:
        warnings.warn(
            f"all scores of {run.path} are there, but its map was not extended: {error}; mend that and call "
            "extend_map(), or make the map afresh by embed(keep=True)",
            RuntimeWarning,
            stacklevel=3,
        )


def _check_unchanged(folder: RunFolder, app: Application, source: Source, options: RunOptions) -> None:
    """Refuse to go on with another application or other inputs than a run was started with."""
    from tartan.store.manifest import compare, refuse_differences

    manifest = folder.manifest
    asked = _manifest(app, None, source, manifest.workload, manifest.reduce, options)
    refuse_differences(compare(manifest, asked, folder.items, _item_table(source, options)), folder.path)
