"""A run as its user sees it, finished or not: its matrix, its pairs and its numbers.

Nothing is computed when a run is opened; what is returned whole is as large as it says, everything else streams.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from tartan.base.checks import path_of
from tartan.base.lock import list_living_writers
from tartan.base.palette import Scale
from tartan.base.signatures import takes_options
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, NOT_COMPUTED, Failure
from tartan.errors import ConfigError
from tartan.result.analyses import Analyses
from tartan.result.conversions import Conversions
from tartan.result.lookup import describe_run
from tartan.result.statistics import statistics_of
from tartan.store.downsample import block_means
from tartan.store.folder import RunFolder
from tartan.store.manifest import Manifest
from tartan.store.version_view import open_version
from tartan.store.versions import RunVersion, VersionLog
from tartan.store.view import ResultView

if TYPE_CHECKING:
    import pyarrow as pa
    import zarr

    from tartan.analytics.trees import SpanningTree
    from tartan.core.memory import MemoryNeed
    from tartan.store.folder import RunFolder


class AnyRun:
    """What every run has, of pairs or of triples.

    Attributes
    ----------
    folder : RunFolder
    found_finished : bool
        Whether the call that made it (``tartan.allpairs``, ``tartan.alltuples``) had nothing to compute, because the
        run was finished.
    memory_need : MemoryNeed or None
        What the call that made it said that it needs at most; None where it computed nothing in this process.
    """

    arity: ClassVar[int]
    found_finished = False
    memory_need: MemoryNeed | None = None

    def __init__(self, folder: RunFolder | str | Path) -> None:
        self.folder = folder if isinstance(folder, RunFolder) else open_version(folder, arity=self.arity)

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @property
    def manifest(self) -> Manifest:
        """Description of the run."""
        return self.folder.manifest

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs; the first is the default everywhere."""
        return tuple(self.manifest.outputs)

    @property
    def keys(self) -> Sequence[str]:
        """Stable keys of all items; for A x B those of A come first."""
        return self.folder.keys

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.manifest.n_items

    @property
    def finished(self) -> bool:
        """Whether nothing is left to compute. Read anew each time."""
        return self.folder.finished

    @property
    def version(self) -> int:
        """Which version of the run this is, from 1."""
        read = self.folder.version
        return VersionLog.read(self.path, self.manifest).last if read is None else read.number

    @property
    def versions(self) -> list[RunVersion]:
        """All versions that can be read, the oldest first. Read anew each time."""
        return VersionLog.read(self.path, Manifest.load(self.path)).list_versions()

    @property
    def failures(self) -> list[Failure]:
        """Failed items and pairs or triples with their reasons, items first."""
        return self.folder.failures()

    @property
    def stats(self) -> dict[str, Any]:
        """Loads, times and bytes of the run; empty before they are written."""
        return statistics_of(self.folder)

    @property
    def larger_is_nearer(self) -> bool:
        """Whether the application says that its scores are similarities."""
        return self.manifest.larger_is_nearer


