"""Clusters of any input by one call: what ``tartan cluster`` and ``Run.cluster`` do.

What is not said is found: how scores become distances and where alike items end from what the application declares, the
number of clusters, where it declares no end, by a criterion (number.py).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.clusters import density
from tartan.analytics.clusters.apart import find_numbers_apart
from tartan.analytics.clusters.choose import label_clusters
from tartan.analytics.clusters.closely import Look, place_closely
from tartan.analytics.clusters.dapwc.dapwc import DAPWC
from tartan.analytics.clusters.dapwc.prepared import Prepared
from tartan.analytics.clusters.greedy import cover_matrix, cover_pairs, require_priority
from tartan.analytics.clusters.joins import BYTES_A_PAIR, join_alike, sum_groups
from tartan.analytics.clusters.number import SAMPLED_ITEMS, number_of_clusters
from tartan.analytics.clusters.outcome import Clustering, NumberCurve
from tartan.analytics.clusters.pairwise import Grouped, pairwise_clusters
from tartan.analytics.clusters.placing import place_alone
from tartan.analytics.labels import number_labels
from tartan.analytics.matrix import Dissimilarities, for_analysis, for_linkage
from tartan.analytics.matrix.bound import distance_at, reach
from tartan.analytics.matrix.edges import are_edges, read_edges
from tartan.analytics.matrix.kept import KeptPairs, read_kept_pairs
from tartan.analytics.matrix.open import folder_of, open_output
from tartan.analytics.methods import CLUSTER_METHODS, PAIR_METHODS
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.analytics.trees.hierarchy import clusters_at, linkage
from tartan.analytics.trees.joined_rows import note_on_ward
from tartan.base import machine
from tartan.base.checks import FINITE, number
from tartan.base.format import pluralize
from tartan.base.group_evidence import GroupEvidence
from tartan.base.signatures import require_options
from tartan.comm.communicator import Communicator
from tartan.errors import ConfigError, ItemError, TartanError
from tartan.store.folder import RunFolder

# By judgement: half of what is free leaves room for the matrix.
_SHARE_OF_MEMORY = 0.5
# By judgement: rows from all over a matrix; with 128 of them the share of near pairs is known to some per cent.
_SAMPLED_ROWS = 128
# By arithmetic.
_PERCENT = 100


def cluster(
    D: Any,
    n_clusters: int | None = None,
    method: str | None = None,
    *,
    threshold: float | None = None,
    cut: float | None = None,
    distance: Any = None,
    transform: Any = None,
    missing: Any = None,
    output: str | None = None,
    failed: str | None = None,
    min_size: int = 5,
    priority: ArrayLike | None = None,
    random_state: int = 0,
    memory: str | int | None = None,
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
        Or pairs that were kept elsewhere: a sparse matrix of distances, or a file of one or of a table of edges
        (``.npz``, Parquet, Arrow).
    n_clusters : int, optional
    method : str, optional
        "pwc" (pairwise clustering by deterministic annealing, :class:`DAPWC`; the default with a number), a linkage
        ("single", "complete", "average", "weighted", "ward"; with a bound the default is "single", with a cut of a run
        whose application declares one that of the application), "greedy" (every member is within the bound of its
        representative, and no representative within it of another), or "hdbscan", which finds the number by itself. Of
        kept pairs: "components" (default), "greedy", "single", "hdbscan" or "leiden".
    threshold : float, optional
        Clusters of a linkage (default: single) or of "greedy" up to this distance; of kept pairs, those up to it.
    cut : float, optional
        The same as a score, in the unit of the scores of D: similarities of this or more, distances of this or less.
        Both bounds are rounded as the scores are, and what is equal to them is within.
    distance, transform, missing, output : optional
        As for :func:`as_dissimilarities`. A conversion of your own sets the application's cut aside. Similarities of a
        run for which none is declared are measured by how far they are below the best one ("max-s"), which a note
        says; a threshold needs one.
    failed : {"drop", "error"}, optional
        Leave out the items of a run that failed, with the label -1 and a note that names them (default), or refuse such
        a run. Where all pairs are needed, items of failed pairs are left out too, as few as possible.
    min_size : int
        Least size of the clusters of "hdbscan".
    priority : array_like (n,), optional
        Of "greedy": items with larger numbers are representatives rather than others; equals by position, NaN last.
        Default: how many items are within the bound of each.
    random_state : int
    memory : str or int, optional
        Most memory of a linkage, as for :func:`linkage`.
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
    require_options("cluster", options, cluster, DAPWC)
    wanted = ClustersWanted(
        n_clusters, method, threshold, cut, min_size, random_state, options, communicator, memory, priority
    )
    ways = {"distance": distance, "transform": transform, "missing": missing, "output": output, "failed": failed}
    opened = OpenedInput.of(D, wanted, **ways)
    found = opened.clusters(monitor)
    return found if isinstance(D, Dissimilarities) else opened.in_places(found)


@dataclass(frozen=True)
class ClustersWanted:
    """What a caller asks for: the parameters of :func:`cluster`."""

    n_clusters: int | None = None
    method: str | None = None
    threshold: float | None = None
    cut: float | None = None
    min_size: int = 5
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)  # of DAPWC
    communicator: Communicator | None = None
    memory: str | int | None = None  # of a linkage
    priority: ArrayLike | None = None  # of greedy, of all items of the input

    @property
    def open(self) -> bool:
        """Whether nothing says how many clusters there shall be."""
        return self.n_clusters is None and not self.bounded

    @property
    def bounded(self) -> bool:
        """Whether a distance or a score says how far clusters reach."""
        return self.threshold is not None or self.cut is not None

    def needs_all_pairs(self, end: _DeclaredCut | None) -> bool:
        """Whether the method stops where a pair has no distance."""
        if self.method == "greedy":
            return False
        if self.open and (end is None or self.method == "pwc"):
            return self.method != "hdbscan"  # a number is looked for
        linked = self.linkage(end) if self.open or self.bounded else "pwc"
        return (self.method or linked) not in ("pwc", "single", "hdbscan")

    def linkage(self, end: _DeclaredCut | None) -> str:
        """Return the linkage that is cut: the application's where a score cuts it, single up to a distance."""
        return self.method or ("single" if end is None or self.threshold is not None else end.linkage)

    def refuse_contradictions(self) -> None:
        if self.communicator is not None and (self.n_clusters is None or self.method not in (None, "pwc")):
            raise ConfigError("ranks share pairwise clustering (pwc) into a given number of clusters, nothing else")
        if self.method is not None and self.method not in CLUSTER_METHODS:
            raise ConfigError(f"method: {self.method!r} is unknown; choose from {', '.join(CLUSTER_METHODS)}")
        if (self.n_clusters is not None) + (self.threshold is not None) + (self.cut is not None) > 1:
            raise ConfigError("give one of a number of clusters, a threshold (a distance) and a cut (a score)")
        if self.bounded and self.method in ("pwc", "hdbscan"):
            what = "threshold" if self.cut is None else "cut"
            raise ConfigError(f"a {what} is for a linkage or for kept pairs; {self.method} takes none")
        if self.n_clusters is not None and self.method == "greedy":
            raise ConfigError(
                "greedy makes as many clusters as the bound needs; give a threshold (a distance) or a cut"
            )
        if self.priority is not None and self.method != "greedy":
            raise ConfigError(f"priority is for the method greedy; {self.method or 'another'} takes none")
        if self.cut is not None:
            number("cut", self.cut, FINITE, option="--cut")
        if self.n_clusters is not None and self.method == "hdbscan":
            raise ConfigError(
                "hdbscan finds the number of clusters by itself; leave out the number, or say `min_size=`"
            )
        if self.options and (self.bounded or self.method not in (None, "pwc")):
            raise ConfigError(f"{self.method or 'single'} has no option {', '.join(self.options)}")

    def refuse_idle_options(self, end: _DeclaredCut | None, reduced: bool) -> None:
        """Refuse options of annealing where kept pairs or the cut of an application decide instead."""
        names = ", ".join(self.options)
        if names and reduced:
            raise ConfigError(
                f"{names}: an option of annealing, which needs all pairs, and this run keeps some; leave it out"
            )
        if names and self.open and self.method is None and end is not None:
            raise ConfigError(
                f"{names}: an option of annealing, but the application's cut decides here; add method='pwc'"
            )


