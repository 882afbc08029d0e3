"""Files of particles: MATLAB v5, JSON, tables, HDF5; one particle a file, or many.

A particle is an array (n, 3): x, y, and the uncertainty of each point, in one unit of length. Files are not trusted:
what does not fit raises ItemError with the value and a way out.

Layouts of MATLAB: ``demo_all2all.m`` of imphys/smlm_datafusion2d (``points`` and ``sigma``; ``coords`` of simulated
particles) and ``demo_classification.m`` of imphys/smlm_classification2d (``subParticles``, "SQUARED uncertainties in
'sigma' field"). Tables and HDF5: see ``tables`` and ``picasso``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from tartan.apps.microscopy.localisations import Localisations, Points, require_flat, unpack
from tartan.apps.microscopy.mat import MatCells, MatError, MatStructs, read_mat
from tartan.apps.microscopy.picasso import HDF5, read_locs
from tartan.apps.microscopy.tables import read_table
from tartan.base.npy_input import npy_of_bytes
from tartan.errors import ItemError

#: Places of x, y, z and the uncertainty in the columns of ``coords``, of ``gen.m`` and ``simPaint.m``.
#: By format.
_COORDS = (0, 1, 2, 4)
# By judgement: JSON takes ten times its size in objects of Python; a bound against strangers' files.
_MOST_JSON_BYTES = 1 << 28
# By judgement: a hundred times the published sets; a bound against strangers' files.
_MOST_PARTICLES = 100_000
_NPY = b"\x93NUMPY"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
#: How the names of variables begin under which smlm_classification2d keeps particles; their sigma is squared.
_SQUARED: Final = "subParticles"
_T = TypeVar("_T")
_Sized = TypeVar("_Sized", bound=Sequence[Any])
#: The variable of the files ``_sml.mat``.
_OF_SMAP: Final = "saveloc"
_COLUMNS = "a particle has three columns: x, y, uncertainty"


def split_file(key: str, data: bytes, beside: bytes | None = None, *, flat: bool = False) -> list[bytes] | None:
    """Return the particles of a file, each as ``read_particle`` takes it; None where it holds one.

    A particle that cannot be read becomes a text that says why, so that it fails alone. The truth of simulated
    particles holds none. Particles of HDF5 files are always returned, since what lies beside is known here only.

    Parameters
    ----------
    beside : bytes, optional
        The YAML file that Picasso writes beside an HDF5 file.
    flat : bool
        Whether z is left out where there is one.

    Raises
    ------
    ItemError
        If the file as a whole cannot be read.
    """
    found = _particles(key, data, beside, flat)
    if len(found) == 1 and not data.startswith(HDF5):
        return None
    return [_pack(one) for one in found]


def read_particle(key: str, data: Any, *, flat: bool = False) -> Points:
    """Read one particle: the bytes of a file or of a part of one, an array (n, 3), or a mapping of columns.

    Raises
    ------
    ItemError
        If it is none, or holds several particles.
    """
    return read_localisations(key, data, flat=flat).points


def read_localisations(key: str, data: Any, *, flat: bool = False) -> Localisations:
    """Read one particle with what is to be said of it; see ``read_particle``."""
    if not isinstance(data, bytes | bytearray | memoryview):
        return _with_reason(key, lambda: _of_object(data, flat))
    data = bytes(data)
    packed = _with_reason(key, lambda: unpack(data))
    if packed is not None:
        return packed
    if data.startswith(_NPY):
        return _with_reason(key, lambda: _of_object(npy_of_bytes(data), flat))
    found = _particles(key, data, None, flat)
    if len(found) != 1:
        raise _failure(key, f"it holds {len(found)} particles where one is expected; give the file to a run")
    if isinstance(found[0], str):
        raise _failure(key, found[0])
    return found[0]


def describe_single_table(data: bytes) -> str:
    """Say how a table that is one particle becomes several; "" of other files."""
    if data.startswith((b"MATLAB", _NPY)) or _plain(data)[:64].lstrip().startswith((b"{", b"[")):
        return ""
    return (
        "the table is one item, since no column tells particles apart: pick these, by Save picked localizations of "
        "Picasso: Render, the ROI manager and Sitenumbers2loc of SMAP or ROIs of ThunderSTORM, and give a table with a "
        "column 'particle' or 'group', or a file of each"
    )


def _particles(key: str, data: bytes, beside: bytes | None, flat: bool) -> list[Localisations | str]:
    """Return the particles of a file, or why each cannot be read."""
    try:
        if data.startswith(HDF5):
            return _require_some(read_locs(data, beside, flat))
        if data.startswith(b"MATLAB") or key.lower().endswith(".mat"):
            return _of_mat(data, flat)
        data = _plain(data)
        if data[:64].lstrip().startswith((b"{", b"[")) or key.lower().endswith(".json"):
            return _of_json(data, flat)
        return _require_some(read_table(data, flat))
    except ValueError as error:  # MatError and what decoders raise
        raise _failure(key, str(error)) from None
    except RecursionError:
        raise _failure(key, "it is nested too deep") from None


def _plain(data: bytes) -> bytes:
    """Return text without its byte order mark, in UTF-8 where it says that it is UTF-16 and is."""
    if data.startswith(_UTF16):
        try:
            return data.decode("utf-16").encode()
        except UnicodeDecodeError:
            return data
    return data.removeprefix(b"\xef\xbb\xbf")


def _failure(key: str, reason: str) -> ItemError:
    return ItemError(f"{key}: {reason}", context={"key": key})


def _with_reason(key: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except (ValueError, TypeError) as error:
        raise _failure(key, str(error)) from None


def _pack(particle: Localisations | str) -> bytes:
    return json.dumps({"error": particle}).encode() if isinstance(particle, str) else particle.pack()


def _require_some(values: _Sized) -> _Sized:
    """Return particles; refuse none, and so many that no run would compare them all."""
    if len(values) == 0:
        raise ValueError("it holds no particle")
    if len(values) > _MOST_PARTICLES:
        raise ValueError(f"it holds {len(values):,} particles, above {_MOST_PARTICLES:,}; write several files of them")
    return values


def _each(values: Sequence[Any], flat: bool, *, squared: bool = False) -> list[Localisations | str]:
    """Read particles one by one; one that cannot be read becomes its reason.

    Raises
    ------
    ValueError
        If there is none, or so many that no run would compare them all.
    """
    found: list[Localisations | str] = []
    for value in _require_some(values):
        try:
            found.append(_of_object(value, flat, squared=squared))
        except (ValueError, TypeError) as error:
            found.append(str(error))
    return found


def _of_object(value: Any, flat: bool, *, squared: bool = False) -> Localisations:
    """Read one particle from what a file or a program holds."""
    if isinstance(value, MatStructs | MatCells):
        if len(value.values) != 1:
            raise ValueError(f"it holds {len(value.values)} particles where one is expected")
        return _of_object(value.values[0], flat, squared=squared)
    if isinstance(value, Mapping):
        return _of_mapping(value, flat, squared=squared)
    if value is None:
        raise ValueError("it holds no numbers where a particle is expected")
    return _of_columns(_real(value, "the particle"), flat)


def _of_columns(array: Points, flat: bool) -> Localisations:
    """Read x, y and the uncertainty, with z before it where there are four columns."""
    if array.ndim != 2 or array.shape[1] not in (3, 4):
        more = ", or four: x, y, z, uncertainty" if array.ndim == 2 else ""
        raise ValueError(f"its shape is {array.shape}; {_COLUMNS}{more}")
    facts = require_flat(array[:, 2], flat) if array.shape[1] == 4 else {}
    return Localisations(np.ascontiguousarray(array[:, [0, 1, -1]]), facts)


def _of_mapping(value: Mapping[str, Any], flat: bool, *, squared: bool) -> Localisations:
    """Read ``points`` and ``sigma``, or ``coords``, or ``x``, ``y`` and ``sigma``."""
    if "error" in value:
        raise ValueError(str(value["error"])[:500])
    if "coords" in value:
        coords = _real(value["coords"], "coords")
        if coords.ndim != 2 or coords.shape[1] <= max(_COORDS):
            raise ValueError(f"coords has shape {coords.shape}; x, y are columns 0 and 1, the uncertainty is column 4")
        return _of_columns(coords[:, _COORDS], flat)
    if "points" in value:
        points = _real(value["points"], "points")
        if points.ndim == 2 and points.shape[1] in (3, 4) and "sigma" not in value:
            return _of_columns(points, flat)
        if points.size == 0:
            points = points.reshape(0, 2)  # a list without points does not say how many columns it has
        if points.ndim != 2 or points.shape[1] not in (2, 3):
            raise ValueError(f"points has shape {points.shape}; it has two columns, x and y, or three with z")
        columns = list(points.T)
    elif "x" in value and "y" in value:
        columns = [_real(value[name], name).ravel() for name in ("x", "y", "z") if name in value]
    else:
        raise ValueError(
            f"it has {', '.join(map(repr, list(value)[:6])) or 'nothing'}; expected points and sigma, or coords"
        )
    if "sigma" not in value:
        raise ValueError("sigma, the uncertainty of each point, is missing")
    sigma = _uncertainties(value["sigma"], len(columns[0]), with_z=len(columns) == 3)
    lengths = {len(column) for column in (*columns, sigma)}
    if len(lengths) != 1:
        raise ValueError(f"it has {len(columns[0])} points and {len(sigma)} uncertainties; give one of each point")
    facts = require_flat(columns[2], flat) if len(columns) == 3 else {}
    if squared:
        sigma = _root(sigma)
        facts = facts | {"uncertainties": f"roots of sigma, which {_SQUARED} hold squared"}
    return Localisations(np.column_stack([*columns[:2], sigma]), facts)


def _uncertainties(value: Any, n: int, *, with_z: bool) -> Points:
    """Return the uncertainty of each of n points, NaN where a list has none; of those of x, y and of z the first."""
    if isinstance(value, list):
        value = [np.nan if one is None else one for one in value]
    sigma = _real(value, "sigma")
    if with_z and sigma.shape == (n, 2):
        return sigma[:, 0]
    sigma = sigma.ravel()
    return np.full(n, sigma[0]) if len(sigma) == 1 and n != 1 else sigma


def _root(squares: Points) -> Points:
    bad = np.flatnonzero(squares < 0)
    if len(bad):
        raise ValueError(
            f"sigma of point {bad[0]} is {squares[bad[0]]:g}, which is not a square; {_SQUARED} hold squares of them"
        )
    return np.sqrt(squares)


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


def _of_mat(data: bytes, flat: bool) -> list[Localisations | str]:
    try:
        variables = read_mat(data)
    except MatError as error:
        raise ValueError(str(error)) from None
    lists = {name: value.values for name, value in variables.items() if isinstance(value, MatCells | MatStructs)}
    for name in ("particles", "Particles", "particle", _SQUARED):
        if name in lists:
            return _each(lists[name], flat, squared=name == _SQUARED)
    if _OF_SMAP in variables:
        raise ValueError(
            f"it holds {_OF_SMAP!r}, as SMAP saves localisations, which are read from .csv: save them by "
            "export_coordinates with xnm, ynm, locprecnm, and sitenumbers (of Sitenumbers2loc) where sites were picked"
        )
    if len(lists) == 1:
        name, values = next(iter(lists.items()))
        return _each(values, flat, squared=name.startswith(_SQUARED))
    if "points" in variables or "coords" in variables:
        return _each([variables], flat)
    named = ", ".join(map(repr, list(variables)[:6])) or "nothing"
    raise ValueError(f"it holds {named}; expected particles: a cell array of structs with points and sigma, or coords")


def _of_json(data: bytes, flat: bool) -> list[Localisations | str]:
    if len(data) > _MOST_JSON_BYTES:
        raise ValueError(f"{len(data):,} bytes of JSON are more than {_MOST_JSON_BYTES:,}; cut the file")
    try:
        value = json.loads(data)
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if isinstance(value, dict) and isinstance(value.get("particles"), list):
        return [] if _is_truth(value) else _each(value["particles"], flat)
    if isinstance(value, list) and (not value or isinstance(value[0], dict)):
        return _each(value, flat)
    return _each([value], flat)


def _is_truth(value: Mapping[str, Any]) -> bool:
    """Whether a file is what ``tartan simulate microscopy`` writes beside its particles: sites, and motions of all."""
    motions = value["particles"]
    if "sites" not in value or not motions:
        return False
    return all(isinstance(one, dict) and set(one) == {"angle", "translation"} for one in motions)
