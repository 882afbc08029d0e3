"""``--log-level`` and ``--log-file``: what a command and its ranks tell an operator, and where."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tartan.base.format import format_duration, reason_of
from tartan.base.logs import LEVELS, LogSettings, host_name, logger_of, logging_to
from tartan.base.machine import tartan_version

_log = logger_of(__name__)


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--log-level",
        type=str.lower,
        choices=LEVELS,
        help="say what happens: warning is losses and retries, info also joins, saves and addresses, debug also each "
        "message; on stderr, unless --log-file is given",
    )
    parser.add_argument(
        "--log-file",
        metavar="FILE",
        help="add that to FILE; each rank of several has a file of its own, FILE.rank-NAME; default level: info",
    )


@contextlib.contextmanager
def logging_of(args: argparse.Namespace) -> Iterator[None]:
    """Log what a command does, as its options say.

    Raises
    ------
    ConfigError
        If the file cannot be written.
    """
    file = getattr(args, "log_file", None)
    level = getattr(args, "log_level", None) or ("" if file is None else "info")
    if not level:
        yield
        return
    node = _node_of(args)
    settings = LogSettings(level, "" if file is None else str(Path(file).absolute()), node and f"{node}.{host_name()}")
    with logging_to(settings, node or "driver"):
        begin = time.monotonic()
        about = args.command, tartan_version(), host_name(), os.getpid()
        _log.info("%s begins: Tartan %s on %s, process %d", *about)
        try:
            yield
        except BaseException as error:
            _log.error("%s ends: %s", args.command, reason_of(error))
            raise
        _log.info("%s has ended after %s", args.command, format_duration(time.monotonic() - begin))


def _node_of(args: argparse.Namespace) -> str:
    """Return the name of this node where ``mpiexec`` has started several; empty for the first, which reports."""
    if getattr(args, "link", None) != "mpi":
        return ""
    from tartan.comm.link_mpi import mpi_place

    node = mpi_place().node
    return f"node-{node}" if node else ""