@dataclass(frozen=True)
class OpenedInput:
    """An input, opened as what is wanted of it needs it: a matrix, or the pairs that a run keeps instead."""

    wanted: ClustersWanted
    end: _DeclaredCut | None
    matrix: Dissimilarities | None = None
    pairs: KeptPairs | None = None
    look: Look | None = None

    @classmethod
    def of(cls, D: Any, wanted: ClustersWanted, *, missing: Any = None, failed: str | None = None, **ways: Any) -> Self:
        """Open an input; parameters as of :func:`cluster`."""
        wanted.refuse_contradictions()
        if are_edges(D):
            return cls._of_edges(D, wanted, missing, ways)
        folder = folder_of(D)
        declared = folder is not None and ways.get("distance") is None and ways.get("transform") is None
        end = _DeclaredCut.of(folder, ways.get("output")) if declared and folder is not None else None
        reduced = folder is not None and folder.manifest.reduce is not None
        wanted.refuse_idle_options(end, reduced)
        if folder is not None and reduced:
            if wanted.communicator is not None:
                raise ConfigError(
                    "ranks share the work on a matrix, and the run keeps pairs only; cluster without ranks"
                )
            return cls(wanted, end, pairs=read_kept_pairs(folder, failed=failed, **ways))
        given, opened = D if folder is None else folder, for_analysis if wanted.threshold is None else for_linkage
        complete = wanted.needs_all_pairs(end)
        matrix = opened(given, missing=missing, failed=failed, complete=complete, **ways)
        return cls(wanted, end, matrix, look=getattr(D, "look_closely", None))

    @classmethod
    def _of_edges(cls, D: Any, wanted: ClustersWanted, missing: Any, ways: dict[str, Any]) -> Self:
        """Open pairs that were kept elsewhere."""
        if wanted.communicator is not None:
            raise ConfigError("ranks share the work on a matrix, and these are some pairs only; cluster without ranks")
        if missing is not None:
            raise ConfigError("kept pairs are those that are known; leave out `missing=`")
        wanted.refuse_idle_options(None, True)
        return cls(wanted, None, pairs=read_edges(D, **ways))

    @property
    def method(self) -> str:
        """What clusters a matrix: a linkage, "pwc", "greedy" or "hdbscan"."""
        wanted = self.wanted
        if wanted.method in ("greedy", "hdbscan"):
            return wanted.method
        linked = wanted.bounded or (wanted.open and self.end is not None and wanted.method != "pwc")
        return wanted.linkage(self.end) if linked else wanted.method or "pwc"

    def estimate_near_pairs(self) -> int:
        """Return about how many pairs are within the bound of greedy, from some rows of the matrix; a fifth more."""
        matrix, wanted = self.matrix, self.wanted
        cut = wanted.cut if self.end is None or wanted.bounded else self.end.score
        if matrix is None or (wanted.threshold is None and cut is None):
            return 0
        bound = float(wanted.threshold) if wanted.threshold is not None else distance_at(matrix, float(cut or 0))
        rows = np.unique(np.linspace(0, matrix.n - 1, min(matrix.n, _SAMPLED_ROWS)).astype(np.int64)).tolist()
        near = sum(int((matrix.values(slice(row, row + 1), slice(0, matrix.n)) <= bound).sum()) for row in rows)
        return int(1.2 * near / len(rows) * matrix.n / 2)

    @property
    def n_drawn(self) -> int:
        """Items of a matrix by which the number of clusters is sought; 0 where it is given or follows from a cut."""
        wanted = self.wanted
        cut = self.end is not None and wanted.method != "pwc"
        if self.matrix is None or not wanted.open or cut or wanted.method in ("greedy", "hdbscan"):
            return 0
        return min(self.matrix.n, SAMPLED_ITEMS)

    def clusters(self, monitor: Monitor | None = None) -> Clustering:
        """Cluster it; labels are of the items of the matrix, without what was left out."""
        watch = as_monitor(monitor)
        if self.matrix is None:
            assert self.pairs is not None
            found = _of_pairs(self.pairs, self.wanted, self.end, watch)
            return found if self.end is None else replace(found, notes=(*found.notes, *self.end.folder.manifest.notes))
        found = _of_matrix(self.matrix, self.wanted, self.end, self.look, watch)
        return replace(found, notes=(*found.notes, *filter(None, (self.matrix.left_out, self.matrix.note))))

    def in_places(self, found: Clustering) -> Clustering:
        """Return clusters with labels of all items of the input: -1 of those that were left out."""
        if self.matrix is None:
            return found
        chosen, distances = found.representatives, found.distances
        return replace(
            found,
            labels=self.matrix.over_all(found.labels, -1),
            representatives=None if chosen is None else self.matrix.kept[chosen],
            distances=None if distances is None else self.matrix.over_all(distances, np.nan),
        )


