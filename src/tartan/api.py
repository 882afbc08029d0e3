"""The Python interface: compare pairs or triples, resume, add, open."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan import apps
from tartan.run.kept_rules import over, top, under
from tartan.run.result import Run
from tartan.run.triple_result import TripleRun

if TYPE_CHECKING:
    from tartan.analytics import Tree
    from tartan.apps.microscopy.fused_run import FusedParticle
    from tartan.run.cluster_run import ClusterWays

__all__ = [
    "Run", "TripleRun", "add", "allpairs", "alltuples", "fuse", "open", "over", "resume", "supported_tree", "top",
    "under",
]  # fmt: skip


def allpairs(
    app: Any,
    items: Any,
    out: str | Path | None = None,
    *,
    keys: Any = None,
    against: Any = None,
    pairs: Any = None,
    reduce: Mapping[str, Any] | None = None,
    tile: int | None = None,
    part: str | None = None,
    cluster: Any = None,
    insecure: bool = False,
    rank_timeout: float | None = None,
    parse_at: str | None = None,
    application_source: dict[str, Any] | None = None,
    host_cache: str | int | None = None,
    device_cache: str | int | None = None,
    disk_cache: str | int | None = None,
    cache_at: str | Path | None = None,
    workers: int | None = None,
    order: str | None = None,
    device: str | Sequence[str] | None = None,
    on_error: str | None = None,
    max_failures: int | None = None,
    tile_timeout: float | None = None,
    verify: bool | None = None,
    trace: bool | None = None,
    overwrite: bool = False,
    quiet: bool | None = None,
) -> Run:
    """Compare all pairs of items; a run that exists at ``out`` is resumed.

    Parameters
    ----------
    app : Application, subclass of it, or function of two items
    items : str, path, array, or sequence
        A glob, a folder, files, URLs, the rows of an array, or any objects (``tartan.sources.items.open_source``).
        A mapping ``{name: object or row}`` gives its items names. At least two, or one on each side of A x B.
    out : path, optional
        Run folder; without one the result lives in a temporary folder as long as the returned object.
    keys : sequence of str, optional
        Names of items that are rows or objects, all different, such as ``frame.index``; default: "0", "1", ...
    against : like items, optional
        Compare each of ``items`` with each of these (A x B) instead of with each other. Each side has its own keys and
        counts from 0; rows of unlike dtypes are compared in the wider one.
    pairs : int array (m, 2), optional
        Compare these pairs of indices only.
    reduce : dict, optional
        Keep less than the matrix: ``{"kind": "top-k", "k": 10, "largest": True}`` or
        ``{"kind": "threshold", "threshold": 0.3, "largest": True}``. Without ``"largest"`` large scores are kept if the
        application says that they are similarities, else small ones.
    tile : int, optional
        Side of a chunk of the result; default: chosen by the memory and by what a pair costs.
    part : str, optional
        Compute one part of the run, such as "3/16", beside other processes that compute the others in the same folder;
        ``resume`` finishes the run when all have ended. The returned run may be unfinished.
    application_source : dict, optional
        Where the application comes from, as ``load_application`` returned it.
    host_cache, device_cache : str or int, optional
        Room for items in memory and on a device: "500MB", "500MiB", "60items", or bytes; default: a share of what is
        free.
    disk_cache : str or int, optional
        Room for parsed items in the run folder; default: none are kept.
    cache_at : path, optional
        Keep them in this folder instead, which should be on a local disk of each process that computes; up to
        ``disk_cache``, default: half of what is free there.
    workers : int, optional
        Threads or processes; default: all cores.
    order : {"panel", "quadrant"}, optional
        Order in which pairs are visited; default: "panel".
    device : str or sequence of str, optional
        "cpu" (default), "cuda", "cuda:1", "sim".
    on_error : {"skip", "raise"}, optional
        Record failed items and pairs and continue (default), or stop at the first.
    max_failures : int, optional
        Failed items and pairs after which the run stops.
    tile_timeout : float, optional
        Seconds that one compare call may take.
    verify, trace : bool, optional
        Where the run exists, compare the bytes of all items with those that it has scores of, also where size, times
        and inode of files say that they are the same; write ``trace.json``.
    overwrite : bool
        Compute afresh in place of a run that is there; any other folder that holds something is refused.
    quiet : bool, optional
        Without progress on stderr. Default: progress where stderr is a terminal or belongs to a notebook.
    cluster : str or distributed.Client, optional
        Compute on several processes that work together: "local:4" starts four on this machine, "tls://host:port" is
        the address of a Dask scheduler, a ``distributed.Client`` is connected to one. Needs the extra cluster. With
        ``host_cache`` and ``workers`` as given, or a share of the machine, for each of them.
    insecure : bool
        Accept a cluster whose connections beyond this machine are not encrypted.
    rank_timeout : float, optional
        Seconds after which a silent process of a cluster counts as lost; default: 15.
    parse_at : {"storage", "compute", "auto"}, optional
        Where files are parsed that Dask workers with the resource "storage" read for the others: there, or where pairs
        are computed. Default: "auto", whichever takes fewer bytes on the link.

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
    KeyboardInterrupt
        After Ctrl-C; what is computed stays, and the same call resumes.

    Examples
    --------
    >>> run = allpairs(lambda a, b: abs(a - b), [1.0, 2.0, 4.0], workers=1)
    >>> run.condensed().tolist()
    [1.0, 3.0, 2.0]
    """
    given = locals()
    from tartan.run.execute import start
    from tartan.run.request import request, run_options
    from tartan.run.share import parse_share

    share = None if part is None else parse_share(part)
    ways = {"keys": keys, "against": against, "pairs": pairs, "reduce": reduce, "described": application_source}
    asked = request(app, items, run_options(given), registry=apps, **ways)
    ranks = _ranks(cluster, insecure, rank_timeout, parse_at)
    return start(asked, out, share, ranks, overwrite=overwrite)


def alltuples(
    app: Any,
    items: Any,
    out: str | Path | None = None,
    *,
    arity: int = 3,
    keep: Mapping[str, Any] | None = None,
    tile: int | None = None,
    application_source: dict[str, Any] | None = None,
    host_cache: str | int | None = None,
    disk_cache: str | int | None = None,
    cache_at: str | Path | None = None,
    workers: int | None = None,
    device: str | Sequence[str] | None = None,
    on_error: str | None = None,
    max_failures: int | None = None,
    tile_timeout: float | None = None,
    verify: bool | None = None,
    trace: bool | None = None,
    overwrite: bool = False,
    quiet: bool | None = None,
) -> TripleRun:
    """Compare all triples i < j < k of items, and keep the best; a run that exists at ``out`` is resumed.

    Parameters
    ----------
    app : Application, subclass of it, or function of three items
        An application defines ``compare_triples(a, b, c, xp)``, which takes three groups of m, k and l items and
        returns an (m, k, l) array, or ``compare_triple(a, b, c)``. One for triples alone may call the former
        ``compare``. Scores must not depend on the order of the three.
    items : str, path, array, or sequence
        As for ``allpairs``; at least three.
    out : path, optional
        Run folder; without one the result lives in a temporary folder as long as the returned object.
    arity : int
        How many items are compared at a time: 3. ``allpairs`` compares pairs.
    keep : mapping
        ``top(10)``: the triples that are among the 10 best of one of their items; ``over(0.9)``, ``under(0.1)``: those
        beyond a threshold.
    tile : int, optional
        Side of a chunk, the unit of commit, in items.
    application_source, host_cache, disk_cache, cache_at, workers, on_error, max_failures, tile_timeout, verify, \
