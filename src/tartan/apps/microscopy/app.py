"""Template-free fusion of localisation microscopy: the motion of each particle onto each other one.

`Microscopy` reads particles, sets of points with uncertainties, and registers all pairs: the rigid motion that
maximises their overlap, and the Bhattacharyya score there. `transform` gives the motion of a pair from a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.application import Application, Meaning
from tartan.apps.microscopy.cuda import KERNELS, DeviceParticle, laid_out, mirrors, register_tile
from tartan.apps.microscopy.files import Points, read_particle, split_file
from tartan.apps.microscopy.motions import inverse, read_motions
from tartan.apps.microscopy.points import checked, described, thinned
from tartan.errors import CompareError, ConfigError

#: An item: its points (n, 3), and its key as UTF-8.
Item = tuple[Points, NDArray[np.uint8]]

_MOST_RATIO = 20.0
_MOST_STARTS = 10_000
_MOST_SYMMETRY = 1_000
_LEAST_POINTS = 10


@dataclass(frozen=True)
class HostParticle:
    """An item that is not copied to a device."""

    points: Points
    key: NDArray[np.uint8]


class Microscopy(Application):
    """Register particles of localisation microscopy, all against all.

    Parameters
    ----------
    starts : int
        Angles that the search of a pair starts from; 0: as many as size and uncertainty ask for, 6 to 96.
    scale : float
        Length of the finest step of the search, in the unit of the points; 0: the root of the sum of the two median
        squared uncertainties.
    symmetry : int
        n of a structure that looks the same after a turn by 1/n of a circle: the search then starts within that turn.
    max_points : int
        Particles with more points are thinned to this number; denser places keep more.
    score_only : str, optional
        A CSV file with the columns i, j, tx, ty, theta: motions of item i onto item j, by their keys. Nothing is
        searched then; ``scores`` is B at these motions. A motion of (j, i) serves (i, j) by its inverse. Kept with the
        file's digest, so that a run is resumed with the same motions only.

    Notes
    -----
    A motion maps point a of particle i to R(theta) a + t. With d the distance of a moved point of i from one of j and v
    the sum of their squared uncertainties, the score is::

        B = sum exp(-d^2 / (2 v)) / v        over all pairs of points

    It is maximised by trust-region Newton with the exact Hessian, in three stages from coarse to fine: a Gauss
    transform with 4 and 2 times the scale from many angles, on at most 400 points of each particle, and B itself on all
    of them from the six best results. Inner loops are float32, sums over points float64; B and its gradient have
    relative errors below 1e-5.

    Outputs are ``scores`` (B), ``tx``, ``ty``, ``theta`` (radians, -pi to pi) and ``evaluations`` of the objective. The
    motion is directed: (j, i) has the inverse of (i, j), with the same score. Results depend neither on tiles nor on
    threads; GPUs and processors with AVX-512, AVX2 and neither differ in the last digits, rarely in which of two nearly
    equal maxima is found. ``compare`` uses all cores, or on a GPU one kernel.

    References
    ----------
    Heydarian, Schueder, Strauss, van Werkhoven, Fazel, Lidke, Jungmann, Stallinga, Rieger: Template-free 2D particle
    fusion in localization microscopy. Nature Methods 15 (2018) 781-784.

    Examples
    --------
    >>> corner = np.array([[0, 0, 0.01], [0, 1, 0.01], [0, 2, 0.01], [1, 2, 0.01]])
    >>> turned = corner[:, [1, 0, 2]] * [-1, 1, 1] + [5, 0, 0]
    >>> app = Microscopy()
    >>> found = app.compare([app.parse("a", corner)], [app.parse("b", turned)], np)
    >>> float(found["theta"][0, 0].round(3)), float(found["tx"][0, 0].round(3))
    (1.571, 5.0)
    """

    name: ClassVar[str | None] = "microscopy"
    releases_gil = True
    similarity = True
    ragged = True
    outputs: Mapping[str, Any] = {
        "scores": np.float64, "tx": np.float64, "ty": np.float64, "theta": np.float64, "evaluations": np.int32,
    }  # fmt: skip
    directed = ("tx", "ty", "theta")
    item_suffixes = (".mat", ".json", ".csv")

    def __init__(
        self,
        *,
        starts: int = 0,
        scale: float = 0.0,
        symmetry: int = 1,
        max_points: int = 5000,
        score_only: str | None = None,
    ) -> None:
        self.starts = _whole("starts", starts, 0, _MOST_STARTS, "0 takes what the particles need")
        self.symmetry = _whole("symmetry", symmetry, 1, _MOST_SYMMETRY, "1 says that there is none")
        most = 1_000_000
        self.max_points = _whole("max_points", max_points, _LEAST_POINTS, most, "the default is 5000")
        if isinstance(scale, bool) or not isinstance(scale, int | float | np.number) or not 0 <= scale < math.inf:
            raise ConfigError(
                f"scale: {scale!r} is no length of 0 or more; 0 takes it from the uncertainties",
                context={"scale": scale},
            )
        self.scale = float(scale)
        if score_only is not None and not isinstance(score_only, str | Path):
            raise ConfigError(f"score_only: {score_only!r} is no file of motions (CSV with i,j,tx,ty,theta)")
        self.score_only: str | None = None
        self._motions: dict[tuple[str, str], tuple[float, float, float]] = {}
        if score_only is not None:
            self.score_only, self._motions = read_motions(str(score_only))

    def split(self, key: str, data: bytes) -> Sequence[bytes] | None:
        """Return the particles of a file that holds several; see ``Application``."""
        return split_file(key, data)

    def parse(self, key: str, data: Any) -> Item:
        """Read one particle: MATLAB v5, JSON or CSV, an array (n, 3) of x, y, uncertainty, or a mapping of columns.

        Raises
        ------
        ItemError
            If it cannot be read, has fewer than 3 points, numbers that are not finite, uncertainties that are not above
            zero, or no extent that its uncertainties can resolve.
        """
        points = checked(key, read_particle(key, data))
        return thinned(points, self.max_points), np.frombuffer(key.encode(), np.uint8)

    def compare(self, left: Sequence[Any], right: Sequence[Any], xp: Any) -> dict[str, Any]:
        """Register m with k particles, as ``device_form`` returns them on a device; return the outputs, (m, k) each.

        Raises
        ------
        CompareError
            If the sizes of two particles cannot be in one unit, or ``score_only`` lacks a pair.
        """
        if self._uses_kernels(xp):
            return self._named(self._registered_on_gpu(left, right, xp))
        lefts, rights = ([_on_host(item) for item in items] for items in (left, right))
        _require_like_sizes(*([_width(points) for points, _ in items] for items in (lefts, rights)))
        if self.score_only is not None:
            found = self._scored(lefts, rights)
        else:
            found = self._registered(lefts, rights)
        named = self._named(found)
        return named if xp is np else {name: xp.asarray(block) for name, block in named.items()}

    def device_form(self, item: Item, xp: Any) -> Item | DeviceParticle | HostParticle:
        """Return a particle as the kernel of registration takes it; given motions are scored on the host."""
        if self.score_only is not None:
            return HostParticle(*item)
        return laid_out(item[0], item[1].tobytes()) if self._uses_kernels(xp) else item

    def warm_up(self, xp: Any) -> None:
        """Compile the kernel of registration."""
        if self._uses_kernels(xp):
            KERNELS.load(xp)

    def _uses_kernels(self, xp: Any) -> bool:
        return self.score_only is None and KERNELS.runs_on(xp)

    def _named(self, found: Any) -> dict[str, Any]:
        return {name: found[:, :, at].astype(dtype) for at, (name, dtype) in enumerate(self.outputs.items())}

    def reverse(self, scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the inverse motions."""
        x, y, theta = inverse(scores["tx"], scores["ty"], scores["theta"])
        return {"tx": x, "ty": y, "theta": theta}

    def describe_item(self, key: str, data: Any) -> dict[str, Any]:
        """Describe a particle: its points, extent and uncertainty, and a picture of its density."""
        return described(read_particle(key, data), self.max_points)

    def meaning(self, output: str, shape: tuple[int, ...] | None) -> Meaning | None:
        """Say how scores become distances; motions are none."""
        if output != "scores":
            return None
        return Meaning(
            distance="max-s",
            why="B grows with the overlap and has no upper bound of its own: it is taken from the best pair of the run",
        )

    def _registered(self, left: Sequence[Item], right: Sequence[Item]) -> NDArray[np.float64]:
        """Register a tile, (m, k, 5); of a pair that it holds both ways the second is the inverse of the first."""
        twice, other = _mirrored(*([(bytes(key), points) for points, key in items] for items in (left, right)))
        found = _native.microscopy_register(
            [points for points, _ in left],
            [points for points, _ in right],
            ~twice,
            starts=self.starts,
            scale=self.scale,
            symmetry=self.symmetry,
        )
        found[twice] = found[other]
        found[twice, 1:4] = np.column_stack(inverse(*found[twice, 1:4].T))
        return found

    def _registered_on_gpu(self, left: Sequence[DeviceParticle], right: Sequence[DeviceParticle], xp: Any) -> Any:
        """Register a tile on a GPU, (m, k, 5), as ``_registered``."""
        lefts, rights = ([facts for _, facts in items] for items in (left, right))
        _require_like_sizes(*([facts.width for facts in items] for items in (lefts, rights)))
        twice, other = _mirrored(*([(facts.key, facts.fingerprint) for facts in items] for items in (lefts, rights)))
        mirror = mirrors((len(left), len(right)), twice, other)
        return register_tile(left, right, mirror, xp, starts=self.starts, scale=self.scale, symmetry=self.symmetry)

    def _scored(self, left: Sequence[Item], right: Sequence[Item]) -> NDArray[np.float64]:
        """Score given motions, (m, k, 5); evaluations are 1."""
        found = np.empty((len(left), len(right), 5))
        for i, (a, a_key) in enumerate(left):
            for j, (b, b_key) in enumerate(right):
                motion = self._motion(bytes(a_key).decode(), bytes(b_key).decode())
                sums = _native.microscopy_evaluate(a, b, np.array([motion]))
                found[i, j] = [sums[0, 0], *motion, 1]
        return found

    def _motion(self, a: str, b: str) -> tuple[float, float, float]:
        if a == b:
            return 0.0, 0.0, 0.0
        if (a, b) in self._motions:
            return self._motions[a, b]
        if (b, a) in self._motions:
            x, y, theta = (float(value[0]) for value in inverse(*(np.array([v]) for v in self._motions[b, a])))
            return x, y, theta
        raise CompareError(
            f"score_only has no motion of {a} onto {b}; add a line {a},{b},tx,ty,theta, or compare listed pairs "
            "only (--pairs)"
        )


