"""LU factors of a matrix in place, block by block, without pivoting between blocks.

No exchange means that some matrices have no factors that are any good: a pivot is zero, or elements grow until
nothing of the input is left in them. Growth is watched, and beyond a limit the factorisation is refused. Diagonally
dominant matrices never grow by more than 2.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tartan.blocks.report import RunReport
from tartan.blocks.session import Session
from tartan.blocks.space import Space
from tartan.blocks.task import Task
from tartan.blocks.unfinished import UnfinishedOutput
from tartan.core.blocks.placement import Place
from tartan.errors import ConfigError, InternalError, SubtaskError

# By arithmetic: float32 has 7 digits, of which growth of 10**6 leaves one.
MOST_GROWTH = 1e6
"""How much larger than the largest element of the matrix a factor may become."""
_SOLVER = "a solver that exchanges rows, such as scipy.linalg.lu_factor"
# By convention of LAPACK, whose default of a block of getrf is 64 (ilaenv). `tartan bench blocks` measures LU.
_STEP = 64


def lu(
    session: Session, a: Any, *, block: int = 1024, place: Place = "source", output: UnfinishedOutput | None = None
) -> tuple[Space, RunReport]:
    """Factor a matrix: L below the diagonal, with ones on it that are not stored, and U.

    Parameters
    ----------
    session : Session
    a : as for ``Session.space``
        Square.
    block : int
        Side of a block.
    place : str
        Where the blocks are at first.
    output : UnfinishedOutput, optional
        Keeps the matrix after some of the steps, and begins with what it kept.

    Returns
    -------
    factors : Space
        float32 or float64.
    report : RunReport

    Raises
    ------
    ConfigError
        If the matrix is not square, complex, or not finite.
    SubtaskError
        If a pivot is zero, or elements grow by more than ``MOST_GROWTH``.

    References
    ----------
    Demmel, Higham, Schreiber, "Stability of block LU factorization" (1995).
    """
    import scipy.linalg  # noqa: F401 - the first block would wait for it, and all others for that block

    given = session.space(a, block=block, place=place)
    if len(given.shape) != 2 or given.shape[0] != given.shape[1]:
        raise ConfigError(f"a matrix of shape {given.shape} has no LU factors; it must be square")
    if given.dtype.kind == "c":
        raise ConfigError("LU of complex matrices is not supported; give float32 or float64")
    before = session.total
    factors = _as_floats(session, given, block)
    limit = MOST_GROWTH * _largest(session, factors)
    if not np.isfinite(limit):
        raise ConfigError("the matrix holds values that are not finite, and has no LU factors")
    begin = 0
    if output is not None:
        if not output.begin(factors):
            return factors, session.total - before
        begin = output.step
        factors = session.space(output.values, block=block, place=place) if begin else factors
    for k in factors.grid_rows[begin:]:
        eliminate(session, factors, k, limit)
        if output is not None and k + 1 < len(factors.grid_rows):
            output.save(factors, k + 1)
    return factors, session.total - before


def _as_floats(session: Session, given: Space, block: int) -> Space:
    if given.dtype.kind == "f" and given.dtype.itemsize in (4, 8) and given.dtype.isnative:
        return given
    dtype = "f4" if given.dtype.itemsize <= 2 else "f8"
    factors = session.space(shape=given.shape, dtype=dtype, block=block)
    wants = lambda i, j: (given.read[given.block(i, j)], factors.write[factors.block(i, j)])  # noqa: E731
    session.run(Task(copy, factors.grid, wants, at_once=True, releases_gil=True))
    return factors


def copy(a: np.ndarray, out: np.ndarray) -> None:
    """Copy."""
    out[...] = a


def largest(a: np.ndarray, out: np.ndarray, xp: Any) -> None:
    """Find the largest absolute value; NaN where there is one."""
    out[...] = xp.maximum(abs(a.max()), abs(a.min()))


def _largest(session: Session, a: Space) -> float:
    if a.source.array is not None:  # in this process: no task need bring it anywhere
        return float(np.maximum(abs(a.source.array.max()), abs(a.source.array.min())))
    found = session.space(shape=a.counts, dtype="f8", block=1)
    wants = lambda i, j: (a.read[a.block(i, j)], found.write[i, j])  # noqa: E731
    session.run(Task(largest, a.grid, wants, at_once=True, releases_gil=True))
    return float(found.array().max())


def eliminate(session: Session, a: Space, k: int, limit: float) -> None:
    """Do one step of the elimination: a column and a row of blocks, and all that is behind them.

    The subtask that changes the next diagonal block also factors it, so that others have work meanwhile.
    """
    rest = range(k + 1, a.counts[0])
    at = a.block

    def task(
        cpu: Callable[..., None],
        gpu: Callable[..., None],
        grid: Sequence[tuple[int, ...]],
        wants: Callable[..., Any],
    ) -> Task:
        return Task(cpu=cpu, gpu=gpu, grid=grid, subscribe=wants, at_once=True, releases_gil=True)

    def factors(k: int) -> tuple[Factor, DeviceFactor]:
        first = k * a.blocks.block[0]
        return Factor(limit, first), DeviceFactor(limit, first)

    if k == 0:
        session.run(task(*factors(0), [(0,)], lambda k: a.update[at(k, k)]))
    if rest:
        column, row = [(i, k) for i in rest], [(k, j) for j in rest]
        session.run(
            task(Lower(limit), DeviceLower(limit), column, lambda i, k: (a.read[at(k, k)], a.update[at(i, k)])),
            task(Upper(limit), DeviceUpper(limit), row, lambda k, j: (a.read[at(k, k)], a.update[at(k, j)])),
        )
        grid = [(i, j) for i in rest for j in rest]
        wants = lambda i, j: (a.read[at(i, k)], a.read[at(k, j)], a.update[at(i, j)])  # noqa: E731
        factor, device_factor = factors(k + 1)
        session.run(task(Trail(k + 1, factor), DeviceTrail(k + 1, device_factor), grid, wants))


class _Watched:
    """A function that refuses elements beyond a limit."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def check(self, values: np.ndarray, xp: Any = np) -> None:
        """Refuse values beyond the limit, and what is not a number."""
        largest = float(max(abs(values.max()), abs(values.min())))  # NaN where there is one
        if not largest <= self.limit:
            what = "is not finite" if not np.isfinite(largest) else f"grows to {largest:.3g}"
            raise SubtaskError(f"an element {what} in LU without pivoting; scale the matrix, or use {_SOLVER}")


