"""Random commands on random runs, against a model that is slow and plain: the matrix of all numbers so far."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from fuzz.worlds import Differences, World, build
from tartan.errors import ConfigError

COMMANDS_A_RUN = 6


def attack(rng: random.Random, folder: Path) -> None:
    """Make a run, then resume it, read it, ask for its neighbours, export it and add to it in any order."""
    world = build(rng, folder)
    for _ in range(COMMANDS_A_RUN):
        command = rng.choice([resume, again, neighbors, export, other])
        try:
            command(rng, world)
        except Exception as error:
            error.add_note(f"{command.__name__} of {world.numbers.tolist()}, {world.reduce}")
            raise
        world = add(rng, world) if rng.random() < 0.4 else world
        world.check(tartan.open(world.path), whole=True)


def resume(rng: random.Random, world: World) -> None:
    """Resume what is finished."""
    world.check(tartan.resume(world.path, quiet=True), whole=True)


def again(rng: random.Random, world: World) -> None:
    """Read it twice, with memory for little."""
    for _ in range(2):
        world.check(tartan.open(world.path), whole=True)


def neighbors(rng: random.Random, world: World) -> None:
    """Compare the nearest with a full sort."""
    n = len(world.numbers)
    k = rng.randrange(1, n)
    if world.reduce is not None and world.reduce["kind"] != "top-k":
        return
    if world.reduce is not None:
        k = min(k, world.reduce["k"])
    found = tartan.open(world.path).neighbors(k)[1]
    scores = world.scores.copy()
    np.fill_diagonal(scores, np.inf)
    np.testing.assert_array_equal(np.asarray(found, np.float64), np.sort(scores, axis=1)[:, :k])


def export(rng: random.Random, world: World) -> None:
    """Write the matrix and read it back."""
    if world.reduce is None:
        path = world.path.parent / "out.npy"
        tartan.open(world.path).export(path)
        found = np.load(path)
        np.fill_diagonal(found, 0.0)
        np.testing.assert_array_equal(found, world.scores)
        path.unlink()


def other(rng: random.Random, world: World) -> None:
    """Ask for another run in the same folder: refused."""
    try:
        tartan.allpairs(Differences(), world.numbers[:, None] + 1.0, world.path, quiet=True, reduce=_other(world))
    except (ConfigError, tartan.TartanError):
        return
    raise AssertionError("another run was computed into the folder of this one")


def _other(world: World) -> Any:
    return {"kind": "threshold", "threshold": 1.0} if world.reduce is None else None


def add(rng: random.Random, world: World) -> World:
    """Add items to the run."""
    new = np.array([float(rng.randrange(1000)) for _ in range(rng.randrange(1, 12))])
    path = world.path.parent / f"more{len(world.numbers)}-{rng.randrange(10**9)}.npy"
    np.save(path, new[:, None])
    tartan.add(world.path, path, app=Differences(), previous=_previous(world), quiet=True)
    return replace(world, numbers=np.concatenate([world.numbers, new]))


def _previous(world: World) -> Any:
    return world.numbers[:, None]
