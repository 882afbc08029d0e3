"""Files of particles: MATLAB v5, JSON, CSV; one particle a file, or many.

A particle is an array (n, 3): x, y, and the uncertainty of each point, in one unit of length. Files are not trusted:
what does not fit raises ItemError with the value and a way out.
"""

from __future__ import annotations

import csv
import io
import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.base.npy_input import npy_of_bytes
from tartan.errors import ItemError

# By judgement: a point is tens of characters; a bound against strangers' files.
_MOST_LINE = 1 << 16

Points = NDArray[np.float64]

#: Places of x, y and the uncertainty in the columns of ``coords``, of the second published layout.
#: By format.
_COORDS = (0, 1, 4)
# By judgement: JSON takes ten times its size in objects of Python; a bound against strangers' files.
_MOST_JSON_BYTES = 1 << 28
# By judgement: a hundred times the published sets; a bound against strangers' files.
_MOST_PARTICLES = 100_000
_NPY = b"\x93NUMPY"
_X = ("x", "x_px", "x_nm", "x [px]", "x [nm]")
_Y = ("y", "y_px", "y_nm", "y [px]", "y [nm]")
#: What names an uncertainty precedes sigma, which is the width of the spot where a table has both.
_UNCERTAINTY = tuple(
    name + unit for name in ("uncertainty", "uncertainty_xy") for unit in ("", "_px", "_nm", " [px]", " [nm]")
)
_SIGMA = ("sigma", *_UNCERTAINTY, "sigma_px", "sigma_nm")
_OF_UNCERTAINTIES = ("uncertaint", "precision", "locprec")
#: Name under which smlm_classification2d keeps particles; their sigma is squared.
_SQUARED = "subParticles"
_WITH_ROOTS = (
    f"it is one of {_SQUARED!r}, the name that smlm_classification2d gives particles whose sigma is squared; save them "
    "as 'particles', with roots: for k = 1:numel(subParticles), particles{k} = subParticles{k}; "
    "particles{k}.sigma = sqrt(particles{k}.sigma); end; save('file.mat', 'particles', '-v7') "
    "(without the root if yours are not squared)"
)
_PARTICLE = ("particle", "group", "id")


def split_file(key: str, data: bytes) -> list[bytes] | None:
    """Return the particles of a file, each as ``read_particle`` takes it; None where it holds one.

    A particle that cannot be read becomes a text that says why, so that it fails alone. The truth of simulated
    particles holds none.

    Raises
    ------
    ItemError
        If the file as a whole cannot be read.
    """
    found = _particles(key, data)
    if len(found) == 1:
        return None
    return [_pack(one) for one in found]


