"""Least-squares maps against SciPy's ``least_squares`` and a dense Newton matrix in NumPy, in one run.

All minimise the same chi2 from the same start (classical scaling), in float64. SciPy gets the sparse Jacobian of the
pairs and its own iterative solver (``trf`` with LSMR); NumPy builds the whole damped matrix of Gauss and Newton and
factors it. The time is that to a chi2 which all of them reach: 0.01 % above the end of the one that ends highest.
Memory is the peak beyond a process that only holds the input, at least 1 MB.

Words: ``n=400``, ``rounds=2``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import least_squares
from scipy.sparse import csr_array
from scipy.spatial.distance import pdist, squareform

from benches.shared._measure import options_of, print_table, with_peak_memory
from tartan.analytics import LMMDS

Floats = NDArray[np.float64]
DIMENSION = 3
STEPS = 30
CONTENDERS = ("ours", "scipy", "numpy")


def clusters(n: int) -> Floats:
    """Return distances of five Gaussian clusters in ten dimensions, the largest 1."""
    rng = np.random.default_rng(12345)
    centres = rng.normal(0, 3.0, size=(5, 10))
    points = centres[rng.integers(0, 5, size=n)] + rng.normal(0, 1.0, size=(n, 10))
    distances: Floats = squareform(pdist(points))
    return distances / distances.max()


def start(D: Floats) -> Floats:
    """Return the start that all use: classical scaling."""
    squares = D**2
    means = squares.mean(axis=0)
    values, vectors = np.linalg.eigh(-0.5 * (squares - means - means[:, None] + means.mean()))
    found: Floats = vectors[:, -DIMENSION:] * np.sqrt(values[-DIMENSION:])
    return found


class Track:
    """The chi2 that a contender has reached, and when."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.seconds: list[float] = []
        self.chisq: list[float] = []

    def add(self, chisq: float) -> None:
        self.seconds.append(time.perf_counter() - self._began)
        self.chisq.append(float(chisq))

    def time_to(self, chisq: float) -> float:
        return self.seconds[int(np.flatnonzero(np.array(self.chisq) <= chisq)[0])]


def ours(D: Floats, X: Floats) -> Track:
    """Run LMMDS."""
    track = Track()
    LMMDS(
        DIMENSION, weighting="even", multiplier=1, max_iter=STEPS, callback=lambda step: track.add(step["chisq"])
    ).fit(D, init=X)
    return track


def scipy(D: Floats, X: Floats) -> Track:
    """Run SciPy's trust regions; f of a pair i < j counts twice, hence the root of 2."""
    n = len(D)
    first, second = np.triu_indices(n, 1)
    wanted, weight = D[first, second], np.sqrt(2) / _mean(D)
    rows = np.repeat(np.arange(len(first)), 2 * DIMENSION)
    columns = np.concatenate([first[:, None] * DIMENSION + np.arange(DIMENSION),
                              second[:, None] * DIMENSION + np.arange(DIMENSION)], axis=1).ravel()  # fmt: skip
    track = Track()

    def residuals(x: Floats) -> Floats:
        apart = x.reshape(n, -1)
        f: Floats = weight * (wanted - np.linalg.norm(apart[first] - apart[second], axis=1))
        track.add(f @ f)
        return f

    def jacobian(x: Floats) -> Any:
        apart = x.reshape(n, -1)[first] - x.reshape(n, -1)[second]
        slope = -weight * apart / np.linalg.norm(apart, axis=1)[:, None]
        values = np.concatenate([slope, -slope], axis=1).ravel()
        return csr_array((values, (rows, columns)), shape=(len(first), x.size))

    least_squares(
        residuals, X.ravel(), jacobian, method="trf", tr_solver="lsmr", x_scale="jac", max_nfev=STEPS, ftol=1e-6
    )
    return track


def numpy(D: Floats, X: Floats) -> Track:
    """Make Levenberg-Marquardt steps with the whole matrix, damped as Nielsen does."""
    track, x = Track(), X.copy()
    weight = 1 / _mean(D)
    damping, growth = 0.01, 2.0  # of the scaled matrix, whose diagonal is 1
    chisq, gradient, H = _derivatives(D, x, weight)
    for _ in range(STEPS):
        scale = 1 / np.sqrt(np.abs(H.diagonal()))
        scaled, right = H * scale * scale[:, None], scale * gradient
        y = _solved(scaled, right, damping)
        predicted = float(y @ right + damping * (y @ y))
        target = x - (scale * y).reshape(x.shape)
        new = _chisq(D, target, weight)
        ratio = (chisq - new) / predicted
        if ratio <= 0:
            damping, growth = damping * growth, growth * 2
            continue
        x, growth = target, 2.0
        damping = max(damping * max(1 / 3, 1 - (2 * ratio - 1) ** 3), 1e-6)  # the gauge makes the matrix singular
        chisq, gradient, H = _derivatives(D, x, weight)
        track.add(chisq)
        if predicted < 1e-6 * chisq:
            break
    return track