trace, overwrite, quiet
        As for ``allpairs``. Two groups of items, each about half of ``host_cache``, stay while the others stream past.
    device : str, optional
        "cpu".

    Returns
    -------
    TripleRun

    Raises
    ------
    ConfigError
        If the application compares no triples, ``keep`` is missing, there are fewer than three items or room for fewer
        than three, or an option is wrong.
    StoreError, RunFailedError, RunCancelledError, DiskFullError, KeyboardInterrupt
        As ``allpairs``.

    Examples
    --------
    >>> run = alltuples(lambda a, b, c: max(a, b, c) - min(a, b, c), [1.0, 2.0, 4.0, 9.0], keep=top(1), workers=1)
    >>> run.triples().read_all()["score"].to_pylist()
    [8.0, 8.0, 7.0]
    """
    given = locals()
    from tartan.errors import ConfigError
    from tartan.run.execute import start
    from tartan.run.request import run_options
    from tartan.run.triples import TripleSession, triple_request

    if arity != 3:
        way_out = "allpairs compares pairs" if arity == 2 else "triples are the most that are compared"
        raise ConfigError(f"arity is {arity!r}; it must be 3: {way_out}", context={"option": "--arity"})
    asked = triple_request(app, items, run_options(given), keep, described=application_source, registry=apps)
    run = start(asked, out, kind=TripleSession, overwrite=overwrite)
    assert isinstance(run, TripleRun)
    return run


def resume(
    path: str | Path,
    *,
    app: Any = None,
    previous: Any = None,
    retry_failed: bool = False,
    trust: bool = False,
    host_cache: str | int | None = None,
    device_cache: str | int | None = None,
    disk_cache: str | int | None = None,
    cache_at: str | Path | None = None,
    workers: int | None = None,
    order: str | None = None,
    device: str | Sequence[str] | None = None,
    on_error: str | None = None,
    max_failures: int | None = None,
    tile_timeout: float | None = None,
    verify: bool | None = None,
    trace: bool | None = None,
    cluster: Any = None,
    insecure: bool = False,
    rank_timeout: float | None = None,
    parse_at: str | None = None,
    quiet: bool | None = None,
) -> Run:
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
    host_cache, device_cache, disk_cache, cache_at, workers, order, device, on_error, max_failures, tile_timeout, \
verify, trace, cluster, insecure, rank_timeout, parse_at, quiet
        As in ``allpairs``.

    Raises
    ------
    ConfigError
        If the application was an object of a program and is not given.
    StoreError
        If inputs have changed, or code would be run or inputs be opened that the folder names, and it is not trusted.
    """
    given = locals()
    from tartan.run import execute
    from tartan.run.reopen import Given
    from tartan.run.request import run_options
    from tartan.run.triples import TripleSession, holds_triples, refuse_ranks

    kind = TripleSession if holds_triples(path) else None
    ranks = _ranks(cluster, insecure, rank_timeout, parse_at)
    if kind is not None:
        refuse_ranks(ranks is not None)
    return execute.resume(path, run_options(given), apps, Given(app, previous, trust, retry_failed), ranks, kind)


