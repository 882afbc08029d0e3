"""Items that devices keep in another form than the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tartan

pytestmark = pytest.mark.slow


class Halves(tartan.Application):
    """Products of rows of small numbers, which a device may keep as int16 of twice their size."""

    releases_gil = True
    ragged = False

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def parameters(self) -> dict[str, Any]:
        return {}

    def parse(self, key: str, data: Any) -> Any:
        return np.asarray(data, np.int8)

    def preprocess(self, item: Any, xp: Any) -> Any:
        return item * np.float32(1)

    def compact_form(self, dtype: np.dtype[Any], shape: tuple[int, ...], xp: Any) -> tuple[Any, tuple[int, ...]]:
        assert (dtype, shape) == (np.float32, (5,))
        return np.int16, shape

    def compact(self, item: Any, out: Any, xp: Any) -> Any:
        out[...] = item * np.int16(2)
        return xp.reshape(xp.sum(xp.abs(item)), (1,))

    def describe_failure(self, item: Any) -> str | None:
        return None if item.any() else "it is zero"

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        self.seen.add(str(left.dtype))
        scores = xp.astype(left, np.float32) @ xp.astype(right, np.float32).T
        return scores / np.float32(4 if left.dtype == np.int16 else 1)


def test_scores_are_those_of_the_cpu() -> None:
    """Also where items fail, are loaded again, or come from the disk."""
    rows = np.random.default_rng(1).integers(-9, 9, (60, 5)).astype(np.int8)
    rows[[0, 17, 59]] = 0
    wanted = tartan.allpairs(Halves(), list(rows), device="cpu", on_error="skip")
    scarce = {"device_cache": "20items", "host_cache": "24items", "disk_cache": "1MB"}
    for caching in (dict[str, Any](), scarce):
        app = Halves()
        found = tartan.allpairs(app, list(rows), device="sim", on_error="skip", **caching)
        assert np.array_equal(found.matrix(), wanted.matrix(), equal_nan=True)
        assert [failure.reason for failure in found.failures] == [failure.reason for failure in wanted.failures]
        assert [failure.i for failure in found.failures] == [0, 17, 59]
        assert "int16" in app.seen
        assert found.manifest.application["item"] == {"dtype": "<f4", "shape": [5]}


def test_beside_a_cpu_items_have_its_form() -> None:
    app, rows = Halves(), np.random.default_rng(2).integers(1, 9, (40, 5)).astype(np.int8)
    found = tartan.allpairs(app, list(rows), device=["cpu", "sim"])
    np.testing.assert_array_equal(np.triu(found.matrix(), 1), np.triu((rows.astype(int) @ rows.T.astype(int)), 1))
    assert app.seen == {"float32"}


class Doubled(Halves):
    """Writes the form that there is, and refuses to be asked for anything while items are prepared on a device."""

    compacts_all = True

    def compact(self, item: Any, out: Any, xp: Any) -> Any:
        out[...] = xp.astype(item, out.dtype) * out.dtype.type(2 if out.dtype == np.int16 else 1)
        return xp.reshape(xp.sum(xp.abs(item)), (1,))

    def preprocess(self, item: Any, xp: Any) -> Any:
        assert xp is np
        return super().preprocess(item, xp)


def test_items_in_the_form_of_the_cpu_are_written_by_compact_too() -> None:
    """Beside a CPU, where devices do not agree on a compact form; a good item takes the place of one that is none."""
    rows = np.random.default_rng(1).integers(-9, 9, (40, 5)).astype(np.int8)
    rows[[0, 17, 39]] = 0
    wanted = tartan.allpairs(Doubled(), list(rows), device="cpu", on_error="skip")
    app = Doubled()
    found = tartan.allpairs(app, list(rows), device=["cpu", "sim"], on_error="skip")
    assert app.seen == {"float32"}
    assert np.array_equal(found.matrix(), wanted.matrix(), equal_nan=True)
    assert [failure.reason for failure in found.failures] == [failure.reason for failure in wanted.failures]
