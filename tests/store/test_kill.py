"""A real kill -9 in the middle of committing: what was said to be committed is there, and the lock is free."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tartan.result.run import Run
from tartan.store.folder import RunFolder

from .kit import commit_missing, describe, true_scores

N_ITEMS = 64
WRITER = """
import sys
from pathlib import Path
from store.kit import commit_chunk, true_scores
from tartan.store.folder import RunFolder
folder = RunFolder.open(sys.argv[1], writable=True)
with folder.lock():
    while True:  # chunks are committed again and again: the kill may come at any of them
        for chunk in folder.missing(verify=False) or folder.pairs.chunks():
            commit_chunk(folder, chunk, folder.pairs.mask(*chunk), {"scores": true_scores(%d)})
            print(*chunk, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("n_lines", [1, 7, 36, 50])
def test_kill_minus_nine(tmp_path: Path, n_lines: int) -> None:
    folder = RunFolder.create(tmp_path / "r", describe(N_ITEMS, 8))
    command = [sys.executable, "-c", WRITER % N_ITEMS, str(folder.path)]
    tests = Path(__file__).parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tests) as writer:
        assert writer.stdout is not None
        said = {tuple(map(int, writer.stdout.readline().split())) for _ in range(n_lines)}
        writer.kill()
    again = RunFolder.open(folder.path, writable=True)
    with again.lock():
        missing = again.missing()
        assert not said & set(missing)
        truth = {"scores": true_scores(N_ITEMS)}
        assert commit_missing(again, truth) == list(missing)
        assert again.missing() == {}
        assert list((folder.path / "tmp").iterdir()) == []
    np.testing.assert_array_equal(Run(folder.path).matrix(diagonal=0), truth["scores"])
