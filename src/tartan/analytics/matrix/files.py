"""The files that hold matrices: which format, how large, in which byte order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.sources import Array, Condensed, MatrixSource, Triangle, Windowed
from tartan.analytics.matrix.text import read_phylip, read_table
from tartan.base.npy_input import open_npy
from tartan.base.zarr_input import open_zarr, refuse_unsafe
from tartan.errors import ConfigError

RAW: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in ("int16", "float32", "float64")}
FORMATS = ("npy", "zarr", "run", "phylip", "csv", "tsv", *RAW)
_SUFFIXES = {
    ".npy": "npy", ".phy": "phylip", ".phylip": "phylip", ".dist": "phylip", ".csv": "csv", ".tsv": "tsv",
    ".tab": "tsv", ".i16": "int16", ".int16": "int16", ".f32": "float32", ".float32": "float32", ".f64": "float64",
    ".float64": "float64",
}  # fmt: skip
_SAMPLED_RUNS = 64
_SAMPLED_RUN = 256
_CLEAR = 0.05
_ORDERS: dict[str, Any] = {"little": "<", "big": ">"}


@dataclass(frozen=True)
class RawLayout:
    """What is known of a raw file; None: to be found out."""

    n: int | None = None
    byteorder: str | None = None

    def __post_init__(self) -> None:
        if self.n is not None and self.n < 1:
            raise ConfigError(f"n is {self.n}; a matrix has at least one item")
        if self.byteorder is not None and self.byteorder not in _ORDERS:
            raise ConfigError(f"byteorder is {self.byteorder!r}; it is 'little' or 'big'")


def format_of(path: Path) -> str:
    """Return the format of a file or folder by what it contains or is called.

    Raises
    ------
    ConfigError
        If neither says it.
    """
    if path.is_dir():
        if (path / "manifest.json").exists():
            return "run"
        if any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
            return "zarr"
        raise ConfigError(f"{path} is a folder, but neither a run nor a Zarr array")
    with open(path, "rb") as file:
        if file.read(6) == b"\x93NUMPY":
            return "npy"
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise ConfigError(
            f"{path}: its name does not tell the format; say `format=`, one of {', '.join(FORMATS)} (raw int16 of n "
            "items has 2 n^2 bytes)"
        )
    return kind


def open_file(path: Path, kind: str, layout: RawLayout) -> tuple[Any, tuple[str, ...] | None]:
    """Return what a file holds, an array or a run, and the names of the items where it has them."""
    if kind in RAW:
        return _open_raw(path, RAW[kind], layout), None
    if layout != RawLayout():
        raise ConfigError(f"{path}: `n=` and `byteorder=` are for raw files; {kind} says both itself")
    if kind in ("csv", "tsv"):
        return read_table(path, "," if kind == "csv" else "\t")
    openers: dict[str, Callable[[Path], Any]] = {
        "npy": _open_npy,
        "zarr": open_zarr,
        "run": _open_run,
    }
    return read_phylip(path) if kind == "phylip" else (openers[kind](path), None)


def _open_npy(path: Path) -> NDArray[Any]:
    try:
        return np.asarray(open_npy(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as npy: {error}") from error


def _open_run(path: Path) -> Any:
    from tartan.store.folder import RunFolder

    return RunFolder.open(path)


def is_zarr(given: Any) -> bool:
    """Whether something is an array or a group of Zarr; does not import it."""
    return type(given).__module__.partition(".")[0] == "zarr"


def zarr_source(given: Any, label: str, name: str | None = None, triangle: str | None = None) -> MatrixSource:
    """Return a Zarr array, or one array of a group, as a source."""
    _require_triangle(triangle)
    if hasattr(given, "arrays"):
        found = dict(given.arrays())
        if name is None and len(found) == 1:
            name = next(iter(found))
        if name not in found:
            has = f"has the arrays {', '.join(sorted(found))}; name one with `output=`" if found else "has no array"
            raise ConfigError(f"{label} {has}")
        given = found[name]
    if given.dtype.kind not in "fiub":
        raise ConfigError(f"{label}: dissimilarities are numbers; these are {given.dtype}")
    refuse_unsafe(given, label)
    if given.ndim == 1:
        return Condensed(np.asarray(given[:]), side_of(given.shape[0], label))
    require_square(given.shape, label)
    # Zarr has no byte order of its own in memory: its arrays are native.
    window = Windowed(given.shape[0], given.dtype, lambda rows, columns: given[rows, columns])
    return window if triangle is None else Triangle(window, upper=triangle == "upper")


def square_source(values: NDArray[Any], label: str, triangle: str | None = None) -> MatrixSource:
    """Return an array as a source: square, one triangle of it, or condensed."""
    _require_triangle(triangle)
    if values.ndim == 1:
        return Condensed(values, side_of(len(values), label))
    require_square(values.shape, label)
    source = Array(values)
    return source if triangle is None else Triangle(source, upper=(triangle == "upper") != source.transposed)


def _require_triangle(triangle: str | None) -> None:
    if triangle not in (None, "upper", "lower"):
        raise ConfigError(f"triangle is {triangle!r}; it is 'upper' or 'lower'")


def require_square(shape: tuple[int, ...], label: str) -> None:
    """Refuse what is no square matrix."""
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise ConfigError(
            f"{label} has the shape {tuple(shape)}; dissimilarities are a square matrix, or the n (n - 1) / 2 pairs of "
            "n items in one row",
            context={"shape": list(shape)},
        )


def side_of(size: int, label: str) -> int:
    """Return n for n (n - 1) / 2 values."""
    n = (1 + math.isqrt(1 + 8 * size)) // 2
    if n * (n - 1) // 2 != size or size == 0:
        raise ConfigError(f"{label}: {size} values in one row are not the n (n - 1) / 2 pairs of any n")
    return n


def _open_raw(path: Path, dtype: np.dtype[Any], layout: RawLayout) -> NDArray[Any]:
    n, condensed = _raw_shape(path, dtype, layout.n)
    shape = (n * (n - 1) // 2,) if condensed else (n, n)
    little = np.asarray(np.memmap(path, dtype.newbyteorder("<"), "r", shape=shape))
    order = _agreed_order(path, layout.byteorder, _likely_orders(little))
    return little.view(dtype.newbyteorder(_ORDERS[order]))


def _agreed_order(path: Path, said: str | None, likely: tuple[str, ...]) -> str:
    if said is None and not likely:
        raise ConfigError(
            f"{path}: the values do not show whether it is little or big endian; say `byteorder='little'` or "
            "`byteorder='big'`"
        )
    if said is not None and likely and said not in likely:
        raise ConfigError(
            f"{path} is said to be {said} endian, but its values make sense only as {likely[0]} endian; say "
            f"`byteorder={likely[0]!r}`, or leave it out"
        )
    return said or likely[0]


def _raw_shape(path: Path, dtype: np.dtype[Any], n: int | None) -> tuple[int, bool]:
    """Return the number of items of a raw file, and whether it has the pairs i < j only."""
    size = path.stat().st_size
    found = _sides(size, dtype.itemsize)
    fitting = {side: condensed for side, condensed in found if n is None or side == n}
    if not fitting:
        raise ConfigError(_wrong_size(path, size, dtype, n), context={"path": str(path), "bytes": size})
    # 2 n^2 bytes may also be the pairs of another n; a square is what these files are, unless n says otherwise.
    return next((side, condensed) for side, condensed in found if side in fitting)


def _sides(size: int, itemsize: int) -> list[tuple[int, bool]]:
    """Return the n for which a file of this size is a square matrix, or the pairs i < j."""
    count, rest = divmod(size, itemsize)
    if rest or not count:
        return []
    square, pairs = math.isqrt(count), (1 + math.isqrt(1 + 8 * count)) // 2
    found = [(square, False)] if square * square == count else []
    return found + ([(pairs, True)] if pairs * (pairs - 1) // 2 == count else [])


def _wrong_size(path: Path, size: int, dtype: np.dtype[Any], n: int | None) -> str:
    text = f"{path} has {size:,} bytes, which is no square matrix of {dtype} and no n (n - 1) / 2 pairs"
    if n is not None:
        text = f"{path} has {size:,} bytes; {n} items take {n * n * dtype.itemsize:,} bytes as {dtype}"
    other = [
        f"{name} of {side} items" + (", pairs i < j only" if condensed else "")
        for name, kind in RAW.items()
        for side, condensed in _sides(size, kind.itemsize)
        if (kind, side) != (dtype, n)
    ]
    fit = f"it would fit {' or '.join(other)}" if other else "it may be cut off, or have a header"
    return f"{text}; {fit}"


def _likely_orders(little: NDArray[Any]) -> tuple[str, ...]:
    """Return the byte orders in which the values make sense; none where they do not show it, both where it is one."""
    flat = little.reshape(-1)
    starts = np.linspace(0, max(0, flat.size - _SAMPLED_RUN), _SAMPLED_RUNS).astype(np.int64)
    sample = np.concatenate([flat[start : start + _SAMPLED_RUN] for start in starts.tolist()])
    swapped = sample.view(sample.dtype.newbyteorder(">"))
    if sample.tobytes() == sample.byteswap().tobytes():
        return "little", "big"
    odd = [_oddness(values) for values in (sample, swapped)]
    if abs(odd[0] - odd[1]) < _CLEAR and sample.dtype.kind == "i":
        # The byte that counts more takes fewer values.
        odd = [float(len(np.unique(sample.view(np.uint8)[at::2]))) for at in (1, 0)]
    if abs(odd[0] - odd[1]) < _CLEAR:
        return ()
    return ("little",) if odd[0] < odd[1] else ("big",)


def _oddness(values: NDArray[Any]) -> float:
    """Return which share of the values is none that dissimilarities have: negative, or absurdly large or small."""
    if values.dtype.kind == "i":
        return float(((values < 0) & (values != -1)).mean())
    with np.errstate(invalid="ignore"):
        sizes = np.abs(values)
        return 1.0 - float(((sizes == 0) | ((sizes > 1e-15) & (sizes < 1e15))).mean())
