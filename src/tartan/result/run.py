"""A run as its user sees it, finished or not: its matrix, its pairs and its numbers.

Nothing is computed when a run is opened; what is returned whole is as large as it says, everything else streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tartan.base.checks import path_of
from tartan.base.signatures import takes_options
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, Failure
from tartan.errors import ConfigError
from tartan.result.conversions import Conversions
from tartan.result.lookup import ShareProgress, describe_run, matrix_png, run_html, shares_progress
from tartan.result.statistics import statistics_of
from tartan.store.folder import RunFolder
from tartan.store.manifest import Manifest
from tartan.store.version_view import open_version
from tartan.store.versions import RunVersion, VersionLog
from tartan.store.view import ResultView

if TYPE_CHECKING:
    import anndata
    import networkx
    import pandas
    import pyarrow as pa
    import scipy.sparse
    import xarray
    import zarr
    from numpy.typing import NDArray

    from tartan.analytics import Dissimilarities, Embedding, Monitor, Outliers, Tree
    from tartan.analytics.trees import SpanningTree
    from tartan.core.memory import MemoryNeed
    from tartan.store.maps import StoredMap


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
    look_closely : callable or None
        Opens an item, by its place, and returns its patterns (``Application.look_closely``); clusters use it. None
        where items of the folder are not opened.
    """

    arity: ClassVar[int]
    found_finished = False
    memory_need: MemoryNeed | None = None
    look_closely: Callable[[int], Any] | None = None

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


