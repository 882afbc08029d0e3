"""Sorts in the process of the tests count what it holds as theirs; it holds what thousands of tests have imported."""

from __future__ import annotations

import pytest

from tartan.sort import engine
from tartan.sort.ranks import rank

# As a process holds that does nothing but sort records.
_HELD_BYTES = 120 * 10**6


@pytest.fixture(autouse=True)
def hold_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each test begin as in a process of its own."""
    for module in (engine, rank):
        monkeypatch.setattr(module, "held_bytes", lambda: _HELD_BYTES)
