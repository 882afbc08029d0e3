"""Draw a matrix in a terminal: half blocks in 24-bit colour where the terminal has it, shades elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TextIO

import numpy as np
from numpy.typing import NDArray

from tartan.base.format import format_number
from tartan.base.palette import colours, value_colours, value_limits
from tartan.store.downsample import shrink

_MOST_COLUMNS: Final = 96
_UNKNOWN: Final = np.array((120, 120, 125), dtype=np.uint8)
_SHADES: Final = " ░▒▓█"
_ASCII: Final = " .:-=+*#%@"
_DIAGONAL: Final = "\\"
_RESET: Final = "\x1b[0m"


@dataclass(frozen=True)
class Terminal:
    """What a terminal can show.

    Attributes
    ----------
    columns : int
        Width in characters.
    colour : bool
        Whether it understands 24-bit colours.
    blocks : bool
        Whether its encoding has block characters.
    """

    columns: int = 80
    colour: bool = False
    blocks: bool = True


def terminal_of(stream: TextIO, environ: Mapping[str, str] | None = None) -> Terminal:
    """Find out what a stream can show; NO_COLOR and a missing COLORTERM are obeyed."""
    env = os.environ if environ is None else environ
    has_colour = env.get("COLORTERM", "").lower() in ("truecolor", "24bit")
    colour = has_colour and stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    columns = shutil.get_terminal_size((80, 24)).columns if stream.isatty() else 80
    return Terminal(columns=columns, colour=colour, blocks=encoding.startswith("utf"))


def matrix_text(
    values: NDArray[np.floating],
    terminal: Terminal,
    *,
    limits: tuple[float, float] | None = None,
) -> str:
    """Draw a square matrix as text.

    Parameters
    ----------
    values : ndarray of float, shape (n, n)
        NaN marks what is not known.
    terminal : Terminal
        What can be shown.
    limits : (low, high), optional
        Values of the first and the last colour; default: percentiles 1 and 99.

    Returns
    -------
    str
        Lines of equal width, the last one a legend; no trailing newline.
    """
    if values.size == 0:
        return "(no pairs)"
    bounds = limits or value_limits(values)
    width = max(4, min(terminal.columns, _MOST_COLUMNS))
    cells = shrink(values, width)
    times = max(1, min(width, 64) // max(cells.shape))
    cells = cells.repeat(times, 0).repeat(times, 1)
    if terminal.colour and terminal.blocks:
        lines = _colour_lines(cells, bounds)
    else:
        lines = _shade_lines(cells, bounds, _SHADES if terminal.blocks else _ASCII, times)
    return "\n".join([*lines, _legend(values, bounds, terminal)])


def _colour_lines(cells: NDArray[np.float64], bounds: tuple[float, float]) -> list[str]:
    painted = value_colours(cells, bounds)
    painted[~np.isfinite(cells)] = _UNKNOWN
    lines = []
    for row in range(0, len(cells), 2):
        upper = painted[row]
        lower = painted[row + 1] if row + 1 < len(cells) else None
        marks = (_half_block(upper[c], None if lower is None else lower[c]) for c in range(len(upper)))
        lines.append("".join(marks) + _RESET)
    return lines


def _half_block(upper: NDArray[np.uint8], lower: NDArray[np.uint8] | None) -> str:
    front = "\x1b[38;2;{};{};{}m".format(*upper)
    back = "\x1b[49m" if lower is None else "\x1b[48;2;{};{};{}m".format(*lower)
    return f"{front}{back}▀"


def _shade_lines(cells: NDArray[np.float64], bounds: tuple[float, float], shades: str, times: int) -> list[str]:
    """Write a line for every two rows: a character is about twice as high as wide."""
    halved = _mean_of_row_pairs(cells)
    low, high = bounds
    share = np.clip((np.nan_to_num(halved, nan=low) - low) / (high - low), 0.0, 1.0)
    drawn = np.array(list(shades))[np.rint(share * (len(shades) - 1)).astype(int)]
    row, column = np.arange(len(halved))[:, None], np.arange(halved.shape[1])[None, :]
    first, last = 2 * row // times, (2 * row + 1) // times
    diagonal = (column // times >= first) & (column // times <= last)
    drawn = np.where(np.isfinite(halved), drawn, np.where(diagonal, _DIAGONAL, "?"))
    return ["".join(line) for line in drawn]


def _mean_of_row_pairs(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    padded = np.vstack([cells, np.full((len(cells) % 2, cells.shape[1]), np.nan)])
    pairs = padded.reshape(-1, 2, cells.shape[1])
    known = np.isfinite(pairs)
    means = np.full((len(pairs), cells.shape[1]), np.nan)
    counts = known.sum(axis=1)
    np.divide(np.where(known, pairs, 0.0).sum(axis=1), counts, out=means, where=counts > 0)
    return means


def _legend(values: NDArray[np.floating], bounds: tuple[float, float], terminal: Terminal) -> str:
    if terminal.colour and terminal.blocks:
        ramp = colours(np.linspace(0, 1, 24))
        bar = "".join("\x1b[48;2;{};{};{}m ".format(*c) for c in ramp) + _RESET
        unknown = "grey"
    else:
        bar = "".join(3 * shade for shade in (_SHADES if terminal.blocks else _ASCII))
        unknown = "?"
    text = f"{format_number(bounds[0])} |{bar}| {format_number(bounds[1])}"
    off_diagonal = ~np.isfinite(values)
    if values.shape[0] == values.shape[1]:
        np.fill_diagonal(off_diagonal, False)
    return text + (f"   {unknown}: not known" if off_diagonal.any() else "")