def _mirrored(
    left: Sequence[tuple[bytes, Any]], right: Sequence[tuple[bytes, Any]]
) -> tuple[NDArray[np.bool_], tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Mark the pairs (m, k) of a tile whose items it also holds the other way round, above; return where.

    Tiles on the diagonal of a matrix hold most pairs so. Items are given by their keys and what tells two of one key
    apart.
    """
    rows = {key: row for row, (key, _) in enumerate(left)}
    of_column = np.array([rows.get(key, -1) for key, _ in right], np.intp)
    for at, row in enumerate(of_column.tolist()):
        if row >= 0 and not np.array_equal(left[row][1], right[at][1]):
            of_column[at] = -1
    of_row = np.full(len(left), -1, np.intp)
    known = of_column >= 0
    of_row[of_column[known]] = np.flatnonzero(known)
    twice = (of_row >= 0)[:, None] & known[None, :] & (of_column[None, :] < np.arange(len(left))[:, None])
    row, column = np.nonzero(twice)
    return twice, (of_column[column], of_row[row])


def transform(run: Any, i: int | str, j: int | str) -> NDArray[np.float64]:
    """Return the motion of item i onto item j as a matrix (2, 3): a point p goes to ``M[:, :2] @ p + M[:, 2]``.

    Parameters
    ----------
    run : Run
        Of this application.
    i, j : int or str
        Items by index or key. (j, i) gives the inverse of (i, j), and an item with itself no motion.

    Raises
    ------
    ConfigError
        If the run is another application's, or has no such item.
    CompareError
        If the pair has no motion: not computed, failed, or not kept.
    """
    missing = [name for name in ("tx", "ty", "theta") if name not in run.manifest.outputs]
    if missing:
        raise ConfigError(f"{run.path} has no output {missing[0]!r}: it is no run of microscopy")
    a, b = _index(run, i), _index(run, j)
    if a == b:
        return np.eye(2, 3)
    x, y, theta = _motion_of(run, a, b)
    if math.isnan(theta):
        raise CompareError(
            f"{run.path} has no motion of {run.keys[a]} onto {run.keys[b]}: the pair failed, is not computed yet, or "
            "is not among those that the run keeps"
        )
    return np.array([[math.cos(theta), -math.sin(theta), x], [math.sin(theta), math.cos(theta), y]])


def _motion_of(run: Any, a: int, b: int) -> tuple[float, float, float]:
    """Return tx, ty, theta of the pair (a, b) as the run has them; NaN where it has none."""
    n_left = run.shape[0] if run.manifest.workload["kind"] == "rectangle" else 0
    if a >= n_left > 0:  # two sets: only motions of the first onto the second are stored
        stored = (np.array([value]) for value in _motion_of(run, b, a)) if b < n_left else ()
        back = inverse(*stored) if b < n_left else (np.array([math.nan]),) * 3
        x, y, theta = (float(value[0]) for value in back)
        return x, y, theta
    x, y, theta = (_score(run, name, a, b, n_left) for name in ("tx", "ty", "theta"))
    return x, y, theta


def _score(run: Any, name: str, a: int, b: int, n_left: int) -> float:
    column = b - n_left
    if run.manifest.reduce is None:
        there = slice(a, a + 1), slice(column, column + 1)
        return math.nan if column < 0 else float(run.view(name).window(*there)[0, 0])
    for batch in run.pairs(name):
        i, j = (batch.column(end).to_numpy(zero_copy_only=False) for end in ("i", "j"))
        found = np.flatnonzero((i == a) & (j == column))
        if len(found):
            return float(batch.column("score")[int(found[0])].as_py())
    return math.nan


def _index(run: Any, item: int | str) -> int:
    keys = run.keys
    if isinstance(item, str):
        if item not in list(keys):
            raise ConfigError(f"{run.path} has no item {item!r}; the first is {keys[0]!r}")
        return list(keys).index(item)
    if not 0 <= item < len(keys):
        raise ConfigError(f"{run.path} has items 0 to {len(keys) - 1}; {item} is none")
    return int(item)


def _whole(name: str, value: Any, least: int, most: int, way_out: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise ConfigError(
            f"{name}: {value!r} is no whole number from {least} to {most}; {way_out}", context={name: value}
        )
    return int(value)


def _on_host(item: Item | HostParticle) -> Item:
    if isinstance(item, HostParticle):
        return item.points, item.key
    points, key = item  # what stands for a device without kernels lies in host memory
    return np.asarray(points), np.asarray(key)


def _width(points: Points) -> float:
    return float(np.ptp(points[:, :2], axis=0).max())


def _require_like_sizes(first: Sequence[float], second: Sequence[float]) -> None:
    """Refuse pairs whose sizes differ so much that their units must."""
    a, b = min(first, default=1.0), max(second, default=1.0)
    c, d = max(first, default=1.0), min(second, default=1.0)
    for one, other in ((a, b), (c, d)):
        if max(one, other) > _MOST_RATIO * min(one, other):
            raise CompareError(
                f"particles of width {one:.4g} and {other:.4g} are no two views of one structure; are both in the same "
                "unit (nanometres, pixels)?"
            )