def read_particle(key: str, data: Any) -> Points:
    """Read one particle: the bytes of a file or of a part of one, an array (n, 3), or a mapping of columns.

    Raises
    ------
    ItemError
        If it is none, or holds several particles.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        return _with_reason(key, lambda: _of_object(data))
    data = bytes(data)
    if data.startswith(_NPY):
        return _with_reason(key, lambda: _of_object(npy_of_bytes(data)))
    found = _particles(key, data)
    if len(found) != 1:
        raise _failure(key, f"it holds {len(found)} particles where one is expected; give the file to a run")
    if isinstance(found[0], str):
        raise _failure(key, found[0])
    return found[0]


def _particles(key: str, data: bytes) -> list[Points | str]:
    """Return the particles of a file, or why each cannot be read."""
    text = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    try:
        if data.startswith((b"MATLAB", b"\x89HDF")) or key.lower().endswith(".mat"):
            return _of_mat(data)
        if text.startswith((b"{", b"[")) or key.lower().endswith(".json"):
            return _of_json(data)
        return _of_csv(data)
    except ValueError as error:  # MatError and what decoders raise
        raise _failure(key, str(error)) from None
    except RecursionError:
        raise _failure(key, "it is nested too deep") from None


def _failure(key: str, reason: str) -> ItemError:
    return ItemError(f"{key}: {reason}", context={"key": key})


def _with_reason(key: str, read: Any) -> Points:
    try:
        points: Points = read()
    except (ValueError, TypeError) as error:
        raise _failure(key, str(error)) from None
    return points


def _pack(particle: Points | str) -> bytes:
    if isinstance(particle, str):
        return json.dumps({"error": particle}).encode()
    stream = io.BytesIO()
    np.save(stream, particle, allow_pickle=False)
    return stream.getvalue()


def _each(values: Sequence[Any]) -> list[Points | str]:
    """Read particles one by one; one that cannot be read becomes its reason.

    Raises
    ------
    ValueError
        If there is none, or so many that no run would compare them all.
    """
    if len(values) == 0:
        raise ValueError("it holds no particle")
    if len(values) > _MOST_PARTICLES:
        raise ValueError(f"it holds {len(values):,} particles, above {_MOST_PARTICLES:,}; write several files of them")
    found: list[Points | str] = []
    for value in values:
        try:
            found.append(_of_object(value))
        except (ValueError, TypeError) as error:
            found.append(str(error))
    return found


def _of_object(value: Any) -> Points:
    """Read one particle from what a file or a program holds."""
    if isinstance(value, MatStructs | MatCells):
        if len(value.values) != 1:
            raise ValueError(f"it holds {len(value.values)} particles where one is expected")
        return _of_object(value.values[0])
    if isinstance(value, Mapping):
        return _of_mapping(value)
    if value is None:
        raise ValueError("it holds no numbers where a particle is expected")
    return _of_columns(_real(value, "the particle"))


def _of_columns(array: Points) -> Points:
    if array.ndim != 2 or array.shape[1] != 3:
        more = "; leave z out: particles are registered in two dimensions" if array.ndim == 2 else ""
        raise ValueError(f"its shape is {array.shape}; a particle has three columns: x, y, uncertainty{more}")
    return np.ascontiguousarray(array)


def _of_mapping(value: Mapping[str, Any]) -> Points:
    """Read ``points`` and ``sigma``, or ``coords``, or ``x``, ``y`` and ``sigma``."""
    if "error" in value:
        raise ValueError(str(value["error"])[:500])
    if "coords" in value:
        coords = _real(value["coords"], "coords")
        if coords.ndim != 2 or coords.shape[1] <= max(_COORDS):
            raise ValueError(f"coords has shape {coords.shape}; x, y are columns 0 and 1, the uncertainty is column 4")
        return np.ascontiguousarray(coords[:, _COORDS])
    if "points" in value:
        points = _real(value["points"], "points")
        if points.ndim == 2 and points.shape[1] == 3 and "sigma" not in value:
            return _of_columns(points)
        if points.size == 0:
            points = points.reshape(0, 2)  # a list without points does not say how many columns it has
        if points.ndim != 2 or points.shape[1] != 2:
            raise ValueError(f"points has shape {points.shape}; it has two columns, x and y (leave z out)")
        columns = [points[:, 0], points[:, 1]]
    elif "x" in value and "y" in value:
        if "z" in value:
            raise ValueError("it has z: particles are registered in two dimensions; leave z out")
        columns = [_real(value[name], name).ravel() for name in ("x", "y")]
    else:
        raise ValueError(
            f"it has {', '.join(map(repr, list(value)[:6])) or 'nothing'}; expected points and sigma, or coords"
        )
    if "sigma" not in value:
        raise ValueError("sigma, the uncertainty of each point, is missing")
    sigma = _real(value["sigma"], "sigma").ravel()
    if len(sigma) == 1 and len(columns[0]) != 1:
        sigma = np.full(len(columns[0]), sigma[0])
    lengths = {len(column) for column in (*columns, sigma)}
    if len(lengths) != 1:
        raise ValueError(f"it has {len(columns[0])} points and {len(sigma)} uncertainties; give one of each point")
    return np.column_stack([*columns, sigma])


def _real(value: Any, name: str) -> Points:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf" or _has_booleans(value):
            raise ValueError
        return array.astype(np.float64)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{name} holds something else than real numbers") from None


def _has_booleans(value: Any) -> bool:
    """Whether lists hold true or false, which NumPy takes for 1 and 0 beside numbers."""
    if not isinstance(value, list | tuple):
        return isinstance(value, bool | np.bool_)
    return any(map(_has_booleans, value))


def _of_mat(data: bytes) -> list[Points | str]:
    try:
        variables = read_mat(data)
    except MatError as error:
        raise ValueError(str(error)) from None
    for name in ("particles", "Particles", "particle"):
        if isinstance(variables.get(name), MatCells | MatStructs):
            return _each(variables[name].values)
    squared = variables.get(_SQUARED)
    if isinstance(squared, MatCells | MatStructs):
        return [_WITH_ROOTS] * max(1, len(squared.values))  # one by one: a run of this file alone says why, too
    lists = [value for value in variables.values() if isinstance(value, MatCells | MatStructs)]
    if len(lists) == 1:
        return _each(lists[0].values)
    if "points" in variables or "coords" in variables:
        return _each([variables])
    named = ", ".join(map(repr, list(variables)[:6])) or "nothing"
    raise ValueError(f"it holds {named}; expected particles: a cell array of structs with points and sigma, or coords")


def _of_json(data: bytes) -> list[Points | str]:
    if len(data) > _MOST_JSON_BYTES:
        raise ValueError(f"{len(data):,} bytes of JSON are more than {_MOST_JSON_BYTES:,}; cut the file")
    try:
        value = json.loads(data)
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if isinstance(value, dict) and isinstance(value.get("particles"), list):
        return [] if _is_truth(value) else _each(value["particles"])
    if isinstance(value, list) and (not value or isinstance(value[0], dict)):
        return _each(value)
    return _each([value])


def _is_truth(value: Mapping[str, Any]) -> bool:
    """Whether a file is what ``tartan simulate microscopy`` writes beside its particles: sites, and motions of all."""
    motions = value["particles"]
    if "sites" not in value or not motions:
        return False
    return all(isinstance(one, dict) and set(one) == {"angle", "translation"} for one in motions)


def _of_csv(data: bytes) -> list[Points | str]:
    """Read columns x, y, sigma under a header, and one that names the particle where there are several."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is neither MAT, JSON nor CSV in UTF-8") from None
    if not text.strip():
        raise ValueError("it is empty; a CSV of points has a header: x,y,sigma")
    dialect = "excel-tab" if "\t" in text.partition("\n")[0] else "excel"
    try:
        rows = [row for row in csv.reader(_lines(text), dialect, strict=True) if row]
    except csv.Error as error:
        raise ValueError(f"it is not CSV: {error}") from None
    header = [name.strip().lower() for name in rows[0]]
    places = [_column(header, _X), _column(header, _Y), _uncertainty_column(header)]
    if any(name in ("z", "z_nm", "z [nm]") for name in header):
        raise ValueError("it has a column z: particles are registered in two dimensions; leave z out")
    _require_one_unit(header, places)
    group = next((header.index(name) for name in _PARTICLE if name in header), None)
    points: dict[str, list[tuple[float, ...]]] = {}
    for line, row in enumerate(rows[1:], 2):
        points.setdefault("" if group is None else _cell(row, group, line), []).append(
            tuple(_number(_cell(row, place, line), line) for place in places)
        )
    if not points:
        raise ValueError("it has a header and no points")
    return _each([np.array(listed, np.float64) for listed in points.values()])


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a table; cells by the million are not points, and take much more memory than the file."""
    for number, line in enumerate(io.StringIO(text), 1):
        if len(line) > _MOST_LINE:
            raise ValueError(f"line {number} has {len(line):,} characters, above {_MOST_LINE:,}; write a line a point")
        yield line


def _column(header: list[str], names: tuple[str, ...]) -> int:
    for name in names:
        if name in header:
            return header.index(name)
    listed = ", ".join(header[:6])
    raise ValueError(f"its first line is {listed[:80]!r}, without a column {names[0]!r}; expected a header: x,y,sigma")


def _uncertainty_column(header: list[str]) -> int:
    """Return the column of uncertainties, and refuse to take sigma for it where another column may be meant."""
    if any(name in header for name in _UNCERTAINTY):
        return _column(header, _UNCERTAINTY)
    place = _column(header, _SIGMA)
    other = next((name for name in header if any(word in name for word in _OF_UNCERTAINTIES)), None)
    if other is not None:
        raise ValueError(
            f"it has {header[place]!r}, which may be the width of the spot, and {other[:60]!r}; rename the column that "
            "holds the uncertainty of x and y to 'uncertainty'"
        )
    return place


def _require_one_unit(header: list[str], places: list[int]) -> None:
    units = {unit for place in places for unit in ("nm", "px") if unit in header[place]}
    if len(units) > 1:
        named = ", ".join(header[place] for place in places)
        raise ValueError(f"its columns {named} are in nanometres and in pixels; convert them to one unit")


def _cell(row: list[str], place: int, line: int) -> str:
    if place >= len(row):
        raise ValueError(f"line {line} has {len(row)} values, fewer than the header")
    return row[place].strip()


def _number(text: str, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"line {line}: {text[:40]!r} is not a number") from None


# Read MATLAB v5 files: cells, structs and arrays of real numbers, and nothing else.
#
# Files are not trusted. Every length is compared with what is there before it is used; nesting, the number of arrays
# and the size of what is compressed are limited. Version 7.3 (HDF5) and version 4 are refused by name. Text, sparse
# arrays, objects and functions are left out.
#
# Reference: MAT-File Format, The MathWorks, "Level 5 MAT-File Format".

# _HEADER, _MATRIX, _COMPRESSED, _STRUCT and _COMPLEX, by format of MATLAB's MAT-files, level 5.
_HEADER: Final = 128
_MATRIX: Final = 14
_COMPRESSED: Final = 15
_CELL: Final = 1
_STRUCT: Final = 2
#: Classes of arrays of numbers: double, single, and integers of 8 to 64 bits.
_NUMBERS: Final = range(6, 16)
# By format.
_COMPLEX: Final = 0x08
_STORED: Final = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
# By judgement: particles lie three deep; a bound against strangers' files.
_MOST_DEPTH: Final = 8
# By judgement: five for each of _MOST_PARTICLES; was two million, whose empty cells took half a minute.
_MOST_ARRAYS: Final = 500_000
# By judgement: a bound against strangers' files.
_MOST_BYTES: Final = 1 << 28  # as of JSON
_SMALLER: Final = "save its particles in several files, or without compression: save('file.mat', 'particles', '-v6')"
# By arithmetic: deflate makes at most 1,032 bytes of one.
_MOST_RATIO: Final = 1100
# By limit of NumPy before version 2.
_MOST_DIMENSIONS: Final = 32

#: A value of a file: an array, the cells of one, or the structs of one; None for what is left out.
Value = Any


class MatError(ValueError):
    """What is wrong with a file."""


@dataclass(frozen=True)
class MatCells:
    """A cell array: its values, in the order of MATLAB."""

    values: list[Value]


@dataclass(frozen=True)
class MatStructs:
    """A struct array: its elements by their fields, in the order of MATLAB."""

    values: list[dict[str, Value]]


@dataclass
class _MatAllowance:
    """What a file may still hold."""

    arrays: int = _MOST_ARRAYS
    bytes_left: int = _MOST_BYTES

    def array(self) -> None:
        self.arrays -= 1
        self.require_arrays(0)

    def require_arrays(self, n: int) -> None:
        """Refuse so many arrays more."""
        if n > self.arrays:
            raise MatError(f"it holds more than {_MOST_ARRAYS:,} arrays; save its particles in several files")

    def take(self, n: int) -> None:
        self.bytes_left -= n
        if self.bytes_left < 0:
            raise MatError(
                f"it holds more than {_MOST_BYTES:,} bytes when decompressed; save it in several files, or with '-v6'"
            )


@dataclass
class _Elements:
    """Elements of a stretch of bytes, one after the other."""

    data: memoryview
    order: str
    limits: _MatAllowance
    at: int = 0
    depth: int = 0
    names: dict[str, Value] = field(default_factory=dict)

    def inside(self, data: memoryview) -> _Elements:
        if self.depth + 1 > _MOST_DEPTH:
            raise MatError(f"its arrays are nested more than {_MOST_DEPTH} deep")
        return _Elements(data, self.order, self.limits, depth=self.depth + 1)

    @property
    def ended(self) -> bool:
        return self.at >= len(self.data)

    def element(self) -> tuple[int, memoryview]:
        """Return the type and the bytes of the next element."""
        if len(self.data) - self.at < 8:
            raise MatError("it is truncated")
        first, second = struct.unpack_from(f"{self.order}II", self.data, self.at)
        if first >> 16:  # up to four bytes lie in the tag itself
            kind, n = first & 0xFFFF, first >> 16
            if n > 4:
                raise MatError(f"an element of {n} bytes lies in its tag, which has room for 4; the file is damaged")
            start, step = self.at + 4, 8
        else:
            kind, n, start = first, second, self.at + 8
            step = 8 + (n if kind == _COMPRESSED else -(-n // 8) * 8)
        if n > len(self.data) - start:
            raise MatError(f"an element says {n:,} bytes, {max(0, len(self.data) - start):,} are left; it is truncated")
        self.at += step
        return kind, self.data[start : start + n]

    def numbers(self) -> NDArray[Any]:
        """Return the next element as numbers of one dimension."""
        kind, raw = self.element()
        if kind not in _STORED:
            raise MatError(f"an element of type {kind} stands where numbers are expected; the file is damaged")
        dtype = np.dtype(self.order + _STORED[kind])
        if len(raw) % dtype.itemsize:
            raise MatError(f"{len(raw)} bytes are not a whole number of {dtype}; the file is damaged")
        return np.frombuffer(raw, dtype)


def read_mat(data: bytes) -> dict[str, Value]:
    """Return the variables of a file by name.

    Returns
    -------
    dict of str to ndarray, MatCells, MatStructs or None
        Arrays have MATLAB's shape; None stands for what is left out.

    Raises
    ------
    MatError
        If the file is damaged, hostile, or of another version.
    """
    reader = _Elements(memoryview(data)[_HEADER:], _byte_order(data), _MatAllowance())
    found: dict[str, Value] = {}
    while not reader.ended:
        kind, raw = reader.element()
        if kind == _COMPRESSED:
            raw = memoryview(_inflate(raw, reader.limits))
            kind, raw = _Elements(raw, reader.order, reader.limits).element()
        if kind == _MATRIX:
            name, value = _matrix(reader.inside(raw))
            found[name] = value
    return found


def _byte_order(data: bytes) -> str:
    """Return the byte order that the header names, or say what the file is instead."""
    if data.startswith(b"\x89HDF"):
        raise MatError(
            "it is an HDF5 file, such as Picasso writes; .csv, .json and .mat are read: export x, y and their "
            "uncertainty as .csv"
        )
    if data[:19] == b"MATLAB 7.3 MAT-file" or data[512:516] == b"\x89HDF":
        raise MatError("it is a MAT file of version 7.3 (HDF5); save it with: save('file.mat', '-v7')")
    if len(data) < _HEADER or not data.startswith(b"MATLAB"):
        raise MatError("it is not a MAT file of version 5; save it with: save('file.mat', '-v7')")
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None:
        raise MatError("its header names no byte order; the file is damaged")
    return order


def _inflate(raw: memoryview, limits: _MatAllowance) -> bytes:
    """Decompress a variable, up to what is allowed."""
    allowed = min(limits.bytes_left, len(raw) * _MOST_RATIO + 1024)
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(raw, allowed + 1)
    except zlib.error as error:
        raise MatError(f"a variable cannot be decompressed ({error}); the file is damaged") from None
    if len(plain) > allowed:
        raise MatError(
            f"a variable of {len(raw):,} bytes holds more than {allowed:,} bytes when decompressed; {_SMALLER}"
        )
    if not inflater.eof:
        raise MatError("a compressed variable is truncated")
    limits.take(len(plain))
    return plain


def _matrix(reader: _Elements) -> tuple[str, Value]:
    """Return the name and the value of an array."""
    reader.limits.array()
    if reader.ended:  # an empty element stands for an empty array
        return "", np.zeros((0, 0))
    flags = reader.numbers()
    if len(flags) < 1:
        raise MatError("an array has no flags; the file is damaged")
    kind, is_complex = int(flags[0]) & 0xFF, bool((int(flags[0]) >> 8) & _COMPLEX)
    shape = _shape(reader.numbers())
    _, name = reader.element()
    label = bytes(name).decode("utf-8", "replace")
    if kind == _CELL:
        return label, MatCells(_values(reader, math.prod(shape)))
    if kind == _STRUCT:
        return label, _structs(reader, math.prod(shape))
    if kind not in _NUMBERS or is_complex:
        return label, None
    values = reader.numbers()
    if len(values) != math.prod(shape):
        raise MatError(f"an array of shape {shape} holds {len(values):,} numbers; the file is damaged")
    return label, values.reshape(shape, order="F")


def _shape(sizes: NDArray[Any]) -> tuple[int, ...]:
    shape = tuple(int(side) for side in sizes)
    if not 1 <= len(shape) <= _MOST_DIMENSIONS or min(shape) < 0:
        raise MatError(f"an array has dimensions {shape[:4]}; the file is damaged")
    return shape


def _values(reader: _Elements, n: int) -> list[Value]:
    """Return n arrays that follow each other; each takes 8 bytes or more, which bounds n before anything is kept."""
    left = len(reader.data) - reader.at
    if n * 8 > left:
        raise MatError(f"{n:,} arrays are announced and {left:,} bytes are left; it is truncated or damaged")
    reader.limits.require_arrays(n)
    found = []
    for _ in range(n):
        kind, raw = reader.element()
        if kind != _MATRIX:
            raise MatError(f"an element of type {kind} stands where an array is expected; the file is damaged")
        found.append(_matrix(reader.inside(raw))[1])
    return found


def _structs(reader: _Elements, n: int) -> MatStructs:
    width = reader.numbers()
    if len(width) != 1 or not 1 <= int(width[0]) <= 64:
        raise MatError("the names of a struct's fields have no length; the file is damaged")
    _, raw = reader.element()
    step = int(width[0])
    names = [bytes(raw[at : at + step]).split(b"\0")[0].decode("utf-8", "replace") for at in range(0, len(raw), step)]
    if not names:
        return MatStructs([{} for _ in range(min(n, 1))])
    values = _values(reader, n * len(names))
    return MatStructs([dict(zip(names, values[at * len(names) : (at + 1) * len(names)])) for at in range(n)])
