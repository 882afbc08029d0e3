"""The best motion of one particle onto another by looking everywhere: slow, float64 at the end, no kernel of Tartan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.fft
import scipy.ndimage
import scipy.optimize
from numpy.typing import NDArray

from tartan.apps.microscopy import Microscopy
from tartan.apps.microscopy.simulate import simulate

Array = NDArray[np.float64]

ANGLE_STEP = 0.02
WITHIN = 0.8


def score(motion: Array, a: Array, b: Array) -> float:
    """Return B of a motion."""
    return -_cost(motion, a, b, np.ones((len(a), len(b)), bool).nonzero())[0]


def search(a: Array, b: Array, angle_step: float = ANGLE_STEP, within: float = WITHIN) -> tuple[float, Array]:
    """Return the greatest B and its motion (tx, ty, theta).

    B is 2 pi times the integral of the product of both particles, each point drawn as a Gaussian of its own
    uncertainty. So one correlation of two such pictures has B of all translations at an angle; pixels are half a
    median uncertainty.
    Every peak of at least ``within`` of the highest is climbed to the end.
    """
    centres = [one[:, :2].mean(axis=0) for one in (a, b)]
    first, second = (np.column_stack([one[:, :2] - c, one[:, 2]]) for one, c in zip((a, b), centres, strict=True))
    step = float(min(np.median(a[:, 2]), np.median(b[:, 2]))) / 2
    reach = sum(float(np.hypot(*one[:, :2].T).max()) for one in (first, second))
    size = scipy.fft.next_fast_len(int(np.ceil(1.5 * reach / step)) + 8, real=True)
    target = scipy.fft.rfft2(_draw(second, size, step))
    n = int(np.ceil(2 * np.pi / angle_step))
    peaks: list[tuple[float, float, float, float]] = []
    highest = 0.0
    for theta in -np.pi + 2 * np.pi * np.arange(n) / n:
        moved = np.column_stack([_turn(first[:, :2], theta), first[:, 2]])
        image = scipy.fft.irfft2(np.conj(scipy.fft.rfft2(_draw(moved, size, step))) * target, s=(size, size))
        highest = max(highest, float(image.max()))
        top = (image >= within * highest) & (image == scipy.ndimage.maximum_filter(image, 3, mode="wrap"))
        for row, column in zip(*top.nonzero(), strict=True):
            x, y = ((at + size // 2) % size - size // 2 for at in (row, column))
            peaks.append((float(image[row, column]), float(x) * step, float(y) * step, float(theta)))
    peaks = sorted((peak for peak in peaks if peak[0] >= within * highest), reverse=True)
    best, motion = -np.inf, np.zeros(3)
    for start in _thin(peaks, 2 * step, float(np.sqrt(np.square(first[:, :2]).sum(axis=1).mean()))):
        value, at = _climb(start, first, second)
        if value > best:
            best, motion = value, at
    return best, np.array([*(motion[:2] + centres[1] - _turn(centres[0][None], motion[2])[0]), motion[2]])


def _turn(points: Array, theta: float) -> Array:
    cos, sin = np.cos(theta), np.sin(theta)
    turned: Array = points @ np.array([[cos, sin], [-sin, cos]])
    return turned


def _draw(points: Array, size: int, step: float) -> NDArray[np.float32]:
    """Return the sum of normalised Gaussians around the middle pixel, (size, size) by x and y, without wrap."""
    grid = (np.arange(size) - size // 2) * step
    sides = []
    for axis in (0, 1):
        apart = (grid[None, :] - points[:, axis, None]) / points[:, 2, None]
        sides.append((np.exp(np.maximum(-apart * apart / 2, -80)) / points[:, 2, None]).astype(np.float32))
    return sides[0].T @ sides[1]


def _thin(peaks: list[tuple[float, float, float, float]], near: float, radius: float) -> list[Array]:
    kept: list[Array] = []
    for _, x, y, theta in peaks:
        turns = np.array([np.angle(np.exp(1j * (theta - other[2]))) for other in kept])
        shifts = np.array([np.hypot(x - other[0], y - other[1]) for other in kept])
        if not kept or (shifts + radius * np.abs(turns)).min() > near:
            kept.append(np.array([x, y, theta]))
    return kept


def _cost(motion: Array, a: Array, b: Array, near: tuple[NDArray[np.intp], ...]) -> tuple[float, Array]:
    i, j = near
    turned = _turn(a[:, :2], motion[2])[i]
    d = turned + motion[:2] - b[j, :2]
    v = a[i, 2] ** 2 + b[j, 2] ** 2
    terms = np.exp(-np.square(d).sum(axis=1) / (2 * v)) / v
    push = d * (terms / v)[:, None]
    turn = (push[:, 1] * turned[:, 0] - push[:, 0] * turned[:, 1]).sum()
    return -float(terms.sum()), np.array([*push.sum(axis=0), turn])


def _climb(start: Array, a: Array, b: Array) -> tuple[float, Array]:
    radius = float(np.sqrt(np.square(a[:, :2]).sum(axis=1).mean()))
    sigma = float(np.sqrt(np.median(a[:, 2]) ** 2 + np.median(b[:, 2]) ** 2))
    d = _turn(a[:, :2], start[2])[:, None] + start[:2] - b[None, :, :2]
    v = a[:, 2, None] ** 2 + b[None, :, 2] ** 2
    near = (np.square(d).sum(axis=2) < 2 * (25 * v + (3 * sigma) ** 2)).nonzero()
    unit = np.array([sigma, sigma, sigma / radius])
    size = -_cost(start, a, b, near)[0]

    def cost(x: Array) -> tuple[float, Array]:
        value, slope = _cost(start + x * unit, a, b, near)
        return value / size, slope * unit / size

    found = scipy.optimize.minimize(cost, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-5})
    motion = start + found.x * unit
    return score(motion, a, b), motion


# Particles that are hard to register, each kind in its own way.

KINDS = ("dense", "half", "sparse", "astray", "clipped", "large")


def hard_particles(kind: str, n: int, seed: int, folder: Path) -> list[Array]:
    """Return n simulated particles of a kind, (points, 3) each.

    "dense", "half", "sparse": 0.8, 0.5 and 0.3 of the sites are labelled; "astray": a third as many points again in one
    corner, off the structure; "clipped": all points beyond a random line are missing; "large": 1,000 to 2,000 points.
    """
    density = {"half": 0.5, "sparse": 0.3, "astray": 0.6}.get(kind, 0.8)
    simulate(folder, n, seed, density=density, localisations=60 if kind == "large" else 12)
    particles = read_particles(folder / "particles.json")
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    if kind == "astray":
        return [_add_stray(one, rng) for one in particles]
    if kind == "clipped":
        return [_clip(one, rng) for one in particles]
    return particles


def read_particles(path: Path, first: int | None = None) -> list[Array]:
    """Return the particles of a file, or the first ones."""
    app = Microscopy()
    parts = app.split(path.name, path.read_bytes()) or [path.read_bytes()]
    return [app.parse(f"{path.name}#{k}", part)[0] for k, part in enumerate(parts[:first])]


def _add_stray(points: Array, rng: np.random.Generator) -> Array:
    angle = rng.uniform(-np.pi, np.pi)
    n = len(points) // 3
    place = points[:, :2].mean(axis=0) + 0.25 * np.array([np.cos(angle), np.sin(angle)])
    stray = np.column_stack([place + rng.uniform(-0.15, 0.15, (n, 2)), rng.choice(points[:, 2], n)])
    return np.concatenate([points, stray])


def _clip(points: Array, rng: np.random.Generator) -> Array:
    angle = rng.uniform(-np.pi, np.pi)
    along = points[:, :2] @ np.array([np.cos(angle), np.sin(angle)])
    kept: Array = points[along >= np.quantile(along, rng.uniform(0.25, 0.5))]
    return kept