class Run(AnyRun, Analyses, Conversions):
    """The result of an all-pairs run.

    Parameters
    ----------
    folder : RunFolder or path

    Raises
    ------
    RunNotFoundError
        If there is no run at the path.

    Examples
    --------
    >>> run = tartan.open("spectra.tartan")                                   # doctest: +SKIP
    >>> matrix = run.matrix()                                                 # doctest: +SKIP
    """

    arity = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix: (n, n), or (n_left, n_right) for A x B."""
        return self.manifest.shape

    @property
    def n_pairs(self) -> int:
        """Number of scores of a finished run."""
        return self.folder.wanted.n_scores

    @property
    def n_pairs_done(self) -> int:
        """Number of scores that are there. Read anew each time: the run may not be finished."""
        return int(self.folder.counts()[DONE])

    @property
    def n_pairs_failed(self) -> int:
        """Number of scores that are missing for good, because a pair or one of its items failed."""
        return int(self.folder.counts()[[FAILED_ITEM, FAILED_PAIR]].sum())

    @property
    def n_pairs_left(self) -> int:
        """Number of scores that are still to be computed. Read anew each time."""
        return self.folder.n_left

    @property
    def parts(self) -> list[ShareProgress]:
        """How far each part of the run is (``part="3/16"``); empty where it has none. Read anew each time."""
        return shares_progress(self.folder)

    @cached_property
    def scores(self) -> zarr.Array[Any]:
        """The first output as a Zarr array (n, n), as stored: upper triangle only."""
        return self.array()

    @cached_property
    def status(self) -> zarr.Array[Any]:
        """The ledger as a Zarr array (n, n) of uint8: codes of ``tartan.core.pairs.ledger``."""
        return self.folder.status()

    def array(self, output: str | None = None) -> zarr.Array[Any]:
        """Return an output as a Zarr array (n, n), as stored."""
        return self.folder.array(output)

    def matrix(self, output: str | None = None, fill: float = np.nan, *, diagonal: float | None = None) -> np.ndarray:
        """Return the whole matrix in memory.

        Parameters
        ----------
        output : str, optional
            Default: the first.
        fill : number
            What stands for scores that are missing or failed. Integer outputs become floats where it is NaN.
        diagonal : number, optional
            What stands on the diagonal where the run did not compute it. Default: 0 where the application says
            that its scores are distances (``similarity = False``), else ``fill``.

        Returns
        -------
        array (n, n), symmetric where the run is; (n_left, n_right) for A x B
        """
        return self.view(output, fill).matrix(diagonal)

    def condensed(self, output: str | None = None, fill: float = np.nan) -> np.ndarray:
        """Return the pairs i < j row by row, (n(n-1)/2,), as ``scipy.spatial.distance.squareform`` does.

        Raises
        ------
        ConfigError
            If the run is not symmetric.
        """
        return self.view(output, fill).condensed()

    def pairs(self, output: str | None = None) -> pa.RecordBatchReader:
        """Stream the pairs: i, j, key_i, key_j, score, in the order of the chunks.

        Failed pairs are there with a null score. With several outputs there is a column for each, unless one is
        named. Runs that keep less than the matrix stream what they keep; in a top-k run the pair (i, j) means
        that j is among the best of i, and i < j need not hold. Of A x B, j counts within B.
        """
        from tartan.store.tables import row_reader

        return row_reader(self.folder, output)

    @takes_options(defaults={})
    def neighbors(
        self, k: int, largest: bool | None = None, output: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the k nearest items of each item, nearest first, in O(n k) memory.

        Parameters
        ----------
        k : int
        largest : bool, optional
            Whether large scores are near. Default: what the application says (``similarity``), else False.

        Returns
        -------
        indices : int64 array (n, k)
            -1 where fewer are known. For A x B: (n_left, k), counted within B, as everywhere.
        scores : array (n, k)
            The fill value (NaN for floats) where fewer are known. Equal scores are in the order of the indices.
        """
        from tartan.store.neighbors import neighbors

        return neighbors(self.folder, k, largest, output)

    def view(self, output: str | None = None, fill: float = np.nan) -> ResultView:
        """Return one output for reading by blocks or bands."""
        return self.folder.view(output, fill)

    @property
    def self_score(self) -> float | None:
        """Score of an item with itself where that is known without computing it: 0 for declared distances."""
        return self.manifest.self_score

    def pairs_sorted(
        self,
        *,
        ascending: bool | None = None,
        limit: int | None = None,
        output: str | None = None,
        memory: str | int | None = None,
        tmp: str | Path | Sequence[str | Path] | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the pairs in the order of their scores, however many there are.

        Parameters
        ----------
        ascending : bool, optional
            Default: the nearest first, that is, descending for applications that declare a similarity.
        limit : int, optional
            At most this many pairs, the first ones; failed pairs are left out then.
        output : str, optional
            By which output; default: the first.
        memory : size, optional
            Promise for the whole process, 400MB or more. Default: 1 GB besides what the process holds already.
        tmp : path or sequence of paths, optional
            Folders for temporary files, should the pairs not fit into memory. Default: the system's.

        Returns
        -------
        pyarrow.RecordBatchReader
            Columns i, j, key_i, key_j and score. Equal scores are in the order of i, then j; failed pairs come last,
            with a null score.
        """
        from tartan.result.sorted_pairs import pair_order, sort_pairs

        order = pair_order(self.folder, output, ascending=ascending, limit=limit, memory=memory, tmp=tmp)
        return sort_pairs(self.folder, order)

    def spanning_tree(
        self,
        *,
        output: str | None = None,
        memory: str | int | None = None,
        tmp: str | Path | Sequence[str | Path] | None = None,
    ) -> SpanningTree:
        """Build the minimum spanning tree of all pairs (of similarities, the maximum), and with it single linkage.

        Parameters
        ----------
        output, memory, tmp
            As in ``pairs_sorted``.

        Returns
        -------
        SpanningTree
            ``labels(threshold)``, ``cut(n_clusters)`` and ``linkage()`` give the clusters of single linkage.

        Raises
        ------
        ConfigError
            If the run compares two sets: then there is no tree over one.
        """
        from tartan.analytics.trees import spanning_tree

        if self.manifest.workload["kind"] == "rectangle":
            raise ConfigError(f"{self.path} compares two sets of items; a tree needs the pairs within one")
        with self.pairs_sorted(output=output, memory=memory, tmp=tmp) as pairs:
            return spanning_tree(pairs, self.n_items)

    # Public, for a call without a dictionary of options: hence more than eight parameters.
    @takes_options(defaults={})
    def export(
        self,
        path: str | Path,
        format: str | None = None,  # noqa: A002
        *,
        output: str | None = None,
        distance: Any = None,
        diagonal: float | None = None,
        missing: float | None = None,
        clip: bool = False,
        names: str | None = None,
        overwrite: bool = False,
        pairs: bool = False,
        sort: bool = False,
        count: int | None = None,
        ascending: bool | None = None,
        memory: str | int | None = None,
        tmp: str | Path | Sequence[str | Path] | None = None,
        failed: str | None = None,
    ) -> Path:
        """Write the result, finished or not, to a file that appears when it is whole.

        Parameters
        ----------
        path : path
        format : str, optional
            "npy", "npy-condensed", "phylip", "phylip-strict" (names of ten columns, and a table that explains them),
            "csv", "tsv", "int16", "int16-be", "float32" or "parquet" (pairs). Default: by the suffix of the path.
        output : str, optional
            Default: the first; tables of pairs then have a column for each.
        distance : str or callable, optional
            How similarities become distances, as for ``tartan.analytics.as_dissimilarities``. Where the scores are
            similarities, PHYLIP, condensed and int16 files hold what the application declares, or are refused without.
        diagonal : number, optional
            Value of a diagonal that was not computed. Default: 0 for distances and PHYLIP, else missing.
        missing : number, optional
            Value of missing and failed scores. Default: NaN, or -1 in int16; PHYLIP has none.
        clip : bool
            int16 only: values outside 0..1 become 0 or 1 instead of an error.
        names : {"full", "stem"} or path, optional
            Items by their keys, by their keys without suffixes (``a.faa.gz`` is ``a``; names that two items would share
            stay whole), or as a table of keys and names (CSV, TSV) says. CSV of pairs then has columns key_i and key_j.
            Default: keys, and none in CSV of pairs.
        overwrite : bool
            Whether an existing file is replaced.
        pairs : bool
            CSV, TSV: columns i, j and score, a line for each pair that is known, instead of the matrix.
        sort : bool
            The pairs in the order of their scores.
        count : int, optional
            Exactly this many of the best pairs of all, in the order of their scores.
        ascending, memory, tmp
            As in ``pairs_sorted``; refused where the pairs are not sorted.
        failed : {"drop", "error"}, optional
            Of matrices: leave out items that failed ("drop"), or refuse a run of which something failed ("error").
            Default: what failed has the value of missing scores; where there is none, which is in PHYLIP without
            ``missing``, it is left out, with a RuntimeWarning that names it. PHYLIP needs all pairs: the fewest items
            of failed pairs are left out, too.

        Returns
        -------
        Path

        Raises
        ------
        ConfigError
            If the format is unknown, cannot hold this result, or has no use for an option.
        StoreError
            If the file cannot be written.
        """
        from tartan.base.outputs import require_writable
        from tartan.result.exports import export_matrix, export_sorted, what_is_left_out
        from tartan.store.export import ExportOptions

        path = path_of("path", path)
        require_writable(path, overwrite=overwrite)
        options = ExportOptions(output, diagonal, missing, clip, names, overwrite, pairs)
        order = {"ascending": ascending, "memory": memory, "tmp": tmp}
        if sort or count is not None:
            if distance is not None:
                raise ConfigError("pairs are sorted by their scores as they are; leave out `distance=`")
            what_is_left_out(self.folder, "parquet", options, failed)
            return export_sorted(self.folder, path, format, options, order | {"limit": count})
        for name, value in order.items():
            if value is not None:
                raise ConfigError(f"`{name}=` is for pairs in the order of their scores: say `sort=True`")
        return export_matrix(self.folder, path, format, options, distance, failed)

    def __repr__(self) -> str:
        facts = describe_run(self.folder)
        return f"<Run {self.path.name}: {facts['application']}, {facts['items']} items, {facts['pairs']} pairs>"

    def _repr_png_(self) -> bytes | None:
        return matrix_png(self)

    def _repr_html_(self) -> str:
        return run_html(self.folder, self._repr_png_())


# How far the parts of a run are that several processes compute: ``--part I/N``.


@dataclass(frozen=True)
class ShareProgress:
    """How far one part of a run is.

    Attributes
    ----------
    part : str
        Such as "3/16".
    n_pairs, n_pairs_left : int
        Pairs of its share, and those of them that are still to be computed.
    state : {"finished", "running", "unfinished"}
    host, pid
        Of the process that computes it; None where none does.
    """

    part: str
    n_pairs: int
    n_pairs_left: int
    state: str
    host: str | None = None
    pid: int | None = None


def shares_progress(folder: RunFolder) -> list[ShareProgress]:
    """Return how far each part of a run is, in order; empty where it is not divided."""
    n_parts = folder.n_parts
    if n_parts is None:
        return []
    running = {str(holder.get("part")): holder for holder in list_living_writers(folder.path)}
    committed, found = set(folder.committed()), []
    for index, chunks in enumerate(folder.pairs.shares(n_parts), start=1):
        n_pairs = sum(folder.pairs.n_in(*chunk) for chunk in chunks)
        known = folder.counts(committed.intersection(chunks))[NOT_COMPUTED + 1 :]
        left, holder = n_pairs - int(known.sum()), running.get(str(index), {})
        state = "finished" if not left else "running" if holder else "unfinished"
        whose = (holder.get("host"), holder.get("pid")) if state == "running" else (None, None)
        found.append(ShareProgress(f"{index}/{n_parts}", n_pairs, left, state, *whose))
    return found


# A small picture of a run, for notebooks.

# _SIDE and _UNKNOWN are looks, by judgement.
_SIDE: Final = 360  # pixels
# By judgement: a second or two of a disk.
_MOST_BYTES: Final = 256 << 20  # of scores; to read more would keep the notebook waiting
# By judgement: a look.
_UNKNOWN: Final = (208, 208, 211)


def matrix_png(run: Any) -> bytes | None:
    """Return the matrix of a run as a PNG of some 360 pixels, grey where no score is known.

    None for runs that keep less than the matrix, have complex scores, or are so large that reading them takes seconds.
    """
    manifest = run.manifest
    dtype = next(iter(manifest.outputs.values()))
    n_bytes = dtype.itemsize * manifest.shape[0] * manifest.shape[1]
    if manifest.reduce is not None or dtype.kind == "c" or not 0 < n_bytes <= _MOST_BYTES:
        return None
    from PIL import Image

    values = block_means(run, _SIDE)
    pixels = Scale.of(values, larger_is_nearer=manifest.larger_is_nearer).paint(values)
    pixels[~np.isfinite(values)] = _UNKNOWN
    cell = max(1, _SIDE // max(values.shape))
    picture = io.BytesIO()
    Image.fromarray(pixels.repeat(cell, 0).repeat(cell, 1)).save(picture, format="PNG", optimize=True)
    return picture.getvalue()


def run_html(folder: RunFolder, png: bytes | None) -> str:
    """Return what a run is as a table, with its picture below."""
    rows = "".join(
        f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in describe_run(folder).items()
    )
    table = f"<table><caption>{html.escape(folder.path.name)}</caption>{rows}</table>"
    if png is None:
        return table
    data = base64.b64encode(png).decode("ascii")
    return f'{table}<img alt="the matrix" src="data:image/png;base64,{data}">'
