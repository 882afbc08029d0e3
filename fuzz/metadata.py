"""What a run folder says of itself, changed as a forger would: readable JSON with checksums that fit."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import tartan
from fuzz.worlds import build
from tartan.errors import InternalError, TartanError

SCALARS = st.none() | st.booleans() | st.integers() | st.integers(-2, 5) | st.floats() | st.text(max_size=8)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=8), SCALARS, max_size=3)
FILES = ["manifest.json", "manifest.json", "stats.json", "scores.zarr/zarr.json", "status.zarr/zarr.json"]
SEEDS = [0, 2, 3, 4]  # of runs: with a threshold, dense in many chunks, dense in one, with the best of each item


def changed_metadata() -> st.SearchStrategy[Any]:
    """Draw a file, a place in it, and what is put there (Ellipsis: nothing)."""
    places = st.lists(st.integers(0, 20), min_size=1, max_size=4)
    return st.tuples(st.sampled_from(SEEDS), st.sampled_from(FILES), places, VALUES | st.just(...))


def metadata_is_read_or_refused(folder: Path, change: tuple[int, str, list[int], Any]) -> None:
    """Open a run after the change and read it: an error, or what reading gives; never another exception."""
    seed, name, places, value = change
    origin, run = folder / f"origin{seed}", folder / "run.tartan"
    if not origin.exists():
        origin.mkdir()
        build(random.Random(seed), origin)
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(origin / "run.tartan", run)
    path = run / name
    if not path.exists():
        return
    body = changed(json.loads(path.read_bytes()), places, value)
    if name == "manifest.json" and isinstance(body, dict):
        body.pop("checksum", None)
        body["checksum"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
    path.write_text(json.dumps(body))
    try:
        read(run)
    except InternalError:
        raise
    except TartanError:
        return


def changed(body: Any, places: list[int], value: Any) -> Any:
    """Return JSON with another value at a place: each number chooses an entry, one level further down."""
    body = copy.deepcopy(body)
    inside = body
    for depth, place in enumerate(places):
        entries = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        if not entries:
            return body
        entry = entries[place % len(entries)]
        if depth + 1 < len(places) and isinstance(inside[entry], (dict, list)) and inside[entry]:
            inside = inside[entry]
        elif value is ...:
            del inside[entry]
            return body
        else:
            inside[entry] = value
            return body
    return body


def read(path: Path) -> None:
    """Read all that a run gives."""
    run = tartan.open(path)
    run.keys[:3]
    repr(run)
    run.stats.get("loads")
    run.matrix(diagonal=0.0)
    run.pairs().read_all()
    run.neighbors(1)
    list(run.failures)
