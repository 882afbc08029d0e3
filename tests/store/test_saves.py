"""A chunk that is committed in several pieces while it is computed holds what it would hold if committed at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tartan.core.pairs.ledger import DONE, FAILED_PAIR, Failure
from tartan.store.folder import RunFolder
from tartan.store.tables import merge_parts

from .kit import commit_missing, describe, table, true_scores

N, SIDE = 11, 4
KINDS: dict[str, dict[str, Any]] = {
    "symmetric": {},
    "two scores of a pair": {"symmetric": False},
    "with the diagonal": {"symmetric": False, "diagonal": True},
    "rectangle": {"workload": {"kind": "rectangle", "n_left": 5}},
    "top 3": {"reduce": {"kind": "top-k", "k": 3}},
    "top 3, two outputs": {"reduce": {"kind": "top-k", "k": 3}, "outputs": {"scores": "float32", "more": "int16"}},
    "top 3 of both ways": {"reduce": {"kind": "top-k", "k": 3}, "symmetric": False},
    "threshold": {"reduce": {"kind": "threshold", "threshold": 0.4}},
    "threshold both ways": {"reduce": {"kind": "threshold", "threshold": 0.4}, "symmetric": False},
}


def truth_of(changes: dict[str, Any]) -> dict[str, np.ndarray]:
    scores = np.round(true_scores(N, changes.get("symmetric", True)), 2)  # some are equal
    return {name: scores if name == "scores" else (scores * 100).astype(np.int16) for name in outputs_of(changes)}


def outputs_of(changes: dict[str, Any]) -> list[str]:
    return list(changes.get("outputs", {"scores": "float32"}))


@contextlib.contextmanager
def writing(folder: RunFolder, shared: bool) -> Iterator[RunFolder]:
    """Hold a folder alone, or as one of several writers."""
    with folder.join("all") if shared else folder.lock():
        folder.new_keeper()
        yield folder


def pieces_of(wanted: np.ndarray, drawn: np.random.Generator) -> list[np.ndarray]:
    """Divide the pairs of a chunk among three commits."""
    turn = drawn.integers(0, 3, wanted.shape)
    return [wanted & (turn == one) for one in range(3)]


def chunk_of(folder: RunFolder, chunk: tuple[int, int], truth: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """Return the scores of a chunk, and those of its mirror image where there are any."""
    rect = folder.pairs.rect(*chunk)
    rows, columns = slice(rect.r0, rect.r1), slice(rect.c0, rect.c1)
    own = {name: scores[rows, columns] for name, scores in truth.items()}
    back = {name: np.ascontiguousarray(scores[columns, rows]) for name, scores in truth.items()}
    return own, back if folder.pairs.both_ways else None


def commit_piecewise(folder: RunFolder, truth: dict[str, np.ndarray], *, tiles: bool, seed: int) -> None:
    """Commit each chunk in three pieces.

    With ``tiles`` a keeper gets their scores ahead of them, as from threads, and those of later pieces early.
    """
    drawn = np.random.default_rng(seed)
    keeper = getattr(folder.results, "keeper", None) if tiles else None
    for chunk, wanted in folder.missing().items():
        own, mirrored = chunk_of(folder, chunk, truth)
        all_codes = [piece.astype(np.uint8) * DONE for piece in pieces_of(wanted, drawn)]
        for number, codes in enumerate(all_codes):
            piece = codes == DONE
            if keeper is not None:
                for chosen in all_codes[:2] if number == 0 else all_codes[number + 1 :]:
                    keeper.choose((chunk[0] * SIDE, chunk[1] * SIDE), own, chosen, mirrored)
                folder.commit(*chunk, None, codes, last=number == 2)
                continue
            outputs = {name: np.where(piece, block, -1).astype(block.dtype) for name, block in own.items()}
            folder.commit(*chunk, outputs, codes, mirrored=mirrored, last=number == 2)


def content(folder: RunFolder) -> Any:
    if folder.manifest.reduce is not None:
        with folder.lock():
            return pq.read_table(merge_parts(folder)).to_pylist()
    found = []
    for row, column in folder.committed():
        for name in folder.manifest.outputs:
            found.append((row, column, name, folder.read_chunk(name, row, column).tolist()))
    return repr(found)


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [False, True], ids=["from buffers", "tile by tile"])
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "one of several"])
@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_pieces_make_the_whole(tmp_path: Path, changes: dict[str, Any], shared: bool, tiles: bool) -> None:
    truth = truth_of(changes)
    whole = RunFolder.create(tmp_path / "whole", describe(N, SIDE, **changes), table(N))
    with writing(whole, shared=False):
        commit_missing(whole, truth)
    folder = RunFolder.create(tmp_path / "r", describe(N, SIDE, **changes), table(N))
    with writing(folder, shared):
        commit_piecewise(folder, truth, tiles=tiles, seed=5)
        assert not folder.n_left
    assert content(RunFolder.open(folder.path, writable=True)) == content(whole)


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [False, True], ids=["from buffers", "tile by tile"])
@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_another_execution_goes_on_from_a_piece(tmp_path: Path, changes: dict[str, Any], tiles: bool) -> None:
    """Killed after the first piece: tiles that a keeper had seen and that were not committed are computed again."""
    truth = truth_of(changes)
    whole = RunFolder.create(tmp_path / "whole", describe(N, SIDE, **changes), table(N))
    with writing(whole, shared=False):
        commit_missing(whole, truth)
    folder = RunFolder.create(tmp_path / "r", describe(N, SIDE, **changes), table(N))
    with writing(folder, shared=False):
        keeper = getattr(folder.results, "keeper", None)
        for chunk, wanted in folder.missing().items():
            own, mirrored = chunk_of(folder, chunk, truth)
            first = pieces_of(wanted, np.random.default_rng(1))[0].astype(np.uint8)
            if tiles and keeper is not None:
                keeper.choose((chunk[0] * SIDE, chunk[1] * SIDE), own, wanted.astype(np.uint8), mirrored)
                folder.commit(*chunk, None, first, last=False)
            else:
                folder.commit(*chunk, own, first, mirrored=mirrored, last=False)
    again = RunFolder.open(folder.path, writable=True)
    with writing(again, shared=False):
        commit_piecewise(again, truth, tiles=tiles, seed=6)
        assert not again.n_left
    assert content(again) == content(whole)


def test_a_version_adds_what_that_of_another_writer_leaves_out(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "r", describe(8, SIDE), table(8))
    other = RunFolder.open(folder.path, writable=True)
    half = np.zeros((4, 4), np.uint8)
    half[:2] = DONE
    ones = {"scores": np.full((4, 4), 1, np.float32)}
    with folder.join("all"), other.join("all"):
        assert folder.commit(0, 1, ones, half, last=False)
        assert other.commit(0, 1, {"scores": 2 * ones["scores"]}, np.full((4, 4), DONE, np.uint8))
        assert not folder.commit(0, 1, ones, DONE - half), "all of it is there"
    block = RunFolder.open(folder.path).read_chunk("scores", 0, 1)
    np.testing.assert_array_equal(block, np.where(half, 1, 2))


def test_failures_of_each_piece_stay(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "r", describe(8, SIDE), table(8))
    scores = {"scores": np.ones((4, 4), np.float32)}
    with folder.lock():
        for number in range(2):
            codes = np.zeros((4, 4), np.uint8)
            codes[2 * number : 2 * number + 2] = DONE
            codes[2 * number, 0] = FAILED_PAIR
            folder.commit(0, 1, scores, codes, [Failure(2 * number, 4, "compare", "no")], last=number == 1)
    assert [(failure.i, failure.j) for failure in folder.failures()] == [(0, 4), (2, 4)]
    assert folder.counts([(0, 1)]).tolist() == [0, 14, 0, 2]
