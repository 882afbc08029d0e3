"""The Python interface: compare pairs or triples, resume, add, open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tartan import apps
from tartan.base.signatures import takes_options
from tartan.options import ExecutionOptions, PairOptions, RunOptions, run_options
from tartan.result.run import Run
from tartan.result.triple_result import TripleRun
from tartan.run.kept_rules import over, top, under

if TYPE_CHECKING:
    from tartan.analytics import Tree
    from tartan.apps.microscopy.fused_run import FusedParticle
    from tartan.run.cluster_run import ClusterWays
    from tartan.run.reopen import Reopen

__all__ = [
    "Run", "TripleRun", "add", "allpairs", "alltuples", "expire", "fuse", "open", "over", "remove",
    "rename", "replace", "resume", "supported_tree", "top", "under",
]  # fmt: skip

_takes_pair_options = takes_options(ExecutionOptions, PairOptions, defaults=vars(RunOptions))
_takes_triple_options = takes_options(ExecutionOptions, defaults=vars(RunOptions))


@_takes_pair_options
def allpairs(
    app: Any,
    items: Any,
    out: str | Path | None = None,
    *,
    keys: Any = None,
    against: Any = None,
    pairs: Any = None,
    reduce: Mapping[str, Any] | None = None,
    group: str | Path | None = None,
    tile: int | None = None,
    part: str | None = None,
    overwrite: bool = False,
    **options: Unpack[PairOptions],
) -> Run:
    """Compare all pairs of items; a run that exists at ``out`` is resumed.

    Parameters
    ----------
    app : Application, subclass of it, or function of two items
        Scores that depend on the order of the two need an Application with ``symmetric = False``.
    items : str, path, array, or sequence
        A glob, a folder, files, URLs, the rows of an array, or any objects (``tartan.sources.items.open_source``).
        A mapping ``{name: object or row}`` gives its items names. At least two, or one on each side of A x B.
    out : path, optional
        Run folder; without one the result lives in a temporary folder as long as the returned object.
    keys : sequence of str, optional
        Names of items that are rows or objects, all different, such as ``frame.index``; default: "0", "1", ... Of rows
        of a table a str is the column that names them (default: ``id``, ``key`` or ``name``), and "numbers" says none.
    against : like items, optional
        Compare each of ``items`` with each of these (A x B) instead of with each other. Each side has its own keys and
        counts from 0; rows of unlike dtypes are compared in the wider one.
    pairs : int array (m, 2), optional
        Compare these pairs of indices only.
    reduce : dict, optional
        Keep less than the matrix: ``{"kind": "top-k", "k": 10, "largest": True}`` or
        ``{"kind": "threshold", "threshold": 0.3, "largest": True}``. Without ``"largest"`` large scores are kept if the
        application says that they are similarities, else small ones.
    group : str or path, optional
        Make each item of several files, which the application combines (``Application.group``). ``"folders"``: each
        folder that ``items`` names is an item, and so is each file that it names by itself. Else a table, CSV or
        tab-separated, with the columns ``file`` and ``group``. Files of ``against`` stay items of their own.
    tile : int, optional
        Side of a chunk of the result; default: chosen by the memory and by what a pair costs.
    part : str, optional
        Compute one part of the run, such as "3/16", beside other processes that compute the others in the same folder;
        ``resume`` finishes the run when all have ended. The returned run may be unfinished.
    overwrite : bool
        Compute afresh in place of a run that is there; any other folder that holds something is refused.
    **options
        How the run is executed.

    Returns
    -------
    Run

    Raises
    ------
    ConfigError
        If an option, a parameter or the input is wrong.
    StoreError
        If ``out`` holds something else, or inputs have changed since.
    RunFailedError, RunCancelledError, ResourceError
        If the run stopped before its end; call again to resume.
    KeyboardInterrupt
        After Ctrl-C; what is computed stays, and the same call resumes.

    Examples
    --------
    >>> run = allpairs(lambda a, b: abs(a - b), [1.0, 2.0, 4.0], workers=1)
    >>> run.condensed().tolist()
    [1.0, 3.0, 2.0]
    """
    from tartan.run.execute import start
    from tartan.run.inspection import closer_look
    from tartan.run.request import request
    from tartan.run.share import parse_share

    share = None if part is None else parse_share(part)
    checked, ranks = run_options({**options, "tile": tile}), _ranks(options)
    ways = {"keys": keys, "against": against, "pairs": pairs, "reduce": reduce, "group": group}
    run = start(request(app, items, checked, registry=apps, **ways), out, share, ranks, overwrite=overwrite)
    assert isinstance(run, Run)
    run.look_closely = closer_look(run.folder, apps)
    return run


@_takes_triple_options
def alltuples(
    app: Any,
    items: Any,
    out: str | Path | None = None,
    *,
    arity: int = 3,
    keys: Any = None,
    keep: Mapping[str, Any] | None = None,
    tile: int | None = None,
    overwrite: bool = False,
    **options: Unpack[ExecutionOptions],
) -> TripleRun:
    """Compare all triples i < j < k of items, and keep the best; a run that exists at ``out`` is resumed.

    Parameters
    ----------
    app : Application, subclass of it, or function of three items
        An application defines ``compare_triples(a, b, c, xp)``, which takes three groups of m, k and l items and
        returns an (m, k, l) array, or ``compare_triple(a, b, c)``. One for triples alone may call the former
        ``compare``. Scores must not depend on the order of the three.
    items : str, path, array, or sequence
        As for ``allpairs``; at least three. Two groups of them, each about half of ``host_cache``, stay while the
        others stream past.
    out : path, optional
        Run folder; without one the result lives in a temporary folder as long as the returned object.
    arity : int
        How many items are compared at a time: 3. ``allpairs`` compares pairs.
    keys, overwrite
        As for ``allpairs``.
    keep : mapping
        ``top(10)``: the triples that are among the 10 best of one of their items; ``over(0.9)``, ``under(0.1)``: those
        beyond a threshold.
    tile : int, optional
        Side of a chunk, the unit of commit, in items.
    **options
        How the run is executed.

    Returns
    -------
    TripleRun

    Raises
    ------
    ConfigError
        If the application compares no triples, ``keep`` is missing, there are fewer than three items or room for fewer
        than three, or an option is wrong.
    StoreError, RunFailedError, RunCancelledError, ResourceError, KeyboardInterrupt
        As ``allpairs``.

    Examples
    --------
    >>> run = alltuples(lambda a, b, c: max(a, b, c) - min(a, b, c), [1.0, 2.0, 4.0, 9.0], keep=top(1), workers=1)
    >>> run.triples().read_all()["score"].to_pylist()
    [8.0, 8.0, 7.0]
    """
    from tartan.errors import ConfigError
    from tartan.run.execute import start
    from tartan.run.triples import triple_request

    if arity != 3:
        way_out = "allpairs compares pairs" if arity == 2 else "triples are the most that are compared"
        raise ConfigError(f"arity is {arity!r}; it must be 3: {way_out}", context={"option": "--arity"})
    asked = triple_request(app, items, run_options({**options, "tile": tile}), keep, keys=keys, registry=apps)
    run = start(asked, out, overwrite=overwrite)
    assert isinstance(run, TripleRun)
    return run


@_takes_pair_options
def resume(
    path: str | Path,
    *,
    app: Any = None,
    previous: Any = None,
    retry_failed: bool = False,
    trust: bool = False,
    **options: Unpack[PairOptions],
) -> Run | TripleRun:
    """Compute what a run lacks, with the application and the inputs that its folder names.

    Chunks of the result that are damaged or gone are computed again, in a finished run too; failed items and pairs only
    if asked for.

    Parameters
    ----------
    path : path
        The run.
    app, previous : optional
        The application and the items, where the folder cannot tell (objects of a program, arrays in memory).
    retry_failed : bool
        Try failed items and pairs again. Files of failed items may have been mended: those that load now are compared
        with all others, and their new stamps and checksums are recorded. An item that fails again stays failed,
        with its new reason. Any other input must be as it was.
    trust : bool
        Run the code, and open the inputs, that the folder names although the folder was not made by this user on this
        machine. Built-in applications need no trust, nor do code given as ``app`` and items given as ``previous``.
    **options
        How the run is executed.

    Raises
    ------
    ConfigError
        If the application was an object of a program and is not given.
    StoreError
        If inputs have changed, or code would be run or inputs be opened that the folder names, and it is not trusted.
    """
    from tartan.run import execute
    from tartan.run.triples import refuse_ranks

    ranks = _ranks(options)
    if ranks is not None:
        refuse_ranks(path)
    reopen = _reopen(run_options(options), app, previous, trust=trust)
    return execute.resume(path, reopen, apps, ranks, retry_failed=retry_failed)


@_takes_pair_options
def add(
    path: str | Path,
    items: Any,
    *,
    keys: Any = None,
    app: Any = None,
    previous: Any = None,
    extend_map: bool = True,
    trust: bool = False,
    **options: Unpack[PairOptions],
) -> Run:
    """Add items to a run: only pairs with a new item are computed.

    Parameters
    ----------
    path : path
        The run; an unfinished one is completed with the new items.
    items : like ``allpairs``
        The new items.
    keys : like ``allpairs``
        Their names; rows and objects without names count on.
    app, previous : optional
        The application and the old items, where the folder cannot tell (objects of a program, arrays in memory).
    extend_map : bool
        Place the new items on the map that the run keeps, if it keeps one (``Run.extend_map``). Where that fails there
        is a RuntimeWarning; the scores are there all the same.
    trust : bool
        As in ``resume``.
    **options
        How the run is executed.

    Raises
    ------
    ConfigError
        If an item or a name is in the run already, or the run is A x B or a candidate list.
    StoreError
        As ``resume``.
    """
    from tartan.result.map_growth import grow_map_or_warn
    from tartan.run.execute import extend

    checked = run_options(options)
    run = extend(path, items, _reopen(checked, app, previous, trust=trust), apps, _ranks(options), keys)
    if extend_map:
        grow_map_or_warn(run, quiet=checked.quiet)
    return run


def supported_tree(
    path: str | Path,
    n_resamplings: int = 100,
    *,
    method: str = "nj",
    output: str | None = None,
    transform: Any = None,
    failed: str | None = None,
    seed: int = 0,
    trust: bool = False,
    host_cache: str | int | None = None,
    workers: int | None = None,
    device: str | Sequence[str] | None = None,
    quiet: bool | None = None,
) -> Tree:
    """Build the tree of a run, with the support of its branches from resampled items.

    Parameters
    ----------
    path : path
        A finished run of an application that resamples items: phylogeny draws the proteins of each proteome with
        replacement.
    n_resamplings : int
        Each costs about what the run has cost.
    method, output, transform, failed
        As for ``Run.tree``.
    seed : int
        Of the samples; the same seed gives the same support.
    trust : bool
        As in ``resume``.
    host_cache, workers, device, quiet
        As in ``allpairs``.

    Returns
    -------
    Tree
        ``support`` has the share of resampled trees with each branch; ``newick()`` writes it in percent.

    Raises
    ------
    ConfigError
        If the application does not resample items, or they were objects of a program.
    StoreError
        If the items have changed since the run.
    """
    from tartan.run import support

    options = run_options({"host_cache": host_cache, "workers": workers, "device": device, "quiet": quiet})
    resampling = support.Resampling(n_resamplings, seed, trust)
    ways = {"output": output, "transform": transform, "failed": failed}
    return support.supported_tree(Run(path), resampling, options, apps, method, **ways)


def fuse(
    path: str | Path,
    out: Any = None,
    *,
    keep: float | None = None,
    names: str | None = None,
    previous: Any = None,
    trust: bool = False,
) -> FusedParticle:
    """Lay all particles of a run of microscopy onto each other.

    Parameters
    ----------
    path : path
        A finished run of all pairs.
    out : path, optional
        Folder in which points, poses, particles apart and correlation are written. Default: nothing is.
    keep : float, optional
        The share of the particles that fit, those that overlap most with the others. Default: where overlaps are of two
        kinds, the particles of the larger ones.
    names : {"full", "stem"} or path, optional
        What the particles are called, as in ``Run.export``.
    previous : optional
        The particles, where they were arrays in memory.
    trust : bool
        As in ``resume``.

    Returns
    -------
    FusedParticle
        Of the largest group of particles that pairs connect. ``fusion.trusted`` says whether its poses mean anything.

    Raises
    ------
    ConfigError
        If the run is another application's, keeps less than all pairs or is not finished, if no pair connects two
        particles that could be read, ``keep`` is no share, or if ``out`` holds a run.
    StoreError
        If the particles have changed since the run, the folder is not trusted, or the system refuses to write.
    """
    from tartan.apps.microscopy.fused_run import fuse_run, require_motions
    from tartan.base.outputs import refuse_inside_run
    from tartan.result.shown_run import show_run
    from tartan.run.reopen import parse_items

    run = open(path)
    require_motions(run)
    if out is not None:
        refuse_inside_run(Path(out))
    fused = fuse_run(show_run(run, names), parse_items(run.folder, apps, previous, trust=trust), keep)
    if out is not None:
        fused.write(Path(out))
    return fused


def open(path: str | Path, version: int | None = None) -> Run | TripleRun:  # noqa: A001 - tartan.open, as zarr.open
    """Open a run, finished or not; one of triples as a ``TripleRun``.

    Parameters
    ----------
    path : path
    version : int, optional
        Which version: items as they were before later ones were added, removed, replaced or renamed (``Run.versions``).
        Default: the newest. What is read of a version stays as it is, whatever becomes of the run.

    Raises
    ------
    RunNotFoundError
        If there is none.
    ConfigError
        If it has no such version, or no more.
    """
    from tartan.run.meaning import open_run

    return open_run(path, apps, version)


def remove(path: str | Path, keys: Sequence[str]) -> Run:
    """Remove items from a run: at once no answer has them any more. Nothing is computed.

    Parameters
    ----------
    path : path
        Of a run that keeps the matrix, or pairs up to a threshold, or compares a list of pairs.
    keys : sequence of str
        Whole names of items.

    Returns
    -------
    Run
        Of the new version; the one before is ``tartan.open(path, version=...)``.

    Raises
    ------
    ConfigError
        If there is no such item, none would be left, or the items of this run cannot be changed.
    StoreError
        If another process holds the run.
    """
    from tartan.run.versions import remove as remove_items

    return remove_items(path, keys)


def replace(
    path: str | Path,
    key: str,
    item: Any,
    *,
    app: Any = None,
    previous: Any = None,
    extend_map: bool = True,
    trust: bool = False,
    **options: Unpack[PairOptions],
) -> Run:
    """Put another file in the place of an item, under its name: only its pairs are computed.

    Parameters
    ----------
    path : path
        Of a run of all pairs of files, which keeps the matrix, or pairs up to a threshold.
    key : str
        Whole name of the item.
    item : path
        The file that takes its place; it may lie where the old one lay.
    app, previous, extend_map, trust, **options
        As of ``add``.

    Returns
    -------
    Run
        Of the new version; the one before, with the old item, is ``tartan.open(path, version=...)``.

    Raises
    ------
    ConfigError
        If there is no such item, the file is not one item, or the items of this run cannot be changed.
    StoreError
        As ``resume``.
    """
    from tartan.result.map_growth import grow_map_or_warn
    from tartan.run.execute import replace_item

    checked = run_options(options)
    run = replace_item(path, key, item, _reopen(checked, app, previous, trust=trust), apps, _ranks(options))
    if extend_map:
        grow_map_or_warn(run, quiet=checked.quiet)
    return run


def expire(path: str | Path, keep: int = 1, *, now: bool = False) -> int:
    """Forget old versions of a run, and free what they alone needed.

    Parameters
    ----------
    path : path
    keep : int
        How many versions stay, the newest ones.
    now : bool
        Leave no byte of what is no item any more in the folder: chunks that hold scores of it are written anew. Only
        the newest version stays then.

    Returns
    -------
    int
        Bytes of scores that were freed.

    Raises
    ------
    ConfigError
        If ``keep`` is below 1, or above 1 together with ``now``.
    StoreError
        If another process holds the run.

    Notes
    -----
    Who reads a version while it expires gets a StoreError (code "expired-version").
    """
    from tartan.run.versions import expire as expire_versions

    return expire_versions(path, keep, now=now)


def rename(path: str | Path, old: str, new: str) -> Run:
    """Give an item of a run another name; raises as ``remove``, and if another item has that name."""
    from tartan.run.versions import rename as rename_item

    return rename_item(path, old, new)


def _reopen(options: RunOptions, app: Any, previous: Any, *, trust: bool) -> Reopen:
    """Return what asks for the run of a folder again."""
    from tartan.run.reopen import reopen_request

    return partial(reopen_request, options=options, registry=apps, app=app, items=previous, trust=trust)


def _ranks(options: PairOptions) -> ClusterWays | None:
    """Return where the ranks of a call are; None, and nothing imported, where this process computes."""
    on, parse_at, stages = options.get("on"), options.get("parse_at"), options.get("stages")
    if on is None:
        for name, given in (("parse_at", parse_at), ("stages", stages)):
            if given is not None:
                from tartan.errors import ConfigError

                message = f"`{name}=` is for the ranks of a cluster; give `on=`, too"
                raise ConfigError(message, context={"option": f"--{name.replace('_', '-')}"})
        return None
    from tartan.run.cluster_run import cluster_ways

    insecure, rank_timeout = bool(options.get("insecure")), options.get("rank_timeout")
    wait = options.get("wait")
    return cluster_ways(on, insecure=insecure, rank_timeout=rank_timeout, parse_at=parse_at, stages=stages, wait=wait)
