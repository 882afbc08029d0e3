"""Damage to files of a run: bits turned, ends cut off, files gone. Never a wrong number, never a hang.

What may happen: an error of Tartan that says so, or the right numbers, missing ones left out. A resume may refuse; if
it does not, it brings back every number.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import tartan
from fuzz.worlds import Differences, World, build
from tartan.errors import InternalError, TartanError

DAMAGES_A_RUN = 8


def attack(rng: random.Random, folder: Path) -> None:
    """Make a run, and damage it again and again, mending what can be mended."""
    world = build(rng, folder)
    for _ in range(DAMAGES_A_RUN):
        files = sorted(path for path in world.path.rglob("*") if path.is_file() and path.suffix != ".lock")
        victim = rng.choice(files)
        kept = victim.read_bytes()
        how = rng.choice(list(DAMAGES))
        DAMAGES[how](rng, victim)
        try:
            outcome = survey(world)
        except Exception as error:
            error.add_note(f"{victim.relative_to(world.path)}: {how}")
            raise
        if outcome == "refused":
            victim.parent.mkdir(parents=True, exist_ok=True)
            victim.write_bytes(kept)


def survey(world: World) -> str:
    """Read all that a damaged run gives, resume it, and read it again."""
    try:
        world.check(tartan.open(world.path))
    except TartanError as error:
        _refuse_defects(error)
    try:
        run = tartan.allpairs(Differences(), world.path.parent / "numbers.npy", world.path, quiet=True, **_asked(world))
        world.check(run, whole=True)
    except TartanError as error:
        _refuse_defects(error)
        return "refused"
    return "mended"


def _asked(world: World) -> dict[str, object]:
    return {} if world.reduce is None else {"reduce": world.reduce}


def _refuse_defects(error: TartanError) -> None:
    if isinstance(error, InternalError):
        raise AssertionError(f"a defect, not a refusal: {error}") from error


def flip(rng: random.Random, path: Path) -> None:
    """Turn one to eight bits."""
    data = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 9) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(rng: random.Random, path: Path) -> None:
    """Cut off the end."""
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def zero(rng: random.Random, path: Path) -> None:
    """Fill a part with zeros, as a power failure does."""
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data) + 1)
    data[start:] = bytes(len(data) - start)
    path.write_bytes(data)


def extend(rng: random.Random, path: Path) -> None:
    """Append rubbish."""
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.randrange(1, 100)))


def delete(rng: random.Random, path: Path) -> None:
    """Remove the file."""
    path.unlink()


DAMAGES: dict[str, Callable[[random.Random, Path], None]] = {
    "bits turned": flip, "cut": cut, "zeros": zero, "rubbish appended": extend, "deleted": delete,
}  # fmt: skip
