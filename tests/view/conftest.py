from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_run import FakeRun, camera_scores


@pytest.fixture
def make_run() -> Callable[..., FakeRun]:
    """Return a maker of runs over n items in groups; further arguments go to the run."""

    def make(n: int = 24, n_groups: int = 4, **options: Any) -> FakeRun:
        scores, _ = camera_scores(n, n_groups)
        options.setdefault("keys", [f"photo_{i:04d}.jpg" for i in range(n)])
        return FakeRun(scores, **options)

    return make
