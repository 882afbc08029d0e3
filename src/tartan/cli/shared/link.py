"""The option ``--link``: what joins the nodes of commands over ranks."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.result.over_ranks import AskedRanks


def add_link(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--link",
        choices=("loopback", "mpi"),
        help="what joins the nodes; mpi: each process of mpiexec is one; default: loopback, on this machine",
    )


def divide_threads(n_ranks: int) -> None:
    """Divide the threads of libraries that are loaded from now on among the ranks of this node."""
    from tartan.base.machine import thread_limits

    os.environ.update(thread_limits(n_ranks))


def read_ranks_options(args: argparse.Namespace) -> AskedRanks | None:
    """Return what ``--ranks`` and ``--link`` ask for; called before libraries of native code are loaded."""
    if args.ranks is None:
        if args.link is not None:
            raise ConfigError("--link says what joins ranks; say how many there are with --ranks, too")
        return None
    if args.link == "mpi":
        divide_threads(args.ranks)
    from tartan.comm.link_mpi import require_joined
    from tartan.result.over_ranks import AskedRanks

    require_joined(args.link)
    return AskedRanks(args.ranks, args.link)
