"""Arrays as bytes: what may be sent, how dtype and shape travel with it, and what a buffer may receive."""

from __future__ import annotations

import ast
import functools
import hashlib
import itertools
import pickle
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from tartan._native import COMM_INLINE
from tartan.base.npy_input import PARSER_LOCK
from tartan.errors import ConfigError

Bytes = NDArray[np.uint8]

_BUFFERS = bytes | bytearray | memoryview
# _ONE_DIMENSION and _LINE_KIND, by format of a line's flags.
_ONE_DIMENSION = 1 << 8
# By format.
_LINE_KIND = (1 << 9) - 1
_PLAIN_KINDS = "biufc"
# By format: SIGNATURE of crates/tartan-comm/src/arena.rs.
_SIGNATURE_BYTES = 112
_READ_ONLY = "read-only; receive into a contiguous writable array"
_SCATTERED = "not contiguous in the order of its rows; receive into a contiguous writable array"


def make_payload(data: Any) -> NDArray[Any]:
    """Return what is to be sent as an array in the order of its rows; bytes and other buffers are arrays of bytes.

    Raises
    ------
    ConfigError
        If it holds Python objects, has a mask, or is not an array.
    """
    if isinstance(data, _BUFFERS):
        view = memoryview(data)
        data = np.frombuffer(view if view.c_contiguous else view.tobytes(), np.uint8)
    elif _on_device(data) and hasattr(data, "get"):
        data = data.get()
    elif isinstance(data, np.ma.MaskedArray):
        raise ConfigError("a masked array would lose its mask; send its data and its mask, or data.filled(value)")
    try:
        array = np.asarray(data)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"what is to be sent is not an array: {error}") from None
    if array.dtype.kind in "SU" and isinstance(data, list | tuple) and not _all_text(data):
        raise ConfigError("a list of texts and other things would all become texts; send texts and numbers apart")
    if array.dtype.hasobject:
        raise ConfigError(
            f"an array of {array.dtype} holds Python objects; send numbers, or the whole as a pickle (send_object)"
        )
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


# By format: begins what ``send_object`` sends; no pickle and no text begins so.
_OBJECT = b"\x93tartan object\x01\x00"


def pickle_object(thing: Any) -> NDArray[np.uint8]:
    """Return an object as bytes that ``unpickle_object`` knows.

    Raises
    ------
    ConfigError
        If it cannot be pickled.
    """
    try:
        return np.frombuffer(_OBJECT + cloudpickle.dumps(thing), np.uint8)
    except Exception as error:  # what a pickle of a user's class does is its own
        raise ConfigError(
            f"a {type(thing).__name__} cannot be sent as a pickle: {type(error).__name__}: {error}; "
            "send what it is made of"
        ) from error


def unpickle_object(message: NDArray[Any], source: int, tag: int) -> Any:
    """Return the object that was sent as bytes.

    Raises
    ------
    ConfigError
        If the message is no object.
    """
    data = message.tobytes() if message.dtype == np.uint8 and message.ndim == 1 else b""
    if not data.startswith(_OBJECT):
        raise ConfigError(
            f"the message from rank {source} with tag {tag} is an array ({message.dtype} {message.shape}), no object; "
            "receive it with recv, and give objects another tag"
        )
    return pickle.loads(memoryview(data)[len(_OBJECT) :])


def _all_text(data: Any) -> bool:
    if isinstance(data, list | tuple):
        return all(map(_all_text, data))
    return isinstance(data, str | bytes) or getattr(getattr(data, "dtype", None), "kind", "") in ("S", "U")


