"""Clusters of any input by one call: what ``tartan cluster`` and ``Run.cluster`` do.

What is not said is found: how scores become distances and where alike items end from what the application declares, the
number of clusters, where it declares no end, by a criterion (number.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tartan.analytics.clusters import density, graph
from tartan.analytics.clusters.choose import METHODS, clustered
from tartan.analytics.clusters.dapwc.dapwc import DAPWC
from tartan.analytics.clusters.dapwc.prepared import Prepared
from tartan.analytics.clusters.number import number_of_clusters
from tartan.analytics.clusters.outcome import Clustering, NumberCurve
from tartan.analytics.clusters.pairwise import Grouped, pairwise_clusters
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.matrix.bound import distance_at
from tartan.analytics.matrix.kept import KeptPairs, kept_pairs
from tartan.analytics.matrix.open import folder_of, for_analysis
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.analytics.trees.hierarchy import clusters_at
from tartan.base.checks import FINITE, number
from tartan.comm.communicator import Communicator
from tartan.errors import ConfigError
from tartan.store.folder import RunFolder


def cluster(
    D: Any,
    n_clusters: int | None = None,
    method: str | None = None,
    *,
    threshold: float | None = None,
    cut: float | None = None,
    similarity: Any = None,
    transform: Any = None,
    missing: Any = None,
    output: str | None = None,
    drop_failed: bool = False,
    min_size: int = 5,
    random_state: int = 0,
    monitor: Monitor | None = None,
    communicator: Communicator | None = None,
    **options: Any,
) -> Clustering:
    """Cluster the items of a matrix or a run.

    With neither a number nor a bound the application's cut decides, where it declares one: a linkage is cut at that
    score. Else the number is chosen whose mean silhouette is highest, corrected for chance, if random points in one
    group do not reach as high (``Clustering.curve``). A run that keeps pairs instead of the matrix is clustered by
    these.

    Parameters
    ----------
    D : Run, or anything that :func:`as_dissimilarities` takes
    n_clusters : int, optional
    method : str, optional
        "pwc" (pairwise clustering by deterministic annealing, :class:`DAPWC`; the default with a number), a linkage
        ("single", "complete", "average", "weighted"; "single" is the default with a bound) or "hdbscan", which
        finds the number by itself. Of kept pairs: "components" (default), "single", "hdbscan" or "leiden".
    threshold : float, optional
        Clusters of a linkage up to this distance; of kept pairs, those up to it.
    cut : float, optional
        The same as a score, in the unit of the scores of D: similarities of this or more, distances of this or less.
        Both bounds are rounded as the scores are, and what is equal to them is within.
    similarity, transform, missing, output : optional
        As for :func:`as_dissimilarities`. A conversion of your own sets the application's cut aside. Similarities of a
        run for which none is declared are measured by how far they are below the best one ("max-s"), which a note
        says; a threshold needs one.
    drop_failed : bool
        Leave out the items of a run that failed; they have the label -1. Where a run keeps pairs they always are.
    min_size : int
        Least size of the clusters of "hdbscan".
    random_state : int
    monitor : Monitor, optional
    communicator : Communicator, optional
        Ranks that share pairwise clustering into a given number of clusters; all make the same call.
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
    wanted = _ClustersWanted(n_clusters, method, threshold, cut, min_size, random_state, options, communicator)
    wanted.refuse_contradictions()
    watch, folder = as_monitor(monitor), folder_of(D)
    ways = {"similarity": similarity, "transform": transform, "output": output}
    declared = folder is not None and similarity is None and transform is None
    end = _DeclaredCut.of(folder, output) if declared and folder is not None else None
    if folder is not None and folder.manifest.reduce is not None:
        if communicator is not None:
            raise ConfigError("ranks share the work on a matrix, and the run keeps pairs only; cluster without ranks")
        return _of_pairs(kept_pairs(folder, **ways), wanted, end, watch)
    given, opened = D if folder is None else folder, for_analysis if threshold is None else as_dissimilarities
    matrix = opened(given, missing=missing, drop_failed=drop_failed, **ways)
    found = _in_places_of_the_run(_of_matrix(matrix, wanted, end, watch), matrix)
    return found if matrix.note is None else replace(found, notes=(*found.notes, matrix.note))


