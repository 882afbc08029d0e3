"""The standard streams, as the shell leaves them: closed, on a full disk, or without a reader.

Data on stdout that cannot be written end the command with one line. Messages on stderr that cannot be written are
dropped: a full disk under a log stops no run. Streams that have been put in the place of those of the process
(by tests, notebooks) are left alone.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from tartan.errors import StoreError


def prepare_streams() -> None:
    """Make the standard streams fit to write to; called once, before anything is opened."""
    for descriptor in range(3):
        _occupy(descriptor)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the life of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _over(_Messages(2, "w", closefd=False), sys.stderr, line_buffering=True)
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _over(_Data(1, "w", closefd=False), sys.stdout, line_buffering=sys.stdout.line_buffering)
    _write_any_name()


def drop_stdout() -> None:
    """Discard what is still written to stdout: it has no reader, and Python would complain when it flushes at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


class _Messages(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


class _Data(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            drop_stdout()
            raise StoreError(f"cannot write to stdout: {error.strerror}; the output ends there") from error


def _occupy(descriptor: int) -> None:
    """Open a closed descriptor on nothing, so that the next file to be opened does not receive what is meant for it."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one


def _over(raw: io.FileIO, old: io.TextIOWrapper, *, line_buffering: bool) -> io.TextIOWrapper:
    old.flush()
    through = old.write_through  # python -u: the text layer writes to the descriptor itself
    buffer: Any = raw if through else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, old.encoding, old.errors, line_buffering=line_buffering, write_through=through)


def _write_any_name() -> None:
    """Let names of files go to stdout as they are: data are UTF-8 wherever we run; a terminal shows what it can."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        if stream.isatty():
            stream.reconfigure(errors="backslashreplace")
        else:
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
