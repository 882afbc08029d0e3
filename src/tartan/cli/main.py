"""``tartan COMMAND``: chooses the command and turns errors into one line and an exit status.

0 all is done; 1 failed; 2 wrong use; 3 finished with failed items or pairs; 128 + n ended by signal n.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Sequence
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
from tartan.cli.shared.options import separate_settings
from tartan.cli.shared.output import print_json
from tartan.cli.shared.streams import drop_stdout, prepare_streams
from tartan.errors import InternalError, ResourceError, RunCancelledError, StoreError, TartanError

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
    prepare_streams()
    words = separate_settings(sys.argv[1:] if argv is None else argv)
    args = argparse.Namespace(json=False)  # as long as the words are not understood
    try:
        return _guarded(words, args)
    except BrokenPipeError:  # the reader of stdout (head, less) has closed it
        drop_stdout()
        return 128 + signal.SIGPIPE


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
        from tartan.base.machine import tartan_version

        print(f"tartan {tartan_version()}")
        parser.exit()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _guarded(words: Sequence[str], args: argparse.Namespace) -> int:
    try:
        return _parse_and_execute(words, args)
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
        known = _of_the_machine(error)
        if known is None:
            traceback.print_exc()
            known = InternalError(f"{type(error).__name__}: {error} (a defect of Tartan; please report it)")
        _complain(known, args)
        return known.exit_status


def _parse_and_execute(words: Sequence[str], args: argparse.Namespace) -> int:
    try:
        build_parser().parse_args(words, args)
    except SystemExit as stop:  # argparse has printed why
        status = int(stop.code or 0)
    else:
        status = args.execute(args)
    sys.stdout.flush()
    return status


def _of_the_machine(error: Exception) -> TartanError | None:
    """Return what the system refused, where no other place has a better message; None for defects."""
    if isinstance(error, MemoryError):
        return ResourceError(f"out of memory ({error}); stop other programs, or give Tartan a smaller share")
    if isinstance(error, OSError) and error.filename is not None:
        known = StoreError(f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}")
        return known.with_traceback(error.__traceback__)
    return None


def _complain(error: TartanError, args: argparse.Namespace) -> None:
    if os.environ.get("TARTAN_DEBUG") == "1" and error.__traceback__ is not None:
        traceback.print_exception(error)
    elif error.context.get("traceback"):  # the first failure of the user's code
        print(str(error.context["traceback"]).rstrip(), file=sys.stderr)
    print(f"tartan: error: {error}", file=sys.stderr)
    if args.json:
        print_json({"error": {"code": error.code, "message": str(error), "context": error.context}})


if __name__ == "__main__":
    sys.exit(main())
