"""Whether the tests that need a GPU run, are skipped, or fail because they must run."""

from __future__ import annotations

import os

import pytest

from tartan.devices.cuda import find_gpus

__all__ = ["require_gpu"]


def require_gpu() -> None:
    """Skip the calling test or module without a usable GPU; ``TARTAN_REQUIRE_GPU=1`` makes it fail instead."""
    gpus = find_gpus()
    if any(gpu["usable"] for gpu in gpus):
        return
    reason = "no usable GPU: " + (gpus[0]["reason"] if gpus else "none found, or CuPy is not installed")
    if os.environ.get("TARTAN_REQUIRE_GPU") == "1":
        pytest.fail(f"TARTAN_REQUIRE_GPU=1, but {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
