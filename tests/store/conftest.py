"""Fixtures of the store's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.result.run import Run
from tartan.store.folder import RunFolder

from .kit import commit_missing, describe, table, true_scores


@pytest.fixture
def finished(tmp_path: Path) -> Callable[..., tuple[Run, np.ndarray]]:
    """Make finished runs: ``finished(n, chunk, **changes) -> (run, true scores of the first output)``."""

    def make(n: int = 10, chunk: int = 4, **changes: Any) -> tuple[Run, np.ndarray]:
        manifest = describe(n, chunk, **changes)
        pairs = np.array(changes.pop("candidates", [])) if "candidates" in changes else None
        folder = RunFolder.create(tmp_path / "made.tartan", manifest, table(n), candidates=pairs)
        first = true_scores(n, manifest.symmetric)
        truth = {
            name: (first if k == 0 else first * (k + 1) * 10).astype(dtype)
            for k, (name, dtype) in enumerate(manifest.outputs.items())
        }
        with folder.lock():
            commit_missing(folder, truth)
        return Run(folder.path), truth[next(iter(truth))]

    return make
