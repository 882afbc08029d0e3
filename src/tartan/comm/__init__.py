"""Ranks that send each other messages: processes of this machine, and the protocol by which analytics use them.

``run`` starts a function on several ranks, ``world`` is the communicator of a script under ``tartan ranks``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tartan.base.lazy import lazy_names

if TYPE_CHECKING:
    from tartan.comm.launch import run
    from tartan.comm.messages import ANY_SOURCE, ANY_TAG, Pending, Status, wait_all, wait_any
    from tartan.comm.process import world
    from tartan.comm.rank import RankCommunicator
    from tartan.comm.slots import Kernel

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "Kernel",
    "Pending",
    "RankCommunicator",
    "Status",
    "run",
    "wait_all",
    "wait_any",
    "world",
]

__getattr__, __dir__ = lazy_names(
    "tartan.comm",
    {
        "tartan.comm.launch": ["run"],
        "tartan.comm.messages": ["ANY_SOURCE", "ANY_TAG", "Pending", "Status", "wait_all", "wait_any"],
        "tartan.comm.rank": ["RankCommunicator"],
        "tartan.comm.slots": ["Kernel"],
        "tartan.comm.process": ["world"],
    },
)
