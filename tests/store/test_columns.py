"""Numbers and texts to Arrow, and numbers back."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from tartan.store.columns import texts_to_arrow, to_arrow, to_numpy

DTYPES = ["<f4", ">f4", "f2", "f8", "i1", "u2", "<i8", ">i8", "u8", "?"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_there_and_back(dtype: str) -> None:
    values = np.array([0, 1, 1, 0, 1, 7])[::2].astype(dtype)
    column = to_arrow(values)
    assert column.type == pa.from_numpy_dtype(values.dtype.newbyteorder("="))
    assert column.to_pylist() == values.tolist()
    chunked = pa.chunked_array([column, column[1:], column[:0]])
    np.testing.assert_array_equal(to_numpy(chunked), np.concatenate([values, values[1:]]))
    assert to_numpy(pa.chunked_array([], type=column.type)).shape == (0,)


def test_nulls_are_nan() -> None:
    np.testing.assert_array_equal(to_numpy(pa.chunked_array([pa.array([1.5, None])])), [1.5, np.nan])


@pytest.mark.parametrize(
    "texts", [[], [""], ["a", "", "β\0c"], [None], [f"{k}" if k % 3 else None for k in range(21)], ["x"] * 9]
)
def test_texts_become_strings_and_none_null(texts: list[str | None]) -> None:
    column = texts_to_arrow(texts)
    column.validate(full=True)
    assert column.equals(pa.array(texts, pa.string()))


@pytest.mark.slow
def test_pandas_stays_away() -> None:
    code = (
        "import sys, numpy, pyarrow\n"
        "from tartan.store.columns import to_arrow, to_numpy\n"
        "to_numpy(pyarrow.chunked_array([to_arrow(numpy.arange(3))]))\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
