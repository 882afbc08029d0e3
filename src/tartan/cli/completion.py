"""``tartan completion SHELL``: prints what makes the Tab key complete commands, options and file names."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tartan.cli.shared.output import put

SHELLS = ("bash", "zsh", "fish")
# Words in the names of arguments that stand for files and folders.
PATHS = ("RUN", "MATRIX", "INPUT", "FILE", "DIR", "OUT", "SRC", ".nwk", "APP")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("shell", choices=[*SHELLS, "man"], help="the shell; man prints the manual page instead")
    parser.epilog = (
        'bash: eval "$(tartan completion bash)" in ~/.bashrc; '
        "zsh: tartan completion zsh > a folder of $fpath, as _tartan; "
        "fish: tartan completion fish > ~/.config/fish/completions/tartan.fish; "
        "man: tartan completion man > ~/.local/share/man/man1/tartan.1"
    )


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    from tartan.cli.main import build_parser

    parser = build_parser()
    put(_manual(parser) if args.shell == "man" else _completions(parser, args.shell))
    return 0


def _manual(parser: argparse.ArgumentParser) -> str:
    from argparse_manpage.manpage import Manpage

    from tartan.base.machine import tartan_version

    about = {"version": tartan_version(), "manual_title": "Tartan", "description": "compare everything with everything"}
    return str(Manpage(parser, _data=about, format="single-commands-section"))


def _completions(parser: argparse.ArgumentParser, shell: str) -> str:
    import shtab

    for action in _arguments(parser):
        if action.metavar and not action.choices and any(word in str(action.metavar) for word in PATHS):
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # as shtab asks for it
    return shtab.complete(parser, shell)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _arguments(command)
        else:
            yield action
