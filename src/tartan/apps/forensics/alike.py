"""Tiles of photos that may differ in size, and lie in several ways: turned by quarters, mirrored, shifted.

Photos higher than wide are turned left before their patterns are made, and marked by one more axis, of length 1. So
photos of one size and of its quarter turn have patterns of one shape, and what is left to ask, where one of the two was
turned, is half a turn, which costs no transform: the spectrum of a turned photo follows from its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tartan.apps.forensics import cuda
from tartan.apps.forensics.cuda import KERNELS
from tartan.apps.forensics.prnu import column_weights, count_axes, find_peak, open_spectra, pce_tile, read_size
from tartan.apps.forensics.turns import TURNS, Turn, compose, find_quarters

# By judgement: two such copies beside the photos of a tile; products of more are no faster.
_SIDE_BY_SIDE = 256 << 20
# By judgement: less where turned copies of one of the two lie beside them.
_SIDE_BY_SIDE_TURNED = 64 << 20
_AS_IT_IS, _HALF = TURNS["as it is"], TURNS["turned by half a circle"]
_LEFT, _RIGHT = TURNS["turned left"], TURNS["turned right"]
_NUMBERS = {turn: number for number, turn in enumerate(TURNS.values())}


class Ways(NamedTuple):
    """How photos are compared.

    Attributes
    ----------
    pce : bool
        Whether items are spectra and scores PCE; else items are patterns and scores NCC.
    turns : bool
        Whether all turns are looked at.
    shifts : bool
        Whether all shifts are looked at; items must be spectra.
    """

    pce: bool
    turns: bool
    shifts: bool

    @property
    def outputs(self) -> dict[str, Any]:
        """Names of the scores of a pair, and their dtypes."""
        names: dict[str, Any] = {"scores": np.float32}
        if self.pce:
            names["ncc"] = np.float32
        if self.shifts:
            names["peak"] = np.float32
        if self.turns:
            names["turn"] = np.int32
        return names | ({"row": np.int32, "column": np.int32} if self.shifts else {})

    @property
    def directed(self) -> tuple[str, ...]:
        """Names of outputs that depend on which of the two photos is turned and moved."""
        return tuple(name for name in self.outputs if name in ("turn", "row", "column"))


class _Side(NamedTuple):
    """Some photos of one tile that have one size, and lie one way."""

    at: list[int]
    shape: tuple[int, ...]
    turned: bool


def lay_down(grey: np.ndarray, *, turned: bool) -> np.ndarray:
    """Return a photo (h, w) as it is, or turned left and marked so: (1, w, h)."""
    return np.ascontiguousarray(np.rot90(grey))[None] if turned else grey


def stand_up(item: np.ndarray) -> np.ndarray:
    """Return a photo as it lay in its file, (h, w), from what ``lay_down`` made of it."""
    return np.ascontiguousarray(np.rot90(item[0], -1)) if item.ndim == 3 else item


def compare_tile(left: Any, right: Any, ways: Ways, xp: Any) -> dict[str, Any]:
    """Score a tile, each pair of one shape; pairs of unlike shape score 0 in all outputs.

    Parameters
    ----------
    left, right : arrays, or sequences of arrays
        m and k patterns (h, w) or spectra (2, h, w // 2 + 1), these with one more axis behind where w is odd (see
        ``prnu.spectrum_shape``), both with one more in front where photos were turned left.
    ways : Ways
    xp : namespace

    Returns
    -------
    dict of str to array (m, k)
        ``scores`` and ``ncc`` at no shift, at the turn of the largest correlation where several are looked at, of
        either sign, so that unlike photos have a mean of 0; ``peak`` at the best shift and turn. ``turn`` (an index of
        ``TURNS``), ``row`` and ``column`` say how the second photo is turned, and how far its corner then lies down and
        to the right of that of the first, both as they lie in their files. With ``shifts`` they belong to ``peak``.
    """
    found = {name: xp.zeros((len(left), len(right)), dtype=dtype) for name, dtype in ways.outputs.items()}
    most_bytes = _SIDE_BY_SIDE_TURNED if ways.turns or ways.shifts else _SIDE_BY_SIDE
    sides = [list(_sort_items(items, ways, most_bytes)) for items in (left, right)]
    for first in sides[0]:
        some = None
        for second in sides[1]:
            if first.shape != second.shape:
                continue
            some = _stack(left, first, xp) if some is None else some
            block = _compare_alike(some, _stack(right, second, xp), (first.turned, second.turned), ways, xp)
            for name, scores in block.items():
                found[name][xp.asarray(first.at)[:, None], xp.asarray(second.at)] = scores
    return found


def reverse_ways(scores: Any) -> dict[str, np.ndarray]:
    """Return ``turn``, ``row`` and ``column`` of (b, a) from those of (a, b), as far as they are there."""
    turns = list(TURNS.values())
    back = [find_quarters(turn).T for turn in turns]
    number = np.asarray(scores["turn"]) if "turn" in scores else np.zeros(np.shape(scores["row"]), np.int32)
    number = np.clip(number, 0, len(turns) - 1)
    found: dict[str, np.ndarray] = {}
    if "turn" in scores:
        inverse = np.array([_NUMBERS[turn.undone()] for turn in turns], np.int32)
        found["turn"] = inverse[number]
    if "row" in scores:
        matrix = np.array(back, np.int32)[number]
        moved = np.stack([scores["row"], scores["column"]], -1)[..., None]
        there = -(matrix @ moved)[..., 0]
        found |= {"row": there[..., 0].astype(np.int32), "column": there[..., 1].astype(np.int32)}
    return found


def turn_items(items: Any, turn: Turn, ways: Ways, xp: Any) -> Any:
    """Return patterns (n, h, w) or spectra (n, *spectrum_shape(h, w)), turned; transposed ones must be square."""
    if not ways.pce:
        moved = items.swapaxes(1, 2) if turn.transposed else items
        moved = moved[:, :: -1 if turn.rows else 1, :: -1 if turn.columns else 1]
        return xp.ascontiguousarray(moved)
    return _turn_spectra(items, turn, xp) if turn != _AS_IT_IS else items


def _turn_spectra(spectra: Any, turn: Turn, xp: Any) -> Any:
    """Turn spectra: where x becomes x mirrored, X(k) becomes X(-k) times a phase, as index -1 becomes 0."""
    planes, width = open_spectra(spectra)
    real, imaginary = planes[:, 0], planes[:, 1]
    height, n_half = real.shape[1:]
    if turn.transposed:
        real, imaginary = _transpose(real, imaginary, xp)
    back = xp.asarray((-np.arange(height)) % height)
    rows, columns = np.arange(height) / height, np.arange(n_half) / width
    phase = np.zeros((height, n_half))
    if turn.rows:
        real, imaginary = real[:, back], imaginary[:, back]
        phase += rows[:, None]
    if turn.columns:  # X(k, -l) is the conjugate of X(-k, l), which the half spectrum has
        real, imaginary = real[:, back], -imaginary[:, back]
        phase += columns
    cosine, sine = (xp.asarray(f(2 * np.pi * phase).astype(np.float32)) for f in (np.cos, np.sin))
    moved = xp.stack([real * cosine - imaginary * sine, real * sine + imaginary * cosine], axis=1)
    moved = moved.reshape(spectra.shape)
    return moved if moved.dtype == spectra.dtype else moved.astype(spectra.dtype)


def _transpose(real: Any, imaginary: Any, xp: Any) -> tuple[Any, Any]:
    """Transpose half spectra of square photos: Y(k, l) = X(l, k), of which X(l, k) with k > w / 2 is a conjugate."""
    side, n_half = real.shape[1:]
    weights = np.sqrt(column_weights(side))
    low, high = np.arange(n_half), np.arange(n_half, side)
    mirrored = (-low) % side
    near = (real[:, low], imaginary[:, low])  # rows l, columns k up to half
    far = (real[:, mirrored][:, :, side - high], -imaginary[:, mirrored][:, :, side - high])
    own = np.concatenate([weights, weights[side - high]])  # what each column k was scaled by
    scale = xp.asarray((weights[:, None] / own[None, :]).astype(np.float32))
    planes = (xp.concatenate([one, two], axis=2) * scale for one, two in zip(near, far, strict=True))
    first, second = (plane.swapaxes(1, 2) for plane in planes)
    return first, second


def _compare_alike(left: Any, right: Any, turned: tuple[bool, bool], ways: Ways, xp: Any) -> dict[str, Any]:
    """Score photos of one shape, at the turns that are asked for, or that quarter turns leave open."""
    best: dict[str, Any] = {}
    for turn in _list_turns(left, turned, ways):
        there = turn_items(right, turn, ways, xp)
        found = _score(left, there, ways, xp)
        whole = compose(_RIGHT if turned[0] else _AS_IT_IS, compose(turn, _LEFT if turned[1] else _AS_IT_IS))
        number = _NUMBERS[whole]
        if ways.turns:
            found["turn"] = xp.full(found["scores"].shape, number, dtype=np.int32)
        if ways.shifts:
            found |= _find_peaks(left, there, number, turned_first=turned[0], ways=ways, xp=xp)
        best = _keep_better(best, found, ways, xp) if best else found
    return best


def _list_turns(left: Any, turned: tuple[bool, bool], ways: Ways) -> Sequence[Turn]:
    if ways.turns:
        height, width = read_size(left.shape) if ways.pce else left.shape[-2:]
        is_square = height == width
        return [turn for turn in TURNS.values() if is_square or not turn.transposed]
    return [_AS_IT_IS, _HALF] if any(turned) else [_AS_IT_IS]


def _score(left: Any, right: Any, ways: Ways, xp: Any) -> dict[str, Any]:
    on_gpu = KERNELS.runs_on(xp)
    if ways.pce:
        return dict(zip(("scores", "ncc"), (cuda.pce_tile if on_gpu else pce_tile)(left, right, xp), strict=True))
    if on_gpu:
        return {"scores": cuda.ncc_tile(left, right, xp)}
    return {"scores": left.reshape(len(left), -1) @ right.reshape(len(right), -1).T}


def _find_peaks(left: Any, right: Any, number: int, *, turned_first: bool, ways: Ways, xp: Any) -> dict[str, Any]:
    """Return the best shifts of all pairs; where the first photo was turned left, shifts are turned back with it."""
    peaks = np.zeros((3, len(left), len(right)))
    for i, j in np.ndindex(len(left), len(right)):
        peaks[:, i, j] = find_peak(left[i], right[j], xp)
    peak, row, column = peaks
    if turned_first:
        row, column = column, -row
    found = {"peak": peak.astype(np.float32), "row": row.astype(np.int32), "column": column.astype(np.int32)}
    return found | ({"turn": np.full(peak.shape, number, np.int32)} if ways.turns else {})


def _keep_better(best: dict[str, Any], found: dict[str, Any], ways: Ways, xp: Any) -> dict[str, Any]:
    """Return, of each pair, the better of two: by the size of the correlation, and its peak by its height."""
    strength = "ncc" if ways.pce else "scores"
    stronger = abs(found[strength]) > abs(best[strength])
    higher = found["peak"] > best["peak"] if ways.shifts else stronger
    of_peak = {"peak", "turn", "row", "column"}
    return {
        name: xp.where(higher if name in of_peak else stronger, scores, best[name]) for name, scores in found.items()
    }


def _sort_items(items: Any, ways: Ways, most_bytes: int) -> Iterator[_Side]:
    """Sort photos by shape, and by whether they were turned, into lists that may be copied side by side."""
    lists: dict[tuple[tuple[int, ...], bool], list[list[int]]] = {}
    for at, item in enumerate(items):
        n_axes = count_axes(item.shape) if ways.pce else 2
        of_kind = lists.setdefault((tuple(item.shape[-n_axes:]), item.ndim > n_axes), [[]])
        if of_kind[-1] and (len(of_kind[-1]) + 1) * item.nbytes > most_bytes:
            of_kind.append([])
        of_kind[-1].append(at)
    for (shape, turned), parts in lists.items():
        yield from (_Side(part, shape, turned) for part in parts)


def _stack(items: Any, side: _Side, xp: Any) -> Any:
    return xp.stack([items[at].reshape(side.shape) for at in side.at])
