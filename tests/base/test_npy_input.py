"""Arrays in files whose headers say what is not true."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.apps.vectors import Vectors
from tartan.base.npy_input import PARSER_LOCK, npy_of_bytes, open_npy


def written(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def forged(shape: tuple[int, ...], dtype: str = "<f4", n_bytes: int = 64) -> bytes:
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(11 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(n_bytes)


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3), np.arange(6.0).reshape(2, 3).T, np.float32(3)], ids=str)
def test_bytes_hold_what_was_saved(array: Any) -> None:
    found = npy_of_bytes(written(array))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (forged((2**40, 8)), "35,184,372,088,832 bytes, and 64 follow"),
        (forged((2**62, 2**62)), "and 64 follow"),
        (forged((16,))[:-1], "64 bytes, and 63 follow"),
        (forged((10, 2**40), "|S0", 0), "of no bytes"),
        (forged((10**9, 4), "|V0", 0), "of no bytes"),
        (forged((8,), "|O"), "objects of Python"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31), "not a .npy file"),
        (b"PK\x03\x04", "not a .npy file"),
    ],
)
def test_what_is_no_array_is_refused_before_memory_is_taken(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        npy_of_bytes(data)
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(ValueError, match=r"^(?!.*allow)"):
        open_npy(tmp_path / "a.npy")


def test_headers_are_parsed_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python before 3.11.8 fails now and then where two threads parse."""
    read, held = np.lib.format.read_array_header_1_0, []

    def look(*args: Any, **options: Any) -> Any:
        held.append(PARSER_LOCK.locked())
        return read(*args, **options)

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", look)
    stream = io.BytesIO()
    np.save(stream, np.arange(3.0))
    assert npy_of_bytes(stream.getvalue()).tolist() == [0, 1, 2]
    assert Vectors().parse("x.npy", stream.getvalue()).tolist() == [0, 1, 2]
    assert held == [True, True]
    assert not PARSER_LOCK.locked()