def _on_device(data: Any) -> bool:
    return type(data) is not np.ndarray and hasattr(data, "__cuda_array_interface__")


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
        If it is not a writable array in the order of its rows, or of Python objects.
    """
    if isinstance(out, memoryview) and not out.c_contiguous:
        raise ConfigError(f"{name} is {_SCATTERED}")
    if isinstance(out, bytearray | memoryview):
        out = np.frombuffer(out, np.uint8)
    if _on_device(out):
        raise ConfigError(
            f"{name} is a {type(out).__name__} on a GPU; receive on the host, and copy what has come to it"
        )
    if not isinstance(out, np.ndarray):
        raise ConfigError(f"{name} is a {type(out).__name__}; it must be an array")
    if out.dtype.hasobject:
        raise ConfigError(f"{name} has dtype {out.dtype}; Python objects cannot be received")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ConfigError(f"{name} is {_READ_ONLY if out.flags.c_contiguous else _SCATTERED}")
    return out


def make_receivable(name: str, out: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
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
def describe_payload(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return dtype and shape as text."""
    return repr((np.lib.format.dtype_to_descr(dtype), shape)).encode()


@functools.lru_cache(1024)
def parse_description(description: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype and the shape that a text describes."""
    with PARSER_LOCK:
        descr, shape = ast.literal_eval(description.decode())
    return np.lib.format.descr_to_dtype(descr), shape


@functools.lru_cache(1024)
def signature(call: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the text by which ranks see that they call the same."""
    text = f"{call} of {dtype} {shape}".encode()
    if len(text) <= _SIGNATURE_BYTES:
        return text
    return text[:79] + b"~" + hashlib.blake2b(text, digest_size=16).hexdigest().encode()


def pack_description(array: NDArray[Any]) -> tuple[bytes, int]:
    """Return the description that lies beside a payload, or b"" and the flags of one that travels inside a line."""
    dtype = array.dtype
    if array.nbytes <= COMM_INLINE and array.ndim <= 1 and dtype.isnative and dtype.kind in _PLAIN_KINDS:
        return b"", ord(dtype.char) | (_ONE_DIMENSION if array.ndim else 0)
    return describe_payload(dtype, array.shape), 0


def of_line(flags: int, n_bytes: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype and the shape of a payload that travelled inside a line."""
    return _parse_line(flags & _LINE_KIND, n_bytes)


@functools.lru_cache(1024)
def _parse_line(kind: int, n_bytes: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    dtype = np.dtype(chr(kind & 0xFF))
    return dtype, (n_bytes // dtype.itemsize,) if kind & _ONE_DIMENSION else ()


def bundle(parts: list[NDArray[Any]]) -> Bytes:
    """Return several arrays as bytes, with what ``unbundle`` needs to find them.

    Numbers of 64 bits come first: how many arrays; for each where it begins, its bytes, where its description is,
    and the bytes of that. Slots read and write the same (``exchange_bundle`` in ``tartan_comm.h``).
    """
    texts = [describe_payload(part.dtype, part.shape) for part in parts]
    rows, place = [], 8 + 32 * len(parts)
    for text in texts:
        rows.append([place, len(text)])
        place += len(text)
    for row, part in zip(rows, parts):
        place = -(-place // 64) * 64
        row[:0] = [place, part.nbytes]
        place += part.nbytes
    whole = np.zeros(-(-place // 64) * 64, np.uint8)  # what lies behind it begins aligned, too
    whole[: 8 + 32 * len(parts)] = np.array([len(parts), *itertools.chain(*rows)], np.uint64).view(np.uint8)
    for (start, n_bytes, text_start, length), text, part in zip(rows, texts, parts):
        whole[text_start : text_start + length] = np.frombuffer(text, np.uint8)
        whole[start : start + n_bytes] = as_bytes(part)
    return whole


def unbundle(whole: Bytes, place: int) -> NDArray[Any]:
    """Return one of the arrays of a bundle, as a view."""
    row = whole[8 + 32 * place : 40 + 32 * place].tobytes()
    start, n_bytes, text_start, length = (int.from_bytes(row[at : at + 8], "little") for at in range(0, 32, 8))
    dtype, shape = parse_description(whole[text_start : text_start + length].tobytes())
    return np.ndarray(shape, dtype, buffer=whole[start : start + n_bytes].data if n_bytes else b"")
