"""Files of particles: MATLAB v5, JSON, CSV; one particle a file, or many.

A particle is an array (n, 3): x, y, and the uncertainty of each point, in one unit of length. Files are not trusted:
what does not fit raises ItemError with the value and a way out.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.apps.microscopy.mat import MatCells, MatError, MatStructs, read_mat
from tartan.errors import ItemError

Points = NDArray[np.float64]

#: Places of x, y and the uncertainty in the columns of ``coords``, of the second published layout.
_COORDS = (0, 1, 4)
_MOST_JSON_BYTES = 1 << 28
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
    return [_packed(one) for one in found]


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
        return _with_reason(key, lambda: _of_object(np.load(io.BytesIO(data), allow_pickle=False)))
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


def _packed(particle: Points | str) -> bytes:
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
        If there is none.
    """
    if len(values) == 0:
        raise ValueError("it holds no particle")
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
        if array.dtype.kind not in "biuf":
            raise ValueError
        return array.astype(np.float64)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{name} holds something else than real numbers") from None


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
        raise ValueError("it is no text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from None
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
        rows = [row for row in csv.reader(io.StringIO(text), dialect, strict=True) if row]
    except csv.Error as error:
        raise ValueError(f"it is no CSV: {error}") from None
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
        raise ValueError(f"line {line}: {text[:40]!r} is no number") from None
