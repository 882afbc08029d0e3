"""Messages in the words of the command line.

A message of the Python interface names an argument in backquotes, with its value where it has one: ``overwrite=True``,
``distance='max-s'``, ``format=``. A command writes it as its own option: ``--overwrite``, ``--distance max-s``,
``--format``. What no option of the command stands for is left as it is.
"""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from typing import Any

#: Arguments whose options have other names, in the order in which they are looked for.
OTHER_NAMES = {
    "n_clusters": "clusters",
    "random_state": "seed",
    "reduce": "top_k",
    "keep": "top_k",
    "count": "threshold_count",
    "resume": "fresh",
    "header": "no_header",
    "start": "init",
    "dimension": "dim",
}
_ARGUMENT = re.compile(r"`([a-z_]+)=([^`]*)`")


def in_options(text: str, parser: argparse.ArgumentParser | None) -> str:
    """Return a message with the options of a command for the arguments that it names.

    Parameters
    ----------
    text : str
    parser : ArgumentParser or None
        Of the command; None leaves the text alone.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> _ = parser.add_argument("--overwrite", action="store_true")
    >>> in_options("it exists; say `overwrite=True`, or `copy=True`", parser)
    'it exists; say `--overwrite`, or `copy=True`'
    """
    if parser is None:
        return text
    return _ARGUMENT.sub(lambda found: _option(found[1], found[2], parser) or found[0], text)


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands of the program, by name; those of one application have two words."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                found |= {f"{name} {last}": one for last, one in commands_of(command).items()} or {name: command}
    return found


def destinations(parser: argparse.ArgumentParser) -> set[str]:
    """Return what the options of a command are called where they are read."""
    return {action.dest for action in parser._actions}


def _option(name: str, value: str, parser: argparse.ArgumentParser) -> str | None:
    """Return the option that stands for an argument, or None."""
    for dest in (name, OTHER_NAMES.get(name)):
        for action in parser._actions:  # argparse has no other way to list them
            if action.dest == dest and action.option_strings:
                if action.nargs == 0 and value and name == dest and action.const != _value(value):
                    continue
                written = "" if action.nargs == 0 or not value else f" {shlex.quote(str(_value(value)))}"
                return f"`{max(action.option_strings, key=len)}{written}`"
    return None


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
