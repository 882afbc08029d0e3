"""Clusters of any input by one call: what ``tartan cluster`` and ``Run.cluster`` do.

What is not said is found: how scores become distances and where alike items end from what the application declares, the
number of clusters, where it declares no end, by a criterion (number.py).
"""

from __future__ import annotations

from typing import Any

from tartan.analytics.clusters import density, graph
from tartan.analytics.clusters.choose import METHODS, clustered
from tartan.analytics.clusters.number import number_of_clusters
from tartan.analytics.clusters.outcome import Clustering, NumberCurve
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.matrix.kept import kept_pairs
from tartan.analytics.matrix.open import distance_of, folder_of
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.analytics.trees.hierarchy import LINKAGES, clusters_at
from tartan.errors import ConfigError
from tartan.store.folder import RunFolder


def cluster(
    D: Any,
    n_clusters: int | None = None,
    method: str | None = None,
    *,
    threshold: float | None = None,
    similarity: Any = None,
    transform: Any = None,
    missing: Any = None,
    output: str | None = None,
    min_size: int = 5,
    random_state: int = 0,
    monitor: Monitor | None = None,
    **options: Any,
) -> Clustering:
    """Cluster the items of a matrix or a run.

    With neither a number nor a threshold the application's cut decides, where it declares one: a linkage is cut at that
    score. Else the number is chosen whose mean silhouette is highest, if random points in one group do not reach as
    high (``Clustering.curve``). A run that keeps pairs instead of the matrix is clustered by these.

    Parameters
    ----------
    D : Run, or anything that :func:`as_dissimilarities` takes
    n_clusters : int, optional
    method : str, optional
        "pwc" (pairwise clustering by deterministic annealing, :class:`DAPWC`; the default with a number), a linkage
        ("single", "complete", "average", "weighted"; "single" is the default with a threshold) or "hdbscan", which
        finds the number by itself. Of kept pairs: "components" (default), "single", "hdbscan" or "leiden".
    threshold : float, optional
        Clusters of a linkage up to this distance; of kept pairs, those up to it.
    similarity, transform, missing, output : optional
        As for :func:`as_dissimilarities`. A conversion of your own sets the application's cut aside.
    min_size : int
        Least size of the clusters of "hdbscan".
    random_state : int
    monitor : Monitor, optional
    **options
        Parameters of :class:`DAPWC`.

    Raises
    ------
    ConfigError
        If the method is unknown, options contradict each other, there are fewer items than clusters, or pairs are
        missing where all are needed.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2, 9.0, 9.1, 9.2])
    >>> found = cluster(np.abs(x[:, None] - x))
    >>> found.n_clusters, found.labels.tolist()
    (3, [0, 0, 0, 1, 1, 1, 2, 2, 2])
    """
    _require_meaning(n_clusters, method, threshold, options)
    watch, folder = as_monitor(monitor), folder_of(D)
    ways = {"similarity": similarity, "transform": transform, "output": output}
    own = similarity is not None or transform is not None
    cut = {} if folder is None or own else folder.manifest.meaning(output)
    if folder is not None and folder.manifest.reduce is not None:
        return _of_pairs(folder, n_clusters, method, threshold, ways, cut, (min_size, random_state), watch)
    # Items that are to be left out, such as failed ones, are left out here, and get the label -1 below.
    matrix = as_dissimilarities(D if folder is None else folder, missing=missing, **ways)
    if method in ("components", "leiden"):
        raise ConfigError(f"{method} is for runs that keep pairs (--top-k, --threshold); {matrix.label} is a matrix")
    if method == "hdbscan":
        return _by_density(matrix, min_size, watch)
    if threshold is not None:
        return _at(matrix, threshold, method or "single", "linked up to the distance that was asked for", watch)
    if n_clusters is None and method != "pwc" and cut.get("cut") is not None:
        assert folder is not None
        limit = distance_of(folder, cut["cut"], output)
        why = f"the cut of {folder.manifest.application['name']} at the score {cut['cut']:.6g}: {cut['cut_why']}"
        return _at(matrix, limit, method or cut["linkage"], why, watch)
    curve = None
    if n_clusters is None:
        matrix.check(monitor=watch).require_complete(matrix, "the number of clusters")
        curve = number_of_clusters(
            matrix, method if method in LINKAGES else "average", seed=random_state, monitor=watch
        )
        n_clusters = curve.chosen
    return _into(matrix, n_clusters, method or "pwc", curve, random_state, watch, options)


