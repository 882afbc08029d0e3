"""A checksum of user code that lives in no importable file: scripts, notebooks, lambdas.

It must not change between two runs of the same text, and must change when the meaning does. Pickled bytes are no
good: they hold line numbers, names of notebook cells and random identifiers. Taken are instead the source text of
classes and named functions, the byte code of lambdas (their source line holds other things too), and whatever
they refer to in their own module: helper functions and classes likewise, constants by value. What is imported
counts by name.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

_MAX_ELEMENTS = 10_000
_MAX_ARRAY_BYTES = 1 << 28


def fingerprint(subject: Any) -> str:
    """Return the SHA-256 (hexadecimal) of a class, function or callable object and of what it refers to.

    Containers above 10,000 elements and arrays above 256 MiB count by their type and size only.
    """
    digest = hashlib.sha256()
    for text in _describe(subject, _home(subject), set()):
        digest.update(text.encode(errors="surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()


def _home(subject: Any) -> str | None:
    if isinstance(subject, functools.partial):
        return _home(subject.func)
    return getattr(subject, "__module__", None)


def _describe(value: Any, home: str | None, seen: set[int]) -> Iterator[str]:
    if id(value) in seen:
        yield "again"
        return
    if isinstance(value, types.FunctionType):
        yield from _function(value, home, seen)
    elif isinstance(value, type):
        yield from _class(value, home, seen)
    elif isinstance(value, types.ModuleType):
        yield f"module {value.__name__}"
    elif isinstance(value, functools.partial):
        yield from _container((value.func, value.args, value.keywords), home, seen)
    elif isinstance(value, types.MethodType):
        yield from _container((value.__func__, value.__self__), home, seen)
    elif isinstance(value, (list, tuple, set, frozenset, dict)):
        yield from _container(value, home, seen)
    else:
        yield from _data(value, home, seen)


def _function(function: types.FunctionType, home: str | None, seen: set[int]) -> Iterator[str]:
    if function.__module__ != home:
        yield f"function {function.__module__}.{function.__qualname__}"
        return
    seen.add(id(function))
    source = None if function.__name__ == "<lambda>" else _source(function)
    yield source if source is not None else "\n".join(_code(function.__code__))
    yield from _describe(function.__defaults__, home, seen)
    yield from _describe(function.__kwdefaults__, home, seen)
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name
            yield from _describe(function.__globals__[name], home, seen)
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield from _describe(cell.cell_contents, home, seen)


def _class(cls: type[Any], home: str | None, seen: set[int]) -> Iterator[str]:
    if cls.__module__ != home:
        yield f"class {cls.__module__}.{cls.__qualname__}"
        return
    seen.add(id(cls))
    yield _source(cls) or cls.__qualname__
    for base in cls.__bases__:
        yield from _describe(base, home, seen)
    for name, member in sorted(vars(cls).items()):
        inner = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(inner, types.FunctionType) or not name.startswith("__"):
            yield name
            yield from _describe(inner, home, seen)


def _container(value: Any, home: str | None, seen: set[int]) -> Iterator[str]:
    yield f"{type(value).__name__} {len(value)}"
    if len(value) > _MAX_ELEMENTS:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _describe(key, home, seen)
            yield from _describe(item, home, seen)
    elif isinstance(value, (set, frozenset)):
        # Sets have no order of their own that would be the same in two processes.
        yield from sorted("\n".join(_describe(item, home, set(seen))) for item in value)
    else:
        for item in value:
            yield from _describe(item, home, seen)
    seen.discard(id(value))


def _data(value: Any, home: str | None, seen: set[int]) -> Iterator[str]:
    if isinstance(value, np.ndarray) and value.dtype != object and value.nbytes <= _MAX_ARRAY_BYTES:
        yield f"array {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    elif isinstance(value, (bool, int, float, complex, str, bytes, type(None), np.generic)):
        yield repr(value)
    elif isinstance(value, types.CodeType):
        yield from _code(value)
    elif type(value).__module__ == home:
        seen.add(id(value))
        yield from _class(type(value), home, seen)
        yield from _container(getattr(value, "__dict__", {}), home, seen)
    elif isinstance(wrapped := getattr(value, "__wrapped__", None), types.FunctionType):
        yield from _function(wrapped, home, seen)  # a cached or compiled function
    else:
        name = getattr(value, "__qualname__", "")  # built-in functions say who they are
        yield f"object {type(value).__module__}.{type(value).__qualname__} {name}"


def _source(subject: Any) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(subject))
    except (OSError, TypeError):
        return None


def _code(code: types.CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, code.co_flags))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def _names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names
