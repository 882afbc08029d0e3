"""Options that several functions share: each is named, typed and described once, in a ``TypedDict``.

A function takes them as ``**options: Unpack[Group]``, which editors and checkers of types read. For those who ask at
runtime, ``takes_options`` writes all of them into its signature and its documentation, and refuses other names.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import is_dataclass
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from tartan.base.checks import FRACTION, NOT_NEGATIVE, POSITIVE, flag, number, whole

F = TypeVar("F", bound=Callable[..., Any])

#: Names that options once had, and those that they have now.
RENAMED = {"cluster": "on", "similarity": "distance"}

_PLACE = re.compile(r"^\*\*options\n( +.*\n)+", re.MULTILINE)
_ATTRIBUTES = re.compile(r"^Attributes\n-+\n(.*)", re.MULTILINE | re.DOTALL)


def takes_options(*groups: type, defaults: Mapping[str, Any]) -> Callable[[F], F]:
    """Show the options of a function that takes them as ``**options``, and let it refuse other names.

    Parameters
    ----------
    *groups : TypedDict
        Whose keys are the options, and whose sections "Attributes" take the place of ``**options`` in the documentation
        of the function.
    defaults : mapping
        What an option is where it is not given; None where it is not named here.
    """
    kinds = {name: kind for group in groups for name, kind in group.__annotations__.items()}
    described = "".join(f"{_description(group)}\n" for group in groups)

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        shared = [_parameter(name, kind, defaults.get(name)) for name, kind in kinds.items()]
        known = [one.name for one in (*own, *shared)]
        called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            _require_known(called, given, known)
            return function(*args, **given)

        checked.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
        checked.__doc__ = _PLACE.sub(lambda _: described, inspect.cleandoc(function.__doc__ or ""))
        return checked  # type: ignore[return-value]

    return decorate


def require_options(function: str, options: Iterable[str], *takers: Callable[..., Any]) -> None:
    """Refuse options that are parameters of none of the functions that take them, as Python does.

    Parameters
    ----------
    function : str
        What was called with the options.
    options : iterable of str
    *takers : callable
        To which that function hands options on.

    Raises
    ------
    TypeError
        Which names the option, and the one that is probably meant.
    """
    _require_known(function, options, [name for one in takers for name in inspect.signature(one).parameters])


def _description(group: type) -> str:
    """Return what a group says of its options."""
    found = _ATTRIBUTES.search(inspect.cleandoc(group.__doc__ or ""))
    return "" if found is None else found[1]


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    annotation = getattr(kind, "__forward_arg__", kind)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _require_known(function: str, options: Iterable[str], known: Collection[str]) -> None:
    for name in options:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{_meant(name, known)}")


def _meant(name: str, known: Collection[str]) -> str:
    """Say which option is probably meant by a name that is none."""
    if RENAMED.get(name) in known:
        return f"; it is now {RENAMED[name]!r}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


# Groups of options: dataclasses whose annotations say how each option is checked.
#
# @dataclass(frozen=True)
# class Steps:
#     max_iter: Annotated[int, Checked(whole, 1)]
#     tol: NotNegative
#
# steps = grouped(Steps, {"max_iter": 100, "tol": 0.001, ...})

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


def group_options(kind: type[T], given: Mapping[str, Any]) -> T:
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
        return group_options(hint, given)
    for checked in getattr(hint, "__metadata__", ()):
        option = checked.option or field
        if given[option] is not None or NoneType not in get_args(hint.__origin__):
            return checked.check(option, given[option], *checked.limits)
    return given[field]
