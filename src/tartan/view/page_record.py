"""What a page says of its run to the page that takes its place; nothing of it is kept in the run folder."""

from __future__ import annotations

import html
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# By judgement: the record is in the head of a page, before its style. No benchmark.
_HEAD_BYTES: Final = 4096
_META: Final = re.compile(r'<meta name="tartan-report" content="([^"<>]*)">')
# By arithmetic: numbers are written with all their digits, so a turn of the plane keeps lengths to some units of 1e-16.
_STRETCH: Final = 1e-6

Points = NDArray[np.float64]


@dataclass(frozen=True)
class MapFrame:
    """How a page lays the map that it makes: x goes to ``turn @ x + shift``.

    Attributes
    ----------
    turn : tuple of float
        Rows of a 2 x 2 matrix that turns, and may mirror.
    shift : tuple of float
    """

    turn: tuple[float, ...] = (1.0, 0.0, 0.0, 1.0)
    shift: tuple[float, ...] = (0.0, 0.0)

    def apply(self, points: Points) -> Points:
        """Return points (n, 2) where the page has them."""
        laid: Points = points @ np.reshape(self.turn, (2, 2)).T + np.array(self.shift)
        return laid

    @classmethod
    def read(cls, said: Any) -> MapFrame | None:
        """Return what a page says; None where that is not a frame, or stretches the plane."""
        try:
            turn, shift = (tuple(float(value) for value in said[name]) for name in ("turn", "shift"))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        if len(turn) != 4 or len(shift) != 2 or not np.isfinite((*turn, *shift)).all():
            return None
        matrix = np.reshape(turn, (2, 2))
        return cls(turn, shift) if np.abs(matrix @ matrix.T - np.eye(2)).max() < _STRETCH else None


@dataclass(frozen=True)
class PageRecord:
    """What a page says of the run that it shows.

    Attributes
    ----------
    created : str
        When the run was.
    version : int
        Of its items, from 1.
    frame : MapFrame or None
        Of the map that it made, if it made one.
    """

    created: str
    version: int
    frame: MapFrame | None = None

    @classmethod
    def of(cls, run: Any, frame: MapFrame | None = None) -> PageRecord:
        """Return that of a run, or of one of its versions."""
        return cls(str(run.manifest.created), int(getattr(run, "version", 1)), frame)

    def encode(self) -> str:
        """Return the text for the page; the template escapes it."""
        return json.dumps(asdict(self))

    def is_of(self, run: Any) -> bool:
        """Whether the page shows this run, at any version."""
        return self.created == str(run.manifest.created)

    def is_before(self, run: Any) -> bool:
        """Whether the page shows an older version of this run."""
        return self.is_of(run) and self.version < int(getattr(run, "version", 1))


def read_record(path: Path) -> PageRecord | None:
    """Return what a page says; None where there is no page, or it says nothing that is understood."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", errors="replace")
        found = _META.search(head)
        about = json.loads(html.unescape(found[1])) if found else None
        if not isinstance(about, dict) or type(about.get("version")) is not int:
            return None
        return PageRecord(str(about.get("created")), about["version"], MapFrame.read(about.get("frame")))
    except (OSError, ValueError, RecursionError):
        return None


def match_items(old: Any, new: Any) -> dict[int, int]:
    """Return which item of the newer of two versions is which of the older: itself, or what stood under its name."""
    slots = [np.arange(run.n_items) if run.folder.slots is None else run.folder.slots for run in (old, new)]
    place = {slot: at for at, slot in enumerate(slots[0].tolist())}
    stays = set(slots[1].tolist())
    keys = old.folder.keys, new.folder.keys
    named = {keys[0][at]: at for slot, at in place.items() if slot not in stays}
    found = {at: place.get(slot, named.get(keys[1][at], -1)) for at, slot in enumerate(slots[1].tolist())}
    return {at: before for at, before in found.items() if before >= 0}
