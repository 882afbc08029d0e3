"""``tartan COMMAND``: chooses the command and turns errors into one line and an exit status.

0 all is done; 1 failed; 2 wrong use: the same words fail until they, or what they name, change; 3 finished with
failed items or pairs; 128 + n ended by signal n.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tartan.base.format import clip_middle, printable, reason_of, traceback_of
from tartan.base.signals import remember_interrupts, was_interrupted
from tartan.base.signatures import RENAMED
from tartan.cli.commands import COMMANDS, FAMILIES, guess_meant, name_command, show_overview
from tartan.cli.shared.logs import add_log_options, logging_of
from tartan.cli.shared.options import separate_settings
from tartan.cli.shared.output import print_json, put, say
from tartan.cli.shared.streams import drop_stdout, prepare_streams
from tartan.cli.shared.wording import in_options
from tartan.errors import ConfigError, InternalError, ResourceError, RunCancelledError, StoreError, TartanError

# By judgement: a screen.
_LONGEST_ERROR = 4000
#: What Python and the loader say when they get no thread, or no addresses for a library; they have no type for it.
_TOO_LITTLE = ("can't start new thread", "failed to map segment", "annot allocate memory")


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
    args = argparse.Namespace(json=False, parser=None)  # as long as the words are not understood
    try:
        with remember_interrupts():
            return _run_guarded(words, args)
    except BrokenPipeError:  # the reader of stdout (head, less) has closed it
        drop_stdout()
        return 128 + signal.SIGPIPE


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands; each sets ``execute``.

    Parameters
    ----------
    only : str, optional
        The one command whose options are wanted: the modules of the others are not imported.
    """
    parser = _AllCommands(prog="tartan", description="Compare everything with everything.")
    parser.add_argument("-V", "--version", action=_Version, nargs=0, help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    families: dict[str, Any] = {}
    for name, about in COMMANDS.items():
        family, _, last = name.partition(" ")
        where = commands
        if last:
            where = families.get(family) or families.setdefault(family, _add_family(commands, family))
        command = where.add_parser(
            last or name, help=about.brief, description=_sentence(about.about or about.brief), allow_abbrev=False
        )
        if only in (None, name):
            module = importlib.import_module(f"tartan.cli.{name.replace(' ', '_').replace('-', '_')}")
            module.configure(command)
            if about.logged:
                add_log_options(command)
            if about.prints:
                _add_out(command)
            command.add_argument("--json", action="store_true", help="print one JSON object on stdout")
            command.set_defaults(execute=module.execute, parser=command)
    return parser


def _add_family(commands: Any, family: str) -> Any:
    parser = commands.add_parser(family, help=FAMILIES[family], description=_sentence(FAMILIES[family]))
    return parser.add_subparsers(dest="of_application", metavar="COMMAND", required=True, parser_class=_Parser)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and names what was probably meant where an option is unknown."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:  # said here, by the parser of the command: the one above it knows none of its options
            known = re.findall(r"--[a-z][a-z0-9-]*", self.format_usage())
            named = [word for word in unknown if word.startswith("-")] or unknown
            first = named[0].partition("=")[0]
            now = f"--{RENAMED.get(first[2:])}"
            if now in known:
                self.error(f"{first} is now {now}")
            self.error(f"unrecognized arguments: {' '.join(named)}{self._guess(first, known)}")
        if "-" in (str(getattr(found, name, None)) for name in ("out", "printed")):
            self.error("-o names a file or a folder, and - is neither; what is printed is printed without -o")
        return found, unknown

    def _guess(self, option: str, known: Sequence[str]) -> str:
        """Return what an unknown option probably is: a setting of an application, or an option that is much like it."""
        setting = option.removeprefix("--").replace("-", "_")
        if "--set" in known and setting in _settings():
            return f"; did you mean --set {setting}=...?"
        return guess_meant(option, known)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += guess_meant(str(value), [str(choice) for choice in action.choices or ()])
            raise

    def error(self, message: str) -> NoReturn:
        """Say it, and where the options are listed; end with status 2."""
        command = self.prog.removeprefix("tartan")
        where = "" if "did you mean" in message or " is now " in message else f" (see tartan help{command})"
        self.exit(2, f"{self.prog}: error: {message}{where}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(printable(message), file)


class _AllCommands(_Parser):
    """The parser of the program, whose help is the page of all commands."""

    def format_help(self) -> str:
        return show_overview()


class _Version(argparse.Action):
    """Asks for the version only when it is wanted: reading package metadata takes time."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from tartan.base.machine import tartan_version

        put(f"tartan {tartan_version()}")
        parser.exit()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _run_guarded(words: Sequence[str], args: argparse.Namespace) -> int:
    try:
        return _parse_and_execute(words, args)
    except RunCancelledError as error:
        _complain(error, args)
        return 128 + int(error.context.get("signal", signal.SIGINT))
    except TartanError as error:
        _complain(error, args)
        return error.exit_status
    except KeyboardInterrupt as stop:
        if isinstance(stop.__cause__, RunCancelledError):
            _complain(stop.__cause__, args)
            return 128 + signal.SIGINT
        return _end_interrupted()
    except BrokenPipeError:
        raise
    except Exception as error:
        if was_interrupted():  # compiled code made another error of it
            return _end_interrupted()
        known = _of_the_machine(error)
        if known is None:
            say(traceback_of(error).rstrip())
            known = InternalError(f"{reason_of(error)} (a defect of Tartan; please report it)")
        _complain(known, args)
        return known.exit_status


def _end_interrupted() -> int:
    say("tartan: interrupted")
    return 128 + signal.SIGINT


def _parse_and_execute(words: Sequence[str], args: argparse.Namespace) -> int:
    words = _read_help(words)
    named = name_command(words)
    _refuse_empty(words)
    if named == "run" and len(words) > 2 and words[1] in _applications() and set(words[2:]) <= {"-h", "--help"}:
        named, words = "apps", ["apps", words[1]]
    try:
        build_parser(only=named).parse_args(words, args)
    except SystemExit as stop:  # argparse has printed why
        status = int(stop.code or 0)
    else:
        with logging_of(args):
            status = _execute(args)
    sys.stdout.flush()
    return status


def _execute(args: argparse.Namespace) -> int:
    """Execute a command; write what it prints into the file of ``-o``, where its result is what it prints."""
    out = getattr(args, "printed", None)
    if out is None:
        return int(args.execute(args))
    from tartan.cli.shared.outputs import require_outputs
    from tartan.cli.shared.tables import write_text

    require_outputs(args, (out, None))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = int(args.execute(args))
    write_text(out, printed.getvalue())
    return status


def _add_out(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-o", "--out", dest="printed", metavar="FILE", type=Path, help="write what is printed into this file"
    )
    if not any("--overwrite" in action.option_strings for action in command._actions):
        command.add_argument("--overwrite", action="store_true", help="replace the file if it exists")


def _read_help(words: Sequence[str]) -> Sequence[str]:
    """Write ``help COMMAND`` as ``COMMAND --help``; no word at all asks for the page of all commands."""
    while words and words[0] == "help":
        words = [*words[1:], "--help"]
    return words or ["--help"]


def _settings() -> set[str]:
    """Return the names of the settings of all built-in applications."""
    import inspect

    from tartan.apps import builtin

    return {name for app in _applications() for name in inspect.signature(builtin(app)).parameters}


def _applications() -> Collection[str]:
    from tartan.apps import BUILTIN

    return BUILTIN


def _refuse_empty(words: Sequence[str]) -> None:
    """Refuse words without a letter: read as a path, each would be the folder where the command is called."""
    for before, word in zip(("", *words), words):
        if not word:
            option = before if before.startswith("-") else "an argument"
        elif re.fullmatch("--[a-z-]+=", word):
            option = word[:-1]
        else:
            continue
        raise ConfigError(f"{option} is empty, where a name or a value belongs; is a variable of the shell not set?")


def _of_the_machine(error: Exception) -> TartanError | None:
    """Return what the system refused, where no other place has a better message; None for defects."""
    if isinstance(error, MemoryError):
        return ResourceError(f"out of memory ({error}); stop other programs, or give Tartan a smaller share")
    if isinstance(error, RuntimeError | ImportError) and any(words in str(error) for words in _TOO_LITTLE):
        return ResourceError(
            f"{error}: a limit of this shell is too low; see `ulimit -v` and `ulimit -u`, raise them (2 GB of "
            "addresses and some dozens of threads do), and bound the memory of a run by --host-cache instead"
        )
    if isinstance(error, OSError) and error.filename is not None:
        known = StoreError(f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}")
        return known.with_traceback(error.__traceback__)
    return None


def _complain(error: TartanError, args: argparse.Namespace) -> None:
    if os.environ.get("TARTAN_DEBUG") == "1" and error.__traceback__ is not None:
        say(traceback_of(error).rstrip())
    elif error.context.get("traceback"):  # the first failure of the user's code
        say(str(error.context["traceback"]).rstrip())
    message = in_options(clip_middle(str(error), _LONGEST_ERROR), args.parser)
    say(f"tartan: error: {message}")
    if args.json:
        print_json({"error": {"code": error.code, "message": message, "context": error.context}})


if __name__ == "__main__":
    sys.exit(main())
