"""The map that a run keeps: ``map.parquet``, places of its items, written whole or not at all.

A row an item, in their order: coordinates (x, y, z, or x1, x2, .. beyond three dimensions; NaN: no place) and stress,
how far the item's distances on the map are from its dissimilarities. The schema's metadata holds, under ``tartan``, a
JSON object that says how the map was made and how many of its items it was made from: the first ones. The others were
placed on it later, and no item that is there ever moves.

Not here: how places are found (``tartan.analytics``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.base.files import FileWriter
from tartan.base.json_input import parse_json
from tartan.errors import CorruptResultError, StoreError
from tartan.store import parquet
from tartan.store.columns import to_numpy

if TYPE_CHECKING:
    from tartan.store.folder import RunFolder

FILE_NAME = "map.parquet"
FORMAT = 1
_ABOUT = b"tartan"
_AXES = ("x", "y", "z")


@dataclass(frozen=True, eq=False)
class StoredMap:
    """The map of a run.

    Attributes
    ----------
    points : ndarray of float64, shape (m, L)
        Places of the first m items of the run, in the units of the dissimilarities; NaN: no place.
    stress : ndarray of float64, shape (m,)
        Squared errors of an item's distances to the items that the map was made from, over the squared
        dissimilarities; NaN: no place.
    n_fitted : int
        Number of items that the map was made from, the first ones; the others were placed on it later.
    method : str
    run : str
        When the run was created: a map of another run is not read.
    recipe : dict
        How scores became dissimilarities, and by which rule new items are placed.
    numbers : dict
        What the method said of the map.
    later : bool array (m,), optional
        Where items were replaced: which ones the map was not made from. Default: those from ``n_fitted`` on.
    waiting : tuple of int
        Items among the m that stand where others stood, and are not on the map yet.
    """

    points: NDArray[np.float64]
    stress: NDArray[np.float64]
    n_fitted: int
    method: str
    run: str
    recipe: Mapping[str, Any] = field(repr=False)
    numbers: Mapping[str, Any] = field(repr=False)
    later: NDArray[np.bool_] | None = None
    waiting: tuple[int, ...] = ()

    @property
    def is_fitted(self) -> NDArray[np.bool_]:
        """Which items the map was made from: bool (m,)."""
        return np.arange(len(self)) < self.n_fitted if self.later is None else ~self.later

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or self.stress.shape != (len(self.points),):
            raise ValueError(f"points {self.points.shape}, stress {self.stress.shape}")
        if not 0 < self.n_fitted <= len(self.points):
            raise ValueError(f"{self.n_fitted} items of {len(self.points)}")

    def __len__(self) -> int:
        return len(self.points)


def write_map(folder: Path, made: StoredMap, writer: FileWriter) -> Path:
    """Write the map of a run in place of the one that is there; the caller holds the run lock."""
    import pyarrow as pa

    dimension = made.points.shape[1]
    names = _AXES[:dimension] if dimension <= 3 else [f"x{d + 1}" for d in range(dimension)]
    columns = {name: pa.array(made.points[:, d]) for d, name in enumerate(names)} | {"stress": pa.array(made.stress)}
    about = {
        "format": FORMAT,
        "n_fitted": made.n_fitted,
        "method": made.method,
        "run": made.run,
        "recipe": dict(made.recipe),
        "numbers": dict(made.numbers),
    }
    table = pa.table(columns).replace_schema_metadata({_ABOUT: json.dumps(about)})
    parquet.write_table(folder / FILE_NAME, table, writer)
    writer.sync()
    return folder / FILE_NAME


def read_map(folder: Path) -> StoredMap | None:
    """Return the map that a run folder holds; None where there is none.

    Raises
    ------
    CorruptResultError
        If the file is damaged.
    StoreError
        If a newer Tartan wrote it.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return None
    try:
        table = parquet.read_table(path)
        about = parse_json((table.schema.metadata or {})[_ABOUT])
        known = about["format"] == FORMAT
        made = _decode(table, about) if known else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptResultError(
            f"{path} cannot be read as a map: {error}; `tartan embed {folder}` makes it afresh",
            context={"path": str(path)},
        ) from error
    if made is None:
        raise StoreError(
            f"{path} has format {about['format']}, this Tartan knows {FORMAT}; use a newer one, or make the map "
            f"afresh by `tartan embed {folder}`",
            code="newer-format",
        )
    return made


def map_of(run: RunFolder) -> StoredMap | None:
    """Return the map that a run keeps; None where there is none.

    Raises
    ------
    StoreError
        If it is of another run, or of a newer Tartan; CorruptResultError if it is damaged.
    """
    found = read_map(run.path)
    if found is not None and (found.run != run.manifest.created or len(found) > run.stored.manifest.n_items):
        raise StoreError(
            f"{run.path / FILE_NAME} is the map of another run; remove it, or make the map afresh by "
            f"`tartan embed {run.path}`",
            code="other-run",
        )
    return found if found is None or run.slots is None else _of_slots(found, run.slots)


def _of_slots(made: StoredMap, slots: NDArray[np.int64]) -> StoredMap | None:
    """Return a map with a row for each item of a version (versions.py); None where none that it was made from is left.

    Places are those that they had: what is gone leaves a gap, and nothing moves.
    """
    fitted, placed = np.flatnonzero(slots < made.n_fitted), np.flatnonzero(slots < len(made))
    if not len(fitted):
        return None
    n_rows = int(placed[-1]) + 1
    points, stress = (np.full((n_rows, *part.shape[1:]), np.nan) for part in (made.points, made.stress))
    points[placed], stress[placed] = made.points[slots[placed]], made.stress[slots[placed]]
    later = slots[:n_rows] >= made.n_fitted
    waiting = tuple(np.flatnonzero(slots[:n_rows] >= len(made)).tolist())
    moved = bool(later[: len(fitted)].any())
    return replace(
        made, points=points, stress=stress, n_fitted=len(fitted), later=later if moved else None, waiting=waiting
    )


def _decode(table: Any, about: Mapping[str, Any]) -> StoredMap:
    names = [name for name in table.column_names if name != "stress"]
    points = np.column_stack([to_numpy(table[name]) for name in names]).astype(np.float64)
    return StoredMap(
        points=points,
        stress=np.array(to_numpy(table["stress"]), np.float64),
        n_fitted=int(about["n_fitted"]),
        method=str(about["method"]),
        run=str(about["run"]),
        recipe={**about["recipe"], "matrix": _with_names_of_today(about["recipe"]["matrix"])},
        numbers=dict(about["numbers"]),
    )


def _with_names_of_today(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of ``as_dissimilarities`` under their names; maps made before call the formula "similarity"."""
    return {"distance" if name == "similarity" else name: value for name, value in dict(options).items()}