@dataclass(frozen=True)
class _DeclaredCut:
    """The cut that the application of a run declares."""

    score: float
    linkage: str
    why: str
    folder: RunFolder
    output: str
    groups: GroupEvidence | None = None

    @classmethod
    def of(cls, folder: RunFolder, output: str | None) -> _DeclaredCut | None:
        output = folder.manifest.analysed_by(output)
        said = folder.manifest.meaning(output)
        if said.get("cut") is None:
            return None
        name = folder.manifest.application["name"]
        why = f"the cut that {name} declares, a score of {said['cut']:.4g} ({said['cut_why']})"
        groups = None if said.get("groups") is None else GroupEvidence(**said["groups"])
        return cls(float(said["cut"]), said["linkage"], why, folder, output, groups)


def _of_pairs(pairs: KeptPairs, wanted: ClustersWanted, end: _DeclaredCut | None, monitor: Monitor) -> Clustering:
    why, cut = "", wanted.cut
    if cut is not None:
        why = f" of {cut:.6g} and {'above' if pairs.falling else 'below'}"
    elif wanted.open and end is not None:
        why, cut = f" beyond {end.why}", end.score
    chosen = pairs if cut is None else pairs.as_near_as(cut)
    if wanted.method == "greedy":
        _require_kept_score(pairs, cut)
        priority = require_priority(wanted.priority, pairs.n)
        return replace(cover_kept(chosen, wanted.threshold, why, priority, monitor), cut=cut)
    found = cluster_pairs(
        chosen,
        wanted.n_clusters,
        wanted.method or "components",
        threshold=wanted.threshold,
        why=why,
        min_size=wanted.min_size,
        seed=wanted.seed,
        monitor=monitor,
    )
    return replace(found, cut=cut)


