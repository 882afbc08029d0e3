"""``tartan COMMAND``: chooses the command and turns what went wrong into one line and an exit status.

0 all is done; 1 failed; 2 wrong use; 3 finished with failed items or pairs; 128 + n ended by signal n.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from tartan.cli import (
    add,
    align,
    bench,
    cluster,
    demo,
    doctor,
    embed,
    export,
    info,
    lcms,
    neighbors,
    outliers,
    plan,
    resume,
    run,
    simulate,
    sort,
    tree,
)
from tartan.cli.options import separate_settings
from tartan.cli.output import print_json
from tartan.errors import InternalError, RunCancelledError, TartanError

__all__ = ["build_parser", "main"]

_COMMANDS: dict[str, Any] = {
    "run": run,
    "resume": resume,
    "add": add,
    "info": info,
    "export": export,
    "embed": embed,
    "align": align,
    "tree": tree,
    "cluster": cluster,
    "neighbors": neighbors,
    "outliers": outliers,
    "lcms": lcms,
    "sort": sort,
    "simulate": simulate,
    "plan": plan,
    "demo": demo,
    "bench": bench,
    "doctor": doctor,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after ``tartan``; default: those of this process.

    Returns
    -------
    int
        The exit status.

    Examples
    --------
    >>> main(["--version"])  # doctest: +SKIP
    tartan 0.1.0
    0
    """
    _write_any_name()
    words = separate_settings(sys.argv[1:] if argv is None else argv)
    try:
        args = build_parser().parse_args(words)
    except SystemExit as stop:  # argparse has said why
        return int(stop.code or 0)
    try:
        status: int = _guarded(args.execute, args)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_is_gone()
    return status


def _write_any_name() -> None:
    """Let names of files go to stdout as they are: data are UTF-8 wherever we run; a terminal shows what it can."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        if stream.isatty():
            stream.reconfigure(errors="backslashreplace")
        else:
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; each sets ``execute``."""
    parser = argparse.ArgumentParser(
        prog="tartan",
        description="Compare everything with everything.",
        epilog="Exit status: 0 all pairs, 3 finished with failed items or pairs, 1 failed, 2 wrong use.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in _COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=_sentence(module.HELP), allow_abbrev=False)
        module.configure(command)
        command.add_argument("--json", action="store_true", help="print one JSON object on stdout")
        command.set_defaults(execute=module.execute)
    return parser


class _Version(argparse.Action):
    """Asks for the version only when it is wanted: reading package metadata takes time."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from tartan.runtime.machine import tartan_version

        print(f"tartan {tartan_version()}")
        parser.exit()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _guarded(execute: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    try:
        return execute(args)
    except RunCancelledError as error:
        _complain(error, args)
        return 128 + int(error.context.get("signal", signal.SIGINT))
    except TartanError as error:
        _complain(error, args)
        return error.exit_status
    except KeyboardInterrupt:
        print("tartan: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        raise
    except Exception as error:
        traceback.print_exc()
        _complain(InternalError(f"{type(error).__name__}: {error} (a defect of Tartan; please report it)"), args)
        return InternalError.exit_status


def _complain(error: TartanError, args: argparse.Namespace) -> None:
    if os.environ.get("TARTAN_DEBUG") == "1" and error.__traceback__ is not None:
        traceback.print_exception(error)
    elif error.context.get("traceback"):  # the first failure of the user's code
        print(str(error.context["traceback"]).rstrip(), file=sys.stderr)
    print(f"tartan: error: {error}", file=sys.stderr)
    if args.json:
        print_json({"error": {"code": error.code, "message": str(error), "context": error.context}})


def _reader_is_gone() -> int:
    # Whoever read our stdout (head, less) has enough. Python would complain again when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
