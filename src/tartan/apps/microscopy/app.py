"""Template-free fusion of localisation microscopy: the motion of each particle onto each other one.

`Microscopy` reads particles, sets of points with uncertainties, and registers all pairs: the rigid motion that
maximises their overlap, and the Bhattacharyya score there. `transform` gives the motion of a pair from a run.
"""

from __future__ import annotations

import csv
import hashlib
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.application import Application, Meaning
from tartan.apps.microscopy.files import describe_single_table, read_localisations, read_particle, split_file
from tartan.apps.microscopy.localisations import Points
from tartan.apps.microscopy.picasso import COMPANIONS
from tartan.apps.microscopy.points import check_points, describe_particle, score_itself, thin_points
from tartan.base.kernels import CudaFile
from tartan.base.notices import RunNotice
from tartan.errors import CompareError, ConfigError

#: An item: its points (n, 3), and its key as UTF-8.
Item = tuple[Points, NDArray[np.uint8]]

# By judgement: particles whose uncertainties differ by more are of two experiments, and their scores say nothing.
_MOST_RATIO = 20.0
# By judgement: a slip of the keyboard beyond.
_MOST_SYMMETRY = 1_000
# By judgement: fewer points fit anywhere.
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
    symmetry : int
        n of a structure that looks the same after a turn by 1/n of a circle: the search then looks at angles of one
        such turn.
    max_points : int
        Particles with more points are thinned to this number; denser places keep more.
    score_only : str, optional
        A CSV file with the columns i, j, tx, ty, theta: motions of item i onto item j, by their keys. Nothing is
        searched then; ``scores`` is B at these motions. A motion of (j, i) serves (i, j) by its inverse. Kept with the
        file's digest, so that a run is resumed with the same motions only.
    dims : int, optional
        2: x and y are taken and z is left out, which a warning says. By default particles whose z varies fail.

    Notes
    -----
    A motion maps point a of particle i to R(theta) a + t. With d the distance of a moved point of i from one of j and v
    the sum of their squared uncertainties, the score is::

        B = sum exp(-d^2 / (2 v)) / v        over all pairs of points

    All angles and translations are looked at: B is an integral of the product of two pictures, of all translations one
    correlation by Fourier transforms. From the eight highest peaks trust-region Newton with the exact Hessian climbs on
    B itself. Where uncertainties are below two fifths of a pixel of 128 across four radii, peaks first climb on Gauss
    transforms of halving scales, with at most 400 points of each particle. Inner loops are float32, sums over points
    float64; B and its gradient have relative errors below 1e-5.

    B grows with the numbers of localisations and falls with the uncertainties. The similarity does not: it is the
    cosine of the two pictures that B multiplies, ``B / sqrt(B_aa B_bb)`` with B of each particle on itself, from 0 to
    1 for equal particles. Clusters, maps and neighbours take it.

    Outputs are ``scores`` (B), ``tx``, ``ty``, ``theta`` (radians, -pi to pi), ``evaluations`` of the objective and
    ``similarity``. The motion is directed: (j, i) has the inverse of (i, j), with the same score. Results depend
    neither on tiles nor on threads; GPUs and processors with AVX-512, AVX2 and neither differ in the last digits,
    rarely in which of two nearly equal maxima is found. ``compare`` uses all cores, or on a GPU one kernel.

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
        "similarity": np.float64,
    }  # fmt: skip
    directed = ("tx", "ty", "theta")
    analysed = "similarity"
    item_suffixes = (".mat", ".json", ".csv", ".hdf5", ".h5")
    companions: ClassVar[Mapping[str, str]] = COMPANIONS

    def __init__(
        self,
        *,
        symmetry: int = 1,
        max_points: int = 5000,
        score_only: str | None = None,
        dims: int | None = None,
    ) -> None:
        if dims is not None and (isinstance(dims, bool) or dims != 2):
            raise ConfigError(
                f"dims: {dims!r} is not 2, which takes x and y only and leaves z out; particles are registered in two "
                "dimensions",
                context={"dims": dims},
            )
        self.dims = dims
        self.symmetry = _whole("symmetry", symmetry, 1, _MOST_SYMMETRY, "1 says that there is none")
        most = 1_000_000
        self.max_points = _whole("max_points", max_points, _LEAST_POINTS, most, "the default is 5000")
        if score_only is not None and not isinstance(score_only, str | Path):
            raise ConfigError(f"score_only: {score_only!r} is not a file of motions (CSV with i,j,tx,ty,theta)")
        self.score_only: str | None = None
        self._motions: dict[tuple[str, str], tuple[float, float, float]] = {}
        if score_only is not None:
            self.score_only, self._motions = read_motions(str(score_only))

    def parameters(self) -> dict[str, Any]:
        """Return the parameters; ``dims`` where it is given, so that runs from before it was there go on."""
        found = super().parameters()
        return found if self.dims is not None else {name: found[name] for name in found if name != "dims"}

    def describe_alone(self, key: str, data: bytes) -> str:
        """Say that a table without a column of particles is one, and how particles are picked."""
        return describe_single_table(data)

    def check_files(self, files: Iterable[tuple[str, BinaryIO]]) -> None:
        """Say that z is left out; refuse nothing."""
        if self.dims == 2:
            said = "dims=2: z is left out, and particles are registered by x and y alone"
            warnings.warn(said, RunNotice, stacklevel=2)

    def split(self, key: str, data: bytes, beside: bytes | None = None) -> Sequence[bytes] | None:
        """Return the particles of a file that holds several; see ``Application``."""
        return split_file(key, data, beside, flat=self.dims == 2)

    def parse(self, key: str, data: Any) -> Item:
        """Read one particle: MATLAB v5, JSON or CSV, an array (n, 3) of x, y, uncertainty, or a mapping of columns.

        Raises
        ------
        ItemError
            If it cannot be read, has fewer than 3 points, numbers that are not finite, uncertainties that are not above
            zero, or no extent that its uncertainties can resolve.
        """
        points = check_points(key, read_particle(key, data, flat=self.dims == 2))
        return thin_points(points, self.max_points), np.frombuffer(key.encode(), np.uint8)

    def compare(self, left: Sequence[Any], right: Sequence[Any], xp: Any) -> dict[str, Any]:
        """Register m with k particles, as ``device_form`` returns them on a device; return the outputs, (m, k) each.

        Raises
        ------
        CompareError
            If the sizes of two particles cannot be in one unit, or ``score_only`` lacks a pair.
        """
        if self._uses_kernels(xp):
            own = tuple(xp.asarray([facts.own for _, facts in items]) for items in (left, right))
            return self._name_values(self._register_on_gpu(left, right, xp), own, xp)
        lefts, rights = ([_on_host(item) for item in items] for items in (left, right))
        _require_like_sizes(*([_width(points) for points, _ in items] for items in (lefts, rights)))
        if self.score_only is not None:
            found = self._score_motions(lefts, rights)
        else:
            found = self._register(lefts, rights)
        own = tuple(np.array([score_itself(points) for points, _ in items]) for items in (lefts, rights))
        named = self._name_values(found, own, np)
        return named if xp is np else {name: xp.asarray(block) for name, block in named.items()}

    def device_form(self, item: Item, xp: Any) -> Item | DeviceParticle | HostParticle:
        """Return a particle as the kernel of registration takes it; given motions are scored on the host."""
        if self.score_only is not None:
            return HostParticle(*item)
        return lay_out(item[0], item[1].tobytes()) if self._uses_kernels(xp) else item

    def warm_up(self, xp: Any) -> None:
        """Compile the kernel of registration."""
        if self._uses_kernels(xp):
            KERNELS.load(xp)

    def _uses_kernels(self, xp: Any) -> bool:
        return self.score_only is None and KERNELS.runs_on(xp)

    def _name_values(self, found: Any, own: tuple[Any, ...], xp: Any) -> dict[str, Any]:
        """Name the numbers of a tile, (m, k, 5), and add the similarity, by B of each particle with itself."""
        named = {name: found[:, :, at] for at, name in enumerate(_REGISTERED)}
        shares = named["scores"] / xp.sqrt(own[0][:, None] * own[1][None, :])
        named["similarity"] = xp.where(shares > 1.0, 1.0, shares)  # rounding
        return {name: named[name].astype(dtype) for name, dtype in self.outputs.items()}

    def reverse(self, scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the inverse motions."""
        x, y, theta = inverse(scores["tx"], scores["ty"], scores["theta"])
        return {"tx": x, "ty": y, "theta": theta}

    def describe_item(self, key: str, data: Any) -> dict[str, Any]:
        """Describe a particle: its points, extent and uncertainty, and a picture of its density."""
        read = read_localisations(key, data, flat=self.dims == 2)
        return describe_particle(read.points, self.max_points) | dict(read.facts)

    def meaning(self, output: str, shape: tuple[int, ...] | None) -> Meaning | None:
        """Say how scores become distances; motions are none."""
        if output == "similarity":
            return Meaning(
                distance="1-s",
                why="the similarity is 1 for equal particles and 0 where none of their points meet, however many they "
                "have",
                unit="similarity, 0 to 1",
            )
        if output != "scores":
            return None
        return Meaning(
            distance="max-s",
            why="B grows with the overlap and has no upper bound of its own: it is taken from the best pair of the run",
            unit="overlap B",
        )

    def _register(self, left: Sequence[Item], right: Sequence[Item]) -> NDArray[np.float64]:
        """Register a tile, (m, k, 5); of a pair that it holds both ways the second is the inverse of the first."""
        twice, other = _mark_mirrored(*([(bytes(key), points) for points, key in items] for items in (left, right)))
        found = _native.microscopy_register(
            [points for points, _ in left],
            [points for points, _ in right],
            ~twice,
            symmetry=self.symmetry,
        )
        found[twice] = found[other]
        found[twice, 1:4] = np.column_stack(inverse(*found[twice, 1:4].T))
        return found

    def _register_on_gpu(self, left: Sequence[DeviceParticle], right: Sequence[DeviceParticle], xp: Any) -> Any:
        """Register a tile on a GPU, (m, k, 5), as ``_register``."""
        lefts, rights = ([facts for _, facts in items] for items in (left, right))
        _require_like_sizes(*([facts.width for facts in items] for items in (lefts, rights)))
        twice, other = _mark_mirrored(
            *([(facts.key, facts.fingerprint) for facts in items] for items in (lefts, rights))
        )
        mirror = mirrors((len(left), len(right)), twice, other)
        return register_tile(left, right, mirror, xp, symmetry=self.symmetry)

    def _score_motions(self, left: Sequence[Item], right: Sequence[Item]) -> NDArray[np.float64]:
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


def _mark_mirrored(
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
        raise ConfigError(f"{run.path} has no output {missing[0]!r}: it is not a run of microscopy")
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
            f"{name}: {value!r} is not a whole number from {least} to {most}; {way_out}", context={name: value}
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
                f"particles of width {one:.4g} and {other:.4g} are not two views of one structure; are both in the "
                "same unit (nanometres, pixels)?"
            )


# Registration of tiles of particles on a GPU, by the kernels of ``register.cu``.

KERNELS = CudaFile(Path(__file__).with_name("register.cu"))
"""The kernel of registration."""

# By convention of CUDA: two warps share the sums of one climb. No benchmark: no GPU measured yet.
_THREADS = 64
# By convention of CUDA: a warp, whose threads read 32 points at once.
_GROUP = 32
# By contract: CLIMBS of crates/tartan-kernels/src/microscopy/search.rs.
_CLIMBS = 8
# By contract: OF_ANGLE of crates/tartan-kernels/src/microscopy/spectra.rs, at an angle and the one opposite.
_OF_ANGLE = 2 * 4
# By contract: PIXEL of crates/tartan-kernels/src/microscopy/spectra.rs.
_PIXEL = 2.5
# By format: OUTPUTS of crates/tartan-python/src/microscopy.rs.
_OUTPUTS = 5
_REGISTERED = ("scores", "tx", "ty", "theta", "evaluations")
# By judgement: as _MOST_BLOCKS of forensics/cuda.
_MOST_BLOCKS = 4096
# By judgement: ten blocks on each of a hundred multiprocessors; squares of all are 134 MB at most.
_MOST_SQUARES = 1024
# By judgement: spectra of forty particles of the largest squares at once.
_MOST_PICTURE_BYTES = 2**29
#: Pairs whose peaks are in memory at once.
# By arithmetic: peaks of as many pairs, of 200 angles each, are 105 MB.
PAIRS_AT_ONCE = 2048
_FILLED = -2


@dataclass(frozen=True)
class ParticleFacts:
    """What the host knows of a particle on a GPU."""

    key: bytes
    width: float
    fingerprint: int
    radius: float
    variance: float
    own: float


#: A particle on a GPU: its numbers as the kernel takes them, and what the host knows of it.
DeviceParticle = tuple[Any, ParticleFacts]


def lay_out(points: NDArray[np.float64], key: bytes) -> DeviceParticle:
    """Return a particle as it is copied to a GPU: float64 in one dimension, as ``register.cu`` says."""
    (x, y, radius, reach, variance), fingerprint, rows, sample = _native.microscopy_prepare(points)
    high, low = divmod(fingerprint, 2**32)
    header = [len(rows), len(sample), x, y, radius, reach, variance, high, low]
    parts = [np.array(header, np.float64)]
    for some in (rows, sample) if len(sample) else (rows,):
        parts += [np.ascontiguousarray(some.T).reshape(-1), _groups(some).reshape(-1)]
    width = float(np.ptp(points[:, :2], axis=0).max())
    return np.concatenate(parts), ParticleFacts(key, width, fingerprint, radius, variance, score_itself(points))


def _groups(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return x, y of the centre, the radius and the greatest variance of each 32 points."""
    n = -(-len(rows) // _GROUP)
    padded = np.concatenate([rows, np.repeat(rows[-1:], n * _GROUP - len(rows), axis=0)]).reshape(n, _GROUP, 3)
    ends = padded[:, :, :2].min(axis=1), padded[:, :, :2].max(axis=1)
    centres = (ends[0] + ends[1]) / 2
    radii = np.sqrt(np.square(padded[:, :, :2] - centres[:, None]).sum(axis=2).max(axis=1))
    return np.column_stack([centres, radii, padded[:, :, 2].max(axis=1)])


def register_tile(
    left: Sequence[DeviceParticle],
    right: Sequence[DeviceParticle],
    mirror: NDArray[np.int32],
    xp: Any,
    *,
    symmetry: int,
) -> Any:
    """Register m with k particles on the current stream; return B, tx, ty, theta, evaluations, (m, k, 5).

    Parameters
    ----------
    mirror : int32 array (m, k)
        Of each pair the number of that which is it the other way round and gets the inverse, -1 where there is none, -2
        for those that get it.
    """
    m, k = len(left), len(right)
    n = m * k
    items = [*left, *right]
    ends = np.cumsum([array.shape[0] for array, _ in items])
    offsets = xp.asarray(np.concatenate([[0], ends[:-1]]).astype(np.int64))
    tile = (xp.concatenate([array for array, _ in items]), offsets)
    sides = (np.int32(m), np.int32(k))
    groups = _group_pairs([facts for _, facts in items], m, mirror.reshape(-1), symmetry)
    starts, n_starts = xp.empty((n, _CLIMBS, 4), dtype=np.float64), xp.zeros(n, dtype=np.int32)
    evaluations = xp.zeros(n, dtype=np.int32)
    for chunk in _chunks(groups):
        _find_starts(chunk, tile, sides, (starts, n_starts, evaluations), xp, symmetry)
    pixels, n_stages = np.ones(n), 0
    for group in groups:
        for pair in group.pairs:
            pixels[pair.number] = group.pixel
            n_stages = max(n_stages, math.ceil(math.log2(math.sqrt(2) * group.pixel / (_PIXEL * pair.scale))))
    out = xp.full((n, _OUTPUTS), np.nan, dtype=np.float64)
    fixed = (*tile, *sides, xp.asarray(mirror.reshape(-1)), xp.asarray(pixels))
    for stage in [*range(n_stages), -1]:
        peaks, done = xp.empty((n, _CLIMBS, 4), dtype=np.float64), xp.zeros(n, dtype=np.int32)
        chosen, n_chosen = xp.empty((n, _CLIMBS, 4), dtype=np.float64), xp.zeros(n, dtype=np.int32)
        rest = (peaks, xp.zeros(1, dtype=np.uint32), done, chosen, n_chosen, evaluations, out, np.int32(symmetry))
        blocks = min(_MOST_BLOCKS, n * _CLIMBS)
        args = (*fixed, np.int32(stage), starts, n_starts, *rest)
        KERNELS.launch(xp, "register_stage", (blocks,), (_THREADS,), args)
        starts, n_starts = chosen, n_chosen
    return xp.reshape(out, (m, k, _OUTPUTS))


@dataclass(frozen=True)
class _TilePair:
    """A pair of a tile: its number, the item that stays, and the root of the sum of both median variances."""

    number: int
    target: int
    scale: float


@dataclass(frozen=True)
class _MoverPairs:
    """Pairs that share the spectra of the item that moves."""

    mover: int
    side: int
    pixel: float
    angles: NDArray[np.float64]
    pairs: list[_TilePair]


def _group_pairs(items: Sequence[ParticleFacts], m: int, mirror: NDArray[np.int32], symmetry: int) -> list[_MoverPairs]:
    """Group the pairs of a tile, whose first m items are the left, by what moves and by their squares."""
    groups: dict[tuple[int, float, int], _MoverPairs] = {}
    k = len(items) - m
    for number in np.flatnonzero(mirror != _FILLED).tolist():
        a, b = number // k, m + number % k
        mover, target = (b, a) if items[a].fingerprint > items[b].fingerprint else (a, b)
        one, other = items[mover], items[target]
        variances = one.variance, other.variance
        side, pixel, angles = _native.microscopy_square((one.radius, other.radius), variances, symmetry)
        group = groups.setdefault((side, pixel, mover), _MoverPairs(mover, side, pixel, angles, []))
        group.pairs.append(_TilePair(number, target, math.sqrt(sum(variances))))
    return [groups[key] for key in sorted(groups)]


def _chunks(groups: list[_MoverPairs]) -> Iterator[list[_MoverPairs]]:
    """Cut groups where the squares change, and where they take too much memory."""
    chunk: list[_MoverPairs] = []
    n_pictures = n_pairs = 0
    for group in groups:
        more = len(group.angles) + len(group.pairs)
        pictures_fit = (n_pictures + more) * 8 * group.side**2 <= _MOST_PICTURE_BYTES
        if chunk and not (group.side == chunk[0].side and pictures_fit and n_pairs + len(group.pairs) <= PAIRS_AT_ONCE):
            yield chunk
            chunk, n_pictures, n_pairs = [], 0, 0
        chunk.append(group)
        n_pictures += more
        n_pairs += len(group.pairs)
    if chunk:
        yield chunk


def _find_starts(
    chunk: list[_MoverPairs],
    tile: tuple[Any, Any],
    sides: tuple[Any, Any],
    found: tuple[Any, ...],
    xp: Any,
    symmetry: int,
) -> None:
    """Find where the climbs of some pairs start: draw, correlate, choose."""
    side = chunk[0].side
    pictures = [(group.mover, group.pixel, angle) for group in chunk for angle in group.angles.tolist()]
    first = np.cumsum([0, *(len(group.angles) for group in chunk)])
    places: dict[tuple[int, float], int] = {}
    movers, targets, n_angles, numbers, pixels = [], [], [], [], []
    for at, group in enumerate(chunk):
        for pair in group.pairs:
            key = pair.target, group.pixel
            if key not in places:
                places[key] = len(pictures)
                pictures.append((*key, 0.0))
            movers.append(first[at])
            targets.append(places[key])
            n_angles.append(len(group.angles))
            numbers.append(pair.number)
            pixels.append(group.pixel)
    items, widths, angles = (np.array(column) for column in zip(*pictures, strict=True))
    items, widths, angles = (
        xp.asarray(a) for a in (items.astype(np.int32), widths.astype(float), angles.astype(float))
    )
    shape, n, most = (len(pictures), side, side), len(numbers), max(n_angles)
    spectra = xp.empty(shape, dtype=np.float32), xp.empty(shape, dtype=np.float32)
    of_pictures = (items, widths, angles, np.int32(len(pictures)), np.int32(side), *spectra)
    blocks = min(_MOST_BLOCKS, len(pictures))
    KERNELS.launch(xp, "draw_pictures", (blocks,), (_THREADS,), (*tile, *of_pictures))
    blocks = min(_MOST_SQUARES, n * most)
    scratch = xp.empty((blocks, 2, side, side), dtype=np.float32)
    peaks = xp.empty((n, most, _OF_ANGLE, 4), dtype=np.float64)
    of_pairs = tuple(xp.asarray(np.array(column, np.int32)) for column in (movers, targets, n_angles))
    size = (np.int32(n), np.int32(most), np.int32(side))
    args: tuple[Any, ...] = (*spectra, angles, widths, *of_pairs, *size, scratch, peaks)
    KERNELS.launch(xp, "find_peaks", (blocks,), (_THREADS,), args)
    which = xp.asarray(np.array(numbers, np.int32)), xp.asarray(np.array(pixels))
    args = (*tile, *sides, *which, *size, peaks, *found, np.int32(symmetry))
    KERNELS.launch(xp, "choose_starts", (min(_MOST_BLOCKS, n),), (_THREADS,), args)


def mirrors(
    shape: tuple[int, int], twice: NDArray[np.bool_], other: tuple[NDArray[np.intp], NDArray[np.intp]]
) -> NDArray[np.int32]:
    """Return the mirror of each pair (m, k) from the pairs that a tile holds twice, and where it holds them first."""
    found = np.full(shape, -1, np.int32)
    found[twice] = _FILLED
    found[other] = np.flatnonzero(twice)
    return found


# Rigid motions: their inverses, and files of them.

Motions = dict[tuple[str, str], tuple[float, float, float]]

_COLUMNS = ("i", "j", "tx", "ty", "theta")
_DIGEST = "#sha256="
# By judgement: 64 bits tell any two files apart.
_DIGITS = 16


def inverse(
    x: NDArray[np.float64], y: NDArray[np.float64], theta: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the motions that undo some motions, element by element; angles from -pi to below pi."""
    cos, sin = np.cos(theta), np.sin(theta)
    inside = (theta > -np.pi) & (theta <= np.pi)  # no rounding there
    back = np.where(inside, -theta, wrap_angles(-theta))
    return -(cos * x + sin * y), -(cos * y - sin * x), np.where(back >= np.pi, -np.pi, back)


def wrap_angles(theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return angles from -pi to below pi."""
    found: NDArray[np.float64] = (theta + np.pi) % (2 * np.pi) - np.pi
    return found


def read_motions(name: str) -> tuple[str, Motions]:
    """Read a file of motions; return its absolute path with a digest, and the motions by keys (i, j).

    Parameters
    ----------
    name : str
        A path, or what an earlier call returned: the file must then be the same.

    Raises
    ------
    ConfigError
        If it cannot be read, is not CSV of motions, or is another file than it was.
    """
    path, _, wanted = name.partition(_DIGEST)
    expected = f"expected a CSV with the columns {', '.join(_COLUMNS)}"
    try:
        data = Path(path).read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text in UTF-8"
        raise ConfigError(f"score_only: {path} cannot be read: {reason}; {expected}") from error
    digest = hashlib.sha256(data).hexdigest()[:_DIGITS]
    if wanted and wanted != digest:
        raise ConfigError(f"score_only: {path} has changed since the run began; bring it back, or start a new run")
    return f"{Path(path).absolute()}{_DIGEST}{digest}", _parse_motions(path, text, expected)


def _parse_motions(path: str, text: str, expected: str) -> Motions:
    rows = csv.DictReader(text.splitlines())
    lacking = [name for name in _COLUMNS if name not in (rows.fieldnames or [])]
    if lacking:
        raise ConfigError(f"score_only: {path} has no column {lacking[0]!r}; {expected}")
    motions: Motions = {}
    for row in rows:
        try:
            x, y, theta = (float(row[name]) for name in _COLUMNS[2:])
        except (TypeError, ValueError):
            raise ConfigError(f"score_only: {path}, line {rows.line_num}: a number is missing; {expected}") from None
        if not all(map(math.isfinite, (x, y, theta))):
            raise ConfigError(f"score_only: {path}, line {rows.line_num}: {x}, {y}, {theta} are not finite")
        turn = theta if -math.pi <= theta < math.pi else float(wrap_angles(np.array(theta)))
        motions[row["i"], row["j"]] = (x, y, turn)
    return motions
