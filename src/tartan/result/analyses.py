"""What the analytics find in a run. They are imported when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tartan.store.folder import RunFolder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tartan.analytics import Dissimilarities, Embedding, Monitor, Outliers, Tree
    from tartan.store.maps import StoredMap


class Analyses:
    """Analyses of the run in ``folder``; ``tartan.Run`` inherits them."""

    folder: RunFolder

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
