"""One form for every input: what is read is what was meant, whatever it was kept in."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.matrix.check import check
from tartan.analytics.monitor import Monitor
from tartan.errors import ConfigError, DiskFullError, RunCancelledError

N = 37


def square(n: int = N, seed: int = 0) -> np.ndarray:
    """Return distances in three dimensions, the largest of which is 1."""
    D = squareform(pdist(np.random.default_rng(seed).normal(size=(n, 3))))
    return D / D.max()


def int16(D: np.ndarray, dtype: str = "<i2") -> np.ndarray:
    return np.rint(D * 32767).astype(dtype)


FORMS = {
    "float64": square(),
    "float32": square().astype(np.float32),
    "column order": np.asfortranarray(square()),
    "strided": np.repeat(np.repeat(square(), 2, 0), 2, 1)[::2, ::2],
    "lists": square().tolist(),
    "big-endian float64": square().astype(">f8"),
    "float16": square().astype(np.float16),
    "condensed": squareform(square()),
    "condensed float32": squareform(square()).astype(np.float32),
    "int16": int16(square()),
    "big-endian int16": int16(square(), ">i2"),
    "condensed int16": squareform(int16(square()), checks=False),
    "masked": np.ma.masked_array(square(), np.zeros((N, N), bool)),
    "masked int16": np.ma.masked_array(int16(square(), ">i2"), np.zeros((N, N), bool)),
    "askew": np.ndarray((N, N), buffer=b"." + square().tobytes(), offset=1),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_matrix_gives_the_same_numbers(form: str) -> None:
    D = as_dissimilarities(FORMS[form])
    tolerance = 1e-3 if "float16" in form else 2e-5 if "int16" in form else 1e-6
    np.testing.assert_allclose(D.values(slice(0, N), slice(0, N)), square(), atol=tolerance)
    np.testing.assert_allclose(D.values(slice(3, 20), slice(11, 37)), square()[3:20, 11:37], atol=tolerance)
    assert D.n == len(D) == N
    assert D.block(4, 9).dtype == np.dtype(
        "int16" if "int16" in form else "f4" if "32" in form or "16" in form else "f8"
    )
    blocks = list(D.blocks(max_bytes=5 * N * D.dtype.itemsize))
    assert [start for start, _ in blocks] == list(range(0, N, 5))
    np.testing.assert_array_equal(np.vstack([block for _, block in blocks]), D.block(0, N))
    kept = D.materialized()
    assert kept.array is not None
    assert kept.array.flags.c_contiguous
    np.testing.assert_array_equal(kept.block(0, N), D.block(0, N), strict=True)
    for checked in (kept, D):
        assert checked.check().mean == pytest.approx(squareform(square()).mean(), abs=tolerance)


@pytest.mark.parametrize("form", ["float64", "float32", "int16", "big-endian int16", "column order"])
def test_whole_matrices_are_not_copied(form: str) -> None:
    given = FORMS[form]
    D = as_dissimilarities(given)
    assert D.array is not None
    assert np.shares_memory(D.array, given)
    assert D.materialized() is D
    assert D.dtype == given.dtype


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("form", ["condensed", "float32", "big-endian int16", "condensed int16"])
@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_a_matrix_is_written_once_in_another_form(tmp_path, dtype: str, form: str, memory_bytes: int) -> None:
    D = as_dissimilarities(FORMS[form])
    kept = D.materialized(dtype, memory_bytes=memory_bytes, folder=tmp_path)
    assert kept.array is not None
    assert kept.array.dtype == dtype
    np.testing.assert_allclose(kept.values(slice(0, N), slice(0, N)), square(), atol=4e-5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["square", "condensed"])
def test_a_value_that_float32_cannot_hold_is_refused(form: str) -> None:
    condensed = np.array([1.0, 1e300, 2.0])
    D = as_dissimilarities(condensed if form == "condensed" else squareform(condensed))
    assert D.materialized("float64").values(slice(0, 3), slice(0, 3))[0, 2] == 1e300
    with pytest.raises(ConfigError, match=r"the value 1e\+300 is beyond what float32 holds; keep it as float64"):
        D.materialized("float32")


def test_a_disk_without_room_is_said_before_anything_is_written(tmp_path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(DiskFullError, match=r"no space for a matrix of 1\.1e-05 GB: No space left.*another folder"):
        as_dissimilarities(squareform(square())).materialized(memory_bytes=0, folder=tmp_path)
    with pytest.raises(ConfigError, match="kept as int16, float32 or float64, not as int32"):
        as_dissimilarities(square()).materialized("int32")


def test_long_passes_hear_a_stop() -> None:
    monitor = Monitor()
    monitor.cancel()
    D = as_dissimilarities(squareform(square()))
    for long_pass in (D.check, D.materialized):
        with pytest.raises(RunCancelledError):
            long_pass(monitor=monitor)


@pytest.mark.parametrize("order", ["C", "F"])
def test_one_triangle_is_enough(order: str) -> None:
    rubbish = np.random.default_rng(1).normal(size=(N, N))
    for triangle, cut in (("upper", np.triu), ("lower", np.tril)):
        given = np.array(cut(square()) + (rubbish - cut(rubbish)), order=order)
        D = as_dissimilarities(given, triangle=triangle)
        np.testing.assert_array_equal(D.block(0, N), square())
        assert D.check().n_valid == N * (N - 1) // 2


@pytest.mark.parametrize(("name", "value"), [("triangle", "upper"), ("maximum", 2.0), ("output", "apart")])
def test_options_of_arrays_are_refused_where_there_is_none(name: str, value: object) -> None:
    opened = as_dissimilarities(int16(square()))
    with pytest.raises(ConfigError, match=f"D: `{name}={value!r}` is for arrays and files"):
        as_dissimilarities(opened, **{name: value})
    assert as_dissimilarities(opened, maximum=1.0) is opened


def test_the_numbers_of_a_check() -> None:
    pairs = squareform(square())
    check = as_dissimilarities(square()).check()
    assert (check.n, check.n_valid, check.n_missing, check.n_zero) == (N, len(pairs), 0, 0)
    assert (check.smallest_positive, check.largest) == (pairs.min(), 1.0)
    assert check.total == pytest.approx(pairs.sum(), rel=1e-14)
    assert check.total_squares == pytest.approx((pairs**2).sum(), rel=1e-14)
    assert (check.mean, check.std) == pytest.approx((pairs.mean(), pairs.std()), rel=1e-12)
    assert check.components is None


def test_a_check_is_made_once() -> None:
    D = as_dissimilarities(square())
    assert D.has_missing is None
    assert D.check() is D.check()
    assert D.check(0.5) is not D.check()
    assert D.has_missing is False


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((3, 4)), r"D has the shape \(3, 4\); dissimilarities are a square matrix"),
        (np.zeros((0, 0)), r"shape is \(0, 0\)"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.zeros(4), r"4 values in one row are not the n \(n - 1\) / 2 pairs"),
        (np.zeros(0), r"no values: its shape is \(0,\)"),
        (np.array([["a", "b"], ["c", "d"]]), "numbers; these have the type <U1"),
        (np.zeros((2, 2), complex), "numbers; these have the type complex128"),
        (5.0, r"shape \(\)"),
    ],
)
def test_what_is_no_matrix_is_refused(given, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        as_dissimilarities(given)


def changed(i: int, j: int, value: float, both: bool = True) -> np.ndarray:
    D = square()
    D[i, j] = value
    if both:
        D[j, i] = value
    return D


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (changed(3, 30, np.nan), "dissimilarity of 3 and 30 is NaN; .* say `missing='nan'`"),
        (changed(30, 3, np.inf), "of 3 and 30 is infinite"),
        (changed(3, 30, -0.5), "of 3 and 30 is negative: -0.5"),
        (changed(30, 3, -np.inf, both=False), "of 30 and 3 is infinite|of 30 and 3 is negative"),
        (changed(3, 30, 0.9, both=False), r"not symmetric: d\(3, 30\) is 0.9, d\(30, 3\) is .* and 1e-05 is allowed"),
        (changed(30, 3, np.nan, both=False), "of 30 and 3 is NaN"),
        (changed(8, 8, 0.25), "of 8 and itself is 0.25, not 0"),
        (changed(8, 8, np.nan), "of 8 and 8 is NaN"),
    ],
)
def test_a_wrong_value_is_named(given: np.ndarray, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        as_dissimilarities(given).check()


def test_items_are_named_where_names_are_known() -> None:
    names = [f"item{i}" for i in range(N)]
    with pytest.raises(ConfigError, match=r"of 3 \(item3\) and 30 \(item30\) is NaN"):
        as_dissimilarities(changed(3, 30, np.nan), names=names).check()
    with pytest.raises(ConfigError, match="2 names for 37 items"):
        as_dissimilarities(square(), names="ab")


def test_asymmetry_within_the_tolerance_is_accepted() -> None:
    D = square()
    D[4, 5] += 1e-6
    assert as_dissimilarities(D).check().largest_asymmetry == pytest.approx(1e-6)
    with pytest.raises(ConfigError, match="not symmetric"):
        as_dissimilarities(D).check(1e-7)
    stored = int16(square())
    stored[4, 5] += 1
    assert as_dissimilarities(stored).check(0.0).largest_asymmetry == pytest.approx(1 / 32767)
    stored[4, 5] += 1
    with pytest.raises(ConfigError, match=r"d\(4, 5\)"):
        as_dissimilarities(stored).check()


@pytest.mark.parametrize("missing", ["nan", "negative", 0.25, "int16", "masked"])
def test_missing_pairs_are_counted_and_left_out(missing) -> None:
    D, holes = square(), [(0, 1), (5, 30), (36, 35)]
    mark = {"nan": np.nan, "negative": -3.0, 0.25: 0.25, "int16": -1 / 32767, "masked": 0.0}[missing]
    for i, j in holes:
        D[i, j] = D[j, i] = mark
    given = int16(D) if missing == "int16" else np.ma.masked_equal(D, 0.0) if missing == "masked" else D
    if missing == "masked":
        np.fill_diagonal(given.mask, False)
    found = as_dissimilarities(given, missing=None if missing in ("int16", "masked") else missing)
    check = found.check()
    assert found.has_missing
    assert (check.n_missing, check.n_valid) == (3, N * (N - 1) // 2 - 3)
    for i, j in holes:
        stored = found.block(i, i + 1)[0, j]
        assert stored < 0 if missing == "int16" else np.isnan(stored)
    expected = square()
    for i, j in holes:
        expected[i, j] = expected[j, i] = 0.0
    assert check.total == pytest.approx(expected.sum() / 2, rel=1e-4)
    kept = found.materialized("int16")
    assert kept.check().n_missing == 3


@pytest.mark.parametrize("form", ["float64", "big-endian int16", "condensed", "masked int16"])
def test_items_are_at_distance_0_from_themselves_also_where_that_is_marked_as_missing(form: str) -> None:
    given = FORMS[form].copy()
    if form == "masked int16":
        given[np.eye(N, dtype=bool)] = np.ma.masked
    elif given.ndim == 2:
        np.fill_diagonal(given, np.nan if given.dtype.kind == "f" else -1)
    bare = as_dissimilarities(given, missing="nan")
    assert bare.check().n_missing == 0
    for D in (bare, bare.materialized(), bare.chosen(np.arange(9))):
        np.testing.assert_array_equal(np.diagonal(D.block(0, D.n)), 0)
    np.testing.assert_array_equal(bare.block(0, N), as_dissimilarities(FORMS[form]).block(0, N))


def test_a_pair_that_is_missing_on_one_side_only_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"row 3, column 30 has a value and row 30, column 3 is missing"):
        as_dissimilarities(changed(30, 3, np.nan, both=False), missing="nan").check()
    with pytest.raises(ConfigError, match=r"row 30, column 3 has a value and row 3, column 30 is missing"):
        as_dissimilarities(changed(3, 30, np.nan, both=False), missing="nan").check()


def test_negative_int16_may_be_an_error() -> None:
    stored = int16(square())
    stored[2, 9] = stored[9, 2] = -7
    assert as_dissimilarities(stored).check().n_missing == 1
    with pytest.raises(ConfigError, match="of 2 and 9 is -7 as stored"):
        as_dissimilarities(stored, missing="error").check()


def test_items_that_missing_pairs_cut_apart_are_named() -> None:
    D = square(9)
    group = np.array([0, 1, 0, 2, 1, 0, 0, 1, 0])
    D[group[:, None] != group] = np.nan
    found = as_dissimilarities(D, missing="nan", names="abcdefghi")
    check = found.check()
    np.testing.assert_array_equal(check.components, group)
    with pytest.raises(ConfigError, match=r"into 3 groups .*: 0 \(a\), .*; 1 \(b\), 4 \(e\), 7 \(h\); 3 \(d\)\."):
        check.require_connected(found)
    D[0, 1] = D[1, 0] = D[3, 7] = D[7, 3] = 0.5
    joined = as_dissimilarities(D, missing="nan").check()
    assert joined.components is None


def test_chains_of_pairs_hold_items_together() -> None:
    D = np.full((200, 200), np.nan)
    order = np.random.default_rng(3).permutation(200)
    D[order[:-1], order[1:]] = D[order[1:], order[:-1]] = 1.0
    np.fill_diagonal(D, 0)
    assert as_dissimilarities(D, missing="nan").check().components is None
    D[order[100], order[101]] = D[order[101], order[100]] = np.nan
    labels = as_dissimilarities(D, missing="nan").check().components
    assert len(set(labels[order[:101]])) == len(set(labels[order[101:]])) == 1
    assert labels.max() == 1


def test_matrices_with_nothing_in_them() -> None:
    nothing = as_dissimilarities(np.zeros((4, 4)))
    assert np.isnan(nothing.check().smallest_positive)
    with pytest.raises(ConfigError, match="every dissimilarity is 0; the 4 items are all the same"):
        nothing.check().require_positive(nothing)
    empty = as_dissimilarities(np.where(np.eye(4) > 0, 0, np.nan), missing="nan")
    with pytest.raises(ConfigError, match="every pair is missing"):
        empty.check().require_positive(empty)
    equal = as_dissimilarities(np.ones((4, 4)) - np.eye(4)).check()
    assert (equal.smallest_positive, equal.largest, equal.std) == (1.0, 1.0, 0.0)


def test_one_and_two_items() -> None:
    one = as_dissimilarities([[0.0]])
    assert (one.n, one.check().n_valid, np.isnan(one.check().mean)) == (1, 0, True)
    two = as_dissimilarities([3.0])
    assert (two.n, two.check().mean, two.block(0, 2).tolist()) == (2, 3.0, [[0, 3], [3, 0]])


def test_maximum_says_what_the_largest_int16_means() -> None:
    D = as_dissimilarities(int16(square()), maximum=250.0)
    assert D.check().largest == pytest.approx(250.0)
    with pytest.raises(ConfigError, match="maximum is 0"):
        as_dissimilarities(int16(square()), maximum=0)


def test_different_matrices_have_different_fingerprints() -> None:
    prints = {as_dissimilarities(given).fingerprint() for given in FORMS.values()}
    assert as_dissimilarities(square()).fingerprint() == as_dissimilarities(np.asfortranarray(square())).fingerprint()
    assert as_dissimilarities(int16(square())).fingerprint() == as_dissimilarities(int16(square(), ">i2")).fingerprint()
    assert len(prints) >= 4
    assert as_dissimilarities(changed(3, 30, 0.1)).fingerprint() not in prints


@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.float64])
def test_one_pair_that_changed_and_two_items_that_changed_places_are_noticed(dtype) -> None:
    n = 300
    D = np.abs(np.arange(n)[:, None] - np.arange(n)).astype(dtype)
    before = as_dissimilarities(D).fingerprint()
    rng = np.random.default_rng(0)
    for _ in range(5):
        i, j = rng.choice(n, 2, replace=False)
        other, moved = D.copy(), np.arange(n)
        other[i, j] = other[j, i] = D[i, j] + 1
        assert as_dissimilarities(other).fingerprint() != before
        moved[[i, j]] = j, i
        assert as_dissimilarities(D[np.ix_(moved, moved)]).fingerprint() != before
    assert as_dissimilarities(D.copy()).fingerprint() == before


def test_a_fingerprint_does_not_depend_on_how_the_rows_are_read(tmp_path) -> None:
    D = np.abs(np.arange(50.0)[:, None] - np.arange(50.0))
    np.save(tmp_path / "d.npy", D)
    prints = {as_dissimilarities(given).fingerprint() for given in (D, tmp_path / "d.npy", D[np.triu_indices(50, 1)])}
    assert len(prints) == 1
    stopped = Monitor()
    stopped.cancel()
    with pytest.raises(RunCancelledError):
        as_dissimilarities(D).fingerprint(stopped)


def test_what_is_there_already_is_taken_as_it_is() -> None:
    D = as_dissimilarities(square(), names=map(str, range(N)))
    assert as_dissimilarities(D) is D
    again = as_dissimilarities(D, transform="sqrt")
    assert isinstance(again, Dissimilarities)
    assert again.names == D.names


def test_data_frames_bring_names() -> None:
    class Frame:
        index = ("a", "b")
        columns = ("a", "b")

        def __len__(self) -> int:
            return 2

        def __array__(self, dtype=None, copy=None) -> np.ndarray:
            return np.array([[0.0, 1.0], [1.0, 0.0]])

    assert as_dissimilarities(Frame()).names == ("a", "b")


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_squares_that_float64_does_not_have(size: float) -> None:
    D = as_dissimilarities(np.array([[0, 2 * size], [2 * size, 0]]))
    D.check().require_positive(D)
    with pytest.raises(ConfigError, match="its square is beyond float64; divide all by"):
        D.check().require_moderate(D)


def test_what_is_below_zero_by_rounding_is_zero() -> None:
    values = np.array([[0, -3e-14, 0.4], [-3e-14, 0, 0.4], [0.4, 0.4, 0]])
    for less in (-3e-14, np.float32(1 - 1.0000002)):  # the second: 1 - cosine in float32
        D = as_dissimilarities(np.where(values < 0, less, values))
        found = D.check()
        assert (found.n_zero, found.smallest_positive, found.largest) == (1, 0.4, 0.4)
        assert D.values(slice(0, 3), slice(0, 3)).min() == 0
    for worse in (-1e-6, -0.4):
        with pytest.raises(ConfigError, match="is negative"):
            as_dissimilarities(np.where(values < 0, worse, values)).check()


def test_a_matrix_without_a_diagonal_has_zeros_there() -> None:
    values = np.abs(np.subtract.outer(np.arange(70.0), np.arange(70.0)))
    np.fill_diagonal(values, np.nan)
    D = as_dissimilarities(values)
    found = check(D, None, None, square_bytes=512 * 8)
    assert (found.n_valid, found.n_missing, found.smallest_positive, found.largest) == (2415, 0, 1.0, 69.0)
    assert np.array_equal(np.diagonal(D.values(slice(0, 70), slice(0, 70))), np.zeros(70))
    values[0, 1] = values[1, 0] = -1e-8
    assert as_dissimilarities(values).check().n_zero == 1  # both are mended
    values[3, 3] = 0
    with pytest.raises(ConfigError, match="of 0 and 0 is NaN"):
        as_dissimilarities(values).check()
    values[3, 3], values[2, 5] = np.nan, np.nan
    with pytest.raises(ConfigError, match="of 2 and 5 is NaN"):
        as_dissimilarities(values).check()
