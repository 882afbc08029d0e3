"""What an operator can follow: a logger for each package, and the log of a command that was asked for one.

A module takes its logger from ``logger_of(__name__)`` and names what happens; nothing is shown before someone
configures the logger "tartan", by the standard library or by ``logging_to``, which commands call. Names and reasons
that come from users are escaped here, for every handler: see ``tartan.base.format``.

A log that cannot be opened refuses the command that asks for it. From then on no log stops a run: lines that cannot be
written are lost, which is said once.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import numbers
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tartan.base.format import clip_middle, in_one_line
from tartan.base.outputs import refuse_inside_run
from tartan.errors import ConfigError

ROOT = "tartan"
LEVELS = ("debug", "info", "warning")
# By judgement: a screen, as _LONGEST_ERROR of cli/main.
LONGEST_WORDS = 4000
"""Of one name or reason in a line, in characters; longer ones lose their middle."""
_LINE = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ ")
_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s {who} %(name)s: %(message)s"
_NOT_IN_NAMES = re.compile(r"[^\w.-]")
_SECRET = re.compile(
    r"(?<=://)[^/@\s]+(?=@)|(?<=[?&])((?i:[\w.-]*(?:token|sig|signature|key|secret|password|credential)[\w.-]*)=)[^&\s]+"
)
"""Of addresses: who reads them, and what lets them."""

logging.getLogger(ROOT).addHandler(logging.NullHandler())


@dataclass(frozen=True)
class LogSettings:
    """What is logged and where; travels to the ranks of a command.

    Attributes
    ----------
    level : str
        One of ``LEVELS``; empty where nothing is logged.
    file : str
        Path of the file of the driver, absolute there; empty for stderr.
    member : str
        Rank or node whose own file is meant, beside that of the driver; empty for the driver.
    """

    level: str = ""
    file: str = ""
    member: str = ""

    @property
    def path(self) -> str:
        """The file; empty for stderr."""
        return f"{self.file}.{_NOT_IN_NAMES.sub('_', self.member)}" if self.file and self.member else self.file


def logger_of(module: str) -> logging.Logger:
    """Return the logger of the package that a module belongs to; what it is given reaches handlers escaped."""
    logger = logging.getLogger(".".join(module.split(".")[:2]))
    logger.addFilter(_escape)
    return logger


@contextlib.contextmanager
def logging_to(settings: LogSettings, who: str, *, needed: bool = True) -> Iterator[None]:
    """Write what the loggers of Tartan say, for as long as the context lasts.

    Parameters
    ----------
    settings : LogSettings
    who : str
        The member of a run that this process is; stands in every line.
    needed : bool
        Whether a log that cannot be written is an error; otherwise there is none.

    Raises
    ------
    ConfigError
        If the file cannot be written, or is not a log.
    """
    handler = _handler_of(settings, who, needed=needed)
    if handler is None:
        yield
        return
    logger = logging.getLogger(ROOT)
    before = logger.level
    for other in _log_handlers():  # that of the process which this one is a fork of
        logger.removeHandler(other)
    logger.addHandler(handler)
    logger.setLevel(settings.level.upper())
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
        handler.end()


def active_settings() -> LogSettings:
    """Return what ``logging_to`` was told in this process, for the ranks that it starts."""
    return next((one.settings for one in _log_handlers()), LogSettings())


def rank_settings(settings: LogSettings, name: str) -> LogSettings:
    """Return where a rank logs: beside the file of the driver, or where its process was started; else on stderr.

    The folder of the driver's file may not be there on another machine.
    """
    own = replace(settings, member=f"rank-{name}")
    if not own.level or not own.file:
        return own
    reasons = []
    for place in (own, replace(own, file=Path(own.file).name)):
        try:
            os.close(_open_log(place.path))
        except ConfigError as error:
            reasons.append(str(error))
        else:
            return place
    print(in_one_line(f"tartan: {name} has no log file: {reasons[0]}"), file=sys.stderr)
    return replace(own, file="")


def private_logger(settings: LogSettings, package: str, who: str) -> logging.Logger:
    """Return a logger for one member of a run in a process that belongs to others, such as the worker of a cluster.

    Without settings it is that of the package. Otherwise only its own handler hears it; ``close_private`` closes that.
    """
    if not settings.level:
        return logger_of(package)
    logger = logging.Logger(package, settings.level.upper())
    logger.addFilter(_escape)
    logger.addHandler(_handler_of(settings, who, needed=False) or logging.NullHandler())
    return logger


def close_private(logger: logging.Logger) -> None:
    """Close what ``private_logger`` has opened."""
    if logging.getLogger(logger.name) is logger:
        return
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        if isinstance(handler, LogHandler):
            handler.end()


def host_name() -> str:
    """Return the name of this machine as it can stand in the name of a file."""
    return _NOT_IN_NAMES.sub("_", socket.gethostname())


class LogHandler(logging.Handler):
    """Writes each record as one line, at once, so that a kill loses none; several processes may append to one file.

    Parameters
    ----------
    settings : LogSettings
    who : str

    Raises
    ------
    ConfigError
        If the file cannot be written, or is not a log.
    """

    def __init__(self, settings: LogSettings, who: str) -> None:
        super().__init__(settings.level.upper())
        self.settings = settings
        self._path = settings.path
        self._descriptor = _open_log(self._path) if self._path else None
        self._is_torn = self._has_complained = False
        formatter = logging.Formatter(_FORMAT.format(who=in_one_line(who).replace("%", "%%")), "%Y-%m-%d %H:%M:%S")
        formatter.converter = time.gmtime  # machines of one run may keep other clocks
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; the line is lost where that fails."""
        try:
            line = in_one_line(self.format(record)) + "\n"
        except Exception as error:  # of a value that cannot be written as text
            line = f"a message of {record.name} cannot be written: {type(error).__name__}\n"
        if self._path:
            self._append(line)
        else:
            with contextlib.suppress(Exception):  # it is closed, or a signal came while it was written to
                print(line, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Close the file. ``close`` leaves it open: it is called with other exit handlers, and something may follow."""
        with self.lock or contextlib.nullcontext():
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
        self.close()

    def _append(self, line: str) -> None:
        if self._descriptor is None:
            return
        data = ("\n" * self._is_torn + line).encode(errors="backslashreplace")
        try:
            n_written = os.write(self._descriptor, data)
        except OSError as error:
            self._complain(error)
        else:
            self._is_torn = 0 < n_written < len(data)  # the disk is full

    def _complain(self, error: OSError) -> None:
        if not self._has_complained:
            self._has_complained = True
            text = f"tartan: {self._path} cannot be written: {error.strerror}; lines of the log are lost"
            with contextlib.suppress(OSError, ValueError):
                print(in_one_line(text), file=sys.stderr, flush=True)


def _log_handlers() -> list[LogHandler]:
    return [one for one in logging.getLogger(ROOT).handlers if isinstance(one, LogHandler)]


def _handler_of(settings: LogSettings, who: str, *, needed: bool) -> LogHandler | None:
    """Open what settings ask for; None where they ask for nothing, or what is not needed cannot be written."""
    if not settings.level:
        return None
    try:
        return LogHandler(settings, who)
    except ConfigError:
        if needed:
            raise
        return None


def _escape(record: logging.LogRecord) -> bool:
    """Write what a record was given as text that breaks no line and does nothing to a terminal."""
    if isinstance(record.args, tuple):
        record.args = tuple(_in_words(value) for value in record.args)
    return True


def _in_words(value: object) -> object:
    if isinstance(value, numbers.Real):
        return value
    try:
        text = str(value)
    except Exception:  # of the class of a user
        text = f"a {type(value).__name__} without words"
    text = _SECRET.sub(lambda found: f"{found[1] or ''}***", clip_middle(text, LONGEST_WORDS))
    return in_one_line(text.encode(errors="backslashreplace").decode())


def _open_log(path: str) -> int:
    """Open a log file at its end, and make it where there is none.

    Raises
    ------
    ConfigError
        If it is a link, no regular file, no log, one of another user, or lies in a run, or cannot be written.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        refuse_inside_run(Path(path))
        try:
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            descriptor = os.open(path, flags)
    except OSError as error:
        raise _refusal(path, "it is a link" if error.errno == errno.ELOOP else str(error.strerror)) from None
    except RuntimeError as error:  # folders that are links to each other
        raise _refusal(path, str(error)) from None
    if reason := _why_no_log(descriptor):
        os.close(descriptor)
        raise _refusal(path, reason)
    return descriptor


def _why_no_log(descriptor: int) -> str:
    """Return why lines are not added to a file that is there; empty where they may be."""
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        return "it is not a regular file"
    if about.st_uid != os.geteuid():
        return "it belongs to another user"
    try:
        begins = os.pread(descriptor, 64, 0)
    except OSError as error:
        return str(error.strerror)
    return "it is not a log of Tartan" if begins and not _LINE.match(begins) else ""


def _refusal(path: str, reason: str) -> ConfigError:
    message = f"--log-file {path} cannot be written: {reason}; name another file, in a folder of yours that is there"
    return ConfigError(message, context={"option": "--log-file", "path": path})