def _in_places_of_the_run(found: Clustering, matrix: Dissimilarities) -> Clustering:
    if matrix.dropped is None:
        return found
    n = len(matrix.dropped)
    note = "1 item failed and is in no cluster" if n == 1 else f"{n:,} items failed and are in no cluster"
    return replace(found, labels=matrix.over_all(found.labels, -1), notes=(*found.notes, note))


@dataclass(frozen=True)
class _ClustersWanted:
    """What a caller asks for."""

    n_clusters: int | None
    method: str | None
    threshold: float | None
    cut: float | None
    min_size: int
    seed: int
    options: dict[str, Any]  # of DAPWC
    communicator: Communicator | None

    @property
    def open(self) -> bool:
        """Whether nothing says how many clusters there shall be."""
        return self.n_clusters is None and not self.bounded

    @property
    def bounded(self) -> bool:
        """Whether a distance or a score says how far clusters reach."""
        return self.threshold is not None or self.cut is not None

    def refuse_contradictions(self) -> None:
        if self.communicator is not None and (self.n_clusters is None or self.method not in (None, "pwc")):
            raise ConfigError("ranks share pairwise clustering (pwc) into a given number of clusters, nothing else")
        known = dict.fromkeys((*METHODS, "hdbscan", *graph.METHODS))
        if self.method is not None and self.method not in known:
            raise ConfigError(f"method: {self.method!r} is unknown; choose from {', '.join(known)}")
        if (self.n_clusters is not None) + (self.threshold is not None) + (self.cut is not None) > 1:
            raise ConfigError("give one of a number of clusters, a threshold (a distance) and a cut (a score)")
        if self.bounded and self.method in ("pwc", "hdbscan"):
            what = "threshold" if self.cut is None else "cut"
            raise ConfigError(f"a {what} is for a linkage or for kept pairs; {self.method} takes none")
        if self.cut is not None:
            number("cut", self.cut, FINITE, option="--cut")
        if self.n_clusters is not None and self.method == "hdbscan":
            raise ConfigError(
                "hdbscan finds the number of clusters by itself; leave out the number, or say `min_size=`"
            )
        if self.options and self.method not in (None, "pwc"):
            raise ConfigError(f"{self.method} has no option {', '.join(self.options)}")


@dataclass(frozen=True)
class _DeclaredCut:
    """The cut that the application of a run declares."""

    score: float
    linkage: str
    why: str

    @classmethod
    def of(cls, folder: RunFolder, output: str | None) -> _DeclaredCut | None:
        said = folder.manifest.meaning(output)
        if said.get("cut") is None:
            return None
        name = folder.manifest.application["name"]
        why = f"the cut of {name} at the score {said['cut']:.6g}: {said['cut_why']}"
        return cls(float(said["cut"]), said["linkage"], why)


def _of_pairs(pairs: KeptPairs, wanted: _ClustersWanted, end: _DeclaredCut | None, monitor: Monitor) -> Clustering:
    why, cut = "", wanted.cut
    if cut is not None:
        why = f" of {cut:.6g} and {'above' if pairs.falling else 'below'}"
    elif wanted.open and end is not None:
        why, cut = f" beyond {end.why}", end.score
    found = graph.clustered_pairs(
        pairs if cut is None else pairs.as_near_as(cut),
        wanted.n_clusters,
        wanted.method or "components",
        threshold=wanted.threshold,
        why=why,
        min_size=wanted.min_size,
        seed=wanted.seed,
        monitor=monitor,
    )
    return replace(found, cut=cut)


