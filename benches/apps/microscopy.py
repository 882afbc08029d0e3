"""Registration of particles against SciPy, against a thorough search, and against known truth; one core.

All by processor time, so that other work on the machine matters little:

- pairs a second on 200 fixed pairs of the 549 particles of ``../shared/data/particles``, against L-BFGS-B of SciPy by
  the published rule (six starts, s = 0.01, NumPy cost, default tolerances): 60 times with AVX-512, 40 with AVX2;
- B against SciPy's and against a search from 96 angles, on the first ``peers=`` of these pairs;
- known values of F, B, their gradient, and the best B of five pairs;
- angles of simulated pairs, at densities 0.8 and 0.5;
- particles of 1,000 to 2,000 points.

Words: ``peers=20`` pairs for the peers (20 seconds each), ``parts=truth,large`` only some parts (speed, known, truth,
large).
Without that folder, simulated particles take its place and there are no known values.
"""

from __future__ import annotations

import os

os.environ.setdefault("RAYON_NUM_THREADS", "1")

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.apps._register_peers import published, thorough
from benches.shared._measure import options_of, print_table
from tartan import _native
from tartan.apps.microscopy import Microscopy
from tartan.apps.microscopy.simulate import simulate
from tartan.errors import ConfigError

Array = NDArray[np.float64]

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "particles" / "tud_dol30.mat"
PAIRS = 200
PARTS = ("speed", "known", "truth", "large")
AT = np.array([[0.01, -0.02, 0.3]])
# Pair, F at AT for s = 0.01 and 0.1, gradient of F at 0.1 (about the origin), B at AT, best B.
KNOWN: tuple[tuple[tuple[int, int], float, float, tuple[float, float, float], float, float], ...] = (
    ((0, 1), 0.001293020863, 0.1368441236, (-0.072769498, 0.3052213, 0.011256414), 4925576.512, 18152959.5),
    ((0, 2), 0.002435064543, 0.1199123176, (-0.034353424, -0.20481193, 0.0020873414), 8267216.634, 16624586.7),
    ((5, 17), 0.001889675375, 0.1340774522, (-0.0082099042, 0.12001869, -0.0030113076), 9262474.76, 15346127.0),
    ((100, 200), 0.0005296747582, 0.06966337618, (-0.24047749, -0.16037306, 0.042904924), 2064207.612, 13455060.3),
    ((300, 548), 0.0007908514959, 0.1493173693, (0.06861778, 0.21543463, -0.06041457), 1939309.784, 12936843.8),
)  # fmt: skip


def levels() -> list[str]:
    """Return the vectors that this machine has, widest first."""
    points = np.array([[0.0, 0, 1], [1, 0, 1], [0, 1, 1]])
    found = []
    for level in ("avx512", "avx2", "plain"):
        try:
            _native.microscopy_evaluate(points, points, AT, level=level)
        except ValueError:
            continue
        found.append(level)
    return found


def particles_of(path: Path) -> list[Array]:
    """Read all particles of a file."""
    app = Microscopy()
    parts = app.split(path.name, path.read_bytes()) or [path.read_bytes()]
    return [app.parse(f"{path.name}#{k}", part)[0] for k, part in enumerate(parts)]


def simulated(n: int, **options: Any) -> tuple[list[Array], Array]:
    """Return particles and their angles."""
    with tempfile.TemporaryDirectory() as folder:
        truth = json.loads(simulate(Path(folder), n, 1, **options).read_text())
        particles = particles_of(Path(folder) / "particles.json")
    return particles, np.array([one["angle"] for one in truth["particles"]])


def registered(pairs: Sequence[tuple[Array, Array]], level: str | None = None) -> tuple[Array, float]:
    """Return the outputs of pairs, (p, 5), and the processor time of a pair in seconds."""
    start = time.process_time()
    found = [_native.microscopy_register([a], [b], level=level)[0, 0] for a, b in pairs]
    return np.array(found), (time.process_time() - start) / len(pairs)


def speed(particles: list[Array], n_peers: int) -> list[list[object]]:
    """Compare speed and B with SciPy, and B with the thorough search."""
    rng = np.random.default_rng(1)
    chosen = [rng.choice(len(particles), 2, replace=False) for _ in range(PAIRS)]
    pairs = [(particles[i], particles[j]) for i, j in chosen]
    start = time.process_time()
    peer = np.array([published(a, b)[0] for a, b in pairs[:n_peers]])
    peer_seconds = (time.process_time() - start) / n_peers
    best = np.array([thorough(a, b) for a, b in pairs[:n_peers]])
    rows: list[list[object]] = [["SciPy, six starts", "ms a pair", peer_seconds * 1e3, ""]]
    for level in levels():
        found, seconds = registered(pairs, level)
        bar = {"avx512": ">= 60", "avx2": ">= 40"}.get(level, "")
        rows.append([f"ours, {level}", "ms a pair", seconds * 1e3, ""])
        rows.append([f"ours, {level}", "times SciPy", peer_seconds / seconds, bar])
    found, _ = registered(pairs)
    ours = found[:n_peers, 0]
    rows.append(["B >= 0.999 of SciPy's", "of pairs", float((ours >= 0.999 * peer).mean()), ">= 0.95"])
    rows.append(["B to SciPy's", "mean ratio", float((ours / peer).mean()), ">= 1.10"])
    best = np.maximum(best, peer)
    rows.append(["B to 96 starts", "mean ratio", float((ours / best).mean()), ">= 0.97"])
    rows.append(["evaluations", "mean", float(found[:, 4].mean()), ""])
    return rows


