"""Matrix products on a GPU with more exact sums than CuPy's matmul: by cuBLAS, over slices of the inner dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

# By format: numbers of cuBLAS.
_TRANSPOSED, _PLAIN = 1, 0  # CUBLAS_OP_T, CUBLAS_OP_N
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "uint16": 14}  # CUDA_R_32F, _64F, _16F; bits of bfloat16: _16BF
# By format: numbers of cuBLAS.
_COMPUTE_32F, _COMPUTE_64F, _DEFAULT = 68, 70, -1  # CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_GEMM_DEFAULT
# By format: a number of cuBLAS.
_COMPUTE_TF32 = 77  # CUBLAS_COMPUTE_32F_FAST_TF32
# By rule of cuBLAS's guide: tensor cores want dimensions of float16 in multiples of 8. No benchmark: no GPU measured
# yet.
_ALIGNED = 8  # numbers; slices of float16 that begin at 16 bytes are faster


def multiply_slices(left: Any, right: Any, xp: Any, *, n_slices: int = 1) -> Any:
    """Return left . right^T over each of about ``n_slices`` slices of the rows, on the current stream of a GPU.

    Parameters
    ----------
    left, right : arrays (m, d), (k, d)
        float16, multiplied on tensor cores, or float32; C-contiguous, of the same type.
    xp : namespace
        CuPy's.
    n_slices : int
        Slices are of equal length, a multiple of 8, except for the last.

    Returns
    -------
    float32 array (n, m, k)
        Products of float16 numbers are exact, and sums within a slice are of float32; the caller adds the slices.

    Raises
    ------
    ValueError
        If types differ, or rows have gaps: CuPy would copy them in every call.
    """
    if left.dtype != right.dtype or not (left.flags.c_contiguous and right.flags.c_contiguous):
        raise ValueError(f"products need rows of one type without gaps, not {left.dtype} and {right.dtype}")
    (m, width), k = left.shape, right.shape[0]
    length = min(width, -(-width // (n_slices * _ALIGNED)) * _ALIGNED)
    n_whole, rest = divmod(width, length)
    out = xp.empty((n_whole + (rest > 0), m, k), dtype=np.float32)
    _multiply(left, right, out[:n_whole], xp, 0, length)
    if rest:
        _multiply(left, right, out[n_whole:], xp, n_whole * length, rest)
    return out


def row_products(left: Any, right: Any, width: int, out: Any, xp: Any, *, precision: str = "") -> bool:
    """Write left . right^T over the first ``width`` columns to ``out``; False where cuBLAS cannot.

    That is on any namespace but CuPy, and where arrays have gaps.

    The rest of each row is not touched, and nothing is copied: CuPy's matmul copies rows with gaps in every call.

    Parameters
    ----------
    left, right : arrays (m, d), (k, d)
        float16, float32, float64, or uint16, the bits of bfloat16; both of the same type.
    out : array (m, k)
        float64 for float64, else float32.
    precision : str
        "tf32" multiplies float32 numbers on tensor cores, which take them for TF32.
    """
    if not hasattr(xp, "RawModule") or not all(array.flags.c_contiguous for array in (left, right, out)):
        return False
    kind, result = _TYPES[str(left.dtype)], _TYPES[str(out.dtype)]
    compute = _COMPUTE_64F if kind == _TYPES["float64"] else _COMPUTE_TF32 if precision == "tf32" else _COMPUTE_32F
    one, zero = np.ones(1, out.dtype), np.zeros(1, out.dtype)
    (m, d), k = left.shape, right.shape[0]
    if m and k:
        xp.cuda.cublas.gemmStridedBatchedEx(
            xp.cuda.device.get_cublas_handle(),
            *(_TRANSPOSED, _PLAIN, k, m, width, one.ctypes.data),
            *(right.data.ptr, kind, d, 0, left.data.ptr, kind, d, 0, zero.ctypes.data),
            *(out.data.ptr, result, k, 0, 1, compute, _DEFAULT),
        )
    return True


def _multiply(left: Any, right: Any, out: Any, xp: Any, start: int, length: int) -> None:
    """Multiply slices of rows, from ``start`` on; the matrices of cuBLAS are column-major, so it gets them swapped."""
    (m, width), k, kind = left.shape, right.shape[0], _TYPES[str(left.dtype)]
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    xp.cuda.cublas.gemmStridedBatchedEx(
        xp.cuda.device.get_cublas_handle(),
        *(_TRANSPOSED, _PLAIN, k, m, length),
        one.ctypes.data,
        *(right.reshape(-1)[start:].data.ptr, kind, width, length),
        *(left.reshape(-1)[start:].data.ptr, kind, width, length),
        zero.ctypes.data,
        *(out.data.ptr, _TYPES["float32"], k, m * k),
        *(out.shape[0], _COMPUTE_32F, _DEFAULT),
    )