def _require_kept_score(pairs: KeptPairs, cut: float | None) -> None:
    """Refuse a cut beyond which the run keeps no pairs."""
    limit = pairs.limit
    if cut is None or limit is None or (cut >= limit if pairs.falling else cut <= limit):
        return
    raise ConfigError(
        f"{pairs.label} keeps pairs {'down' if pairs.falling else 'up'} to the score {limit:.6g}, and "
        f"greedy with a cut of {cut:.6g} would not see the others; give a cut of {limit:.6g}, or run "
        "again with a wider --threshold"
    )


def _of_matrix(
    matrix: Dissimilarities, wanted: ClustersWanted, end: _DeclaredCut | None, look: Look | None, monitor: Monitor
) -> Clustering:
    method = wanted.method
    if method in ("components", "leiden"):
        raise ConfigError(
            f"{method} is for runs that keep pairs (`tartan run --top-k` or `--threshold`); {matrix.label} is a matrix"
        )
    if method == "hdbscan":
        return _by_density(matrix, wanted.min_size, monitor)
    if method == "greedy":
        return _greedily(matrix, wanted, end, monitor)
    if wanted.threshold is not None:
        why = f"joined up to the given distance of {wanted.threshold:.4g}"
        return _at(matrix, wanted.threshold, wanted.linkage(end), why, wanted, monitor)
    if wanted.cut is not None:
        why = f"joined up to the given score of {wanted.cut:.4g}"
        return _at_score(matrix, wanted.cut, wanted.linkage(end), why, wanted, monitor)
    if wanted.n_clusters is not None:
        return _into(matrix, wanted.n_clusters, wanted, None, monitor)
    if end is not None and method != "pwc":
        found = _at_score(matrix, end.score, wanted.linkage(end), end.why, wanted, monitor)
        return found if method is not None or end.groups is None else _join_further(matrix, found, end, look, monitor)
    matrix.check(monitor=monitor).require_complete(matrix, "the number of clusters")
    linked = "average" if method in (None, "pwc") else method
    curve = number_of_clusters(matrix, str(linked), seed=wanted.seed, monitor=monitor)
    steps = linkage(matrix, "single", monitor=monitor)
    apart = find_numbers_apart(matrix, steps, monitor, are_squares=curve.are_squares)
    curve = replace(curve, apart=tuple(apart))
    return _into(matrix, curve.chosen, wanted, curve, monitor)


