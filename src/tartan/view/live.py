"""What the page of a run in progress asks for: its state, its tiles, its items and pairs. Read anew, kept for moments.

All texts that come from users leave here with control characters made visible, and shortened.
"""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.base.format import format_long_count, format_number
from tartan.base.palette import colours, value_limits
from tartan.base.progress import RateWindow
from tartan.errors import ConfigError, TartanError
from tartan.result.lookup import find_matching, read_facts
from tartan.result.pair import NeighbourRank, inspect_pair, say_decision
from tartan.run.inspection import Inspector, Portrait
from tartan.store.row import item_row
from tartan.store.versions import FILE_NAME as VERSIONS_NAME
from tartan.view import report_sections as parts
from tartan.view.beside import describe_beside, names_beside
from tartan.view.groups import Groups, groups_of
from tartan.view.page import clip_text, render
from tartan.view.report import findings_of, report_values
from tartan.view.thumbnails import pictures_of
from tartan.view.tiles import TILE, Pyramid, TilePicture, draw_tile, n_levels, pyramid_of

NEIGHBOURS: Final = 20
FOUND: Final = 20
_FRESH_SECONDS: Final = 1.0
_BODY_SECONDS: Final = 20.0
_PORTRAITS: Final = 48


class LiveRun:
    """A run that may be computed while it is looked at; used by several threads.

    Parameters
    ----------
    open_run : callable
        Opens the run.
    inspector_of : callable
        Returns what opens items of a run folder.
    clock : callable
        Seconds, never decreasing.
    """

    def __init__(
        self,
        open_run: Callable[[], Any],
        inspector_of: Callable[[Any], Inspector],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open, self._inspector_of, self._clock = open_run, inspector_of, clock
        self._lock = threading.RLock()
        self._body_lock = threading.Lock()
        self._made_ns = 0
        self._pyramid: tuple[str, Pyramid] | None = None
        self._body: tuple[float, str, str] | None = None
        self._groups: tuple[str, Groups | None] | None = None
        self._state: tuple[float, dict[str, Any]] | None = None
        self._portraits: OrderedDict[int, Portrait] = OrderedDict()
        self._adopt()

    @property
    def run(self) -> Any:
        """The run as its manifest describes it now."""
        with self._lock:
            if self._stamp() != self._made_ns:
                self._adopt()
            return self._run

    def state(self) -> dict[str, Any]:
        """Return how far the run is, and how its matrix is drawn."""
        with self._lock:
            _ = self.run  # a run that has been extended is opened anew
            now = self._clock()
            if self._state is None or (not self._state[1]["finished"] and now >= self._state[0]):
                state = self._read_state(now)
                # Of very many chunks even the count takes a while: most of the time is for other answers.
                self._state = now + max(_FRESH_SECONDS, 8 * (self._clock() - now)), state
            return self._state[1]

    def tile(self, level: int, row: int, column: int) -> TilePicture:
        """Return a tile of the matrix.

        Raises
        ------
        ConfigError
            If there is no such tile.
        """
        shape = self.run.shape
        if not 0 <= level < n_levels(shape) or any(
            not 0 <= place << level < -(-n // TILE) for place, n in zip((row, column), shape)
        ):
            raise ConfigError(f"there is no tile {level}/{row}/{column}")
        return draw_tile(self._tiles(), level, row, column)

    def find(self, text: str) -> list[dict[str, Any]]:
        """Return items whose names have a text in them, or whose number it is."""
        run = self.run
        found = find_matching(run.keys, text, FOUND) or find_matching(run.folder.keys, text, FOUND)
        if not found and text.isdecimal() and int(text) < run.n_items:
            found = [int(text)]
        return [self._name_item(item) for item in found]

    def cell(self, row: int, column: int) -> dict[str, Any]:
        """Return the items of a cell of the finest level, and their score."""
        shape, order = self.run.shape, self._tiles().order
        if not (0 <= row < shape[0] and 0 <= column < shape[1]):
            raise ConfigError(f"the matrix has {shape[0]} by {shape[1]} cells")
        a, b = (row, column + self.run.n_items - shape[1]) if order is None else (int(order[row]), int(order[column]))
        about: dict[str, Any] = {"a": self._name_item(a), "b": self._name_item(b), "score": None}
        if a != b:
            row_of = item_row(self.run.folder, a) if self.run.manifest.reduce is not None else None
            score = row_of.score_with(b) if row_of else self._score(a, b)
            about["score"] = None if score is None else format_number(score, 5)
        return about

    def beside(self) -> dict[str, Any]:
        """Return the tree and the groups of the rows of the matrix; see ``tartan.view.beside``."""
        with self._body_lock:
            groups = self._find_groups(self.state()["version"])
        labels = None if groups is None else groups.labels
        return describe_beside(self._tiles(), labels, larger_is_nearer=self.run.larger_is_nearer)

    def names(self, axis: str, first: int, count: int) -> list[str]:
        """Return the names of some rows or columns of the matrix as it is drawn."""
        if axis not in ("rows", "columns"):
            raise ConfigError(f"a matrix has rows and columns, no {axis}")
        return names_beside(self.run.keys, self._tiles(), axis, first, count)

    def item(self, item: int) -> dict[str, Any]:
        """Return facts of an item, its drawings and its nearest neighbours."""
        self._require(item)
        row = item_row(self.run.folder, item)
        near = [
            self._name_item(int(other)) | {"score": format_number(score, 5)}
            for other, score in zip(row.others[:NEIGHBOURS].tolist(), row.scores[:NEIGHBOURS].tolist())
        ]
        return self._about(item) | {"neighbours": near, "n_known": len(row.others)}

    def pair(self, a: int, b: int) -> dict[str, Any]:
        """Return two items, their scores, and how near each is to the other."""
        self._require(a)
        self._require(b)
        pair = inspect_pair(self.run.folder, a, b)
        return {
            "a": self._about(a),
            "b": self._about(b),
            "state": pair.state,
            "decision": clip_text(say_decision(self.run.manifest, pair.scores), 400),
            "scores": {clip_text(name, 40): format_number(value, 6) for name, value in pair.scores.items()},
            "reasons": [clip_text(reason, 400) for reason in pair.reasons],
            "ranks": [_rank_neighbours(pair.b_for_a), _rank_neighbours(pair.a_for_b)],
        }

    def drawing(self, item: int, number: int) -> bytes:
        """Return one drawing of an item as PNG.

        Raises
        ------
        ConfigError
            If there is none of that number.
        """
        self._require(item)
        arrays = list(self._portrait(item).arrays.values())
        if not 0 <= number < len(arrays):
            raise ConfigError(f"item {item} has {len(arrays)} drawings")
        return draw_array(arrays[number])

    def body(self) -> str:
        """Return the sections of the report as they are now; of a run in progress every 20 seconds at most."""
        version = self.state()["version"]
        with self._body_lock:
            now = self._clock()
            if self._body is None or (self._body[1] != version and now - self._body[0] >= _BODY_SECONDS):
                self._body = now, version, self._sections(version)
            return self._body[2]

    def _adopt(self) -> None:
        """Open the run as its manifest describes it now."""
        self._run = self._open()
        self._made_ns = self._stamp()
        self._inspector = self._inspector_of(self._run.folder)
        self._rate = RateWindow(self._clock(), self._run.n_pairs - self._run.n_pairs_left)
        self._pyramid, self._state = None, None
        self._portraits.clear()

    def _stamp(self) -> int:
        changed = [self._made_ns]
        for name in ("manifest.json", VERSIONS_NAME):
            with contextlib.suppress(OSError):
                changed.append((Path(self._run.path) / name).stat().st_mtime_ns)
        return max(changed)

    def _read_state(self, now: float) -> dict[str, Any]:
        run = self.run
        known = run.n_pairs - run.n_pairs_left
        snapshot = self._rate.snapshot(now, known, run.n_pairs)
        finished, failures = known == run.n_pairs and bool(run.finished), len(run.failures)
        return {
            "name": clip_text(Path(run.path).name, 80),
            "application": clip_text(parts.application_name(run), 80),
            "n_items": run.n_items,
            "rows": run.shape[0],
            "columns": run.shape[1],
            "levels": n_levels(run.shape),
            "tile": TILE,
            "finished": finished,
            "share": snapshot.share,
            "said": f"{known:,} of {run.n_pairs:,} pairs" + (f", {snapshot.time_left}" if snapshot.time_left else ""),
            "failures": f"{format_long_count(failures)} failed" if failures else "",
            "version": f"{self._made_ns}-{known}-{int(finished)}",
        }

    def _tiles(self) -> Pyramid:
        version = self.state()["version"]
        with self._lock:
            if self._pyramid is None or (self._pyramid[0] != version and not self._pyramid[1].lasting):
                self._pyramid = version, pyramid_of(self.run)
            return self._pyramid[1]

    def _score(self, a: int, b: int) -> Any:
        first = self.run.n_items - self.run.shape[1]
        found = self.run.view(self.run.manifest.analysed).window(slice(a, a + 1), slice(b - first, b - first + 1))[0, 0]
        return None if np.isnan(found) else found

    def _about(self, item: int) -> dict[str, Any]:
        portrait = self._portrait(item)
        facts = read_facts(self.run.folder, item) | dict(portrait.facts)
        return self._name_item(item) | {
            "facts": [[clip_text(name, 60), clip_text(value, 200)] for name, value in facts.items()],
            "drawings": [clip_text(title, 60) for title in portrait.arrays],
            "problem": clip_text(portrait.problem, 400),
        }

    def _portrait(self, item: int) -> Portrait:
        with self._lock:
            if item not in self._portraits:
                self._portraits[item] = self._inspector.portrait(item)
                while len(self._portraits) > _PORTRAITS:
                    self._portraits.popitem(last=False)
            self._portraits.move_to_end(item)
            return self._portraits[item]

    def _name_item(self, item: int) -> dict[str, Any]:
        return {"item": item, "key": clip_text(self.run.keys[item], 120)}

    def _require(self, item: int) -> None:
        if not 0 <= item < self.run.n_items:
            raise ConfigError(f"there is no item {item}; the run has {self.run.n_items:,}")

    def _find_groups(self, version: str) -> Groups | None:
        if self._groups is None or self._groups[0] != version:
            self._groups = version, groups_of(self.run)
        return self._groups[1]

    def _sections(self, version: str) -> str:
        run = self.run
        try:
            findings = findings_of(self._find_groups(version), picture_of=pictures_of(self._portrait))
            return render("report_body.html", **report_values(run, findings, live=True))
        except TartanError as error:
            return render("problem.html", problem=str(error))


def _rank_neighbours(rank: NeighbourRank | None) -> Mapping[str, Any]:
    return {"rank": None, "of": 0} if rank is None else {"rank": rank.rank, "of": rank.of}


# Draw the arrays that describe an item as PNG: a line for (m,), a picture for (h, w) and (h, w, 3).

_SIDE: Final = 640
_PLOT: Final = (640, 240)
_FINER: Final = 2
_LINE: Final = (47, 143, 118, 255)
_ZERO: Final = (128, 128, 128, 110)


def draw_array(array: NDArray[Any]) -> bytes:
    """Return a PNG of an array, on a transparent ground.

    Raises
    ------
    ConfigError
        If it is not an array of numbers with one, two or three dimensions, as ``Application.describe_item`` says.
    """
    values = np.abs(array) if array.dtype.kind == "c" else array
    if values.dtype.kind not in "biuf" or not values.size:
        raise ConfigError(f"an array of {array.dtype} and shape {array.shape} cannot be drawn")
    if values.ndim == 1:
        return _png(_draw_line(values.astype(np.float64)))
    if values.ndim == 2:
        return _png(_picture(values))
    if values.ndim == 3 and values.shape[2] == 3 and values.dtype == np.uint8:
        return _png(_shrunk(values))
    raise ConfigError(f"an array of {array.dtype} and shape {array.shape} cannot be drawn")


def _draw_line(values: NDArray[np.float64]) -> Any:
    """Draw a line; of more values than pixels the least and the greatest of each pixel."""
    from PIL import Image, ImageDraw

    width, height = (side * _FINER for side in _PLOT)
    image = Image.new("RGBA", (width, height), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    finite = values[np.isfinite(values)]
    if not len(finite):
        return image.resize(_PLOT)
    low, high = min(0.0, float(finite.min())), max(0.0, float(finite.max()))
    scale = (height - 12) / ((high - low) or 1.0)
    zero = height - 6 + low * scale
    pen.line((0, zero, width, zero), fill=_ZERO, width=_FINER)
    pieces = np.array_split(values, min(len(values), _PLOT[0]))
    step = width / len(pieces)
    points = []
    for k, piece in enumerate(pieces):
        known = piece[np.isfinite(piece)]
        ends = sorted({float(known.min()), float(known.max())}) if len(known) else []
        points += [((k + 0.5) * step, height - 6 - (end - low) * scale) for end in ends]
    if len(points) == 1:
        pen.ellipse((points[0][0] - 6, points[0][1] - 6, points[0][0] + 6, points[0][1] + 6), fill=_LINE)
    pen.line(points, fill=_LINE, width=2 * _FINER, joint="curve")
    return image.resize(_PLOT, Image.Resampling.LANCZOS)


def _picture(values: NDArray[Any]) -> Any:
    step = max(1, -(-max(values.shape) // (2 * _SIDE)))
    some = values[::step, ::step].astype(np.float64)
    low, high = value_limits(some[:, :-1] if some.shape[0] == some.shape[1] > 1 else some)
    return _shrunk(colours((some - low) / (high - low), "grey"))


def _shrunk(pixels: NDArray[np.uint8]) -> Any:
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels))
    image.thumbnail((_SIDE, _SIDE))
    return image


def _png(image: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", compress_level=3)
    return buffer.getvalue()