class _Pivots(_Watched):
    """A function of a diagonal block that refuses pivots of zero; knows the row where its block begins."""

    def __init__(self, limit: float, first: int) -> None:
        super().__init__(limit)
        self.first = first

    def zero_pivot(self, k: int) -> SubtaskError:
        """Return the error for a pivot of the block."""
        row = self.first + k
        return SubtaskError(
            f"the pivot in row {row} of the matrix (from 0) is zero in LU without pivoting; put the rows into "
            f"an order with no zero on the diagonal, or use {_SOLVER}"
        )


class Factor(_Pivots):
    """Factor a diagonal block."""

    def __call__(self, own: np.ndarray) -> None:
        """Factor in place."""
        from scipy.linalg import lapack

        getrf = lapack.sgetrf if own.dtype.itemsize == 4 else lapack.dgetrf
        found, pivots, _ = getrf(own)
        if np.array_equal(pivots, np.arange(len(own))) and np.diagonal(found).all():
            own[...] = found
        else:
            self._factor_in_steps(own)
        self.check(own)

    def _factor_in_steps(self, a: np.ndarray) -> None:
        """Factor without pivots, some columns at a time."""
        n = len(a)
        for begin in range(0, n, _STEP):
            end = min(n, begin + _STEP)
            for k in range(begin, end):
                if a[k, k] == 0:
                    raise self.zero_pivot(k)
                a[k + 1 :, k] /= a[k, k]
                a[k + 1 :, k + 1 : end] -= np.outer(a[k + 1 :, k], a[k, k + 1 : end])
            _solve_upper(a[begin:end, begin:end], a[begin:end, end:])
            a[end:, end:] -= a[end:, begin:end] @ a[begin:end, end:]


def _solve_upper(factors: np.ndarray, own: np.ndarray) -> None:
    """Replace B by the solution X of L X = B."""
    from scipy.linalg import solve_triangular

    if own.size:
        own[...] = solve_triangular(factors, own, lower=True, unit_diagonal=True, check_finite=False)


class Lower(_Watched):
    """Divide a block below the diagonal by U of its column."""

    def __call__(self, factors: np.ndarray, own: np.ndarray) -> None:
        """Replace B by the solution X of X U = B."""
        solve_upper(factors, own)
        self.check(own)


