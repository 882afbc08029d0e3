"""A run and what its matrix holds: what ``tartan.open`` and ``tartan.allpairs`` return.

``tartan.store.run.Run`` reads the results; here stand the methods that hand them to the analytics.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.errors import ConfigError
from tartan.store.run import Run as StoredRun

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tartan.analytics.maps.embed import Embedding
    from tartan.analytics.matrix import Dissimilarities
    from tartan.analytics.monitor import Monitor
    from tartan.analytics.neighbours import Outliers
    from tartan.analytics.trees.spanning import SpanningTree
    from tartan.analytics.trees.tree import Tree
    from tartan.run.sorted_pairs import PairOrder
    from tartan.store.maps import StoredMap

__all__ = ["Run"]


class Run(StoredRun):
    """A run and what its matrix holds; see ``tartan.store.run.Run`` for the results themselves."""

    def dissimilarities(self, output: str | None = None, **options: Any) -> Dissimilarities:
        """Return an output in the form that the analytics take.

        Parameters
        ----------
        output : str, optional
            Default: the first.
        **options
            As for ``tartan.analytics.as_dissimilarities``: ``similarity``, ``transform``, ..

        Raises
        ------
        ConfigError
            If the run is not symmetric, keeps no matrix, or has similarities and it is not said how they become
            distances.
        """
        from tartan.analytics.matrix import as_dissimilarities

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
            As for ``tartan.analytics.as_dissimilarities``, such as ``similarity``.

        Raises
        ------
        ConfigError
            If the method is unknown, or a pair is missing.
        """
        from tartan.analytics.trees.hierarchy import build_tree

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
            Cluster of each item, numbered from 0 in the order of their first items.
        """
        from tartan.analytics import clusters_at

        return clusters_at(self, threshold, method, output=output, **options)

    def cluster(
        self,
        n_clusters: int,
        method: str = "pwc",
        output: str | None = None,
        *,
        similarity: Any = None,
        transform: Any = None,
        **options: Any,
    ) -> np.ndarray:
        """Cluster the items of a run by their distances.

        Parameters
        ----------
        n_clusters : int
        method : {"pwc", "single", "complete", "average", "weighted"}
            Pairwise clustering by deterministic annealing (``tartan.analytics.DAPWC``), or a linkage.
        output : str, optional
            Which output holds the distances.
        similarity, transform
            As for ``tartan.analytics.as_dissimilarities``.
        **options
            Parameters of DAPWC, such as ``random_state``.

        Returns
        -------
        ndarray of int64, shape (n,)
            Cluster of each item, in the order of ``keys``.

        Raises
        ------
        ConfigError
            If the method is unknown, there are fewer items than clusters, or pairs are missing where all are needed.
        """
        from tartan.analytics.clusters.choose import clustered

        matrix = self.dissimilarities(output, similarity=similarity, transform=transform)
        return clustered(matrix, n_clusters, method, **options)

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
            Only so many pairs, the first ones; failed pairs are left out then.
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
        from tartan.run.sorted_pairs import sorted_pairs

        return sorted_pairs(self.folder, self._pair_order(ascending, limit, output, memory, tmp))

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
        from tartan.analytics.trees.spanning import spanning_tree

        if self.manifest.workload["kind"] == "rectangle":
            raise ConfigError(f"{self.path} compares two sets of items; a tree needs the pairs within one")
        with self.pairs_sorted(output=output, memory=memory, tmp=tmp) as pairs:
            return spanning_tree(pairs, self.n_items)

    def export(
        self,
        path: str | Path,
        format: str | None = None,  # noqa: A002
        *,
        sort: bool = False,
        count: int | None = None,
        ascending: bool | None = None,
        memory: str | int | None = None,
        tmp: str | Path | Sequence[str | Path] | None = None,
        **options: Any,
    ) -> Path:
        """Write the result to a file; see ``tartan.store.export.export``, and for sorted pairs ``pairs_sorted``.

        Parameters
        ----------
        sort : bool
            Parquet only: the pairs in the order of their scores.
        count : int, optional
            Parquet only: the so many best pairs of all, exactly, in the order of their scores.
        ascending, memory, tmp
            As in ``pairs_sorted``; refused where the pairs are not sorted.
        """
        if not sort and count is None:
            for name, value in (("ascending", ascending), ("memory", memory), ("tmp", tmp)):
                if value is not None:
                    raise ConfigError(f"{name} is for pairs in the order of their scores: ask for these (--sorted)")
            return super().export(path, format, **options)
        from tartan.run.sorted_pairs import write_sorted_pairs
        from tartan.store.export import format_of

        name = format_of(Path(path), format)
        rest = {"overwrite", "output"}
        if name != "parquet" or set(options) - rest:
            wrong = f"format {name}" if name != "parquet" else ", ".join(sorted(set(options) - rest))
            raise ConfigError(f"sorted pairs are written as Parquet, without more options; {wrong} does not apply")
        order = self._pair_order(ascending, count, options.get("output"), memory, tmp)
        write_sorted_pairs(self.folder, Path(path), order, overwrite=bool(options.get("overwrite")))
        return Path(path)

    def _pair_order(
        self,
        ascending: bool | None,
        limit: int | None,
        output: str | None,
        memory: str | int | None,
        tmp: str | Path | Sequence[str | Path] | None,
    ) -> PairOrder:
        from tartan.options import parse_bytes
        from tartan.run.sorted_pairs import PairOrder
        from tartan.sort.space import rss_bytes
        from tartan.sort.work import check_folders

        memory_bytes = rss_bytes() + 10**9 if memory is None else parse_bytes(memory, option="memory")
        folders = [tmp] if isinstance(tmp, str | Path) else list(tmp or ())
        checked = tuple(check_folders([Path(folder) for folder in folders])) if folders else ()
        up = not self.larger_is_nearer if ascending is None else ascending
        return PairOrder(output, up, limit, memory_bytes, checked)

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
            ``tartan.add`` places new items on it.
        **options
            As for :func:`tartan.analytics.embed`: ``similarity="1-s"`` where the scores are similarities, ``output``,
            ``random_state`` and the other parameters of the estimator.

        Raises
        ------
        ConfigError
            If the scores are no dissimilarities, or an option is wrong; with ``keep`` also if a conversion is a
            function rather than a formula.
        StoreError
            With ``keep``, if the folder is locked or cannot be written.
        """
        from tartan.analytics.maps.embed import embed
        from tartan.analytics.maps.run_map import keep_map, require_keepable

        if keep:
            require_keepable(options)
        found = embed(self, method, n_components, **options)
        if keep:
            keep_map(self, found)
        return found

    @property
    def map(self) -> StoredMap | None:
        """The map that the run keeps; None where there is none. Read anew each time.

        Raises
        ------
        StoreError
            If the file is damaged, of another run, or of a newer Tartan.
        """
        from tartan.analytics.maps.run_map import map_of

        return map_of(self)

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
        from tartan.analytics.maps.run_map import extend_map

        return extend_map(self, monitor)
