"""A rank of ``sort_ranks`` whose link is as slow as the environment says."""

from __future__ import annotations

import os

from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.engine import ClusterEngine
from tartan.sort.ranks.rank import main as be_rank

LINK = "BENCH_LINK_BYTES"
"""Names the bytes a second of the link of a rank; 0: as fast as it is."""


def main(engine: ClusterEngine) -> None:
    """Sort until the sort is over."""
    speed = float(os.environ.get(LINK, "0"))
    be_rank(engine, throttle=Throttle(speed) if speed else None)