def _solved(A: Floats, b: Floats, damping: float) -> Floats:
    damped = A.copy()
    damped.flat[:: len(A) + 1] += damping
    found: Floats = cho_solve(cho_factor(damped, overwrite_a=True), b)
    return found


def _mean(D: Floats) -> float:
    return float(D.sum() / (len(D) * (len(D) - 1)))


def _chisq(D: Floats, x: Floats, weight: float) -> float:
    f = weight * (D - squareform(pdist(x)))
    return float((f * f).sum())


def _derivatives(D: Floats, x: Floats, weight: float) -> tuple[float, Floats, Floats]:
    """Return chi2, half gradient and the half Hessian of Gauss and Newton."""
    n = len(x)
    apart = x[:, None] - x
    distance = np.linalg.norm(apart, axis=2)
    chisq = float(((D - distance) ** 2).sum() * weight**2)
    np.fill_diagonal(distance, 1.0)
    unit = apart / distance[..., None]
    residual = D - np.linalg.norm(apart, axis=2)
    gradient = -2 * weight**2 * (residual[..., None] * unit).sum(1)
    pair = 2 * weight**2 * unit[..., :, None] * unit[..., None, :]
    H = -pair
    H[np.arange(n), np.arange(n)] = pair.sum(1)
    return chisq, gradient.ravel(), H.transpose(0, 2, 1, 3).reshape(n * DIMENSION, n * DIMENSION)


def speed(n: int, rounds: int) -> dict[str, float]:
    """Compare the seconds to a chi2 that all reach, the best of some turns."""
    D = clusters(n)
    X = start(D)
    ours(D, X)
    tracks: dict[str, list[Track]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name in CONTENDERS:
            tracks[name].append(globals()[name](D, X))
    goal = 1.0001 * max(min(tracks[name][0].chisq) for name in CONTENDERS)
    seconds = {name: min(track.time_to(goal) for track in tracks[name]) for name in CONTENDERS}
    found = {"chisq": goal} | {f"{name}_ms": 1000 * seconds[name] for name in CONTENDERS}
    found |= {f"{name}_end": min(tracks[name][0].chisq) for name in CONTENDERS}
    return found | {f"{name}_ratio": seconds[name] / seconds["ours"] for name in CONTENDERS[1:]}


def memory(n: int) -> dict[str, float]:
    """Compare the peaks beyond the input."""
    peaks = {who: with_peak_memory(__file__, "alone", who, n)[1] / 1e6 for who in ("nobody", *CONTENDERS)}
    beyond = {name: max(peaks[name] - peaks["nobody"], 1.0) for name in CONTENDERS}
    found = {f"{name}_mb": beyond[name] for name in CONTENDERS}
    return found | {f"{name}_ratio": beyond[name] / beyond["ours"] for name in CONTENDERS[1:]}


def alone(who: str, n: int) -> None:
    """Hold the input, and let one of them run."""
    D = np.load(_cached(n))
    X = start(D)
    if who != "nobody":
        globals()[who](D, X)
    time.sleep(0.3)  # long enough for a process that only holds the input to be seen
    print("{}")


def _cached(n: int) -> Path:
    return Path(tempfile.gettempdir()) / f"tartan-chisq-{n}.npy"


def main(arguments: list[str]) -> dict[str, Any]:
    """Measure, print a table, return the numbers."""
    if arguments[:1] == ["alone"]:
        alone(arguments[1], int(arguments[2]))
        return {}
    words = options_of(arguments, n=400, rounds=2)
    n, rounds = words.n, words.rounds
    np.save(_cached(n), clusters(n))
    try:
        results: dict[str, Any] = {"speed": speed(n, rounds), "memory": memory(n)}
    finally:
        _cached(n).unlink()
    rows = [(part, name, value) for part, values in results.items() for name, value in values.items()]
    print_table(
        f"LMMDS, SciPy's least_squares, and NumPy with the whole matrix, N = {n}", rows, ("what", "number", "value")
    )
    return results


if __name__ == "__main__":
    main(sys.argv[1:])
