"""Localisations in HDF5 as Picasso writes them, with the size of a pixel from the YAML file beside.

Sources: ``docs/files.rst`` and ``docs/table01.csv`` of jungmannlab/picasso (a table ``locs``; x, y, lpx, lpy in camera
pixels, z in nanometres; ``group`` numbers picked regions), its functions ``save_locs`` and ``load_info`` (the YAML file
has the same name, and one document for each step) and ``get_from_metadata`` (the last document that has a key counts).
"""

from __future__ import annotations

import io
import math
import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.apps.microscopy.localisations import Localisations
from tartan.apps.microscopy.tables import choose_columns, particles_of

#: How an HDF5 file begins. By format.
HDF5: Final = b"\x89HDF"

#: Where the YAML file of an HDF5 file lies: the suffix of each.
COMPANIONS: Final = {".hdf5": ".yaml", ".h5": ".yaml"}

# By judgement: a hundred times a large acquisition, 3 GB of its columns; a bound against strangers' files.
_MOST_LOCALISATIONS = 1 << 26
_PIXEL_SIZE: Final = re.compile(rb"^Pixelsize:[ \t]*(\S+)[ \t]*\r?$", re.MULTILINE)
_EXPORT: Final = "export it from Picasso: Render as a table of ThunderSTORM (.csv)"


def read_locs(data: bytes, beside: bytes | None, flat: bool) -> list[Localisations | str]:
    """Read the table ``locs``: one particle of each ``group``, in nanometres where the size of a pixel is known.

    Parameters
    ----------
    data : bytes
        An HDF5 file.
    beside : bytes or None
        The YAML file beside it.
    flat : bool
        Whether z is left out.

    Raises
    ------
    ValueError
        If h5py is missing, or the file holds no such table.
    """
    size, unit = _pixel_size(beside)
    chosen, columns, names = _read_columns(data)
    places = {place: at for at, place in enumerate(chosen.numbers)}
    for place in (chosen.x, chosen.y, *chosen.uncertainty):
        columns[:, places[place]] *= size
    return particles_of(chosen, columns, names, {"unit": unit}, flat)


def _pixel_size(beside: bytes | None) -> tuple[float, str]:
    """Return the length of a pixel, and in which unit lengths are then."""
    if beside is None:
        return 1.0, "pixels: no YAML file beside it gives the size of a pixel"
    found = _PIXEL_SIZE.findall(beside)
    if not found:
        return 1.0, "pixels: the YAML file beside it has no Pixelsize"
    text = found[-1].decode("utf-8", "replace")
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not 0 < size < math.inf:
        raise ValueError(f"the YAML file beside it says Pixelsize: {text[:40]}, which is not a length in nanometres")
    return size, f"nanometres: {size:g} a pixel, from the YAML file beside it"


def _read_columns(data: bytes) -> tuple[Any, NDArray[np.float64], NDArray[Any] | None]:
    """Return which columns are meant, their numbers (n, c), and the group of each row."""
    try:
        import h5py
    except ImportError:
        raise ValueError(
            f"it is an HDF5 file, which needs h5py: pip install 'tartan-allpairs[hdf5]'; or {_EXPORT}"
        ) from None
    try:
        with np.errstate(invalid="ignore", over="ignore"), h5py.File(io.BytesIO(data), "r") as file:
            table = _table(h5py, file)
            chosen = choose_columns(table.dtype.names)
            wanted = [table.dtype.names[place] for place in chosen.numbers]
            columns = np.column_stack([table[name].astype(np.float64) for name in wanted])
            names = None if chosen.particle is None else table[table.dtype.names[chosen.particle]]
    except (OSError, RuntimeError, KeyError, TypeError, EOFError, MemoryError, OverflowError) as error:
        raise ValueError(f"it cannot be read as HDF5, it is damaged: {' '.join(str(error).split())[:200]}") from None
    return chosen, columns, names


def _table(h5py: Any, file: Any) -> Any:
    """Return the table of localisations, if it lies in this file and has a size that can be."""
    listed = ", ".join(map(repr, list(file)[:6])) or "nothing"
    link = file.get("locs", getlink=True)
    table = file["locs"] if isinstance(link, h5py.HardLink) else None
    if not isinstance(table, h5py.Dataset) or table.dtype.names is None:
        raise ValueError(
            f"it holds {listed}; read is the table 'locs' of Picasso; of other programs, such as DECODE, save a .csv"
        )
    if table.is_virtual or table.external:
        raise ValueError("its table 'locs' lies in other files; copy it into one")
    if table.ndim != 1 or len(table) > _MOST_LOCALISATIONS:
        raise ValueError(
            f"its table 'locs' has shape {table.shape}; up to {_MOST_LOCALISATIONS:,} localisations are read, write "
            "the picked ones in several files"
        )
    if not len(table):
        raise ValueError("its table 'locs' is empty")
    others = [name for name in table.dtype.names if table.dtype[name].kind not in "iuf" or table.dtype[name].shape]
    if others:
        raise ValueError(f"its column {others[0][:60]!r} holds something else than real numbers")
    return table
