"""How an application is found, described, and sent to worker processes.

An application is named by a text: a built-in name, ``file.py:NAME`` or ``package.module:NAME``. In Python it is
an object. It travels as a pickle: what lives in ``__main__``, a notebook or a lambda goes by value (cloudpickle),
what lives in a module goes by its name, and modules that were loaded from a file given by path go with their
source text, so that an edit of the file while a run lasts cannot mix two versions.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import inspect
import io
import os
import pickle
import sys
import textwrap
import traceback
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol, Union

import cloudpickle
import numpy as np

from tartan.application import Application, as_application
from tartan.errors import ConfigError, TartanError

_SOURCE = "__tartan_source__"  # marks modules that were loaded from a file given by path; holds its bytes
_BUILTIN = "builtin:"


class Registry(Protocol):
    """The built-in applications; the module ``tartan.apps`` is one."""

    def builtin(self, name: str) -> type[Application]:
        """Return the class of that name; ConfigError if there is none."""

    def identity(self, name: str) -> str:
        """Return what stands for its source in manifests."""


class NamedApplication(NamedTuple):
    """An application that was found by its name.

    Attributes
    ----------
    app : Application
        Ready to compare.
    described : dict
        ``name``, ``kind`` ("builtin", "file" or "module"), ``source`` (a text that ``load_application`` accepts),
        ``source_hash`` (SHA-256 of the bytes of the file that defines it) and ``parameters`` (JSON-able).
    """

    app: Application
    described: dict[str, Any]


@dataclass(frozen=True)
class _Found:
    target: Any
    kind: str
    source: str
    source_hash: str


def names_builtin(spec: str) -> bool:
    """Whether a name leads to a built-in application: finding it then runs no other code, whatever the name says."""
    return _builtin_name(spec) is not None


def source_hash(spec: str) -> str | None:
    """Return the ``source_hash`` of what a name of a file or a module leads to now, without running any of it.

    Returns
    -------
    str or None
        None where it cannot be told: a built-in name, no such file, or a module that no file of the search path holds.
    """
    head, _, _ = spec.rpartition(":")
    if not head or names_builtin(spec):
        return None
    path = Path(head) if head.endswith(".py") else _module_file(head)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path is not None and path.is_file() else None
    except OSError:
        return None


def load_application(
    spec: str, parameters: Mapping[str, Any], registry: Registry | None = None, arity: int = 2
) -> NamedApplication:
    """Find an application by name and build it; of a file or a module this runs its code.

    Parameters
    ----------
    spec : str
        A built-in name ("vectors" or "builtin:vectors"), "file.py:NAME" or "package.module:NAME", where NAME is
        a class, an instance, or a function of two items.
    parameters : mapping of str to Any
        Arguments of the class by name; texts are read as the constructor's annotations or defaults say.
    registry : Registry, optional
        Where built-in names are looked up.
    arity : {2, 3}
        Whether it is to compare pairs or triples.

    Raises
    ------
    ConfigError
        If it cannot be found, imported or built; the message says what there is instead.
    """
    found = _find(spec, registry)
    target = found.target
    if inspect.isclass(target) and issubclass(target, Application):
        target = build(target, parameters, spec)
    elif parameters:
        names = ", ".join(parameters)
        raise ConfigError(f"{spec} is not a class, so {names} cannot be set; name the class instead")
    app = as_application(target, arity)
    return NamedApplication(app, _description(app, found))


def known_parameters(spec: str, parameters: Mapping[str, Any], registry: Registry | None = None) -> dict[str, Any]:
    """Return those of some recorded parameters that a built-in application still has; of others all.

    A parameter that is gone had a part in comparisons, in none of what reads items, so that items of old runs can be
    read without it.
    """
    if not names_builtin(spec):
        return dict(parameters)
    known = _constructor_parameters(_find(spec, registry).target)
    return {name: value for name, value in parameters.items() if name in known}


def describe_application(app: Application, registry: Registry | None = None) -> dict[str, Any]:
    """Describe an application given as an object; see ``NamedApplication`` for the entries.

    ``kind`` is "object" if only a running program can build it again; its ``source_hash`` then covers the code
    that it consists of (``tartan.workers.shipping``).
    """
    return _description(app, _describe_subject(app, _subject(app), registry))


def dump(app: Any) -> bytes:
    """Pickle an application with all that another process needs to load it.

    Raises
    ------
    ConfigError
        If it holds something that cannot be pickled.
    """
    modules = [
        (name, str(module.__file__), getattr(module, _SOURCE))
        for name, module in list(sys.modules.items())
        if isinstance(getattr(module, _SOURCE, None), bytes)
    ]
    try:
        return pickle.dumps((modules, _payload(app)))
    except Exception as error:
        subject = _subject(app)
        name = getattr(subject, "__name__", type(subject).__name__)
        stay = "declare releases_gil = True to stay in this process"
        if subject is not type(app):
            stay = f"wrap it in a tartan.Application whose compare_pair calls it, and there {stay}"
        raise ConfigError(
            f"{name} cannot be sent to worker processes: {error}; create what it holds when it is first used, or "
            f"{stay}",
            code="not-picklable",
        ) from error


def _payload(app: Any) -> bytes:
    import cloudpickle

    if MAINS[1] in sys.modules:
        cloudpickle.register_pickle_by_value(sys.modules[MAINS[1]])
    try:
        return bytes(cloudpickle.dumps(app))
    except Exception:
        return dumps_by_name(app)


def load(data: bytes) -> Any:
    """Return the application that ``dump`` packed; whatever its modules raise passes through."""
    modules, payload = pickle.loads(data)
    for name, path, source in modules:
        _install(name, path, source)
    return pickle.loads(payload)


def _builtin_name(spec: str) -> str | None:
    head, _, name = spec.rpartition(":")
    return name if head in ("", _BUILTIN.rstrip(":")) and not name.endswith(".py") else None


def _module_file(name: str) -> Path | None:
    """Return the file of a module; unlike ``importlib.util.find_spec`` this imports no package on the way."""
    places, origin = None, None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        found = PathFinder.find_spec(".".join(parts[:count]), places)
        if found is None:
            return None
        places, origin = found.submodule_search_locations or [], found.origin
    return Path(origin) if origin is not None else None


def _find(spec: str, registry: Registry | None) -> _Found:
    builtin = _builtin_name(spec)
    if builtin is not None:
        return _find_builtin(builtin, registry)
    head, _, name = spec.rpartition(":")
    if head.endswith(".py"):
        return _find_in_file(Path(head), name)
    if spec.endswith(".py"):
        module = _load_file(Path(spec))
        raise ConfigError(f"{spec}: say which application, as {spec}:NAME; {_candidates(module)}")
    return _find_in_module(head, name)


def _find_builtin(name: str, registry: Registry | None) -> _Found:
    if registry is None:
        raise ConfigError(f"there is no application {name!r} here; name one as file.py:NAME or package.module:NAME")
    return _Found(registry.builtin(name), "builtin", _BUILTIN + name, registry.identity(name))


def _find_in_file(path: Path, name: str) -> _Found:
    module = _load_file(path)
    target = _attribute(module, name, str(path))
    digest = hashlib.sha256(getattr(module, _SOURCE)).hexdigest()
    return _Found(target, "file", f"{module.__file__}:{name}", digest)


def _find_in_module(module_name: str, name: str) -> _Found:
    try:
        module = importlib.import_module(module_name)
    except TartanError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{module_name}:{name}: cannot import {module_name}: {type(error).__name__}: {error}; "
            "an application is a built-in name, file.py:NAME or package.module:NAME"
        ) from error
    target = _attribute(module, name, module_name)
    return _Found(target, "module", f"{module_name}:{name}", _module_hash(module_name))


def _attribute(module: ModuleType, name: str, label: str) -> Any:
    try:
        return attrgetter(name)(module)
    except AttributeError:
        raise ConfigError(f"{label} has no {name!r}; {_candidates(module)}") from None


def _candidates(module: ModuleType) -> str:
    """Say what in a module could be meant by NAME, applications before functions."""
    members = [(n, m) for n, m in vars(module).items() if not n.startswith("_")]
    applications = [n for n, m in members if _is_application(m)]
    functions = [n for n, m in members if inspect.isfunction(m) and m.__module__ == module.__name__]
    names = applications + functions
    return f"it has: {', '.join(names)}" if names else "it holds no application and no function"


def _is_application(member: Any) -> bool:
    if inspect.isclass(member):
        return issubclass(member, Application) and member is not Application
    return isinstance(member, Application)


def _load_file(path: Path) -> ModuleType:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", context={"path": str(path)}) from error
    absolute = str(path.resolve())
    name = f"tartan_user_{path.stem}_{hashlib.sha256(os.fsencode(absolute)).hexdigest()[:8]}"
    try:
        return _install(name, absolute, source)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise ConfigError(f"{path}{where}: {error.msg}", context={"line": error.lineno}) from error
    except TartanError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{path}{_find_line(absolute, error)}: {type(error).__name__}: {error}",
            context={"traceback": traceback.format_exc()},
        ) from error


def _find_line(path: str, error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f", line {lines[-1]}" if lines else ""


def _install(name: str, path: str, source: bytes) -> ModuleType:
    """Run a source text as the module ``name``, once; its folder's other modules can be imported by it."""
    previous = sys.modules.get(name)
    if previous is not None and getattr(previous, _SOURCE, None) == source:
        return previous
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except ValueError as error:  # null bytes
        raise SyntaxError(str(error)) from error
    module = ModuleType(name)
    module.__file__ = path
    setattr(module, _SOURCE, source)
    folder = str(Path(path).parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last: a file there must not hide an installed module
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _description(app: Application, found: _Found) -> dict[str, Any]:
    subject = _subject(app)
    return {
        "name": app.name or getattr(subject, "__name__", type(subject).__name__),
        "kind": found.kind,
        "source": found.source,
        "source_hash": found.source_hash,
        "parameters": {name: plain(value) for name, value in app.parameters().items()},
    }


def _subject(app: Application) -> Any:
    """Return what defines an application: its class, or the plain function that it wraps."""
    wraps = type(app).__module__ == Application.__module__
    return getattr(app, "_function", type(app)) if wraps else type(app)


def _describe_subject(app: Application, subject: Any, registry: Registry | None) -> _Found:
    module_name = getattr(subject, "__module__", None) or ""
    qualname = getattr(subject, "__qualname__", "")
    module = sys.modules.get(module_name)
    if module is None or module_name in MAINS or not _is_at(module, qualname, subject):
        place = place_of(subject) if is_compiled(subject) else None
        if place is not None:
            return _describe_found(subject, place)
        label = qualname or type(subject).__qualname__
        return _Found(subject, "object", f"python:{label}", compute_fingerprint_of(subject))
    if registry is not None and app.name and _is_builtin(app.name, subject, registry):
        return _Found(subject, "builtin", _BUILTIN + app.name, registry.identity(app.name))
    return _describe_found(subject, ImportName(module_name, qualname))


def _describe_found(subject: Any, place: ImportName) -> _Found:
    """Describe what a module holds."""
    module = sys.modules[place.module]
    if hasattr(module, _SOURCE):
        digest = hashlib.sha256(getattr(module, _SOURCE)).hexdigest()
        return _Found(subject, "file", f"{module.__file__}:{place.name}", digest)
    return _Found(subject, "module", f"{place.module}:{place.name}", _module_hash(place.module))


def _is_builtin(name: str, subject: Any, registry: Registry) -> bool:
    try:
        return registry.builtin(name) is subject
    except ConfigError:
        return False


def _is_at(module: ModuleType, qualname: str, subject: Any) -> bool:
    try:
        return bool(qualname) and attrgetter(qualname)(module) is subject
    except AttributeError:
        return False


def _module_hash(module_name: str) -> str:
    """Return the SHA-256 of the file of a module; of its name and the interpreter's for a built-in one."""
    path = getattr(sys.modules[module_name], "__file__", None)
    try:
        data = Path(path).read_bytes() if path else None
    except OSError:
        data = None
    if data is None:
        data = f"{module_name} {sys.implementation.cache_tag}".encode()
    return hashlib.sha256(data).hexdigest()


# A checksum of user code that lives in no importable file: scripts, notebooks, lambdas.
#
# It must not change between two runs of the same text, and must change when the meaning does. Pickled bytes are no
# good: they hold line numbers, names of notebook cells and random identifiers. Taken are instead the source text of
# classes and named functions, the byte code of lambdas (their source line holds other things too), and whatever
# they refer to in their own module: helper functions and classes likewise, constants by value. What is imported
# counts by name.

_SAID_ENOUGH = sys.stdlib_module_names | {"numpy"}
# _MAX_ELEMENTS and _MAX_ARRAY_BYTES, by judgement: globals of a script that are looked into for its fingerprint; more
# would make the start of a run felt. No benchmark.
_MAX_ELEMENTS = 10_000
_MAX_ARRAY_BYTES = 1 << 28


def compute_fingerprint_of(subject: Any) -> str:
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
        home_of_value = (getattr(value, "__module__", None) or "").partition(".")[0]
        if home_of_value not in _SAID_ENOUGH and is_compiled(value):
            name = ":".join(place_of(value) or (name,))  # of others two may say the same
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


# Parameters of an application: checked against its constructor, read from text, written to the manifest.

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
        f"{label}: {name}={value!r} is not {' or '.join(map(_describe_parameter, choices))}",
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


def _describe_parameter(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    names = {int: "an integer", float: "a number", str: "text", bool: "true or false", Path: "a path"}
    return names.get(kind, "none")


# The name of a compiled function: where modules hold it, whatever it says of itself.
#
# Functions of Cython, Boost.Python and pybind11 often know no name under which they can be imported, so they can be
# neither pickled nor told apart by what they say. The modules that hold them are looked through instead.

MAINS = ("__main__", "__mp_main__")  # modules of scripts, which nothing imports; the second where processes are spawned


class ImportName(NamedTuple):
    """A module, and the name of something in it."""

    module: str
    name: str


def is_compiled(subject: Any) -> bool:
    """Whether something is called as a function, and is neither written in Python nor a class."""
    kinds = (type, types.FunctionType, types.MethodType, functools.partial)
    if not callable(subject) or isinstance(subject, kinds):
        return False
    return not isinstance(getattr(type(subject), "__call__"), types.FunctionType)  # noqa: B004, B009 - of the class


def place_of(function: Any) -> ImportName | None:
    """Return where a compiled function can be imported from; None where no module holds it.

    The same in every process that has imported the package of the function: the name that it gives itself goes first,
    then the module that users see, which is the one with the shortest path and without underscores.
    """
    said = getattr(function, "__name__", None)
    home = (getattr(function, "__module__", None) or "").partition(".")[0]

    def rank(place: ImportName) -> tuple[Any, ...]:
        module, name = place
        hidden = "._" in f".{module}.{name}"
        return module.partition(".")[0] != home, name != said, hidden, module.count("."), len(module), place

    return min(_holders(function), key=rank, default=None)


def _holders(function: Any) -> Iterator[ImportName]:
    for module_name, module in list(sys.modules.items()):
        if module_name not in MAINS and isinstance(module, types.ModuleType):
            for name, member in list(vars(module).items()):
                if member is function:
                    yield ImportName(module_name, name)


def dumps_by_name(value: Any) -> bytes:
    """Pickle a value; compiled functions in it go by the names under which modules hold them."""
    memory = io.BytesIO()
    _ByName(memory).dump(value)
    return memory.getvalue()


class _ByName(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, subject: Any) -> Any:
        place = place_of(subject) if is_compiled(subject) else None
        return super().reducer_override(subject) if place is None else (import_name, tuple(place))


def import_name(module: str, name: str) -> Callable[..., Any]:
    """Return what a module holds under a name."""
    found: Callable[..., Any] = attrgetter(name)(importlib.import_module(module))
    return found