class Upper(_Watched):
    """Divide a block right of the diagonal by L of its row."""

    def __call__(self, factors: np.ndarray, own: np.ndarray) -> None:
        """Replace B by the solution X of L X = B."""
        solve_unit_lower(factors, own)
        self.check(own)


class Trail:
    """Subtract the product of a block of L and one of U; factor the block if it is the next on the diagonal."""

    def __init__(self, following: int, factor: Factor) -> None:
        self.following, self.factor = following, factor

    def __call__(self, left: np.ndarray, upper: np.ndarray, own: np.ndarray, index: tuple[int, int]) -> None:
        """Change the block in place."""
        subtract_product(left, upper, own)
        if index == (self.following, self.following):
            self.factor(own)


# -- on a device: products, and steps of single columns or rows between them -----------------------------------------


class DeviceFactor(_Pivots):
    """Factor a diagonal block on a device."""

    def __call__(self, own: np.ndarray, xp: Any) -> None:
        """Factor in place."""
        for begin in range(0, len(own), _STEP):
            end = min(len(own), begin + _STEP)
            for k in range(begin, end):
                own[k + 1 :, k] /= own[k, k] + (own[k, k] == 0)  # zeros are found behind the last column
                own[k + 1 :, k + 1 : end] -= own[k + 1 :, k, None] * own[k, None, k + 1 : end]
            pivots = xp.stack([own[k, k] for k in range(begin, end)])
            if bool(xp.any(pivots == 0)):
                raise self.zero_pivot(begin + int(xp.argmax(pivots == 0)))
            _solve_rows(own[begin:end, begin:end], own[begin:end, end:], xp)
            own[end:, end:] -= xp.matmul(own[end:, begin:end], own[begin:end, end:])
        self.check(own, xp)


class DeviceLower(_Watched):
    """Divide a block below the diagonal by U of its column, on a device."""

    def __call__(self, factors: np.ndarray, own: np.ndarray, xp: Any) -> None:
        """Replace B by the solution X of X U = B."""
        n = len(factors)
        for begin in range(0, n, _STEP):
            end = min(n, begin + _STEP)
            for k in range(begin, end):
                own[:, k] /= factors[k, k]
                own[:, k + 1 : end] -= own[:, k, None] * factors[k, None, k + 1 : end]
            own[:, end:] -= xp.matmul(own[:, begin:end], factors[begin:end, end:])
        self.check(own, xp)


class DeviceUpper(_Watched):
    """Divide a block right of the diagonal by L of its row, on a device."""

    def __call__(self, factors: np.ndarray, own: np.ndarray, xp: Any) -> None:
        """Replace B by the solution X of L X = B."""
        _solve_rows(factors, own, xp)
        self.check(own, xp)


def _solve_rows(factors: np.ndarray, own: np.ndarray, xp: Any) -> None:
    """Replace B by the solution X of L X = B, L with ones on its diagonal, which are not stored."""
    n = len(factors)
    for begin in range(0, n, _STEP):
        end = min(n, begin + _STEP)
        for k in range(begin, end):
            own[k + 1 : end] -= factors[k + 1 : end, k, None] * own[k, None]
        own[end:] -= xp.matmul(factors[end:, begin:end], own[begin:end])


class DeviceTrail:
    """Subtract the product of a block of L and one of U on a device; factor the next diagonal block."""

    def __init__(self, following: int, factor: DeviceFactor) -> None:
        self.following, self.factor = following, factor

    def __call__(self, left: np.ndarray, upper: np.ndarray, own: np.ndarray, xp: Any, index: tuple[int, int]) -> None:
        """Change the block in place."""
        own -= xp.matmul(left, upper)
        if index == (self.following, self.following):
            self.factor(own, xp)


# Products and solutions in place that leave the interpreter to other threads.
#
# SciPy's functions for these hold the interpreter lock, so that subtasks in threads would run one after the other. Here
# the routines below them are called, whose addresses SciPy offers to compiled code.

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
    _load_routine(letter + name)(*given)


@cache
def _load_routine(name: str) -> Any:
    """Return a routine of the BLAS that SciPy has; ctypes gives the interpreter lock back while it runs."""
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__[name]
    name_of, address_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address_of.restype, address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None)(address_of(capsule, name_of(capsule)))
