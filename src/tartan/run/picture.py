"""A small picture of a run, for notebooks."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tartan.base.palette import value_colours, value_limits
from tartan.run.describe import described
from tartan.store.downsample import block_means

if TYPE_CHECKING:
    from tartan.store.folder import RunFolder

_SIDE: Final = 360  # pixels
_MOST_BYTES: Final = 256 << 20  # of scores; to read more would keep the notebook waiting
_UNKNOWN: Final = (208, 208, 211)


def matrix_png(run: Any) -> bytes | None:
    """Return the matrix of a run as a PNG of some 360 pixels, grey where no score is known.

    None for runs that keep less than the matrix, have complex scores, or are so large that reading them takes seconds.
    """
    manifest = run.manifest
    dtype = next(iter(manifest.outputs.values()))
    n_bytes = dtype.itemsize * manifest.shape[0] * manifest.shape[1]
    if manifest.reduce is not None or dtype.kind == "c" or not 0 < n_bytes <= _MOST_BYTES:
        return None
    from PIL import Image

    values = block_means(run, _SIDE)
    pixels = value_colours(values, value_limits(values))
    pixels[~np.isfinite(values)] = _UNKNOWN
    cell = max(1, _SIDE // max(values.shape))
    picture = io.BytesIO()
    Image.fromarray(pixels.repeat(cell, 0).repeat(cell, 1)).save(picture, format="PNG", optimize=True)
    return picture.getvalue()


def run_html(folder: RunFolder, png: bytes | None) -> str:
    """Return what a run is as a table, with its picture below."""
    rows = "".join(
        f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in described(folder).items()
    )
    table = f"<table><caption>{html.escape(folder.path.name)}</caption>{rows}</table>"
    if png is None:
        return table
    data = base64.b64encode(png).decode("ascii")
    return f'{table}<img alt="the matrix" src="data:image/png;base64,{data}">'