def _at(
    matrix: Dissimilarities, threshold: float, method: str, why: str, wanted: ClustersWanted, monitor: Monitor
) -> Clustering:
    labels = clusters_at(matrix, threshold, method, memory=wanted.memory, monitor=monitor)
    notes = _notes_on(matrix, method)
    return Clustering(labels, method, why, method, notes, threshold=float(threshold), conversion=matrix.conversion)


def _notes_on(matrix: Dissimilarities, method: str) -> tuple[str, ...]:
    note = note_on_ward(matrix) if method == "ward" else None
    return () if note is None else (note,)


def _at_score(
    matrix: Dissimilarities, cut: float, method: str, why: str, wanted: ClustersWanted, monitor: Monitor
) -> Clustering:
    """Cut a linkage at the distance that a score stands for; it is below 0 for one beyond all, which joins nothing."""
    distance = distance_at(matrix, cut)
    if distance >= 0:
        return replace(_at(matrix, distance, method, why, wanted, monitor), cut=cut)
    alone = np.arange(matrix.n)
    note = f"the cut of {cut:g} is beyond the scores of all pairs, so that nothing is joined"
    if cut > 1 and distance_at(matrix, cut / _PERCENT) >= 0:
        note += f"; {cut:g} % is {cut / _PERCENT:g}"
    return Clustering(alone, method, why, method, (note,), threshold=distance, cut=cut, conversion=matrix.conversion)


def _join_further(
    matrix: Dissimilarities, found: Clustering, end: _DeclaredCut, look: Look | None, monitor: Monitor
) -> Clustering:
    """Join the clusters of the application's cut by what their means have in common, as the application weighs it."""
    rule = end.groups
    assert rule is not None
    k = found.n_clusters
    if k < 2:
        return found
    if BYTES_A_PAIR * k * k > machine.memory().available_bytes * _SHARE_OF_MEMORY:
        note = f"{k:,} clusters are too many for the memory to compare the mean of each with all others"
        return replace(found, notes=(*found.notes, note))
    scores = open_output(end.folder, end.output, matrix.kept)
    alike = rule.correlation == end.output
    correlations = scores if alike else open_output(end.folder, rule.correlation, matrix.kept)
    half = replace(rule, false_alarm=rule.false_alarm / 2)
    look = look if rule.closely else None
    last = half if look is None else replace(rule, false_alarm=rule.false_alarm / 4)
    joined = join_alike(sum_groups(scores, correlations, found.labels, rule, monitor), found.labels, half)
    placed = place_alone(scores, correlations, joined.labels, last, monitor)
    labels, n_tests, notes, n_looked = placed.labels, joined.n_tests + placed.n_tests, found.notes, 0
    if look is not None:
        patient = _PatientLook(look, matrix.kept, end.folder.keys)
        try:
            closer = place_closely(scores, correlations, labels, patient, last, monitor)
        except TartanError as error:
            notes = (*notes, f"the closer look at items that are alone was left out: {error}")
        else:
            labels, n_tests, n_looked = closer.labels, n_tests + closer.n_tests, closer.n_placed
            notes = (*notes, *patient.notes())
    then = f"no two of these {k:,} clusters have means that correlate"
    because = f"{rule.why}; " if rule.why else ""
    if joined.n_joins:
        then = f"these {k:,} clusters became {k - joined.n_joins:,}, since the means of some correlate"
    reason = (
        f"{found.reason}; {then} ({because}the chance that any two different ones are joined is "
        f"{rule.false_alarm:g} over {n_tests:,} tests at most)"
    )
    ways = ("what items of large groups have in common with other ones", "a closer look at them and at large groups")
    for n, way in zip((placed.n_placed, n_looked), ways):
        if n:
            reason += f"; {pluralize(n, 'item')} of them that {'was' if n == 1 else 'were'} alone by {way}"
    return replace(found, labels=labels, reason=reason, notes=notes)


