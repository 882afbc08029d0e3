"""Particles with known truth: copies of one structure, turned, shifted, labelled in part and localised with noise."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError

Array = NDArray[np.float64]

#: Sites of the lattice, along its width and height, and how many of them belong to the structure.
_LATTICE = (8, 6)
_SITES = 30
_WIDTH, _HEIGHT = 0.54, 0.4
_SHIFT = 0.05


# Each is a fact of the simulated particles: hence more than eight parameters.
def simulate(
    folder: Path,
    n: int,
    seed: int,
    *,
    structure: str = "lattice",
    density: float = 0.8,
    localisations: int = 12,
    sigma: float = 0.009,
    stray: int = 8,
    hard: bool = False,
) -> Path:
    """Write n particles of one structure, and the motion of each.

    Parameters
    ----------
    folder : Path
        Gets ``particles.json`` and ``truth.json``; made when absent.
    n : int
        Number of particles.
    seed : int
        The same arguments give the same files.
    structure : str
        "lattice": 30 of the 48 sites of a lattice of 0.54 x 0.4 without symmetry, drawn by the seed. "ring": 8 pairs of
        sites on a circle, which is 8-fold symmetric.
    density : float
        Part of the sites that carry a label, each by chance; above 0 up to 1.
    localisations : int
        Mean number of localisations of a labelled site (Poisson, at least 1).
    sigma : float
        Mean uncertainty of a localisation; each has its own, within a third of it.
    stray : int
        Points of each particle that belong to no site.
    hard : bool
        Difficult particles, see ``make_difficult``: three in front that are none, copies, points that tie, another
        unit, and by turns few points, many, and four times as many stray ones. Takes 8 particles or more.

    Returns
    -------
    Path
        ``truth.json``: the options, ``sites`` (s, 2) of the structure, and for each particle in order its ``angle`` and
        ``translation``: point x of it lies at R(angle) x + translation in the frame of the structure. The motion of
        particle i onto j turns by angle_i - angle_j. With ``hard`` also ``unit``, the length of what is 1 otherwise
        (``sites`` and translations are in it), ``bad``, why particles are none, and ``duplicates``, the earlier
        particle that one equals.

    Raises
    ------
    ConfigError
        If a number is out of range.

    Examples
    --------
    >>> import tempfile
    >>> truth = simulate(Path(tempfile.mkdtemp()), 3, 1)
    >>> len(json.loads(truth.read_text())["particles"])
    3
    """
    options = {
        "structure": structure, "density": density, "localisations": localisations, "sigma": sigma, "stray": stray,
    }  # fmt: skip
    _check(n, seed, options, hard)
    folder.mkdir(parents=True, exist_ok=True)
    sites = _sites(structure, np.random.default_rng([seed, 0]))
    particles: list[dict[str, Any]] = []
    truth: list[dict[str, Any]] = []
    for index in range(n):
        rng = np.random.default_rng([seed, 1, index])
        theta, shift = float(rng.uniform(-np.pi, np.pi)), rng.uniform(-_SHIFT, _SHIFT, 2)
        many, astray = amounts(index, localisations, stray) if hard else (localisations, stray)
        points = _localise(sites, density, many, sigma, astray, rng)
        cos, sin = np.cos(theta), np.sin(theta)
        moved = points[:, :2] @ np.array([[cos, sin], [-sin, cos]]) + shift
        particles.append({"points": moved.round(9).tolist(), "sigma": points[:, 2].round(9).tolist()})
        back = -shift @ np.array([[cos, -sin], [sin, cos]])
        truth.append({"angle": -theta, "translation": back.tolist()})
    about: dict[str, Any] = {"application": "microscopy", "n": n, "seed": seed, **options}
    if hard:
        about |= make_difficult(seed, particles, truth)
        sites *= about["unit"]
    _write(folder / "particles.json", {"particles": particles})
    return _write(folder / "truth.json", {**about, "sites": sites.tolist(), "particles": truth})


def _check(n: int, seed: int, options: dict[str, Any], hard: bool) -> None:
    if hard and n < LEAST_ITEMS:
        raise ConfigError(f"n: {n} must be {LEAST_ITEMS} or more with hard=True", context={"option": "n"})
    least = {
        "n": (n, 1),
        "seed": (seed, 0),
        "localisations": (options["localisations"], 1),
        "stray": (options["stray"], 0),
    }
    for name, (value, smallest) in least.items():
        if value < smallest or value > 10**7:
            raise ConfigError(f"{name}: {value} must be {smallest} or more", context={"option": name})
    if options["structure"] not in ("lattice", "ring"):
        raise ConfigError(
            f"structure: {options['structure']!r} is unknown; choose lattice or ring", context={"option": "structure"}
        )
    for name, most in (("density", 1.0), ("sigma", 0.2)):
        if not 0 < options[name] <= most:
            raise ConfigError(f"{name}: {options[name]} must be above 0 and at most {most}", context={"option": name})


def _sites(structure: str, rng: np.random.Generator) -> Array:
    """Return the sites around their centroid, (s, 2)."""
    if structure == "ring":
        angles = 2 * np.pi * (np.arange(8)[:, None] + [0.0, 0.25]) / 8
        ring: Array = 0.25 * np.column_stack([np.cos(angles.ravel()), np.sin(angles.ravel())])
        return ring
    columns, rows = _LATTICE
    x, y = np.meshgrid(np.linspace(0, _WIDTH, columns), np.linspace(0, _HEIGHT, rows))
    chosen = np.sort(rng.choice(x.size, _SITES, replace=False))
    sites = np.column_stack([x.ravel()[chosen], y.ravel()[chosen]])
    centred: Array = sites - sites.mean(axis=0)
    return centred


def _localise(
    sites: Array, density: float, localisations: int, sigma: float, stray: int, rng: np.random.Generator
) -> Array:
    """Return the localisations of one particle around the structure, (m, 3); three sites or more have labels."""
    labelled = rng.random(len(sites)) < density
    labelled[rng.choice(len(sites), 3, replace=False)] = True
    counts = np.maximum(1, rng.poisson(localisations, int(labelled.sum())))
    places = np.repeat(sites[labelled], counts, axis=0)
    low, high = sites.min(axis=0) - 0.05, sites.max(axis=0) + 0.05
    sigmas = rng.uniform(2 / 3, 4 / 3, len(places) + stray) * sigma
    noise = rng.standard_normal(places.shape) * sigmas[: len(places), None]
    points = np.concatenate([places + noise, rng.uniform(low, high, (stray, 2))])
    return np.column_stack([points, sigmas])


def _write(path: Path, content: dict[str, Any]) -> Path:
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(json.dumps(content) + "\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


# What makes simulated particles difficult, and the truth about it.
#
# The first three particles are none (``bad``). Every fifth one is a copy of an earlier one. Coordinates are rounded to
# a thousandth, so that points tie, and all have another unit. By turns particles are as they are, have a third of the
# localisations, three times as many, or four times as many points that belong to no site.

LEAST_ITEMS = 8

_BAD = ("a point that is NaN", "two points", "an uncertainty of 0")
_EVERY = 5  # one particle of so many is a copy
_UNITS = (1e-9, 1e-3, 1.0, 130.0, 1e5)  # metres of micrometres, pixels of nanometres
_DIGITS = 3


def amounts(index: int, localisations: int, stray: int) -> tuple[int, int]:
    """Return the mean number of localisations of a site, and the stray points, of one particle."""
    kind = index % 4
    return (max(1, localisations // 3) if kind == 1 else localisations * 3 if kind == 2 else localisations), (
        4 * stray if kind == 3 else stray
    )


def make_difficult(seed: int, particles: list[dict[str, Any]], truth: list[dict[str, Any]]) -> dict[str, Any]:
    """Change particles and their motions in place; return what the truth says of it."""
    rng = np.random.default_rng([seed, 2])
    unit = _UNITS[int(rng.integers(len(_UNITS)))]
    for particle, motion in zip(particles, truth, strict=True):
        particle["points"] = (np.round(particle["points"], _DIGITS) * unit).tolist()
        particle["sigma"] = (np.array(particle["sigma"]) * unit).tolist()
        motion["translation"] = (np.array(motion["translation"]) * unit).tolist()
    duplicates = _copy(particles, truth, rng)
    particles[0]["points"][0][0] = math.nan
    particles[1] = {"points": particles[1]["points"][:2], "sigma": particles[1]["sigma"][:2]}
    particles[2]["sigma"][-1] = 0.0
    return {"hard": True, "unit": unit, "bad": dict(enumerate(_BAD)), "duplicates": duplicates}


def _copy(particles: list[Any], truth: list[Any], rng: np.random.Generator) -> dict[int, int]:
    """Put copies in place of every fifth particle; return of which each is one."""
    copies = range(_EVERY - 1, len(particles), _EVERY)
    duplicates: dict[int, int] = {}
    for place in copies:
        originals = [i for i in range(len(_BAD), place) if i not in duplicates]
        source = duplicates[place] = originals[int(rng.integers(len(originals)))]
        particles[place], truth[place] = dict(particles[source]), dict(truth[source])
    return duplicates
