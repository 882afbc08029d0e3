"""Whether the tests that need a C++ compiler run, are skipped, or fail because they must run."""

from __future__ import annotations

import os

import pytest

from tartan.testing.emulator import find_compiler

__all__ = ["require_compiler"]


def require_compiler() -> None:
    """Skip the calling test or module without a C++ compiler; ``TARTAN_REQUIRE_COMPILER=1`` makes it fail instead."""
    if find_compiler() is not None:
        return
    reason = "kernels on the CPU need a C++ compiler: install g++, or name one by CXX"
    if os.environ.get("TARTAN_REQUIRE_COMPILER") == "1":
        pytest.fail(f"TARTAN_REQUIRE_COMPILER=1, but {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
