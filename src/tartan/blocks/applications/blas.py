"""Products and solutions in place that leave the interpreter to other threads.

SciPy's functions for these hold the interpreter lock, so that subtasks in threads would run one after the other. Here
the routines below them are called, whose addresses SciPy offers to compiled code.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from tartan.errors import InternalError

_KINDS = {np.dtype(np.float32): ("s", ctypes.c_float), np.dtype(np.float64): ("d", ctypes.c_double)}


def subtract_product(left: np.ndarray, right: np.ndarray, own: np.ndarray) -> None:
    """Subtract the product of two matrices from a third, in place.

    Parameters
    ----------
    left : ndarray, shape (m, k)
    right : ndarray, shape (k, n)
    own : ndarray, shape (m, n)
        All in C order, and all float32 or all float64.

    Raises
    ------
    InternalError
        If the arrays are of another kind or do not fit.
    """
    (m, k), n = left.shape, own.shape[1]
    _require(own, (left, (len(own), len(right))), (right, (k, n)))
    # BLAS counts by columns: all matrices are transposed there, and the right one is the left one
    _call("gemm", own.dtype, b"N", b"N", n, m, k, -1.0, right, max(1, n), left, max(1, k), 1.0, own, max(1, n))


def solve_upper(factors: np.ndarray, own: np.ndarray) -> None:
    """Replace B by the solution X of X U = B.

    Parameters
    ----------
    factors : ndarray, shape (n, n)
        U on and above the diagonal; what is below is not read.
    own : ndarray, shape (m, n)
        B. Both in C order, and both float32 or both float64.

    Raises
    ------
    InternalError
        If the arrays are of another kind or do not fit.
    """
    m, n = own.shape
    _require(own, (factors, (n, n)))
    _call("trsm", own.dtype, b"L", b"L", b"N", b"N", n, m, 1.0, factors, max(1, n), own, max(1, n))


def solve_unit_lower(factors: np.ndarray, own: np.ndarray) -> None:
    """Replace B by the solution X of L X = B.

    Parameters
    ----------
    factors : ndarray, shape (m, m)
        L below the diagonal, on which it has ones; what else is there is not read.
    own : ndarray, shape (m, n)
        B. Both in C order, and both float32 or both float64.

    Raises
    ------
    InternalError
        If the arrays are of another kind or do not fit.
    """
    m, n = own.shape
    _require(own, (factors, (m, m)))
    _call("trsm", own.dtype, b"R", b"U", b"N", b"U", n, m, 1.0, factors, max(1, m), own, max(1, n))


def _require(own: np.ndarray, *others: tuple[np.ndarray, tuple[int, int]]) -> None:
    for array, shape in ((own, own.shape), *others):
        if array.shape != shape or array.dtype != own.dtype or own.dtype not in _KINDS:
            raise InternalError(f"a matrix of {array.shape} and {array.dtype} where {shape} and a float type fit")
        if not array.flags.c_contiguous:
            raise InternalError("a matrix that is not in C order")
    if not own.flags.writeable:
        raise InternalError("a matrix that cannot be changed")


def _call(name: str, dtype: np.dtype, *arguments: bytes | int | float | np.ndarray) -> None:
    letter, number = _KINDS[dtype]
    given: list[Any] = []
    for argument in arguments:
        match argument:
            case bytes():
                given.append(argument)
            case int():
                given.append(ctypes.byref(ctypes.c_int(argument)))
            case float():
                given.append(ctypes.byref(number(argument)))
            case _:
                given.append(ctypes.c_void_p(argument.ctypes.data))
    _routine(letter + name)(*given)


@cache
def _routine(name: str) -> Any:
    """Return a routine of the BLAS that SciPy has; ctypes gives the interpreter lock back while it runs."""
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__[name]
    name_of, address_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address_of.restype, address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None)(address_of(capsule, name_of(capsule)))
