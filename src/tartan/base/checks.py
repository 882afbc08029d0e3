"""Checks parameters one by one: an error names the parameter, its value and what it must be."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.format import show_value
from tartan.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Coordinates beyond this multiple of the largest dissimilarity carry no information: float32 loses their distances.
#: By arithmetic: float32 has 7 digits; at 1e9 times the distances nothing of them is left.
_FAR = 1e9

Fit = tuple[str, Callable[[float], bool]]

FINITE: Fit = ("a finite number", math.isfinite)
POSITIVE: Fit = ("a finite number above 0", lambda value: 0 < value < math.inf)
NOT_NEGATIVE: Fit = ("a finite number, 0 or more", lambda value: 0 <= value < math.inf)
FRACTION: Fit = ("a number above 0 and below 1", lambda value: 0 < value < 1)


def whole_from(least: float, most: float = math.inf) -> Fit:
    """Describe whole numbers within limits; only the limits are tested."""
    limits = f"{least} or more" if most == math.inf else f"{least} to {most}"
    return f"a whole number, {limits}", lambda value: least <= value <= most


def whole(name: str, value: Any, least: int = 0, most: float = math.inf, *, option: str = "") -> int:
    """Return a whole number within limits.

    Parameters
    ----------
    name : str
        The parameter, as messages call it.
    option : str
        The option, as the context of the error calls it; default: the name.

    Raises
    ------
    ConfigError
        If it is not a whole number, or is out of range.
    """
    wanted, fits = whole_from(least, most)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not fits(int(value)):
        raise wrong_option(name, value, wanted, option)
    return int(value)


def number(name: str, value: Any, fit: Fit, *, option: str = "") -> float:
    """Return a number that fits, such as ``POSITIVE``.

    Raises
    ------
    ConfigError
        If it is not a number, or does not fit.
    """
    wanted, fits = fit
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not fits(float(value)):
        raise wrong_option(name, value, wanted, option)
    return float(value)


def pair(name: str, values: Any, fit: Fit) -> tuple[float, float]:
    """Return two numbers that fit.

    Raises
    ------
    ConfigError
        If these are not two numbers, or one does not fit.
    """
    try:
        first, second = values
    except (TypeError, ValueError):
        raise wrong_option(name, values, "two numbers") from None
    return number(name, first, fit), number(name, second, fit)


def flag(name: str, value: Any) -> bool:
    """Return a truth value.

    Raises
    ------
    ConfigError
        If it is neither that nor 0 or 1.
    """
    import numpy as np

    if not isinstance(value, bool | np.bool_) and not (isinstance(value, numbers.Integral) and value in (0, 1)):
        raise wrong_option(name, value, "True or False")
    return bool(value)


def check_one_of(name: str, value: Any, known: Sequence[str], *, option: str = "") -> Any:
    """Return a value that is one of those that are known.

    Raises
    ------
    ConfigError
        If it is not.
    """
    if not isinstance(value, str) or value not in known:
        choices = " or ".join(known) if len(known) == 2 else f"from {', '.join(known)}"
        raise ConfigError(
            f"{name}: {show_value(value)} is unknown; choose {choices}", context={"option": option or name}
        )
    return value


def wrong_option(name: str, value: object, wanted: str, option: str = "") -> ConfigError:
    """Return the error of a value that must be something else."""
    return ConfigError(f"{name} is {show_value(value)}; it must be {wanted}", context={"option": option or name})


def path_of(name: str, given: str | os.PathLike[str], *, option: str = "") -> Path:
    """Return a path; refuse an empty one, which would be the current folder.

    Raises
    ------
    ConfigError
        If it is empty.
    """
    if not os.fspath(given):
        wanted = "the name of a file or folder, '.' for the current one; is a variable not set?"
        raise wrong_option(name, given, wanted, option)
    return Path(given)


def floats(name: str, given: Any) -> NDArray[np.float64]:
    """Return numbers as a new float64 array, NaN where a masked array is masked.

    Refuse strings, complex numbers and rows of unequal lengths.

    Raises
    ------
    ConfigError
        If these are not numbers.
    """
    import numpy as np

    try:
        array = np.ma.filled(given.astype(np.float64), np.nan) if np.ma.isMaskedArray(given) else np.asarray(given)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} is not an array of numbers: {error}", context={"option": name}) from error
    if array.dtype.kind not in "fiub":
        raise ConfigError(f"{name} is not an array of numbers: its type is {array.dtype}", context={"option": name})
    return np.array(array, np.float64)


def generator(random_state: Any) -> np.random.RandomState:
    """Return the generator of random numbers that a ``random_state`` means.

    Raises
    ------
    ConfigError
        If it is neither None nor a seed nor a RandomState.
    """
    import numpy as np

    # As sklearn.utils.check_random_state, whose import takes a second.
    if random_state is None or random_state is np.random:
        shared: np.random.RandomState = np.random.mtrand._rand
        return shared
    if isinstance(random_state, np.random.RandomState):
        return random_state
    wanted = "None, a whole number from 0 to 2^32 - 1, or a RandomState"
    if not isinstance(random_state, numbers.Integral):
        raise wrong_option("random_state", random_state, wanted)
    try:
        return np.random.RandomState(int(random_state))
    except ValueError as error:
        raise wrong_option("random_state", random_state, wanted) from error


def require_near(name: str, points: NDArray[np.float64], largest: float) -> None:
    """Refuse coordinates that are far too large for the dissimilarities.

    Raises
    ------
    ConfigError
        If one is.
    """
    import numpy as np

    farthest = float(np.abs(points).max(initial=0.0))
    if farthest > _FAR * largest:
        raise ConfigError(
            f"{name} reaches {farthest:.3g}, and the largest dissimilarity is {largest:.3g}; coordinates are in the "
            "units of the dissimilarities",
            context={"option": name},
        )


def require_apart(name: str, points: NDArray[np.float64]) -> None:
    """Refuse coordinates that are all equal: the gradient is zero there.

    Raises
    ------
    ConfigError
        If they are.
    """
    import numpy as np

    if len(points) > 1 and not np.ptp(points, axis=0).any():
        raise ConfigError(
            f"{name} has all points in one place, where no direction is better than another",
            context={"option": name},
        )
