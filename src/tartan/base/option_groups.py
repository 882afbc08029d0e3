"""Groups of options: dataclasses whose annotations say how each option is checked.

@dataclass(frozen=True)
class Steps:
    max_iter: Annotated[int, Checked(whole, 1)]
    tol: NotNegative

steps = grouped(Steps, {"max_iter": 100, "tol": 0.001, ...})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from tartan.base.checks import FRACTION, NOT_NEGATIVE, POSITIVE, flag, number, whole

T = TypeVar("T")


class Checked:
    """How the option of a field is checked.

    Parameters
    ----------
    check : callable
        Takes the name of the option, its value and ``limits``; returns the value to keep, or raises ConfigError.
    *limits
    option : str
        The name of the option; default: that of the field.
    """

    def __init__(self, check: Callable[..., Any], *limits: Any, option: str = "") -> None:
        self.check = check
        self.limits = limits
        self.option = option


Flag = Annotated[bool, Checked(flag)]
Fraction = Annotated[float, Checked(number, FRACTION)]
NotNegative = Annotated[float, Checked(number, NOT_NEGATIVE)]
Positive = Annotated[float, Checked(number, POSITIVE)]
FromZero = Annotated[int, Checked(whole)]
FromOne = Annotated[int, Checked(whole, 1)]


def grouped(kind: type[T], given: Mapping[str, Any]) -> T:
    """Return a group of options, and the groups within it.

    Parameters
    ----------
    kind : type
        A dataclass. An option whose field is not ``Checked`` is taken as it is; None is, where the field may be None.
    given : mapping
        Options by name; there may be more than those of the group.

    Raises
    ------
    ConfigError
        If an option is not what it must be.
    """
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{field: _value(field, hint, given) for field, hint in hints.items()})


def _value(field: str, hint: Any, given: Mapping[str, Any]) -> Any:
    if isinstance(hint, type) and is_dataclass(hint):
        return grouped(hint, given)
    for checked in getattr(hint, "__metadata__", ()):
        option = checked.option or field
        if given[option] is not None or NoneType not in get_args(hint.__origin__):
            return checked.check(option, given[option], *checked.limits)
    return given[field]