def known(particles: list[Array], n_peers: int) -> list[list[object]]:
    """Compare with known values; the largest relative errors. The thorough search takes the first of the pairs."""
    errors = {"F": 0.0, "B": 0.0, "gradient": 0.0}
    reached, reference = [], []
    for (i, j), fine, coarse, gradient, score, best in KNOWN:
        a, b = particles[i], particles[j]
        for level in levels():
            f1 = _native.microscopy_evaluate(a, b, AT, scale=0.01, level=level)[0, 0]
            f2 = _native.microscopy_evaluate(a, b, AT, scale=0.1, level=level)[0]
            found = _native.microscopy_evaluate(a, b, AT, level=level)[0, 0]
            error = np.linalg.norm(about_origin(f2[1:4], a) - gradient) / np.linalg.norm(gradient)
            errors["F"] = max(errors["F"], abs(f1 / fine - 1), abs(f2[0] / coarse - 1))
            errors["B"] = max(errors["B"], abs(found / score - 1))
            errors["gradient"] = max(errors["gradient"], float(error))
            reached.append(_native.microscopy_register([a], [b], level=level)[0, 0, 0] / best)
        if len(reference) < n_peers:
            reference.append(thorough(a, b) / best)
    rows: list[list[object]] = [[f"error of {name}", "relative", error, "<= 1e-5"] for name, error in errors.items()]
    rows.append(["best B", "of the known one", float(min(reached)), ">= 0.999"])
    rows.append(["96 starts", "of the known one", float(min(reference)), ">= 0.99999"])
    return rows


def about_origin(gradient: Array, a: Array) -> Array:
    """Return a gradient by the turn about the origin, from that about the centroid of the moving particle."""
    x, y = a[:, :2].mean(axis=0)
    cos, sin = np.cos(AT[0, 2]), np.sin(AT[0, 2])
    turn = gradient[0] * (-sin * x - cos * y) + gradient[1] * (cos * x - sin * y)
    return np.array([gradient[0], gradient[1], gradient[2] + turn])


def truth() -> list[list[object]]:
    """Compare angles with those of simulated particles."""
    rows: list[list[object]] = []
    for density, bar in ((0.8, ">= 0.98"), (0.5, ">= 0.6")):
        particles, angles = simulated(2 * PAIRS, density=density)
        found, _ = registered([(particles[2 * k], particles[2 * k + 1]) for k in range(PAIRS)])
        errors = np.abs(np.angle(np.exp(1j * (found[:, 3] - (angles[::2] - angles[1::2])))))
        rows.append([f"density {density}", "within 0.1 rad", float((errors < 0.1).mean()), bar])
        rows.append([f"density {density}", "median error, rad", float(np.median(errors)), "<= 0.01" * (density > 0.6)])
    return rows


def large() -> list[list[object]]:
    """Measure particles of 1,000 to 2,000 points."""
    particles, _ = simulated(12, localisations=60)
    pairs = [(particles[i], particles[j]) for i in range(12) for j in range(i + 1, 12)]
    size = f"{min(map(len, particles)):,} to {max(map(len, particles)):,} points"
    bars = {"avx512": "<= 100", "avx2": "<= 160"}
    return [[size, f"ms a pair, {level}", registered(pairs, level)[1] * 1e3, bars.get(level, "")] for level in levels()]


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Measure, print a table, return the numbers."""
    words = options_of(arguments, peers=20, parts=",".join(PARTS))
    n_peers, parts = min(PAIRS, words.peers), words.parts.split(",")
    unknown = [part for part in parts if part not in PARTS]
    if unknown or n_peers < 1:
        raise ConfigError(
            f"parts={unknown[0] if unknown else ''}, peers={n_peers}: parts are {', '.join(PARTS)}; peers 1 or more"
        )
    particles = particles_of(REAL) if REAL.exists() else simulated(60)[0]
    rows: list[list[object]] = []
    for part in parts:
        if part == "speed":
            rows += speed(particles, n_peers)
        elif part == "known":
            rows += known(particles, n_peers) if REAL.exists() else [["known values", f"no {REAL.name}", "", ""]]
        else:
            rows += truth() if part == "truth" else large()
    print_table(f"registration, {PAIRS} pairs, {n_peers} of them by the peers", rows, ("what", "unit", "value", "bar"))
    return {f"{what}, {unit}": value for what, unit, value, _ in rows}


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