def add(
    path: str | Path,
    items: Any,
    *,
    app: Any = None,
    previous: Any = None,
    extend_map: bool = True,
    trust: bool = False,
    host_cache: str | int | None = None,
    device_cache: str | int | None = None,
    disk_cache: str | int | None = None,
    cache_at: str | Path | None = None,
    workers: int | None = None,
    order: str | None = None,
    device: str | Sequence[str] | None = None,
    on_error: str | None = None,
    max_failures: int | None = None,
    tile_timeout: float | None = None,
    verify: bool | None = None,
    trace: bool | None = None,
    cluster: Any = None,
    insecure: bool = False,
    rank_timeout: float | None = None,
    parse_at: str | None = None,
    quiet: bool | None = None,
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
    trust : bool
        As in ``resume``.
    host_cache, device_cache, disk_cache, cache_at, workers, order, device, on_error, max_failures, tile_timeout, \
verify, trace, cluster, insecure, rank_timeout, parse_at, quiet
        As in ``allpairs``.

    Raises
    ------
    ConfigError
        If an item is in the run already, or the run is A x B or a candidate list.
    StoreError
        As ``resume``.
    """
    given = locals()
    from tartan.run.execute import extend
    from tartan.run.map_growth import grow_map
    from tartan.run.reopen import Given
    from tartan.run.request import run_options

    options = run_options(given)
    ranks = _ranks(cluster, insecure, rank_timeout, parse_at)
    run = extend(path, items, options, apps, Given(app, previous, trust), ranks)
    if extend_map and (problem := grow_map(run, quiet=options.quiet).problem) is not None:
        warnings.warn(
            f"all scores of {run.path} are there, but its map was not extended: {problem}; mend that and call "
            "extend_map(), or make the map afresh by embed(keep=True)",
            RuntimeWarning,
            stacklevel=2,
        )
    return run


def supported_tree(
    path: str | Path,
    n_resamplings: int = 100,
    *,
    method: str = "nj",
    output: str | None = None,
    transform: Any = None,
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
    method, output, transform
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
    given = locals()
    from tartan.run import support
    from tartan.run.request import run_options

    resampling = support.Resampling(n_resamplings, seed, trust)
    return support.supported_tree(
        Run(path), resampling, run_options(given), apps, method, output=output, transform=transform
    )


def fuse(path: str | Path, out: str | Path | None = None, *, trust: bool = False) -> FusedParticle:
    """Lay all particles of a run of microscopy onto each other.

    Parameters
    ----------
    path : path
        A finished run of all pairs.
    out : path, optional
        Folder in which points, poses, particles apart and correlation are written. Default: nothing is.
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
        particles that could be read, or if ``out`` holds a run.
    StoreError
        If the particles have changed since the run, the folder is not trusted, or the system refuses to write.
    """
    from tartan.apps.microscopy.fused_run import fuse_run, require_motions
    from tartan.base.outputs import refuse_inside_run
    from tartan.run.contents import parsed_items

    run = open(path)
    require_motions(run)
    if out is not None:
        refuse_inside_run(Path(out))
    fused = fuse_run(run, parsed_items(run.folder, apps, trust=trust))
    if out is not None:
        fused.write(Path(out))
    return fused


def open(path: str | Path) -> Run:  # noqa: A001 - tartan.open, as zarr.open
    """Open a run, finished or not; one of triples as a ``TripleRun``.

    Raises
    ------
    RunNotFoundError
        If there is none.
    """
    from tartan.run.meaning import declared_run
    from tartan.run.triple_result import opened_triples

    return opened_triples(path) or declared_run(path, apps)


def _ranks(cluster: Any, insecure: bool, rank_timeout: float | None, parse_at: str | None) -> ClusterWays | None:
    """Return where the ranks of a call are; None, and nothing imported, where this process computes."""
    if cluster is None:
        if parse_at is not None:
            from tartan.errors import ConfigError

            message = "`parse_at=` is for the ranks of a cluster; give `cluster=`, too"
            raise ConfigError(message, context={"option": "--parse-at"})
        return None
    from tartan.run.cluster_run import cluster_ways

    return cluster_ways(cluster, insecure=insecure, rank_timeout=rank_timeout, parse_at=parse_at)
