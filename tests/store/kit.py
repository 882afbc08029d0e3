"""What the tests of the store share: small runs with known scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from tartan.core.pairs.ledger import DONE
from tartan.store.folder import RunFolder
from tartan.store.items import ItemTable
from tartan.store.manifest import Manifest

__all__ = ["commit_chunk", "commit_missing", "describe", "table", "true_scores"]


def describe(n: int = 10, chunk: int = 4, **changes: Any) -> Manifest:
    """Return a manifest; ``changes`` go to the application where they belong there."""
    application = {
        "name": "test",
        "source": "test",
        "source_hash": "1",
        "parameters": {"k": 3},
        "outputs": {"scores": "float32"},
        "symmetric": True,
        "diagonal": False,
    }
    fields = {"workload": {"kind": "all"}, "inputs": {"kind": "files"}, "reduce": None, "options": {}}
    for name, value in changes.items():
        (fields if name in fields else application)[name] = value
    return Manifest(
        application=application, n_items=n, grid=dict.fromkeys(("chunk", "panel", "strip", "span"), chunk), **fields
    )


def table(n: int) -> ItemTable:
    """Return keys item-0, item-1, ... with fingerprints."""
    return ItemTable([f"item-{i}" for i in range(n)], np.arange(n) + 100, np.arange(n) + 10**9)


def true_scores(n: int, symmetric: bool = True, seed: int = 7) -> np.ndarray:
    """Return an (n, n) float32 matrix of scores in 0..1 with a zero diagonal."""
    scores = np.random.default_rng(seed).random((n, n), dtype=np.float32)
    if symmetric:
        scores = np.triu(scores, 1)
        scores = scores + scores.T
    np.fill_diagonal(scores, 0)
    return scores


def commit_chunk(
    folder: RunFolder, chunk: tuple[int, int], wanted: np.ndarray, truth: dict[str, np.ndarray], code: int = DONE
) -> None:
    """Commit the wanted pairs of one chunk with the true scores."""
    r = folder.pairs.rect(*chunk)
    outputs = {name: scores[r.r0 : r.r1, r.c0 : r.c1] for name, scores in truth.items()}
    mirrored = {name: scores[r.c0 : r.c1, r.r0 : r.r1] for name, scores in truth.items()}
    folder.commit(
        *chunk, outputs, (wanted * code).astype(np.uint8), mirrored=mirrored if folder.pairs.both_ways else None
    )


def commit_missing(folder: RunFolder, truth: dict[str, np.ndarray]) -> list[tuple[int, int]]:
    """Commit whatever is missing; return the chunks that were."""
    missing = folder.missing()
    for chunk, wanted in missing.items():
        commit_chunk(folder, chunk, wanted, truth)
    return list(missing)
