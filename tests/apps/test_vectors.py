"""Every metric against SciPy in float64, the bad values, and the promises about precision."""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import tartan
from tartan import _native
from tartan.apps.vectors import metrics
from tartan.apps.vectors.app import Vectors
from tartan.devices.sim import SimDevice
from tartan.errors import ConfigError, ItemError

SCIPY_NAMES = {"manhattan": "cityblock"}
NUMBERS = ["float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}


def oracle(metric: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    if metric == "jaccard":
        return cdist(left != 0, right != 0, "jaccard")
    if metric == "hamming":  # in the items' own type: float64 would make unequal 64-bit integers equal
        return np.mean(left[:, None, :] != right[None, :, :], axis=2)
    if metric == "inner":
        return left.astype(float) @ right.astype(float).T
    return cdist(left.astype(float), right.astype(float), SCIPY_NAMES.get(metric, metric))


def scores(app: Vectors, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return app.compare(app.preprocess_block(left, np), app.preprocess_block(right, np), np)


def rows(dtype: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.4
    if np.dtype(dtype).kind == "f":
        return (rng.standard_normal(shape) * 3).astype(dtype)
    return rng.integers(0, 100, shape).astype(dtype)


def tolerance(metric: str, dtype: str, d: int) -> tuple[float, float]:
    """Relative and absolute error that the documentation allows (SciPy's own rounding added)."""
    u, scipy_error = UNIT[dtype], (d + 8) * UNIT["float64"]
    if metric in ("cosine", "correlation"):
        return scipy_error, (d + 8) * u + scipy_error
    if metric in ("euclidean", "sqeuclidean"):
        return max(140, 36 * (d + 4)) * u + scipy_error, 0
    return 140 * u + scipy_error, 0


def assert_close(found: np.ndarray, expected: np.ndarray, relative: float, absolute: float) -> None:
    np.testing.assert_allclose(found.astype(float), expected, rtol=relative, atol=absolute)


Form = Callable[[Vectors, np.ndarray, np.ndarray], np.ndarray]


def portable_scores(app: Vectors, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Score on a device whose arrays are not NumPy's."""
    with closing(SimDevice()) as device:
        blocks = []
        for host in (left, right):
            raw = device.allocate(host.shape, host.dtype)
            device.upload(host, raw)
            blocks.append(device.compute("preprocess", len(host), partial(app.preprocess_block, raw, device.xp)))
        tile = device.compute("compare", 1, partial(app.compare, *blocks, device.xp))
        found = np.empty(tile.shape, app.outputs["scores"])
        device.download(tile, found)
        return found


@pytest.fixture(params=[scores, portable_scores], ids=["native", "portable"])
def form(request: pytest.FixtureRequest) -> Form:
    """Score in the native form, and in the form that other array namespaces take."""
    return cast(Form, request.param)


@pytest.mark.parametrize("metric", metrics.METRICS)
@given(
    m=st.integers(1, 9),
    k=st.integers(1, 20),
    d=st.sampled_from([1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 129, 300]),
    dtype=st.sampled_from([*NUMBERS, "bool"]),
    score=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 2**32),
)
def test_scores_agree_with_scipy(metric: str, m: int, k: int, d: int, dtype: str, score: str, seed: int) -> None:
    left, right = rows(dtype, (m, d), seed), rows(dtype, (k, d), seed + 1)
    # jaccard asks what uint8 above 1 is (test_bytes_that_may_be_bits_are_asked_about).
    bits = "values" if metric == "jaccard" and dtype == "uint8" else ""
    app = Vectors(metric=metric, dtype=score, bits=bits)
    good_left = [i for i, bad in enumerate(app.check_block(left) or [None] * m) if bad is None]
    good_right = [j for j, bad in enumerate(app.check_block(right) or [None] * k) if bad is None]
    if not good_left or not good_right:
        return
    left, right = left[good_left], right[good_right]
    found = scores(app, left, right)
    assert found.dtype == score
    assert found.shape == (len(left), len(right))
    relative, absolute = tolerance(metric, score, d)
    if metric == "inner":  # products that cancel keep the error of the largest sum on the way
        sums = abs(left.astype(float)) @ abs(right.astype(float)).T
        absolute = (d + 8) * UNIT[score] * float(sums.max())
    assert_close(found, oracle(metric, left, right), relative, absolute)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "bool"])
@pytest.mark.parametrize("metric", metrics.METRICS)
def test_both_forms_agree_with_scipy(metric: str, dtype: str, form: Form) -> None:
    left, right = rows(dtype, (7, 150), 1), rows(dtype, (5, 150), 2)
    found = form(Vectors(metric=metric), left, right)
    assert_close(found, oracle(metric, left, right), *tolerance(metric, "float32", 150))


@pytest.mark.parametrize("metric", metrics.METRICS)
def test_blocks_of_any_size_give_the_same_scores(metric: str, monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    left, right = rows("float64", (11, 40), 1), rows("float64", (6, 40), 2)
    whole = form(Vectors(metric=metric), left, right)
    monkeypatch.setattr(metrics, "BLOCK_ELEMENTS", 100)
    monkeypatch.setattr(metrics, "PORTABLE_ELEMENTS", 100)
    np.testing.assert_allclose(form(Vectors(metric=metric), left, right), whole, rtol=1e-6)


@pytest.mark.parametrize("d", [2, 32, 33, 64, 700])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan"])
def test_near_duplicates_far_from_the_origin_keep_their_digits(metric: str, d: int, form: Form) -> None:
    rng = np.random.default_rng(d)
    centre = rng.standard_normal(d) * 1e4
    items = (centre + rng.standard_normal((30, d)) * 0.1).astype(np.float32)
    items[7] = items[3]
    found = form(Vectors(metric=metric), items, items)
    assert_close(found, oracle(metric, items, items), 140 * UNIT["float32"], 0)
    assert found[7, 3] == 0


@pytest.mark.parametrize("d", [40, 512])
def test_every_distance_is_within_the_bound_whatever_its_size(d: int, form: Form) -> None:
    rng = np.random.default_rng(d)
    base = rng.standard_normal((1, d)).astype(np.float32)
    steps = np.float32(10.0) ** np.arange(-6, 3)
    items = np.concatenate([base + step * rng.standard_normal((4, d)).astype(np.float32) for step in steps])
    found, expected = form(Vectors(metric="sqeuclidean"), items, items), oracle("sqeuclidean", items, items)
    assert_close(found, expected, 36 * (d + 4) * UNIT["float32"], 0)
    typical = np.abs(found / np.where(expected > 0, expected, 1) - (expected > 0))
    assert np.median(typical) < np.sqrt(d) * UNIT["float32"]


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan"])
@pytest.mark.parametrize("dtype", ["float64", "int64", "int32", "uint32"])
@pytest.mark.parametrize("d", [5, 100])
def test_items_that_float32_cannot_hold_are_not_rounded_to_it(metric: str, dtype: str, d: int) -> None:
    items = (10**8 + np.random.default_rng(1).integers(0, 5, (20, d))).astype(dtype)
    found = scores(Vectors(metric=metric), items, items)
    assert found.dtype == np.float32
    assert_close(found, oracle(metric, items, items), 2 * UNIT["float32"], 0)


def test_hamming_tells_64_bit_integers_apart() -> None:
    items = np.array([[2**62, 5], [2**62 + 1, 5]])
    assert scores(Vectors(metric="hamming"), items, items).tolist() == [[0, 0.5], [0.5, 0]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_hamming_takes_minus_zero_for_zero(dtype: str) -> None:
    items = np.array([[0.0, 1.0], [-0.0, 1.0]], dtype)
    assert not scores(Vectors(metric="hamming"), items, items).any()


@pytest.mark.parametrize("d", [1, 63, 64, 65, 1000])
@pytest.mark.parametrize("metric", ["hamming", "jaccard"])
def test_packed_booleans_are_exact(metric: str, d: int, form: Form) -> None:
    items = rows("bool", (20, d), d)
    items[0], items[1] = False, True
    app = Vectors(metric=metric, dtype="float64")
    assert app.preprocess_block(items, np).shape == (20, -(-d // 64) + 1)
    assert_close(form(app, items, items), oracle(metric, items, items), 4 * UNIT["float64"], 0)


def test_ones_are_counted_without_a_popcount_function() -> None:
    words = np.random.default_rng(1).integers(0, 2**64, 200, dtype=np.uint64)
    words[:2] = 0, 2**64 - 1
    assert metrics.ones_by_halving(words).tolist() == [int(word).bit_count() for word in words]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e30, 1e37])
@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_scale_is_no_matter_for_directions(metric: str, scale: float, dtype: str, form: Form) -> None:
    items = rows("float64", (10, 64), 5)
    scaled = (items * (scale if dtype == "float32" else scale**8)).astype(dtype)
    assert Vectors(metric=metric).check_block(scaled) is None
    # Single values near 1e-38 are subnormal in float32 and have lost digits before they came here.
    assert_close(form(Vectors(metric=metric), scaled, scaled), oracle(metric, items, items), 0, 2e-5)


def test_correlation_far_from_zero_is_exact() -> None:
    items = 1e9 + rows("float64", (10, 64), 6)
    found = scores(Vectors(metric="correlation"), items, items)
    assert_close(found, oracle("correlation", items - 1e9, items - 1e9), 0, 1e-6)


def test_cosine_of_equal_and_opposite_vectors_stays_in_range() -> None:
    items = rows("float32", (50, 333), 7)
    both = np.concatenate([items, -items])
    found = scores(Vectors(), both, both)
    assert found.min() >= 0
    assert found.max() <= 2
    assert np.diagonal(found).max() <= 341 * UNIT["float32"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("metric", metrics.METRICS)
@pytest.mark.parametrize("d", [6, 40])
def test_nan_and_inf_are_named_with_their_position(metric: str, dtype: str, value: float, d: int) -> None:
    items = rows(dtype, (5, d), 8)
    items[2, 3] = value
    app = Vectors(metric=metric)
    assert app.check_block(items) == [None, None, f"value {value} at position 3", None, None]
    prepared = app.preprocess_block(items, np)
    if prepared.dtype.kind == "f":
        assert np.isnan(prepared).any(axis=1).tolist() == [False, False, True, False, False]
        assert app.describe_failure(prepared[1]) is None
        assert metric in (app.describe_failure(prepared[2]) or "")
        found = app.compare(prepared, prepared, np)
        assert np.isnan(found[2]).all()
        assert not np.isnan(np.delete(np.delete(found, 2, 0), 2, 1)).any()


@pytest.mark.parametrize(
    ("metric", "row", "reason"),
    [
        ("cosine", [0.0, 0.0, 0.0], "all values are 0: a zero vector has no direction"),
        ("correlation", [0.1, 0.1, 0.1], "all values are 0.1: a constant vector has no correlation"),
        ("euclidean", [0.0, 0.0, 0.0], None),
        ("cosine", [0.0, 5e-324, 0.0], None),
        ("euclidean", [1e200, 0.0, 0.0], "too large: its norm is 1e+200"),
        ("manhattan", [1e200, 0.0, 0.0], "too large: its norm is 1e+200"),
        ("cosine", [1e200, 0.0, 0.0], None),
        ("cosine", [1e-200, 0.0, 0.0], None),
        ("euclidean", [1e-200, 0.0, 0.0], "too small: its norm is 1e-200 and distances vanish below"),
        ("sqeuclidean", [1e-30, 0.0, 0.0], "too small: its norm is 1e-30 and distances vanish below 1.08e-19"),
        ("manhattan", [1e-200, 0.0, 0.0], "too small: its norm is 1e-200 and distances vanish below 1.18e-38"),
        ("euclidean", [1e-30, 0.0, 0.0], None),
    ],
)
def test_vectors_without_a_distance_are_named(metric: str, row: list[float], reason: str | None) -> None:
    items = np.array([[1.0, 2.0, 4.0], row])
    found = Vectors(metric=metric).check_block(items)
    if reason is None:
        assert found is None
        assert np.isfinite(scores(Vectors(metric=metric), items, items)).all()
    else:
        assert found is not None
        assert found[0] is None
        assert (found[1] or "").startswith(reason)
        assert np.isnan(Vectors(metric=metric).preprocess_block(items, np)[1]).any() or row[0] in (1e200, 1e-200, 1e-30)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan"])
@pytest.mark.parametrize("scale", [10.0**power for power in range(-44, 39, 2)])
def test_distances_of_any_scale_are_right_or_refused(metric: str, scale: float) -> None:
    items = (scale * np.random.default_rng(0).standard_normal((6, 40))).astype(np.float32)
    app = Vectors(metric=metric)
    if app.check_block(items) is not None:
        assert not 1e-16 < scale < 1e15
        return
    true = cdist(items.astype(np.float64), items.astype(np.float64), {"manhattan": "cityblock"}.get(metric, metric))
    np.testing.assert_allclose(scores(app, items, items), true, rtol=2e-5)


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool"])
def test_zero_vectors_of_integers_are_named(dtype: str) -> None:
    items = np.array([[0, 0], [0, 1]]).astype(dtype)
    assert Vectors().check_block(items) == ["all values are 0: a zero vector has no direction", None]


@pytest.mark.parametrize("d", [3, 64])
@pytest.mark.parametrize(("metric", "score"), [(m, s) for m in ("euclidean", "sqeuclidean", "manhattan") for s in UNIT])
def test_the_largest_vectors_that_are_let_through_do_not_overflow(metric: str, score: str, d: int) -> None:
    app = Vectors(metric=metric, dtype=score)
    largest, power = metrics.METRICS[metric](np.dtype(score)).limit(np.dtype(score)) or (0.0, 1)
    row = np.full(d, largest / d ** (1 / power) * (1 - 1e-5), score)
    items = np.stack([row, -row, 0 * row])
    assert app.check_block(items) is None
    assert np.isfinite(scores(app, items, items)).all()
    too_large = app.check_block(np.stack([row, (row * 1.1).astype(score)]))
    assert too_large is not None
    assert too_large[0] is None
    assert ("set dtype=float64" in (too_large[1] or "")) == (score == "float32")


def test_constant_vectors_have_no_correlation_even_when_their_mean_rounds() -> None:
    items = np.full((1, 1001), 0.1)
    assert Vectors(metric="correlation").check_block(items) is not None
    assert np.isnan(Vectors(metric="correlation").preprocess_block(items, np)).any()


def test_one_position_is_enough_but_for_correlation() -> None:
    items = np.array([[1.0], [-2.0]])
    assert scores(Vectors(), items, items).tolist() == [[0, 2], [2, 0]]
    assert scores(Vectors(metric="euclidean"), items, items).tolist() == [[0, 3], [3, 0]]
    assert all(Vectors(metric="correlation").check_block(items) or [None])


@pytest.mark.parametrize("shape", [(3, 0), (0, 0), (3,), (2, 2, 2)])
def test_what_is_no_table_of_vectors_is_refused(shape: tuple[int, ...]) -> None:
    for call in (Vectors().check_block, lambda items: Vectors().preprocess_block(items, np)):
        with pytest.raises(ConfigError, match="two-dimensional array with at least one column"):
            call(np.zeros(shape))


@pytest.mark.parametrize("dtype", [np.complex64, np.longdouble, object, "S3", "datetime64[s]"])
def test_what_is_no_number_is_refused(dtype: Any) -> None:
    with pytest.raises(ConfigError, match="vectors hold booleans, integers or real numbers"):
        Vectors().check_block(np.zeros((2, 2), dtype))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="choose from cosine, inner, correlation, euclidean"):
        Vectors(metric="cosinus")
    for dtype in ("float16", "nothing", "int32"):
        with pytest.raises(ConfigError, match="is not float32 or float64"):
            Vectors(dtype=dtype)


@pytest.mark.parametrize("metric", metrics.METRICS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compare_writes_into_a_view(metric: str, dtype: str) -> None:
    app = Vectors(metric=metric)
    block = app.preprocess_block(rows(dtype, (9, 50), 9), np)
    chunk = np.full((20, 30), -1, np.float32)
    view = chunk[4:13, 10:15]
    assert app.compare(block, block[:5], np, out=view) is view
    np.testing.assert_allclose(view, app.compare(block, block[:5], np), rtol=1e-6, atol=1e-6)
    chunk[4:13, 10:15] = -1
    assert (chunk == -1).all()


def test_threads_fill_column_blocks_of_one_array_side_by_side() -> None:
    app = Vectors(metric="manhattan")
    items = rows("float32", (64, 40), 10)
    out = np.empty((64, 64), np.float32)
    starts = range(0, 64, 8)
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda j: app.compare(items, items[j : j + 8], np, out=out[:, j : j + 8]), starts):
            pass
    assert_close(out, oracle("manhattan", items, items), *tolerance("manhattan", "float32", 40))


def test_kernels_refuse_arrays_that_they_cannot_use() -> None:
    items, out = rows("float32", (4, 6), 11), np.empty((4, 4), np.float32)
    locked, unaligned = out.copy(), np.zeros(4 * 6 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 6)
    locked.flags.writeable = False
    overlapping = np.lib.stride_tricks.as_strided(out, (4, 4), (4, 4))
    cases: list[tuple[Any, Any, Any, type[Exception], str]] = [
        (items, items[:, :5], out, ValueError, "do not fit together"),
        (items, items, out[:3], ValueError, "do not fit together"),
        (items[:, :0], items[:, :0], out, ValueError, "do not fit together"),
        (items[:, ::2], items[:, ::2], out, ValueError, "must be contiguous"),
        (items, items, out[:, ::-1], ValueError, "must be contiguous"),
        (items, items, out.T, ValueError, "overlap"),
        (items, items, locked, ValueError, "writeable"),
        (unaligned, items, out, ValueError, "aligned"),
        (items, items, overlapping, ValueError, "overlap"),
        (items[:, :4], items[:, :4], items[:, :4], ValueError, "shares memory"),
        (items, items.astype(float), out, TypeError, "dtypes"),
        (items, items, out.astype(int), TypeError, "dtypes"),
        (items[0], items, out, TypeError, "not 2-D"),
    ]
    for left, right, places, error, text in cases:
        with pytest.raises(error, match=text):
            _native.manhattan_tile(left, right, places)


def test_empty_tiles_are_allowed() -> None:
    for metric in metrics.METRICS:
        block = Vectors(metric=metric).preprocess_block(rows("float32", (3, 40), 12), np)
        assert Vectors(metric=metric).compare(block[:0], block, np).shape == (0, 3)
        assert Vectors(metric=metric).compare(block, block[:0], np).shape == (3, 0)


@pytest.mark.parametrize("metric", metrics.METRICS)
def test_other_byte_orders_and_layouts_are_read(metric: str) -> None:
    items = rows("float32", (6, 50), 13)
    expected = scores(Vectors(metric=metric), items, items)
    for other in (items.astype(">f4"), np.asfortranarray(items), np.repeat(items, 2, axis=1)[:, ::2]):
        assert Vectors(metric=metric).check_block(other) is None
        np.testing.assert_array_equal(scores(Vectors(metric=metric), other, other), expected)


def test_the_application_travels_and_names_its_parameters() -> None:
    app = Vectors(metric="jaccard", dtype="float64")
    assert app.parameters() == {"metric": "jaccard", "dtype": "float64"}
    twin = pickle.loads(pickle.dumps(app))
    items = rows("bool", (4, 9), 14)
    np.testing.assert_array_equal(scores(twin, items, items), scores(app, items, items))


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@pytest.mark.parametrize("dtype", ["float32", ">f8", "int16", "bool"])
def test_a_vector_file_is_read_without_a_copy(dtype: str) -> None:
    vector = rows("int8", (1, 30), 15)[0].astype(dtype)
    data = npy(vector)
    found = Vectors().parse("a.npy", data)
    np.testing.assert_array_equal(found, vector)
    assert found.dtype == vector.dtype
    assert np.shares_memory(found, np.frombuffer(data, np.uint8))
    prepared = Vectors().preprocess(found, np)
    assert prepared.shape == (30,)
    assert np.linalg.norm(prepared) == pytest.approx(1, abs=1e-6)


def test_a_sequence_of_numbers_is_a_vector() -> None:
    assert Vectors().parse("0", [1, 2, 3]).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not a .npy file"),
        (b"hello, world", "not a .npy file"),
        (npy(np.arange(9.0))[:-1], "takes 72 bytes, the file holds 71"),
        (npy(np.arange(9.0)) + b"x", "takes 72 bytes, the file holds 73"),
        (npy(np.arange(9.0))[:40], "not a .npy file"),
        (npy(np.arange(9.0)).replace(b"(9,)", b"(9999999999999999999999,)"), "not a .npy file|takes 79999"),
        (npy(np.zeros((3, 3))), r"its shape is \(3, 3\)"),
        (npy(np.zeros(())), r"its shape is \(\)"),
        (npy(np.zeros(0)), r"its shape is \(0,\)"),
        (npy(np.zeros(3, complex)), "its values are complex128"),
        (npy(np.zeros(3, [("a", "f4")])), "its values are"),
        (npy(np.array(["a", "b"])), "its values are"),
        (npy(np.array([1.0, np.nan])), "value nan at position 1"),
        (b"\x93NUMPY\x07\x00" + npy(np.zeros(3))[8:], "not a .npy file"),
    ],
)
def test_a_bad_vector_file_fails_with_its_key(data: bytes, text: str) -> None:
    with pytest.raises(ItemError, match=rf"^bad\.npy: .*({text})"):
        Vectors().parse("bad.npy", data)


@pytest.mark.parametrize("metric", ["hamming", "jaccard"])
def test_nan_in_a_file_is_named_before_it_becomes_a_bit_pattern(metric: str) -> None:
    with pytest.raises(ItemError, match="bad: value nan at position 0"):
        Vectors(metric=metric).parse("bad", np.array([np.nan, 1]))


def test_pickled_objects_are_never_loaded() -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ItemError, match="its values are object"):
        Vectors().parse("bad.npy", stream.getvalue())


@given(st.integers(0, 127), st.binary(min_size=1, max_size=8))
def test_damage_to_a_header_is_an_item_error_or_harmless(position: int, patch: bytes) -> None:
    data = bytearray(npy(np.arange(9.0)))
    data[position : position + len(patch)] = patch
    with contextlib.suppress(ItemError):
        assert Vectors().parse("a.npy", bytes(data)).ndim == 1


@pytest.mark.skipif(not _native.HAS_PRODUCTS, reason="this processor has no AVX2, or is not an x86")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cosine_tiles_leave_out_blocks_without_a_wanted_pair(dtype: str) -> None:
    rows = np.random.default_rng(2).integers(-2, 3, (120, 7)).astype(dtype)
    left, right = rows[:20], rows[20:]
    codes = np.zeros((20, 100), np.uint8)
    codes[3, 70] = codes[19, 99] = 1
    whole, part = np.empty((20, 100), dtype), np.full((20, 100), -1, dtype)
    assert _native.cosine_tile(left, right, whole)
    np.testing.assert_array_equal(whole, np.clip(1 - left @ right.T, 0, 2))
    assert _native.cosine_tile(left, right, part, codes)
    np.testing.assert_array_equal(part[codes == 1], whole[codes == 1])
    assert (part[:, :48] == -1).all()
    with pytest.raises(ValueError, match="out and codes differ"):
        _native.cosine_tile(left, right, part, codes[:5])


@pytest.mark.skipif(not _native.HAS_PRODUCTS, reason="this processor has no AVX2, or is not an x86")
def test_cosine_tiles_tell_of_nan() -> None:
    rows = np.eye(3, dtype=np.float32)
    rows[1, 0] = np.nan
    out = np.empty((3, 3), np.float32)
    assert not _native.cosine_tile(rows, rows, out)
    assert np.isnan(out[1]).all()
    assert out[0, 0] == 0


def test_a_subclass_that_scores_otherwise_is_asked() -> None:
    class Halved(Vectors):
        def postprocess(self, scores: np.ndarray) -> np.ndarray:
            return scores / 2

    assert Vectors().unit_rows
    assert not Vectors(metric="euclidean").unit_rows
    assert not Halved().unit_rows


@pytest.mark.parametrize("side", [64, 100])
def test_cosine_does_not_depend_on_how_the_work_is_cut(side: int) -> None:
    if not _native.HAS_PRODUCTS:
        pytest.skip("BLAS multiplies on this processor")
    app = Vectors(metric="cosine")
    rows = app.preprocess_block(np.random.default_rng(5).standard_normal((200, 65)), np)
    whole = app.compare(rows, rows, np)
    for start in range(0, 200, side):
        part = app.compare(rows[start : start + side], rows[::-1].copy(), np)
        np.testing.assert_array_equal(part, whole[start : start + side, ::-1])


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
@pytest.mark.parametrize("precision", ["float32", "tf32", "float16", "bfloat16"])
@pytest.mark.parametrize("items", ["float64", "float32", "float16", "int8", "uint16"])
def test_equal_rows_are_at_zero(items: str, precision: str, metric: str) -> None:
    rng = np.random.default_rng(1)
    for scores in ("float32", "float64") if precision == "float32" else ("float32",):
        for d in (3, 17, 384):
            rows = rng.integers(1, 20, (30, d)).astype(items)
            rows[:, 0] = np.arange(30, 60)
            app = Vectors(metric=metric, dtype=scores, precision=precision)
            block = app.preprocess_block(np.concatenate([rows, rows]), np)
            found = app.compare(block, block, np)
            equal = np.arange(60)[:, None] % 30 == np.arange(60) % 30
            assert (found[equal] == 0).all()


@pytest.mark.parametrize("rule", [{"kind": "threshold", "threshold": 0.0}, {"kind": "top-k", "k": 1}])
def test_kept_pairs_of_equal_rows_are_at_zero(rule: dict, tmp_path) -> None:
    rows = np.random.default_rng(2).standard_normal((50, 384)).astype(np.float32)
    run = tartan.allpairs(Vectors(), np.concatenate([rows, rows]), out=tmp_path / "run", reduce=rule)
    pairs = run.pairs().read_all()
    found = {(int(i), int(j)) for i, j in zip(pairs["i"].to_numpy(), pairs["j"].to_numpy()) if i < j}
    assert found == {(i, i + 50) for i in range(50)}
    assert (pairs["score"].to_numpy() == 0).all()
