"""A plugin of pytest: the names of the kernels that tests launched on the emulator, to the file ``TARTAN_LAUNCHED``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tartan.testing.emulator import Emulator

_launch = Emulator.launch
_names: set[str] = set()


def _recorded(self: Emulator, name: str, *args: Any, **options: Any) -> Any:
    _names.add(name)
    return _launch(self, name, *args, **options)


Emulator.launch = _recorded  # type: ignore[method-assign]


def pytest_sessionfinish() -> None:
    """Write the names."""
    Path(os.environ["TARTAN_LAUNCHED"]).write_text("\n".join(sorted(_names)))