def _require_meaning(n_clusters: Any, method: str | None, threshold: Any, options: dict[str, Any]) -> None:
    """Refuse what contradicts itself."""
    if method is not None and method not in (*METHODS, "hdbscan", *graph.METHODS):
        known = dict.fromkeys((*METHODS, "hdbscan", *graph.METHODS))
        raise ConfigError(f"method: {method!r} is unknown; choose from {', '.join(known)}")
    if n_clusters is not None and threshold is not None:
        raise ConfigError("give a number of clusters or a threshold, not both")
    if threshold is not None and method in ("pwc", "hdbscan"):
        raise ConfigError(f"a threshold is for a linkage or for kept pairs; {method} takes none")
    if n_clusters is not None and method == "hdbscan":
        raise ConfigError("hdbscan finds the number of clusters by itself; leave out the number, or set min_size")
    if options and method not in (None, "pwc"):
        raise ConfigError(f"{method} has no option {', '.join(options)}")


def _at(matrix: Dissimilarities, threshold: float, method: str, why: str, monitor: Monitor) -> Clustering:
    labels = clusters_at(matrix, threshold, method, monitor=monitor)
    return Clustering(labels, method, why, method, threshold=float(threshold), conversion=matrix.conversion)


def _by_density(matrix: Dissimilarities, min_size: int, monitor: Monitor) -> Clustering:
    size = density.require_min_size(min_size, matrix.n)
    labels = density.of_matrix(matrix, size, monitor)
    noise = int((labels < 0).sum())
    notes = (f"{noise:,} items are noise, in no cluster",) if noise else ()
    why = f"groups of at least {size} that are dense for long"
    return Clustering(labels, "hdbscan", why, "hdbscan", notes, conversion=matrix.conversion)


def _into(
    matrix: Dissimilarities,
    n_clusters: int,
    method: str,
    curve: NumberCurve | None,
    seed: int,
    monitor: Monitor,
    options: dict[str, Any],
) -> Clustering:
    why = "as many as were asked for" if curve is None else curve.reason()
    if method != "pwc" or (curve is not None and n_clusters == 1):
        labels = clustered(matrix, n_clusters, "single" if n_clusters == 1 else method, monitor=monitor)
        return Clustering(labels, method, why, method, curve=curve, conversion=matrix.conversion)
    from tartan.analytics.clusters.dapwc.dapwc import DAPWC

    model = DAPWC(n_clusters, **{"random_state": seed, **options}).fit(matrix, monitor=monitor)
    notes = (model.note_,) if model.note_ else ()
    return Clustering(model.labels_, method, why, model.method_, notes, curve=curve, conversion=matrix.conversion)


def _of_pairs(
    folder: RunFolder,
    n_clusters: int | None,
    method: str | None,
    threshold: float | None,
    ways: dict[str, Any],
    cut: dict[str, Any],
    how: tuple[int, int],
    monitor: Monitor,
) -> Clustering:
    # As many parameters as there are ways to say what is wanted.
    pairs, why = kept_pairs(folder, **ways), ""
    if threshold is None and n_clusters is None and cut.get("cut") is not None:
        near = pairs.scores >= cut["cut"] if folder.manifest.larger_is_nearer else pairs.scores <= cut["cut"]
        threshold = float(pairs.distances[near].max(initial=0.0))
        why = f", the cut of {folder.manifest.application['name']} ({cut['cut_why']})"
    return graph.clustered_pairs(
        pairs, n_clusters, method or "components", threshold=threshold, why=why, min_size=how[0], seed=how[1],
        monitor=monitor,
    )  # fmt: skip