def _of_matrix(
    matrix: Dissimilarities, wanted: _ClustersWanted, end: _DeclaredCut | None, monitor: Monitor
) -> Clustering:
    method = wanted.method
    if method in ("components", "leiden"):
        raise ConfigError(
            f"{method} is for runs that keep pairs (`tartan run --top-k` or `--threshold`); {matrix.label} is a matrix"
        )
    if method == "hdbscan":
        return _by_density(matrix, wanted.min_size, monitor)
    if wanted.threshold is not None:
        why = "linked up to the distance that was asked for"
        return _at(matrix, wanted.threshold, method or "single", why, monitor)
    if wanted.cut is not None:
        return _at_score(matrix, wanted.cut, method or "single", "linked up to the score that was asked for", monitor)
    if wanted.n_clusters is not None:
        return _into(matrix, wanted.n_clusters, wanted, None, monitor)
    if end is not None and method != "pwc":
        return _at_score(matrix, end.score, method or end.linkage, end.why, monitor)
    matrix.check(monitor=monitor).require_complete(matrix, "the number of clusters")
    linked = "average" if method in (None, "pwc") else method
    curve = number_of_clusters(matrix, str(linked), seed=wanted.seed, monitor=monitor)
    return _into(matrix, curve.chosen, wanted, curve, monitor)


def _at(matrix: Dissimilarities, threshold: float, method: str, why: str, monitor: Monitor) -> Clustering:
    labels = clusters_at(matrix, threshold, method, monitor=monitor)
    return Clustering(labels, method, why, method, threshold=float(threshold), conversion=matrix.conversion)


def _at_score(matrix: Dissimilarities, cut: float, method: str, why: str, monitor: Monitor) -> Clustering:
    """Cut a linkage at the distance that a score stands for; it is below 0 for one beyond all, which joins nothing."""
    distance = distance_at(matrix, cut)
    if distance >= 0:
        return replace(_at(matrix, distance, method, why, monitor), cut=cut)
    alone = np.arange(matrix.n)
    return Clustering(alone, method, why, method, threshold=distance, cut=cut, conversion=matrix.conversion)


def _by_density(matrix: Dissimilarities, min_size: int, monitor: Monitor) -> Clustering:
    size = density.require_min_size(min_size, matrix.n)
    labels = density.of_matrix(matrix, size, monitor)
    noise = int((labels < 0).sum())
    notes = (f"{noise:,} items are noise, in no cluster",) if noise else ()
    why = f"groups of at least {size} that are dense for long"
    return Clustering(labels, "hdbscan", why, "hdbscan", notes, conversion=matrix.conversion)


def _into(
    matrix: Dissimilarities, n_clusters: int, wanted: _ClustersWanted, curve: NumberCurve | None, monitor: Monitor
) -> Clustering:
    method = wanted.method or "pwc"
    why = "as many as were asked for" if curve is None else curve.reason()
    found = _grouped(matrix, n_clusters, method, wanted, monitor)
    n_found = len(np.unique(found.labels))
    if n_found < n_clusters:
        why = f"{n_clusters:,} were asked for, and only {n_found:,} items differ"
        if wanted.options or matrix.has_missing:
            why = f"{n_clusters:,} were asked for, and annealing came to {n_found:,}"
    notes = found.notes
    if curve is not None and curve.n_items < matrix.n:
        notes += (
            f"the number was found from {curve.n_items:,} of the {matrix.n:,} items: groups with few of these are "
            "missed, and a number or a cut of your own looks at all",
        )
    return Clustering(found.labels, method, why, found.found_by, notes, curve=curve, conversion=matrix.conversion)


def _grouped(
    matrix: Dissimilarities, n_clusters: int, method: str, wanted: _ClustersWanted, monitor: Monitor
) -> Grouped:
    """Return the labels of this many clusters."""
    if n_clusters == 1 and wanted.n_clusters is None:
        return Grouped(np.zeros(matrix.n, np.int64), method, ())
    if method != "pwc":
        return Grouped(clustered(matrix, n_clusters, method, monitor=monitor), method, ())
    check = matrix.check(monitor=monitor)
    plain = not wanted.options and wanted.communicator is None and 1 < n_clusters <= matrix.n
    if plain and not check.n_missing and check.largest > 0:
        return pairwise_clusters(Prepared(matrix, monitor), n_clusters, wanted.seed, monitor)
    model = DAPWC(n_clusters, **{"random_state": wanted.seed, **wanted.options}).fit(
        matrix, monitor=monitor, communicator=wanted.communicator
    )
    return Grouped(model.labels_, model.method_, (model.note_,) if model.note_ else ())
