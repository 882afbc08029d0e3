"""The examples of block tasks run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

EXAMPLES = Path(__file__).parents[2] / "examples" / "blocks"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul", "lu", "convolve", "pagerank"])
@pytest.mark.parametrize("options", [[], ["--device", "sim"]])
def test_an_example_runs(
    name: str, options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [name, *options])
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    assert "subtasks" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_of_a_task_of_your_own(tmp_path: Path) -> None:
    from scipy.ndimage import uniform_filter

    image = np.random.default_rng(0).random((60, 50))
    np.save(tmp_path / "image.npy", image)
    main = runpy.run_path(str(EXAMPLES / "smooth.py"))["main"]
    main(str(tmp_path / "image.npy"), str(tmp_path / "out.zarr"))
    for _ in range(10):
        image = uniform_filter(image, 7)
    np.testing.assert_allclose(np.asarray(zarr.open_array(tmp_path / "out.zarr")[:]), image)
