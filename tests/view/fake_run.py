"""A run that is nothing but arrays: what the pictures and the report read of a real one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tartan.core.pairs.ledger import Failure
from tartan.errors import ConfigError


class Block(NamedTuple):
    row: int
    column: int
    scores: np.ndarray
    done: np.ndarray


class UpperTriangle:
    """The upper triangle, chunk by chunk."""

    def __init__(self, full: np.ndarray, chunk: int) -> None:
        self._full = full
        self._chunk = chunk
        self.dtype = full.dtype

    @property
    def name(self) -> str:  # only analyses ask for it
        raise ConfigError("nothing is analysed here")

    def blocks(self) -> Iterator[Block]:
        n, side = len(self._full), self._chunk
        for row in range(0, n, side):
            for column in range(row, n, side):
                scores = self._full[row : row + side, column : column + side]
                done = np.arange(row, n)[: len(scores), None] < np.arange(column, n)[None, : scores.shape[1]]
                yield Block(row, column, scores, done & np.isfinite(scores))


@dataclass
class FakeRun:
    full: np.ndarray
    keys: Sequence[str]
    failures: list[Failure] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    path: Path = Path("photos.tartan")
    parameters: dict[str, Any] = field(default_factory=lambda: {"crop": 512, "score": "ncc"})
    patterns: list[str] = field(default_factory=lambda: ["photos/*.jpg"])
    reduce: dict[str, Any] | None = None
    map: Any = None
    commits: Sequence[tuple[float, int]] = ()

    def __post_init__(self) -> None:
        self.n_items = len(self.full)
        self.n_pairs = self.n_items * (self.n_items - 1) // 2
        upper = np.where(np.triu(np.ones_like(self.full, dtype=bool), 1), self.full, np.nan)
        self.n_pairs_done = int(np.isfinite(upper).sum())
        self.n_pairs_left = self.n_pairs - self.n_pairs_done
        self.folder = SimpleNamespace(commit_times=lambda: list(self.commits), version=None)
        self.shape = self.full.shape
        self.larger_is_nearer = True
        self.manifest = SimpleNamespace(
            application={
                "name": "forensics",
                "source": "builtin:forensics",
                "parameters": self.parameters,
                "outputs": {"scores": "float32"},
                "similarity": True,
            },
            workload={"kind": "all"},
            inputs={"kind": "files", "patterns": self.patterns},
            versions={"tartan": "0.1.0", "numpy": "2.1.0"},
            created="2026-01-02T03:04:05+00:00",
            reduce=self.reduce,
            symmetric=True,
            symmetric_in=lambda output=None: True,
            larger_is_nearer=True,
            outputs={"scores": np.dtype(np.float32)},
            meaning=lambda output=None: {},
            name_score=lambda output=None: "NCC",
            analysed="scores",
            analysed_by=lambda output: output or "scores",
        )

    def view(self, output: str | None = None) -> UpperTriangle:
        return UpperTriangle(self.full, 192)

    def pairs(self, output: str | None = None) -> Iterator[pa.RecordBatch]:
        """What a reduced run keeps: here the pairs of the first item."""
        j = np.arange(1, self.n_items)
        yield pa.record_batch({"i": np.zeros(len(j), np.int64), "j": j, "score": self.full[0, 1:]})

    def embed(self, *_: Any, **__: Any) -> Any:
        raise ConfigError("this run has no map")

    def tree(self, *_: Any, **__: Any) -> Any:
        raise ConfigError("this run has no tree")

    def matrix(self, output: str | None = None) -> np.ndarray:
        assert self.n_items <= 2000, "a large matrix must not be read whole"
        return self.full


def camera_scores(n: int, n_groups: int, seed: int = 7) -> tuple[np.ndarray, list[str]]:
    """Scores of n items in groups that alternate: near 0.03 inside a group, near 0 elsewhere."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % n_groups
    noise = rng.normal(0.0, 0.002, (n, n))
    scores = np.triu(noise + 0.03 * (group[:, None] == group[None, :]), 1)
    scores = (scores + scores.T).astype(np.float32)
    np.fill_diagonal(scores, np.nan)
    return scores, [f"camera-{g + 1}" for g in group]
