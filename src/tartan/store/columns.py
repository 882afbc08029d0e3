"""Columns of numbers and texts between Python and Arrow, without pandas, and numbers without a copy.

``pa.array`` and ``to_numpy`` import pandas where it is installed, which takes longer than many a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def to_arrow(values: np.ndarray) -> pa.Array:
    """Return numbers (m,) as an Arrow array without nulls."""
    import pyarrow as pa

    if values.dtype == np.bool_:  # Arrow packs these
        return pa.array(values)
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def texts_to_arrow(values: Sequence[str | None]) -> pa.Array:
    """Return texts (m,) as an Arrow array of strings; None becomes null."""
    import pyarrow as pa

    texts = [b"" if text is None else text.encode() for text in values]
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    validity = None
    if None in values:
        validity = pa.py_buffer(np.packbits([text is not None for text in values], bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers).cast(pa.string())


def to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of numbers; nulls become NaN as in ``ChunkedArray.to_numpy``."""
    import pyarrow as pa

    if column.null_count or pa.types.is_boolean(column.type):
        return np.asarray(column.to_numpy())
    dtype = np.dtype(column.type.to_pandas_dtype())
    pieces = [_piece(chunk, dtype) for chunk in column.chunks if len(chunk)]
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, dtype), *pieces])


def _piece(chunk: pa.Array, dtype: np.dtype[Any]) -> np.ndarray:
    values = chunk.buffers()[1]
    return np.frombuffer(values, dtype, len(chunk), chunk.offset * dtype.itemsize)
