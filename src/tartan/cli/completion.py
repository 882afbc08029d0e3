"""``tartan completion SHELL``: prints what makes the Tab key complete commands, options and file names."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tartan.cli.shared.output import put
from tartan.errors import ConfigError

SHELLS = ("bash", "zsh", "fish")
ITEMS = "items"
_FILES = {
    "bash": "_shtab_compgen_files",
    "zsh": "_files",
    "fish": "(__fish_complete_path (commandline -ct))",
}  # as shtab completes files
# Runs are folders with a manifest; where none begins so, all files are offered.
_BASH = """\
_tartan_runs() {
  local folder found=1
  for folder in "$1"*/; do
    if [ -f "${folder}manifest.json" ]; then echo "${folder%/}"; found=0; fi
  done
  [ $found = 0 ] || _shtab_compgen_files "$1"
}
_tartan_apps() { compgen -W "APPS" -- "$1"; compgen -f -X '!*.py' -- "$1"; }
_tartan_items() { tartan completion items "${COMP_WORDS[2]}" "$1" 2>/dev/null; }
"""
#: What bash completes otherwise than files, by the name of an argument.
_OWN = {("RUN", "RUN|MATRIX"): "_tartan_runs", ("APP",): "_tartan_apps", ("A", "B", "KEY", "OLD"): "_tartan_items"}
# Words in the names of arguments that stand for files and folders.
PATHS = ("MAP", "RUN", "MATRIX", "INPUT", "FILE", "DIR", "OUT", "SRC", ".nwk", "APP")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "shell",
        choices=[*SHELLS, "man", ITEMS],
        help="the shell; man prints the manual page instead, items the names of the items of a run, as shells ask",
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help="of items: folder of the run")
    parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="of items: how the names begin")
    parser.epilog = (
        'bash: eval "$(tartan completion bash)" in ~/.bashrc; '
        "zsh: tartan completion zsh > a folder of $fpath, as _tartan; "
        "fish: tartan completion fish > ~/.config/fish/completions/tartan.fish; "
        "man: tartan completion man > ~/.local/share/man/man1/tartan.1"
    )


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    from tartan.cli.main import build_parser

    if args.shell == ITEMS:
        return _list_items(args)
    if args.run is not None:
        raise ConfigError(f"RUN is for `tartan completion {ITEMS}`; leave it out")
    parser = build_parser()
    put(_manual(parser) if args.shell == "man" else _completions(parser, args.shell))
    return 0


def _list_items(args: argparse.Namespace) -> int:
    """Print the names of items that begin so, one a line."""
    import tartan

    if args.run is None:
        raise ConfigError("name the folder of a run whose items are wanted")
    names = (str(key) for key in tartan.open(args.run).keys)
    put("\n".join(name for name in names if name.startswith(args.prefix)))
    return 0


def _manual(parser: argparse.ArgumentParser) -> str:
    from argparse_manpage.manpage import Manpage

    from tartan.base.machine import tartan_version

    about = {"version": tartan_version(), "manual_title": "Tartan", "description": "compare everything with everything"}
    return str(Manpage(parser, _data=about, format="single-commands-section"))


def _completions(parser: argparse.ArgumentParser, shell: str) -> str:
    import shtab

    from tartan.apps import BUILTIN

    for action in _arguments(parser):
        if action.metavar and not action.choices and any(word in str(action.metavar) for word in PATHS):
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # as shtab asks for it
        for metavars, function in _OWN.items():
            if action.metavar in metavars and not action.option_strings:
                action.complete = _FILES | {"bash": function}  # type: ignore[attr-defined]
    return shtab.complete(parser, shell, preamble={"bash": _BASH.replace("APPS", " ".join(BUILTIN))})  # type: ignore[arg-type]


def list_commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each command, and its options."""
    yield name, {option for action in parser._actions for option in action.option_strings}
    for action in parser._actions:  # argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):
            for word, command in action.choices.items():
                yield from list_commands(command, f"{name} {word}".strip())


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _arguments(command)
        else:
            yield action
