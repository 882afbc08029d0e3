"""Arrays as bytes: what may be sent, how dtype and shape travel with it, and what a buffer may receive."""

from __future__ import annotations

import ast
import functools
import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan._native import COMM_INLINE
from tartan.errors import ConfigError

Bytes = NDArray[np.uint8]

_ONE_DIMENSION = 1 << 8
_PLAIN_KINDS = "biufc"
_SIGNATURE_BYTES = 112


def given(data: Any) -> NDArray[Any]:
    """Return what is to be sent as an array in the order of its rows; bytes and other buffers are arrays of bytes.

    Raises
    ------
    ConfigError
        If it holds Python objects.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        data = np.frombuffer(data, np.uint8)
    elif hasattr(data, "__cuda_array_interface__") and hasattr(data, "get"):
        data = data.get()
    array = np.asarray(data)
    if array.dtype.hasobject:
        raise ConfigError(f"an array of {array.dtype} holds Python objects; send numbers, or bytes of a pickle")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def as_bytes(array: NDArray[Any]) -> Bytes:
    """Return the memory of an array in the order of its rows; nothing is copied."""
    if not array.size or not array.itemsize:
        return np.empty(0, np.uint8)
    return array.reshape(-1).view(np.uint8)


def buffer(name: str, out: Any) -> NDArray[Any]:
    """Return an array that can be received into.

    Raises
    ------
    ConfigError
        If it is no writable array in the order of its rows, or of Python objects.
    """
    if isinstance(out, bytearray | memoryview):
        out = np.frombuffer(out, np.uint8)
    if not isinstance(out, np.ndarray):
        raise ConfigError(f"{name} is a {type(out).__name__}; it must be an array")
    if out.dtype.hasobject:
        raise ConfigError(f"{name} has dtype {out.dtype}; Python objects cannot be received")
    if not out.flags.c_contiguous or not out.flags.writeable:
        what = "read-only" if out.flags.c_contiguous else "not contiguous in the order of its rows"
        raise ConfigError(f"{name} is {what}; receive into a contiguous writable array")
    return out


def fitting(name: str, out: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array that can be received into, of this dtype and shape.

    Raises
    ------
    ConfigError
        If it is another one.
    """
    array = buffer(name, out)
    if array.dtype != dtype or array.shape != shape:
        raise ConfigError(f"{name} is {array.dtype} {array.shape}; the result is {dtype} {shape}")
    return array


@functools.lru_cache(1024)
def described(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return dtype and shape as text."""
    return repr((np.lib.format.dtype_to_descr(dtype), shape)).encode()


@functools.lru_cache(1024)
def parsed(description: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype and the shape that a text describes."""
    descr, shape = ast.literal_eval(description.decode())
    return np.lib.format.descr_to_dtype(descr), shape


@functools.lru_cache(1024)
def signature(call: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the text by which ranks see that they call the same."""
    text = f"{call} of {dtype} {shape}".encode()
    if len(text) <= _SIGNATURE_BYTES:
        return text
    return text[:79] + b"~" + hashlib.blake2b(text, digest_size=16).hexdigest().encode()


def packed(array: NDArray[Any]) -> tuple[bytes, int]:
    """Return the description that lies beside a payload, or b"" and the flags of one that travels inside a line."""
    dtype = array.dtype
    if array.nbytes <= COMM_INLINE and array.ndim <= 1 and dtype.isnative and dtype.kind in _PLAIN_KINDS:
        return b"", ord(dtype.char) | (_ONE_DIMENSION if array.ndim else 0)
    return described(dtype, array.shape), 0


def of_line(flags: int, n_bytes: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype and the shape of a payload that travelled inside a line."""
    dtype = np.dtype(chr(flags & 0xFF))
    return dtype, (n_bytes // dtype.itemsize,) if flags & _ONE_DIMENSION else ()


def bundle(parts: list[NDArray[Any]]) -> Bytes:
    """Return several arrays as bytes, with what ``unbundled`` needs to find them."""
    head = repr([(np.lib.format.dtype_to_descr(part.dtype), part.shape) for part in parts]).encode()
    begin = -(-(8 + len(head)) // 64) * 64
    starts = [begin]
    for part in parts:
        starts.append(-(-(starts[-1] + part.nbytes) // 64) * 64)
    whole = np.zeros(starts[-1], np.uint8)
    whole[:8] = np.frombuffer(len(head).to_bytes(8, "little"), np.uint8)
    whole[8 : 8 + len(head)] = np.frombuffer(head, np.uint8)
    for start, part in zip(starts, parts):
        whole[start : start + part.nbytes] = as_bytes(part)
    return whole


def unbundled(whole: Bytes, place: int) -> NDArray[Any]:
    """Return one of the arrays of a bundle, as a view."""
    length = int.from_bytes(whole[:8].tobytes(), "little")
    start = -(-(8 + length) // 64) * 64
    for number, (descr, shape) in enumerate(ast.literal_eval(whole[8 : 8 + length].tobytes().decode())):
        dtype = np.lib.format.descr_to_dtype(descr)
        n_bytes = math.prod(shape) * dtype.itemsize
        if number == place:
            return np.ndarray(shape, dtype, buffer=whole[start : start + n_bytes].data if n_bytes else b"")
        start = -(-(start + n_bytes) // 64) * 64
    raise ConfigError(f"there is no part {place}")
