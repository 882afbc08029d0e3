"""How an application is found, described, and sent to worker processes.

An application is named by a text: a built-in name, ``file.py:NAME`` or ``package.module:NAME``. In Python it is
an object. It travels as a pickle: what lives in ``__main__``, a notebook or a lambda goes by value (cloudpickle),
what lives in a module goes by its name, and modules that were loaded from a file given by path go with their
source text, so that an edit of the file while a run lasts cannot mix two versions.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import pickle
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from tartan.application import Application, as_application
from tartan.errors import ConfigError, TartanError
from tartan.workers.fingerprint import fingerprint
from tartan.workers.parameters import build, plain

_SOURCE = "__tartan_source__"  # marks modules that were loaded from a file given by path; holds its bytes
_BUILTIN = "builtin:"


class Registry(Protocol):
    """The built-in applications; the module ``tartan.apps`` is one."""

    def builtin(self, name: str) -> type[Application]:
        """Return the class of that name; ConfigError if there is none."""

    def identity(self, name: str) -> str:
        """Return what stands for its source in manifests."""


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
) -> tuple[Application, dict[str, Any]]:
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

    Returns
    -------
    Application
        Ready to compare.
    dict
        ``name``, ``kind`` ("builtin", "file" or "module"), ``source`` (a text that this function accepts),
        ``source_hash`` (SHA-256 of the bytes of the file that defines it) and ``parameters`` (JSON-able).

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
        raise ConfigError(f"{spec} is no class, so {names} cannot be set; name the class instead")
    app = as_application(target, arity)
    return app, _description(app, found)


def describe_application(app: Application, registry: Registry | None = None) -> dict[str, Any]:
    """Describe an application given as an object; see ``load_application`` for the entries.

    ``kind`` is "object" if only a running program can build it again; its ``source_hash`` then covers the code
    that it consists of (``tartan.workers.fingerprint``).
    """
    return _description(app, _describe_subject(app, _subject(app), registry))


def dump(app: Any) -> bytes:
    """Pickle an application with all that another process needs to load it.

    Raises
    ------
    ConfigError
        If it holds something that cannot be pickled.
    """
    import cloudpickle

    modules = [
        (name, str(module.__file__), getattr(module, _SOURCE))
        for name, module in list(sys.modules.items())
        if isinstance(getattr(module, _SOURCE, None), bytes)
    ]
    try:
        return pickle.dumps((modules, cloudpickle.dumps(app)))
    except Exception as error:
        raise ConfigError(
            f"{type(app).__name__} cannot be sent to worker processes: {error}; create what it holds when it is "
            "first used, or declare releases_gil = True to stay in this process",
            code="not-picklable",
        ) from error


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
            f"{path}{_line_in(absolute, error)}: {type(error).__name__}: {error}",
            context={"traceback": traceback.format_exc()},
        ) from error


def _line_in(path: str, error: BaseException) -> str:
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
    if module is None or module_name == "__main__" or not _is_at(module, qualname, subject):
        label = qualname or type(subject).__qualname__
        return _Found(subject, "object", f"python:{label}", fingerprint(subject))
    if hasattr(module, _SOURCE):
        digest = hashlib.sha256(getattr(module, _SOURCE)).hexdigest()
        return _Found(subject, "file", f"{module.__file__}:{qualname}", digest)
    if registry is not None and app.name and _is_builtin(app.name, subject, registry):
        return _Found(subject, "builtin", _BUILTIN + app.name, registry.identity(app.name))
    return _Found(subject, "module", f"{module_name}:{qualname}", _module_hash(module_name))


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
