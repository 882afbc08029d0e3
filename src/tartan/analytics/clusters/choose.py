"""One function for all ways of clustering a matrix, and scores of their labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.clusters.cut import cut
from tartan.analytics.matrix import for_linkage, in_places
from tartan.analytics.methods import DIVIDING_METHODS, LINKAGES
from tartan.analytics.monitor import Monitor
from tartan.analytics.trees.hierarchy import linkage
from tartan.base.checks import whole
from tartan.errors import ConfigError


def label_clusters(
    D: Any,
    n_clusters: int,
    method: str = "pwc",
    *,
    memory: str | int | None = None,
    monitor: Monitor | None = None,
    **options: Any,
) -> NDArray[np.int64]:
    """Return the labels (n,) of ``n_clusters`` clusters; -1 for what failed in a run.

    Parameters
    ----------
    D : anything that :func:`as_dissimilarities` takes
    n_clusters : int
    method : {"pwc", "single", "complete", "average", "weighted", "ward"}
        Deterministic annealing (:class:`tartan.analytics.DAPWC`), or a linkage that is cut.
    memory : str or int, optional
        Of a linkage, as for :func:`tartan.analytics.linkage`.
    monitor : Monitor, optional
    **options
        Parameters of DAPWC.

    Raises
    ------
    ConfigError
        If the method is unknown or takes no such options, or there are fewer items than clusters.
    """
    matrix = for_linkage(D, complete=method not in ("pwc", "single"))
    if method == "pwc":
        from tartan.analytics.clusters.dapwc.dapwc import DAPWC

        return in_places(D, matrix, DAPWC(n_clusters, **options).fit(matrix, monitor=monitor).labels_, -1)
    if method not in LINKAGES:
        raise ConfigError(f"method: {method!r} is unknown; choose from {', '.join(DIVIDING_METHODS)}")
    if options:
        raise ConfigError(f"{method} linkage has no option {', '.join(options)}")
    if whole("n_clusters", n_clusters, 1) > matrix.n:
        raise ConfigError(f"{matrix.label}: {n_clusters} clusters of {matrix.n} items; choose 1 to {matrix.n}")
    steps = linkage(matrix, method, memory=memory, monitor=monitor)
    return in_places(D, matrix, cut(steps, matrix.n, n_clusters), -1)


def scores_of(labels: ArrayLike, truth: ArrayLike) -> dict[str, float]:
    """Compare labels with known ones, by scikit-learn: 1 is perfect; 0 is chance (ARI, AMI) or no agreement.

    Returns
    -------
    dict of str to float
        adjusted_rand, adjusted_mutual_info, homogeneity, completeness, v_measure, fowlkes_mallows.
    """
    from sklearn import metrics

    names = {"adjusted_rand": "adjusted_rand_score", "adjusted_mutual_info": "adjusted_mutual_info_score",
             "homogeneity": "homogeneity_score", "completeness": "completeness_score",
             "v_measure": "v_measure_score", "fowlkes_mallows": "fowlkes_mallows_score"}  # fmt: skip
    return {name: float(getattr(metrics, function)(truth, labels)) for name, function in names.items()}