class _PatientLook:
    """Looks at items of a matrix by their places in it, and passes over those that are gone or have changed."""

    def __init__(self, look: Look, kept: NDArray[np.int64], keys: Sequence[str]) -> None:
        self._look, self._kept, self._keys = look, kept, keys
        self._passed: dict[int, str] = {}

    def __call__(self, place: int) -> Any:
        item = int(self._kept[place])
        try:
            return self._look(item)
        except ItemError as error:
            self._passed[item] = str(error)
        except TartanError:
            raise
        except Exception as error:  # whatever the application raises
            self._passed[item] = f"{type(error).__name__}: {error}"
        return None

    def notes(self) -> tuple[str, ...]:
        if not self._passed:
            return ()
        first = min(self._passed)
        was = "was" if len(self._passed) == 1 else "were"
        said = f"{pluralize(len(self._passed), 'item')} {was} not looked at once more: "
        return (f"{said}{self._keys[first]}: {self._passed[first]}",)


def _greedily(
    matrix: Dissimilarities, wanted: ClustersWanted, end: _DeclaredCut | None, monitor: Monitor
) -> Clustering:
    cut = wanted.cut if end is None or wanted.bounded else end.score
    if wanted.threshold is None and cut is None:
        raise ConfigError("greedy needs to know what is near: give a threshold (a distance) or a cut (a score)")
    threshold = float(wanted.threshold) if wanted.threshold is not None else distance_at(matrix, float(cut or 0))
    why = "each item is within the bound of the representative of its cluster, and no two representatives are"
    priority = require_priority(wanted.priority, matrix.n + (0 if matrix.dropped is None else len(matrix.dropped)))
    check = matrix.check(monitor=monitor)
    found = cover_matrix(matrix, reach(matrix, threshold), None if priority is None else priority[matrix.kept], monitor)
    labels, chosen = found.labels()
    many = pluralize(check.n_missing, "missing pair")
    lacking = f"{many} {'counts' if check.n_missing == 1 else 'count'} as farther" if check.n_missing else None
    return Clustering(
        labels, "greedy", why, "greedy", tuple(filter(None, (lacking,))), threshold, cut,
        representatives=chosen, distances=found.distances, conversion=matrix.conversion,
    )  # fmt: skip


def _by_density(matrix: Dissimilarities, min_size: int, monitor: Monitor) -> Clustering:
    size = density.require_min_size(min_size, matrix.n)
    labels = density.of_matrix(matrix, size, monitor)
    noise = int((labels < 0).sum())
    notes = (f"{pluralize(noise, 'item')} in no cluster, as noise",) if noise else ()
    why = f"groups of {size} items or more that persist over the widest ranges of density"
    return Clustering(labels, "hdbscan", why, "hdbscan", notes, conversion=matrix.conversion)


def _into(
    matrix: Dissimilarities, n_clusters: int, wanted: ClustersWanted, curve: NumberCurve | None, monitor: Monitor
) -> Clustering:
    method = wanted.method or "pwc"
    why = "the number was given" if curve is None else curve.reason()
    found = _group_into(matrix, n_clusters, method, wanted, monitor)
    n_found = len(np.unique(found.labels))
    if n_found < n_clusters:
        why = f"{n_clusters:,} were asked for, but only {n_found:,} items differ from each other"
        if wanted.options or matrix.has_missing:
            why = f"{n_clusters:,} were asked for, and annealing with these options found {n_found:,}"
    notes = found.notes
    if curve is not None:
        notes += curve.notes(matrix.n)
    return Clustering(found.labels, method, why, found.found_by, notes, curve=curve, conversion=matrix.conversion)


def _group_into(
    matrix: Dissimilarities, n_clusters: int, method: str, wanted: ClustersWanted, monitor: Monitor
) -> Grouped:
    """Return the labels of this many clusters."""
    if n_clusters == 1 and wanted.n_clusters is None:
        return Grouped(np.zeros(matrix.n, np.int64), method, ())
    if method != "pwc":
        labels = label_clusters(matrix, n_clusters, method, memory=wanted.memory, monitor=monitor)
        return Grouped(labels, method, _notes_on(matrix, method))
    check = matrix.check(monitor=monitor)
    plain = not wanted.options and wanted.communicator is None and 1 < n_clusters <= matrix.n
    if plain and not check.n_missing and check.largest > 0:
        return pairwise_clusters(Prepared(matrix, monitor), n_clusters, wanted.seed, monitor)
    model = DAPWC(n_clusters, **{"random_state": wanted.seed, **wanted.options}).fit(
        matrix, monitor=monitor, communicator=wanted.communicator
    )
    return Grouped(model.labels_, model.method_, (model.note_,) if model.note_ else ())


# Clusters of kept pairs: what a top-k or threshold run keeps instead of the matrix.

Labels = NDArray[np.int64]


