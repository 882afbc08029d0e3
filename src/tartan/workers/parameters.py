"""Parameters of an application: checked against its constructor, read from text, written to the manifest."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

import numpy as np

from tartan.errors import ConfigError, TartanError

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_WORDS = {"true": "True", "false": "False", "none": "None"}  # as people write them on a command line
_SIMPLE = (bool, int, float, str, Path)


def build(cls: type[Any], parameters: Mapping[str, Any], label: str) -> Any:
    """Call a class with parameters by name; text is read as what the parameter's annotation or default says.

    Parameters
    ----------
    cls : type
        The application's class.
    parameters : mapping of str to Any
        Values, or their texts as they come from a command line.
    label : str
        How messages call the application.

    Raises
    ------
    ConfigError
        If a name is unknown, a value has the wrong type, a parameter is missing, or the constructor refuses.
    """
    known = _constructor_parameters(cls)
    values = {name: _read(name, value, known, label) for name, value in parameters.items()}
    missing = [name for name, p in known.items() if _is_required(p) and name not in values]
    if missing:
        raise ConfigError(f"{label} needs {missing[0]!r}; give it with --set {missing[0]}=...")
    try:
        return cls(**values)
    except TartanError:
        raise
    except Exception as error:
        given = ", ".join(f"{name}={value!r}" for name, value in values.items()) or "no parameters"
        raise ConfigError(f"{label} refuses {given}: {type(error).__name__}: {error}") from error


def plain(value: Any) -> Any:
    """Return a form of a parameter that JSON can hold and that is the same in every process.

    Arrays are named by a checksum, other objects by their text where it names no memory address.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} sha256:{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    text = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text


def _constructor_parameters(cls: type[Any]) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(cls).parameters)
    with contextlib.suppress(Exception):  # annotations may name what exists only for type checkers
        hints = typing.get_type_hints(cls.__init__)
        parameters = {name: p.replace(annotation=hints.get(name, Any)) for name, p in parameters.items()}
    return parameters


def _is_required(parameter: inspect.Parameter) -> bool:
    named = parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return named and parameter.default is inspect.Parameter.empty


def _read(name: str, value: Any, known: Mapping[str, inspect.Parameter], label: str) -> Any:
    parameter = known.get(name)
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    if parameter is None and not open_ended:
        names = ", ".join(known) or "none"
        raise ConfigError(
            f"{label} has no parameter {name!r}; it has: {names}",
            context={"parameter": name, "known": list(known)},
        )
    choices = _choices(parameter)
    for choice in choices:
        with contextlib.suppress(ValueError):
            return _read_as(value, choice)
    if not choices:
        return value
    raise ConfigError(
        f"{label}: {name}={value!r} is not {' or '.join(map(_describe, choices))}",
        context={"parameter": name, "value": str(value)},
    )


def _choices(parameter: inspect.Parameter | None) -> list[Any]:
    """Return the types that a parameter may have, the strictest first; none if anything goes."""
    if parameter is None:
        return [ast.literal_eval]
    annotation = parameter.annotation
    if annotation in (inspect.Parameter.empty, Any) or isinstance(annotation, str):
        default = parameter.default
        if default is None or default is inspect.Parameter.empty:
            return [ast.literal_eval]
        return [type(default)] if type(default) in _SIMPLE else []
    if typing.get_origin(annotation) in (Union, types.UnionType):
        members = list(typing.get_args(annotation))
    else:
        members = [annotation]
    if not all(m in (*_SIMPLE, type(None)) or typing.get_origin(m) is Literal for m in members):
        return []
    return sorted(members, key=lambda m: (m is str, m is Path, m is float))


def _read_as(value: Any, kind: Any) -> Any:
    """Return ``value`` as ``kind``, read from text if it is text; ValueError if it is something else."""
    if kind is ast.literal_eval:
        return _read_literal(value)
    if typing.get_origin(kind) is Literal:
        return _read_member(value, typing.get_args(kind))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return _read_text(value, kind)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind or (kind is Path and isinstance(value, Path)):
        return value
    raise ValueError(value)


def _read_text(text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() in _TRUE or text.lower() in _FALSE:
            return text.lower() in _TRUE
        raise ValueError(text)
    if kind is type(None):
        if text.lower() == "none":
            return None
        raise ValueError(text)
    return kind(text)


def _read_literal(value: Any) -> Any:
    if isinstance(value, str):
        with contextlib.suppress(ValueError, SyntaxError):
            return ast.literal_eval(_WORDS.get(value.lower(), value))
    return value


def _read_member(value: Any, members: tuple[Any, ...]) -> Any:
    for member in members:
        if value == member or (isinstance(value, str) and value == str(member)):
            return member
    raise ValueError(value)


def _describe(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    names = {int: "an integer", float: "a number", str: "text", bool: "true or false", Path: "a path"}
    return names.get(kind, "none")
