"""Read where a sort is to run, and refuse what ranks cannot sort."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tartan.base.checks import POSITIVE, number
from tartan.cluster.launch import parse_cluster
from tartan.errors import ConfigError
from tartan.sort.ranks.launch import SortWays

PathLike = str | os.PathLike[str]


def read_ways(
    on: Any,
    *,
    insecure: bool,
    rank_timeout: float | None,
    tmp: PathLike | Iterable[PathLike] | None,
    target: Path,
) -> SortWays:
    """Return where the ranks of a sort are.

    Parameters
    ----------
    on : str, ClusterTarget or distributed.Client
    insecure : bool
    rank_timeout : float or None
    tmp : path, iterable of paths, or None
        Temporary folders of each rank. Default: ranks of this machine take the folder of the destination, others the
        temporary folder of their system.
    target : Path
        The destination.

    Raises
    ------
    ConfigError
        If one of them is not understood.
    """
    where = parse_cluster(on, insecure=insecure) if isinstance(on, str) else on
    seconds = 15.0 if rank_timeout is None else number("rank_timeout", rank_timeout, POSITIVE, option="--rank-timeout")
    ways = SortWays(where, insecure, seconds)
    if tmp is None:
        folders = [target.parent] if ways.n_local else []
    else:
        folders = [Path(tmp)] if isinstance(tmp, str | os.PathLike) else [Path(folder) for folder in tmp]
    if ways.n_local:
        folders = [folder.resolve() for folder in folders]
    return SortWays(where, insecure, seconds, tuple(str(folder) for folder in folders))


def refuse_minus_zero(path: Path) -> None:
    """Refuse records of which a key holds -0.0, whose signs a sort on this machine keeps beside them.

    Raises
    ------
    ConfigError
    """
    raise ConfigError(
        f"{path} holds -0.0 in a key, which equals 0.0: on several ranks it comes before 0.0 or not at all; add "
        "--total-order, or omit --on",
        context={"option": "on", "path": str(path)},
    )
