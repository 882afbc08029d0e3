"""A run folder against a model in memory: any sequence of commits, kills, damage, resumes and extensions."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tartan.core.pairs.ledger import DONE, FAILED_PAIR, NOT_COMPUTED
from tartan.result.run import Run
from tartan.store.folder import RunFolder

from .kit import describe, true_scores

LARGEST = 14
TRUTH = {symmetric: true_scores(LARGEST, symmetric) for symmetric in (True, False)}


class StoreMachine(RuleBasedStateMachine):
    """The model is one (n, n) array of codes of the cells (i, j), i < j; scores follow from the truth."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tartan-test-"))
        self.path = self.root / "run"
        self.stack = ExitStack()

    @initialize(n=st.integers(1, 9), chunk=st.integers(1, 5), symmetric=st.booleans(), packed=st.booleans())
    def create(self, n: int, chunk: int, symmetric: bool, packed: bool) -> None:
        self.truth, self.chunk = TRUTH[symmetric], chunk
        samples = {"scores": np.zeros((9, 9), np.float32)} if packed else {}
        RunFolder.create(self.path, describe(n, chunk, symmetric=symmetric, inputs={"kind": "array"}), samples=samples)
        self.codes = np.zeros((n, n), np.uint8)
        self.start()

    def start(self) -> None:
        self.folder = RunFolder.open(self.path, writable=True)
        self.stack.enter_context(self.folder.lock())

    @property
    def n(self) -> int:
        return len(self.codes)

    def cells(self, chunk: tuple[int, int]) -> tuple[slice, slice]:
        rect = self.folder.pairs.rect(*chunk)
        return slice(rect.r0, rect.r1), slice(rect.c0, rect.c1)

    def some_chunk(self, data: st.DataObject) -> tuple[int, int]:
        return data.draw(st.sampled_from(list(self.folder.pairs.chunks())))

    @precondition(lambda self: self.n > 1)
    @rule(data=st.data(), code=st.sampled_from([DONE, DONE, FAILED_PAIR]))
    def commit(self, data: st.DataObject, code: int) -> None:
        """Commit a random part of the wanted pairs of a chunk, with garbage where nothing is wanted."""
        chunk = self.some_chunk(data)
        rows, columns = self.cells(chunk)
        wanted = self.folder.pairs.mask(*chunk)
        part = np.array(data.draw(st.lists(st.booleans(), min_size=wanted.size, max_size=wanted.size)))
        status = ((wanted & part.reshape(wanted.shape)) * code).astype(np.uint8)
        outputs, mirrored = self.truth[rows, columns].copy(), self.truth[columns, rows].copy()
        outputs[status != DONE], mirrored[status.T != DONE] = 99, 99
        both = {"scores": mirrored} if self.folder.pairs.both_ways else None
        self.folder.commit(*chunk, {"scores": outputs}, status, mirrored=both)
        np.copyto(self.codes[rows, columns], status, where=status != NOT_COMPUTED)

    @rule()
    def stop_and_resume(self) -> None:
        self.stack.close()
        self.start()

    @precondition(lambda self: self.n > 1)
    @rule(data=st.data(), what=st.sampled_from(["scores", "status"]), harm=st.sampled_from(["flip", "cut", "gone"]))
    def damage(self, data: st.DataObject, what: str, harm: str) -> None:
        """Harm a file of a chunk, then resume: all that the chunk had is missing, and nothing else."""
        chunk = self.some_chunk(data)
        file = self.path / f"{what}.zarr" / "c" / str(chunk[0]) / str(chunk[1])
        if not file.exists() or not file.stat().st_size:  # an earlier harm has left nothing
            return
        content = bytearray(file.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.sampled_from([1, 128]))
        keep = data.draw(st.integers(0, len(content) - 1)) if harm == "cut" else len(content)
        file.unlink() if harm == "gone" else file.write_bytes(content[:keep])
        self.codes[self.cells(chunk)] = NOT_COMPUTED
        self.stop_and_resume()
        self.folder.missing()

    @precondition(lambda self: self.n > 1)
    @rule(data=st.data())
    def kill_between_outputs_and_status(self, data: st.DataObject) -> None:
        """Leave new outputs beside the old status, and half a file in tmp."""
        chunk = self.some_chunk(data)
        status = self.path / "status.zarr" / "c" / str(chunk[0]) / str(chunk[1])
        before = status.read_bytes() if status.exists() else None
        codes = self.codes.copy()
        self.commit(data, DONE)
        if before is not None and self.codes[self.cells(chunk)].sum() != codes[self.cells(chunk)].sum():
            status.write_bytes(before)
            self.codes = codes
        left = self.path / "tmp" / "elsewhere.1.00000000-1"
        left.write_bytes(b"half")
        os.utime(left, (0, 0))
        self.stop_and_resume()
        assert not left.exists()

    @precondition(lambda self: self.n < LARGEST)
    @rule(more=st.integers(1, 3))
    def extend(self, more: int) -> None:
        n = min(LARGEST, self.n + more)
        self.folder.extend(n)
        self.codes = np.pad(self.codes, (0, n - self.n))

    @invariant()
    def ledger_is_the_model(self) -> None:
        if not hasattr(self, "folder"):
            return
        wanted = np.triu(np.ones((self.n, self.n), bool), 1)
        missing = np.zeros((self.n, self.n), bool)
        for chunk, pairs in self.folder.missing().items():
            missing[self.cells(chunk)] = pairs
        np.testing.assert_array_equal(missing, wanted & (self.codes == NOT_COMPUTED))
        ways = 2 if self.folder.pairs.both_ways else 1
        counts = np.bincount(self.codes[wanted], minlength=4) * ways
        np.testing.assert_array_equal(self.folder.counts(), counts)

    @invariant()
    def scores_are_the_truth(self) -> None:
        if not hasattr(self, "folder"):
            return
        done = self.codes == DONE
        expected = np.where(done | done.T, self.truth[: self.n, : self.n], np.nan)
        run = Run(self.path)
        np.testing.assert_array_equal(run.matrix(), expected)

    def teardown(self) -> None:
        self.stack.close()
        shutil.rmtree(self.root)


@pytest.mark.slow
def test_the_folder_behaves_like_its_model(request: Any) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        StoreMachine,
        settings=settings(max_examples=40, stateful_step_count=12, deadline=None, phases=(Phase.generate,)),
    )