def cluster_pairs(
    pairs: KeptPairs,
    n_clusters: int | None,
    method: str,
    *,
    threshold: float | None = None,
    why: str = "",
    min_size: int = 5,
    seed: int = 0,
    monitor: Monitor,
) -> Clustering:
    """Cluster items by their kept pairs.

    Parameters
    ----------
    pairs : KeptPairs
    n_clusters : int or None
        For "single": that many clusters of the shortest pairs that join all. None: as many as there are.
    method : {"components", "single", "hdbscan", "leiden"}
        "components": items are together when a path of pairs joins them; "single" is the same up to a distance.
    threshold : float, optional
        Longer pairs do not count.
    why : str
        Which pairs were chosen before, and why, for the reason.
    min_size : int
        Of "hdbscan".
    seed : int
        Of "leiden".
    monitor : Monitor

    Raises
    ------
    ConfigError
        If the method needs the matrix, or there are more unconnected parts than clusters are wanted.
    """
    if method not in PAIR_METHODS:
        raise ConfigError(
            f"{pairs.label} keeps pairs and no matrix, and {method} needs all pairs; choose from "
            f"{', '.join(PAIR_METHODS)}, or run again without --top-k and --threshold"
        )
    if n_clusters is not None and method != "single":
        if method != "components":
            raise ConfigError(f"{method} finds the number of clusters by itself; leave out the number, or use single")
        method = "single"
    near = pairs if threshold is None else pairs.within(threshold)
    if n_clusters is not None:
        # A failed item has no pair: it is a part of its own that does not count.
        labels, reason = _cut(near, n_clusters + len(pairs.failed)), "the number was given; found by joining"
    else:
        labels, reason = _find_labels(near, method, min_size, seed, monitor)
    labels[pairs.failed] = -1
    kept = labels >= 0
    labels[kept] = number_labels(labels[kept])
    limit = why if threshold is None else f" up to the distance {threshold:.6g}"
    return Clustering(
        labels,
        method,
        f"{reason} of {pluralize(len(near.i), 'kept pair')}{limit}",
        found_by=method,
        notes=_notes(labels, pairs),
        threshold=threshold,
        representatives=representatives(near, labels),
        conversion=pairs.conversion,
    )


def cover_kept(
    pairs: KeptPairs, threshold: float | None, why: str, priority: NDArray[np.float64] | None, monitor: Monitor
) -> Clustering:
    """Cluster items greedily by their kept pairs; parameters as of :func:`cluster_pairs` and :func:`cover_pairs`.

    Raises
    ------
    ConfigError
        If there is no bound, or one beyond that of the run.
    """
    near = pairs if threshold is None else pairs.within(threshold)
    notes = _require_kept(pairs, near, threshold, bounded=bool(why))
    covered = cover_pairs(near, priority, monitor)
    labels = np.full(pairs.n, -1, np.int64)
    there = np.setdiff1d(np.arange(pairs.n), pairs.failed)
    labels[there] = number_labels(covered.chosen[there])
    first = np.unique(labels[there], return_index=True)[1]
    limit = why if threshold is None else f" up to the distance {threshold:.6g}"
    return Clustering(
        labels,
        "greedy",
        f"items near their representatives, which are not near each other, by {len(near.i):,} kept pairs{limit}",
        found_by="greedy",
        notes=(*_notes(labels, pairs), *notes),
        threshold=threshold,
        representatives=covered.chosen[there][first],
        distances=np.where(labels >= 0, covered.distances, np.nan),
        conversion=pairs.conversion,
    )


def _require_kept(pairs: KeptPairs, near: KeptPairs, threshold: float | None, *, bounded: bool) -> tuple[str, ...]:
    """Refuse a bound beyond which the run keeps no pairs; return notes on pairs that it may lack."""
    if pairs.k is not None and threshold is None and not bounded:
        raise ConfigError(
            f"{pairs.label} keeps the nearest {pairs.k} of each item, however far they are: greedy needs to know what "
            "is near; give a threshold (a distance) or a cut (a score)"
        )
    if threshold is not None and pairs.farthest is not None and threshold > pairs.farthest:
        raise ConfigError(
            f"{pairs.label} keeps pairs up to the distance {pairs.farthest:.6g}, and greedy up to {threshold:.6g} "
            f"would not see the others; give a threshold up to {pairs.farthest:.6g}, or run again with a "
            "wider --threshold"
        )
    if pairs.k is None:
        return ()
    full = int((np.bincount(near.i, minlength=near.n) + np.bincount(near.j, minlength=near.n) >= pairs.k).sum())
    if full < 2:  # a pair that is not kept is beyond the lists of both
        return ()
    return (
        f"{pluralize(full, 'item')} have {pairs.k} or more pairs within the bound, and the run keeps {pairs.k} of "
        "each: representatives among them may be near each other; a run with --threshold keeps all",
    )


