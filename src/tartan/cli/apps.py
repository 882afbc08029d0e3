"""``tartan apps``: the built-in applications, or the settings of one."""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import textwrap
from collections.abc import Iterator
from typing import Any

from tartan.cli.shared.output import print_json, put
from tartan.errors import ConfigError

_PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^(\w+)(?: : ([^\n]*))?\n((?:(?:[ ]+[^\n]*)?(?:\n|\Z))*)", re.MULTILINE)
# By judgement: longer lines are hard to read.
_WIDEST = 100


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("app", metavar="APP", nargs="?", help="the application whose settings are wanted")


def execute(args: argparse.Namespace) -> int:
    """List them; return the exit status."""
    from tartan.apps import BUILTIN, builtin
    from tartan.cli.commands import guess_meant

    if args.app is not None and args.app not in BUILTIN:
        meant = guess_meant(args.app, BUILTIN)
        raise ConfigError(
            f"there is no application {args.app!r}{meant} (there are {', '.join(BUILTIN)}; of file.py:NAME the "
            "settings are the arguments of its class)"
        )
    names = BUILTIN if args.app is None else [args.app]
    about = {name: describe_application(builtin(name)) for name in names}
    if args.json:
        print_json({"applications": about})
    elif args.app is None:
        put("\n".join(_list_all(about)))
    else:
        put("\n".join(_show(args.app, about[args.app])))
    return 0


def describe_application(app: type[Any]) -> dict[str, Any]:
    """Return what an application compares, which files it reads, and its settings by name.

    Parameters
    ----------
    app : type
        A subclass of Application with a docstring as numpydoc has it.

    Returns
    -------
    dict
        ``does``, text; ``reads``, suffixes of files; ``settings``, a dict by name of ``default`` (None where there is
        none), ``kind`` and ``about``, texts.
    """
    text = inspect.getdoc(app) or ""
    found = _PARAMETERS.search(text)
    told = {name: (kind, inspect.cleandoc(body)) for name, kind, body in _ENTRY.findall(found[1] if found else "")}
    settings = {}
    for name, parameter in inspect.signature(app).parameters.items():
        default = None if parameter.default is inspect.Parameter.empty else parameter.default
        kind, about = told.get(name, ("", ""))
        settings[name] = {"default": default, "kind": kind.removesuffix(", optional"), "about": about}
    return {
        "does": text.partition("\n")[0].rstrip("."),
        "reads": [*app.item_suffixes, *(["rows of tables and arrays"] if app.rows else [])],
        "settings": settings,
    }


def _list_all(about: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield two lines an application: what it does, and its settings."""
    wide = max(map(len, about)) + 2
    for name, known in about.items():
        yield f"{name:{wide}}{known['does']}"
        given = ", ".join(f"{one}={_show_default(of['default'])}" for one, of in known["settings"].items())
        yield from textwrap.wrap(given, _width(), initial_indent=" " * wide, subsequent_indent=" " * wide)
    yield ""
    yield "`tartan run APP --help` explains the settings; `--set NAME=VALUE` changes them; file.py:NAME is one of yours"


def _show(name: str, about: dict[str, Any]) -> Iterator[str]:
    """Yield the page of one application."""
    yield f"usage: tartan run {name} INPUT ... -o RUN [--set NAME=VALUE ...]    (tartan help run: all options)"
    yield ""
    yield f"{about['does']}."
    yield from textwrap.wrap(f"reads: {', '.join(_shorten(about['reads']))}", _width(), subsequent_indent="       ")
    yield ""
    yield "settings, and what they are where they are not given:"
    for setting, known in about["settings"].items():
        default = "" if known["default"] is None else f"={_show_default(known['default'])}"
        yield f"  {setting}{default}" + (f"   {known['kind']}" if known["kind"] else "")
        for paragraph in known["about"].split("\n\n"):
            yield from (f"      {line}".rstrip() for line in _wrap(paragraph.replace("``", "")))


def _shorten(suffixes: list[str]) -> list[str]:
    """Return suffixes without those that are others, compressed."""
    plain = [one for one in suffixes if not any(one != other and one.startswith(f"{other}.") for other in suffixes)]
    return plain if plain == suffixes else [*plain, "and these compressed"]


def _wrap(paragraph: str) -> list[str]:
    """Wrap a paragraph; tables stay as they are."""
    if "====" in paragraph:
        return [line for line in paragraph.splitlines() if "====" not in line]
    return textwrap.wrap(paragraph, _width() - 6)


def _show_default(value: Any) -> str:
    return "none" if value is None else str(value) or '""'


def _width() -> int:
    return min(shutil.get_terminal_size().columns, _WIDEST)