class Run(AnyRun):
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

    def dissimilarities(self, output: str | None = None, **options: Any) -> Dissimilarities:
        """Return an output in the form that the analytics take.

        Parameters
        ----------
        output : str, optional
            Default: the first.
        **options
            As for ``tartan.analytics.as_dissimilarities``: ``distance``, ``transform``, ..

        Raises
        ------
        ConfigError
            If the run is not symmetric, keeps no matrix, or has similarities and it is not said how they become
            distances.
        """
        from tartan.analytics import as_dissimilarities

        return as_dissimilarities(self, output=output, **options)

    def tree(self, method: str = "nj", output: str | None = None, *, transform: Any = None, **options: Any) -> Tree:
        """Build a tree from the distances of a run.

        Parameters
        ----------
        method : {"nj", "upgma", "single", "complete", "average", "weighted"}
            Neighbour joining (Saitou and Nei 1987), or a linkage; "upgma" is "average".
        output : str, optional
            Which output holds the distances.
        transform : str, float or callable, optional
            Applied to the distances before: a formula of d such as "-log(1-2d)", an exponent, "4D", or a function of
            arrays.
        **options
            As for ``tartan.analytics.as_dissimilarities``, such as ``distance``. What failed is not a leaf, with a
            warning that names it; ``failed="error"`` refuses it.

        Raises
        ------
        ConfigError
            If the method is unknown, or a pair is missing.
        """
        from tartan.analytics.trees import build_tree

        return build_tree(self, method, output=output, transform=transform, **options)

    def outliers(self, k: int = 10, threshold: float = 3.5, output: str | None = None, **options: Any) -> Outliers:
        """Find the items that are far from all others.

        Parameters
        ----------
        k : int
            Over how many nearest neighbours distances are averaged.
        threshold : float
            Robust z score above which an item is an outlier.
        output : str, optional
            Which output holds the distances.
        **options
            As for ``tartan.analytics.outliers``.
        """
        from tartan.analytics import outliers

        return outliers(self, k, threshold, output=output, **options)

    def clusters_at(
        self, threshold: float, method: str = "single", output: str | None = None, **options: Any
    ) -> NDArray[np.int64]:
        """Cut a hierarchy of the items at a distance.

        Parameters
        ----------
        threshold : float
        method : {"single", "complete", "average", "weighted"}
            With "single", items are together when a path of pairs up to the threshold joins them.
        output : str, optional
            Which output holds the distances.
        **options
            As for ``tartan.analytics.clusters_at``.

        Returns
        -------
        int64 array (n,)
            Cluster of each item, numbered from 0 in the order of their first items; -1 for what failed.
        """
        from tartan.analytics import clusters_at

        return clusters_at(self, threshold, method, output=output, **options)

    def cluster(
        self,
        n_clusters: int | None = None,
        method: str | None = None,
        output: str | None = None,
        *,
        distance: Any = None,
        transform: Any = None,
        failed: str | None = None,
        **options: Any,
    ) -> NDArray[np.int64]:
        """Cluster the items of a run; ``tartan.analytics.cluster`` says how, and returns why as well.

        Parameters
        ----------
        n_clusters : int, optional
            Default: the application's cut, where it declares one, else a number that is found.
        method : str, optional
            "pwc" (``tartan.analytics.DAPWC``; the default with a number), a linkage, or "hdbscan". A run that keeps
            pairs instead of the matrix takes "components" (default), "single", "hdbscan" and "leiden".
        output : str, optional
            Which output holds the distances.
        distance, transform
            As for ``tartan.analytics.as_dissimilarities``; default: what the application declares.
        failed : {"drop", "error"}, optional
            Leave out the items that failed, with the label -1 (default), or refuse a run with such items.
        **options
            As for ``tartan.analytics.cluster``, such as ``threshold`` and ``random_state``.

        Returns
        -------
        ndarray of int64, shape (n,)
            Cluster of each item, in the order of ``keys``; -1 for an item in none.

        Raises
        ------
        ConfigError
            If the method is unknown, there are fewer items than clusters, or pairs are missing where all are needed.
        """
        from tartan.analytics import cluster

        ways = {"distance": distance, "transform": transform, "output": output, "failed": failed}
        return cluster(self, n_clusters, method, **ways, **options).labels

    def embed(self, method: str = "damds", n_components: int = 3, *, keep: bool = False, **options: Any) -> Embedding:
        """Place the items so that distances of the map match the scores of a run.

        Parameters
        ----------
        method : {"damds", "smacof", "lmmds"}
            Deterministic annealing; plain SMACOF from the classical solution; Levenberg and Marquardt.
        n_components : int
            Dimension of the map.
        keep : bool
            Keep the map in the run folder, in place of the one that is there: ``map`` returns it then, and
            ``tartan.add`` places new items on it. Where that fails (the folder is locked, the disk full) the map is
            returned all the same, with a RuntimeWarning.
        **options
            As for :func:`tartan.analytics.embed`: ``distance`` (default of similarities: a formula that spreads),
            ``output``, ``random_state`` and the other parameters of the estimator.

        Raises
        ------
        ConfigError
            If the scores are not dissimilarities, or an option is wrong; with ``keep`` also if a conversion is a
            function rather than a formula.
        """
        import warnings

        from tartan.result.kept_map import embed_run

        found, _, problem = embed_run(self.folder, method, n_components, keep=keep, **options)
        if problem is not None:
            warnings.warn(problem, RuntimeWarning, stacklevel=2)
        return found

    @property
    def map(self) -> StoredMap | None:
        """The map that the run keeps; None where there is none. Read anew each time.

        Raises
        ------
        StoreError
            If the file is damaged, of another run, or of a newer Tartan.
        """
        from tartan.store.maps import map_of

        return map_of(self.folder)

    def extend_map(self, monitor: Monitor | None = None) -> StoredMap:
        """Place the items that were added since the map was made; all others stay exactly where they are.

        ``tartan.add`` does this by itself. Each new item is placed by its dissimilarities to the items that the map was
        made from, on its own; ``stress`` of the result says how well it fits there.

        Parameters
        ----------
        monitor : Monitor, optional
            Progress and cancel.

        Returns
        -------
        StoredMap
            With a row for each item. Items whose pairs all failed are at NaN.

        Raises
        ------
        ConfigError
            If the run keeps no map or is not finished.
        StoreError
            If the folder is locked or cannot be written.
        """
        from tartan.analytics.maps import extend_map

        return extend_map(self.folder, monitor)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return ``matrix()``, so that ``np.asarray(run)`` is the first output.

        Raises
        ------
        ConfigError
            If the run keeps less than the matrix.
        ResourceError
            If the matrix does not fit into memory.
        """
        if copy is False:
            raise ValueError("the matrix of a run is read from its files: it cannot be had without a copy")
        found = Conversions(self.folder).matrix(None)
        return found if dtype is None else found.astype(dtype, copy=False)

    def to_pandas(self, output: str | None = None, *, pairs: bool | None = None) -> pandas.DataFrame:
        """Return the matrix or the pairs as a data frame of pandas.

        Parameters
        ----------
        output : str, optional
            Default: the first; of pairs all, a column for each.
        pairs : bool, optional
            A row for each pair (i, j, key_i, key_j, score) instead of the matrix with keys as its rows and columns.
            Default: pairs where the run keeps less than the matrix.
        """
        return Conversions(self.folder).to_pandas(output, pairs=pairs)

    def to_xarray(self, output: str | None = None) -> xarray.DataArray:
        """Return the matrix as an array of xarray, with dimensions ``i`` and ``j`` whose coordinates are the keys.

        Parameters
        ----------
        output : str, optional
            Default: the first.
        """
        return Conversions(self.folder).to_xarray(output)

    def to_sparse(self, output: str | None = None) -> scipy.sparse.csr_array:
        """Return the scores that are known as a sparse matrix of SciPy in CSR form.

        Parameters
        ----------
        output : str, optional
            Default: the first.

        Returns
        -------
        csr_array, shape as ``shape``
            Scores of 0 are stored; what is not stored is not known, and not 0. Where the application is symmetric
            (i, j) and (j, i) are both there, except in runs of the best of each item: row i then has those of i.
        """
        return Conversions(self.folder).to_sparse(output)

    def to_networkx(self, output: str | None = None) -> networkx.Graph:
        """Return the pairs that are known as a graph of networkx.

        Parameters
        ----------
        output : str, optional
            Which scores become ``weight`` of the edges; default: the first.

        Returns
        -------
        networkx.Graph or networkx.DiGraph
            Nodes are the keys, in the order of the items, failed ones included; of two sets (A x B) they are
            ``("A", key)`` and ``("B", key)``. Directed where (i, j) and (j, i) are two scores.
        """
        return Conversions(self.folder).to_networkx(output)

    def to_anndata(self) -> anndata.AnnData:
        """Return a run as an AnnData object: items are observations, scores are in ``obsp`` by their outputs.

        Returns
        -------
        anndata.AnnData
            ``obs["failed"]`` says which items failed, ``obsm["X_tartan"]`` is the map that the run keeps, if it keeps
            one. Runs that keep less than the matrix have sparse scores. Of two sets (A x B) one is the observations,
            the other the variables, and ``layers`` has the scores.
        """
        return Conversions(self.folder).to_anndata()

    def __repr__(self) -> str:
        facts = describe_run(self.folder)
        return f"<Run {self.path.name}: {facts['application']}, {facts['items']} items, {facts['pairs']} pairs>"

    def _repr_png_(self) -> bytes | None:
        return matrix_png(self)

    def _repr_html_(self) -> str:
        return run_html(self.folder, self._repr_png_())