def representatives(pairs: KeptPairs, labels: Labels) -> Labels:
    """Return an item (n_clusters,) of each cluster: of those alike to most others in it the nearest to them."""
    inside = labels[pairs.i] == labels[pairs.j]
    i, j, distances = pairs.i[inside], pairs.j[inside], pairs.distances[inside]
    degrees = np.bincount(i, minlength=pairs.n) + np.bincount(j, minlength=pairs.n)
    sums = np.bincount(i, distances, pairs.n) + np.bincount(j, distances, pairs.n)
    mean = sums / np.maximum(degrees, 1)
    order = np.lexsort((np.arange(pairs.n), mean, -degrees, labels))
    order = order[labels[order] >= 0]
    first = np.flatnonzero(np.diff(labels[order], prepend=-1))
    return order[first]


def _find_labels(pairs: KeptPairs, method: str, min_size: int, seed: int, monitor: Monitor) -> tuple[Labels, str]:
    components = _components(pairs)
    if method == "hdbscan":
        size = density.require_min_size(min_size, pairs.n)
        labels = density.of_pairs(pairs, size, components, monitor)
        return labels, f"groups of {size} items or more that persist over the widest ranges of density"
    if method == "leiden":
        return _run_leiden(pairs, seed), "the communities of highest modularity"
    return components, "the connected components"


def _components(pairs: KeptPairs) -> Labels:
    from scipy.sparse.csgraph import connected_components

    return number_labels(connected_components(pairs.graph(np.ones(len(pairs.i), np.int8)), directed=False)[1])


def _cut(pairs: KeptPairs, n_clusters: int) -> Labels:
    """Return that many clusters of single linkage of the kept pairs."""
    from tartan import _native
    from tartan.analytics.trees.spanning import SpanningTree

    order = np.lexsort((pairs.j, pairs.i, pairs.distances))
    forest = _native.SpanningForest(pairs.n)
    i, j = np.ascontiguousarray(pairs.i[order]), np.ascontiguousarray(pairs.j[order])
    kept = forest.offer(i, j)
    return SpanningTree(pairs.n, i[kept], j[kept], pairs.distances[order][kept]).cut(n_clusters)


def _run_leiden(pairs: KeptPairs, seed: int) -> Labels:
    """Return the communities of highest modularity: a pair weighs c / (c + d), c the median distance of kept pairs."""
    igraph = _igraph()
    typical = float(np.median(pairs.distances)) if len(pairs.i) else 1.0
    weights = typical / (typical + pairs.distances) if typical > 0 else np.ones(len(pairs.i))
    graph = igraph.Graph(n=pairs.n, edges=np.column_stack([pairs.i, pairs.j]))
    igraph.set_random_number_generator(random.Random(seed))
    try:
        found = graph.community_leiden("modularity", weights=weights.tolist(), n_iterations=-1)
    finally:
        igraph.set_random_number_generator(random)
    return np.array(found.membership, np.int64)


def _igraph() -> Any:
    """Import igraph, here only: it is an extra of its own, because it is under the GPL."""
    try:
        import igraph
    except ImportError as error:
        raise ConfigError(
            "leiden needs igraph: pip install 'tartan-allpairs[leiden]'; --method components needs nothing"
        ) from error
    return igraph


def _notes(labels: Labels, pairs: KeptPairs) -> tuple[str, ...]:
    sizes = np.bincount(labels[labels >= 0])
    alone, noise = int((sizes == 1).sum()), int((labels < 0).sum()) - len(pairs.failed)
    several = int((sizes > 1).sum())
    found = [f"{pluralize(several, 'group')} of two or more items, {pluralize(alone, 'item')} alone"]
    if noise:
        found.append(f"{pluralize(noise, 'item')} in no cluster, as noise")
    if pairs.left_out is not None:
        found.append(pairs.left_out)
    return tuple(found)
