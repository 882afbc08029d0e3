"""Files of particles: both published layouts, JSON, CSV, and files that are damaged or hostile."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tartan.apps.microscopy.files import read_localisations, read_particle, split_file
from tartan.apps.microscopy.mat import MatCells, MatError, MatStructs, read_mat
from tartan.errors import ItemError

Array = NDArray[np.float64]

PARTICLES = [np.arange(15.0).reshape(5, 3) + 1, np.arange(12.0).reshape(4, 3) + 7]


def saved(variables: dict[str, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    scipy.io.savemat(stream, variables, **options)
    return stream.getvalue()


def cells(values: list[Any]) -> np.ndarray:
    array = np.empty((1, len(values)), object)
    for at, value in enumerate(values):
        array[0, at] = value
    return array


def first_layout() -> np.ndarray:
    return cells([{"points": p[:, :2], "sigma": p[:, 2:]} for p in PARTICLES])


def second_layout() -> np.ndarray:
    def coords(p: Array) -> Array:
        wide = np.zeros((len(p), 9))
        wide[:, [0, 1, 4]] = p
        return wide

    return cells([{"coords": coords(p), "angle": 1.0, "translation": [1.0, 2.0]} for p in PARTICLES])


def struct_array() -> np.ndarray:
    array = np.empty((1, 2), [("points", object), ("sigma", object)])
    for at, p in enumerate(PARTICLES):
        array[0, at] = (p[:, :2], p[:, 2])
    return array


def as_json() -> bytes:
    listed = [{"points": p[:, :2].tolist(), "sigma": p[:, 2].tolist()} for p in PARTICLES]
    return json.dumps({"particles": listed}).encode()


def as_csv() -> bytes:
    lines = ["particle,x [nm],y [nm],uncertainty [nm],frame"]
    for name, points in zip("ab", PARTICLES):
        lines += [f"{name},{x},{y},{s},7" for x, y, s in points]
    return "\n".join(lines).encode()


FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "cells": ("a.mat", lambda: saved({"particles": first_layout()})),
    "compressed": ("a.mat", lambda: saved({"particles": first_layout()}, do_compression=True)),
    "coords": ("a.mat", lambda: saved({"Particles": second_layout()})),
    "structs": ("a.mat", lambda: saved({"other": np.eye(2), "particles": struct_array()})),
    "integers": ("a.mat", lambda: saved({"p": cells([{"points": p[:, :2].astype(np.int16), "sigma": p[:, 2:]
                                                      .astype(np.float32)} for p in PARTICLES])})),
    "json": ("a.json", as_json),
    "list": ("a.json", lambda: json.dumps(json.loads(as_json())["particles"]).encode()),
    "csv": ("a.csv", as_csv),
    "tabs": ("a.csv", lambda: as_csv().replace(b",", b"\t")),
    "bom": ("a.csv", lambda: b"\xef\xbb\xbf" + as_csv().replace(b"\n", b"\r\n")),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_every_layout_holds_the_same_particles(name: str) -> None:
    key, make = FILES[name]
    parts = split_file(key, make())
    assert parts is not None
    for part, points in zip(parts, PARTICLES, strict=True):
        np.testing.assert_array_equal(read_particle(key, part), points)


def test_a_file_of_one_particle_is_one_item() -> None:
    points = PARTICLES[0]
    one = {"points": points[:, :2].tolist(), "sigma": 0.5}
    lines = "\n".join(["x,y,sigma", *(f"{x},{y},0.5" for x, y, _ in points)])
    saved_alone = saved({"points": points[:, :2], "sigma": np.full((5, 1), 0.5)})
    for key, data in (("a.json", json.dumps(one).encode()), ("a.csv", lines.encode()), ("a.mat", saved_alone)):
        assert split_file(key, data) is None
        np.testing.assert_array_equal(read_particle(key, data)[:, 2], np.full(5, 0.5))
        np.testing.assert_array_equal(read_particle(key, data)[:, :2], points[:, :2])


def test_a_bad_particle_fails_alone() -> None:
    listed = json.loads(as_json())
    listed["particles"][0]["sigma"] = [1.0]
    listed["particles"].append({"points": [[1, 2, 3, 4, 5]]})
    parts = split_file("a.json", json.dumps(listed).encode())
    assert parts is not None
    assert read_particle("a.json#0", parts[0])[:, 2].tolist() == [1.0] * 5  # one uncertainty stands for all
    np.testing.assert_array_equal(read_particle("a.json#1", parts[1]), PARTICLES[1])
    with pytest.raises(ItemError, match=r"^a.json#2: points has shape \(1, 5\)"):
        read_particle("a.json#2", parts[2])


def test_real_particles_are_those_that_scipy_reads(shared_data: Path) -> None:
    path = shared_data / "particles" / "tud_dol30.mat"
    parts = split_file(path.name, path.read_bytes())
    assert parts is not None
    whole = scipy.io.loadmat(path)["particles"]
    assert len(parts) == whole.shape[1]
    for k in (0, 17, 548):
        points = read_particle(path.name, parts[k])
        np.testing.assert_array_equal(points[:, :2], whole[0, k]["points"][0, 0])
        np.testing.assert_array_equal(points[:, 2:], whole[0, k]["sigma"][0, 0])


@pytest.mark.parametrize(
    ("key", "data", "says"),
    [
        ("a.csv", b"", "it is empty; a CSV of points has a header: x,y,sigma"),
        ("a.csv", b"1,2,3\n4,5,6\n", "without a column 'x'; expected a header: x,y,sigma"),
        ("a.csv", b"x,y\n1,2\n", "without a column 'uncertainty' or 'sigma'; expected a header: x,y,sigma"),
        ("a.csv", b"x,y,z,sigma\n1,2,3,4\n1,2,4,4\n", "its z varies from 3 to 4, .* --set dims=2 takes x and y only"),
        ("a.csv", b"x_nm,y_nm,sigma_px\n1,2,3\n", "are in nanometres and in pixels; convert them to one unit"),
        ("a.csv", b"x,y,sigma\n1,2\n", "line 2 has 2 values, fewer than the header"),
        ("a.csv", b"x,y,sigma\n1,2,three\n", "line 2: 'three' is not a number"),
        ("a.csv", b"x,y,sigma\n", "a header and no points"),
        ("a.csv", b"\xff\xfe\x00\xd8", "neither MAT, JSON, HDF5 nor a table in UTF-8 or UTF-16"),
        ("a.json", b"{", "it is not JSON"),
        ("a.json", b"[]", "it holds no particle"),
        ("a.json", b"[" * 100_000, "nested too deep|not JSON"),
        ("a.json", b'{"a": 1}', "it has 'a'; expected points and sigma, or coords"),
        ("a.json", b'{"points": [[1, 2], [3]], "sigma": 1}', "points holds something else than real numbers"),
        ("a.json", b'{"points": "abc", "sigma": 1}', "points holds something else than real numbers"),
        ("a.json", b'{"points": [[true, false], [1, 2]], "sigma": 1}', "points holds something else than real numbers"),
        ("a.json", b'{"points": [[1, 2], [3, 4]], "sigma": [true, true]}', "sigma holds something else than real"),
        ("a.json", b'{"points": [[1, 2], [3, 4]], "sigma": true}', "sigma holds something else than real numbers"),
        ("a.json", b'{"coords": [[1, 2, 3]]}', "the uncertainty is column 4"),
        ("a.mat", b"", "not a MAT file of version 5"),
        (
            "a.mat",
            b"\x89HDF\r\n\x1a\n" + bytes(600),
            "cannot be read as HDF5, it is damaged",
        ),
        ("a.mat", b"MATLAB 7.3 MAT-file" + bytes(600), "version 7.3 .*-v7"),
        ("a.mat", saved({"saveloc": {"loc": {"xnm": np.ones(3)}}}), "'saveloc', as SMAP saves .* read from .csv"),
        ("a.mat", b"MATLAB 5.0".ljust(126) + b"XX", "names no byte order"),
        ("a.mat", b"MATLAB 5.0".ljust(126) + b"IM", "it holds nothing; expected particles"),
    ],
)
def test_files_that_hold_no_particle_are_named(key: str, data: bytes, says: str) -> None:
    with pytest.raises(ItemError, match=f"^{key}: .*({says})"):
        read_particle(key, data)


HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"


def element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def array(kind: int, sizes: list[int], rest: bytes = b"") -> bytes:
    flags = element(6, struct.pack("<II", kind, 0))
    return element(14, flags + element(5, struct.pack(f"<{len(sizes)}i", *sizes)) + element(1, b"p") + rest)


def nested(depth: int) -> bytes:
    inner = array(6, [0, 0], element(9, b""))
    for _ in range(depth):
        inner = array(1, [1, 1], inner)
    return inner


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (array(1, [2**30, 2**30]), "arrays are announced"),
        (array(6, [2**30, 2**30], element(9, b"")), "holds 0 numbers"),
        (array(6, [-1, 4], element(9, b"")), "dimensions"),
        (array(2, [1, 1], element(5, struct.pack("<i", 0)) + element(1, b"")), "have no length"),
        (array(2, [1, 2**31 - 1], element(5, struct.pack("<i", 8)) + element(1, b"points\0\0")), "announced"),
        (array(1, [1] * 40), "dimensions"),
        (struct.pack("<II", 14, 2**31), "it is truncated"),
        (struct.pack("<I", 14 | 9 << 16) + bytes(4), "lies in its tag"),
        (b"\x0e\x00", "it is truncated"),
        (element(15, b"no zlib stream"), "cannot be decompressed"),
        (element(15, zlib.compress(nested(2))[:-6]), "truncated|cannot be decompressed"),
        (element(15, zlib.compress(bytes(1 << 24))), "when decompressed|truncated|type 0"),
        (array(1, [500_000, 1], bytes(8) * 500_000), "more than 500,000 arrays; save its particles in several files"),
        (array(1, [1, 1], array(1, [500_000, 1], bytes(8) * 500_000)), "more than 500,000 arrays"),
    ],
)
def test_hostile_files_are_refused(body: bytes, says: str) -> None:
    with pytest.raises(MatError, match=says):
        read_mat(HEADER + body)


@pytest.mark.exhaustive
def test_what_is_decompressed_is_bounded() -> None:
    bomb = zlib.compress(bytes((1 << 28) + 1))
    with pytest.raises(MatError, match=r"more than 268,435,456 bytes when decompressed; .* '-v6'"):
        read_mat(HEADER + element(15, bomb))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("a.json", b"[" + b"{}," * 100_000 + b"{}]"),
        ("a.mat", HEADER + array(1, [100_001, 1], element(14, b"") * 100_001)),
    ],
)
def test_more_particles_than_any_run_compares_are_refused(key: str, data: bytes) -> None:
    with pytest.raises(ItemError, match=r"100,001 particles, above 100,000; write several files"):
        split_file(key, data)


@pytest.mark.parametrize("depth", [50, 5_000])
def test_cells_nested_too_deep_are_refused(depth: int) -> None:
    with pytest.raises(MatError, match="nested more than"):
        read_mat(HEADER + nested(depth))


def test_what_is_left_out_is_none() -> None:
    found = read_mat(saved({"text": "abc", "complex": np.array([1j]), "many": np.zeros((2, 3, 4)), "empty": cells([])}))
    assert found["text"] is None
    assert found["complex"] is None
    assert found["many"].shape == (2, 3, 4)
    assert found["empty"] == MatCells([])


def test_structs_keep_their_fields() -> None:
    found = read_mat(saved({"p": struct_array()}))["p"]
    assert isinstance(found, MatStructs)
    assert [list(one) for one in found.values] == [["points", "sigma"]] * 2


WHOLE = saved({"particles": first_layout()})
PACKED = saved({"particles": first_layout()}, do_compression=True)


@given(
    whole=st.sampled_from([WHOLE, PACKED]),
    changes=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=6),
    end=st.integers(0, len(WHOLE)),
)
def test_damaged_files_are_read_or_refused(whole: bytes, changes: list[tuple[int, int]], end: int) -> None:
    data = bytearray(whole)
    for at, value in changes:
        data[at % len(data)] = value
    with contextlib.suppress(ItemError):
        split_file("a.mat", bytes(data[: end if len(changes) % 2 else None]))


@given(st.binary(max_size=200), st.sampled_from(["a.mat", "a.json", "a.csv"]))
def test_any_bytes_are_read_or_refused(data: bytes, key: str) -> None:
    with contextlib.suppress(ItemError):
        split_file(key, data)


@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("a.json", b"[]"),
        ("a.json", b'{"particles": []}'),
        ("a.json", b'{"sites": [], "particles": []}'),
        ("a.mat", saved({"particles": np.empty((1, 0), object)})),
    ],
)
def test_a_file_of_no_particles_fails_as_one_item(key: str, data: bytes) -> None:
    with pytest.raises(ItemError, match="it holds no particle"):
        split_file(key, data)


def test_squared_uncertainties_become_their_roots() -> None:
    squared = cells([{"points": p[:, :2], "sigma": p[:, 2:] ** 2} for p in PARTICLES])
    for name in ("subParticles", "subParticles_clustered"):
        parts = split_file("a.mat", saved({name: squared}))
        assert parts is not None
        for part, points in zip(parts, PARTICLES, strict=True):
            np.testing.assert_allclose(read_particle("a.mat", part), points, rtol=1e-15)
            assert "roots of sigma" in read_localisations("a.mat", part).facts["uncertainties"]
    both = split_file("a.mat", saved({"subParticles": squared, "particles": first_layout()}))
    assert both is not None
    np.testing.assert_array_equal(read_particle("a.mat", both[0]), PARTICLES[0])


def test_a_negative_square_is_refused() -> None:
    data = saved({"subParticles": cells([{"points": np.ones((2, 2)), "sigma": np.array([1.0, -2.0])}])})
    with pytest.raises(ItemError, match=r"^a.mat: sigma of point 1 is -2, which is not a square; subParticles hold"):
        read_particle("a.mat", data)


@pytest.mark.parametrize(
    "name", ["uncertainty", "uncertainty_nm", "uncertainty [nm]", "uncertainty_xy [nm]", "Uncertainty_XY"]
)
@pytest.mark.parametrize("width", ["sigma", "sigma_nm", "sigma [nm]"])
def test_the_width_of_the_spot_is_no_uncertainty(name: str, width: str) -> None:
    data = f"x [nm],y [nm],{width},{name}\n1,2,135,9\n3,4,136,8\n".encode()
    np.testing.assert_array_equal(read_particle("a.csv", data), [[1, 2, 9], [3, 4, 8]])


def test_a_sigma_beside_another_precision_is_refused() -> None:
    data = b"x,y,sigma,precision\n1,2,135,9\n"
    with pytest.raises(ItemError, match=r"^a.csv: it has 'sigma', .* and 'precision'; rename .* to 'uncertainty'"):
        read_particle("a.csv", data)
    assert read_particle("a.csv", data.replace(b"precision", b"uncertainty"))[0].tolist() == [1, 2, 9]
