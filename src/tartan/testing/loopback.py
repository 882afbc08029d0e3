"""Ranks that are threads of one process, to try what communicates; see ``tartan.comm.loopback``."""

from __future__ import annotations

from tartan.comm.loopback import run_ranks

__all__ = ["run_ranks"]
