"""Random runs with a known answer: what ``test_results.py`` draws, computes with Tartan, and checks pair by pair.

Every item holds a small whole number in some form (array, list, text, ..); scores are whole numbers that follow from
the two numbers, so that every form, cut, order and device must give exactly the same matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tartan
from tartan.sources.items import SequenceSource

FORMS = ("rows", "vector", "matrix", "number", "text", "lists", "tuples", "dicts", "unequal")
UNIFORM = ("rows", "vector", "matrix", "number")


def wrap(form: str, number: int) -> Any:
    """Hide a number in an item of some form."""
    length = number % 7 + 1
    match form:
        case "rows" | "vector":
            return np.array([number, 1, 2], np.float64)
        case "matrix":
            return np.full((2, 3), number, np.int32)
        case "number":
            return float(number)
        case "text":
            return str(number) + " " * length
        case "lists":
            return [number, *range(length)]
        case "tuples":
            return np.array([number]), np.arange(length)
        case "dicts":
            return {"number": number, "rest": np.arange(length)}
        case _:
            return np.array([number, *range(length)], np.int64)


def unwrap(form: str, item: Any) -> Any:
    """Find the number of one item again."""
    match form:
        case "text":
            return int(item)
        case "tuples":
            return item[0][0]
        case "dicts":
            return item["number"]
        case "number":
            return item
        case "matrix":
            return item[0, 0]
        case _:
            return item[0]


def _score(a: Any, b: Any, symmetric: bool) -> Any:
    return abs(a - b) + a + b if symmetric else 3 * a - b


class Numbers(tartan.Application):
    """Compares tiles of items of any form."""

    releases_gil = True

    def __init__(self, form: str, symmetric: bool, diagonal: bool, dtypes: tuple[str, ...]) -> None:
        self.form = form
        self.symmetric = symmetric
        self.diagonal = diagonal
        self.dtypes = dtypes
        self.ragged = True if form == "unequal" else None  # the first few could be equal by chance
        self.outputs = {f"out{i}": dtype for i, dtype in enumerate(dtypes)}

    def numbers(self, items: Any, xp: Any) -> Any:
        if hasattr(items, "shape"):
            return xp.reshape(items, (items.shape[0], -1))[:, 0]
        return xp.stack([xp.asarray(unwrap(self.form, item), dtype=xp.float64) for item in items])

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        a, b = self.numbers(left, xp)[:, None], self.numbers(right, xp)[None, :]
        score = _score(a, b, self.symmetric)
        return {name: score + i for i, name in enumerate(self.outputs)} if len(self.outputs) > 1 else score


class Pairs(Numbers):
    """Compares them a pair at a time."""

    def compare_pair(self, a: Any, b: Any) -> Any:
        score = _score(unwrap(self.form, a), unwrap(self.form, b), self.symmetric)
        return {name: score + i for i, name in enumerate(self.outputs)} if len(self.outputs) > 1 else score


class Prepared(Numbers):
    """Preprocesses items of one form first: where a device has memory of its own, it does that there."""

    def preprocess(self, item: Any, xp: Any) -> Any:
        return xp.asarray(item, dtype=xp.float64) + 1000.0

    def numbers(self, items: Any, xp: Any) -> Any:
        return super().numbers(items, xp) - 1000.0


class PreparedPairs(Prepared):
    """Both."""

    def compare_pair(self, a: Any, b: Any) -> Any:
        score = _score(unwrap(self.form, a) - 1000.0, unwrap(self.form, b) - 1000.0, self.symmetric)
        return {name: score + i for i, name in enumerate(self.outputs)} if len(self.outputs) > 1 else score


@dataclass(frozen=True)
class RandomRun:
    """One run and how it is executed."""

    numbers: tuple[int, ...]
    form: str
    pairwise: bool
    prepared: bool
    symmetric: bool
    diagonal: bool
    dtypes: tuple[str, ...]
    n_left: int | None
    pairs: tuple[tuple[int, int], ...] | None
    options: dict[str, Any]

    @property
    def items(self) -> Any:
        wrapped = [wrap(self.form, number) for number in self.numbers]
        return np.stack(wrapped) if self.form == "rows" else wrapped

    def _given(self, items: Any) -> Any:
        return SequenceSource(items) if self.form == "text" else items  # a plain list of texts names files

    def application(self, *, threads: bool = True) -> Numbers:
        kinds = {(False, False): Numbers, (True, False): Pairs, (False, True): Prepared, (True, True): PreparedPairs}
        kind = kinds[self.pairwise, self.prepared and self.form in UNIFORM]
        app = kind(self.form, self.symmetric, self.diagonal, self.dtypes)
        app.releases_gil = threads
        return app

    def start(self, out: Any = None, *, threads: bool = True) -> tartan.Run:
        app, items, options = self.application(threads=threads), self.items, dict(self.options)
        if self.n_left is not None:
            options["against"] = self._given(items[self.n_left :])
            items = items[: self.n_left]
        if self.pairs is not None:
            options["pairs"] = np.array(self.pairs, np.int64).reshape(-1, 2)
        return tartan.allpairs(app, self._given(items), out, **options)

    def expected(self, output: int = 0) -> np.ndarray:
        """Return the matrix that this run must have; NaN where nothing is asked for."""
        v = np.array(self.numbers, np.float64)
        scores = _score(v[:, None], v[None, :], self.symmetric) + output
        if self.n_left is not None:
            return scores[: self.n_left, self.n_left :]
        wanted = np.ones(scores.shape, bool)
        if self.pairs is not None:
            wanted[...] = False
            for i, j in self.pairs:
                wanted[i, j] = wanted[j, i] = True
        if not self.diagonal:
            np.fill_diagonal(wanted, False)
        return np.where(wanted, scores, np.nan)


DEVICES = ("cpu", "sim", ("cpu", "sim"), ("sim", "sim:speed=0.5"))
DTYPES = ("<f4", "<f8", "<i4", "<i8", "<i2")


@st.composite
def random_runs(draw: st.DrawFn, devices: tuple[Any, ...] = DEVICES, most_items: int = 40) -> RandomRun:
    """Draw a run with everything that may differ from run to run."""
    numbers = draw(st.lists(st.integers(0, 500), min_size=2, max_size=most_items))
    n = len(numbers)
    kind = draw(st.sampled_from(("all", "all", "rectangle", "candidates")))
    symmetric, diagonal = draw(st.booleans()), draw(st.booleans())
    n_left, pairs = None, None
    if kind == "rectangle":
        n_left, diagonal = draw(st.integers(1, n - 1)), False
    if kind == "candidates":
        ends = st.integers(0, n - 1)
        chosen = draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=2 * n))
        pairs = tuple((i, j) for i, j in chosen if diagonal or i != j) or None
    options: dict[str, Any] = {
        "host_cache": f"{draw(st.integers(2, n + 3))}items",
        "device_cache": f"{draw(st.integers(2, n + 3))}items",
        "order": draw(st.sampled_from(("panel", "quadrant"))),
        "workers": draw(st.integers(1, 3)),
        "device": draw(st.sampled_from(devices)),
    }
    if draw(st.booleans()):
        options["tile"] = draw(st.integers(1, n + 3))
    return RandomRun(
        tuple(numbers),
        draw(st.sampled_from(FORMS)),
        draw(st.booleans()),
        draw(st.booleans()),
        symmetric,
        diagonal,
        tuple(draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=2))),
        n_left,
        pairs,
        options,
    )
