"""Rigid motions: their inverses, and files of them."""

from __future__ import annotations

import csv
import hashlib
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError

Motions = dict[tuple[str, str], tuple[float, float, float]]

_COLUMNS = ("i", "j", "tx", "ty", "theta")
_DIGEST = "#sha256="
_DIGITS = 16


def inverse(
    x: NDArray[np.float64], y: NDArray[np.float64], theta: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the motions that undo some motions, element by element; angles from -pi to below pi."""
    cos, sin = np.cos(theta), np.sin(theta)
    inside = (theta > -np.pi) & (theta <= np.pi)  # no rounding there
    back = np.where(inside, -theta, wrapped(-theta))
    return -(cos * x + sin * y), -(cos * y - sin * x), np.where(back >= np.pi, -np.pi, back)


def wrapped(theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return angles from -pi to below pi."""
    found: NDArray[np.float64] = (theta + np.pi) % (2 * np.pi) - np.pi
    return found


def read_motions(name: str) -> tuple[str, Motions]:
    """Read a file of motions; return its absolute path with a digest, and the motions by keys (i, j).

    Parameters
    ----------
    name : str
        A path, or what an earlier call returned: the file must then be the same.

    Raises
    ------
    ConfigError
        If it cannot be read, is no CSV of motions, or is another file than it was.
    """
    path, _, wanted = name.partition(_DIGEST)
    expected = f"expected a CSV with the columns {', '.join(_COLUMNS)}"
    try:
        data = Path(path).read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text in UTF-8"
        raise ConfigError(f"score_only: {path} cannot be read: {reason}; {expected}") from error
    digest = hashlib.sha256(data).hexdigest()[:_DIGITS]
    if wanted and wanted != digest:
        raise ConfigError(f"score_only: {path} has changed since the run began; bring it back, or start a new run")
    return f"{Path(path).absolute()}{_DIGEST}{digest}", _parsed(path, text, expected)


def _parsed(path: str, text: str, expected: str) -> Motions:
    rows = csv.DictReader(text.splitlines())
    lacking = [name for name in _COLUMNS if name not in (rows.fieldnames or [])]
    if lacking:
        raise ConfigError(f"score_only: {path} has no column {lacking[0]!r}; {expected}")
    motions: Motions = {}
    for row in rows:
        try:
            x, y, theta = (float(row[name]) for name in _COLUMNS[2:])
        except (TypeError, ValueError):
            raise ConfigError(f"score_only: {path}, line {rows.line_num}: a number is missing; {expected}") from None
        if not all(map(math.isfinite, (x, y, theta))):
            raise ConfigError(f"score_only: {path}, line {rows.line_num}: {x}, {y}, {theta} are not finite")
        turn = theta if -math.pi <= theta < math.pi else float(wrapped(np.array(theta)))
        motions[row["i"], row["j"]] = (x, y, turn)
    return motions
