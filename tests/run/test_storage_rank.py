"""Ranks next to the data: they read files for those that compute, and parse them where that makes less to send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_world import ranks

import tartan
from tartan import apps
from tartan.errors import ConfigError
from tartan.options import run_options
from tartan.run.execute import start
from tartan.run.request import request

N = 40


class Growing(tartan.Application):
    """Files become larger when they are parsed; a bad one fails."""

    releases_gil = True
    ragged = False
    factor = 8

    def parse(self, key: str, data: bytes) -> Any:
        if data == b"bad":
            raise ValueError("bad file")
        return np.full(64 * self.factor, int(data[:8]), np.float64)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        a, b = left[:, 0][:, None], right[:, 0][None, :]
        return xp.minimum(a, b) * 1000 + xp.maximum(a, b)


class Shrinking(Growing):
    """Files become smaller."""

    factor = 0

    def parse(self, key: str, data: bytes) -> Any:
        return super().parse(key, data) if data == b"bad" else np.full(2, int(data[:8]), np.float64)


class Unequal(Growing):
    """Items have unlike sizes."""

    ragged = True

    def parse(self, key: str, data: bytes) -> Any:
        return super().parse(key, data)[: 1 + int(data[:8]) % 5]

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return np.array([[min(a[0], b[0]) * 1000 + max(a[0], b[0]) for b in right] for a in left])


class OnDevice(Growing):
    def preprocess(self, item: Any, xp: Any) -> Any:
        return item * 2.0


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(N):
        (folder / f"{number:03}.txt").write_bytes(f"{number:08}".encode() + bytes(500))
    return folder


def compute(files: Path, out: Path, app: Any, ways: Any = None, **options: Any) -> tartan.Run:
    given = {"host_cache": "100items", "tile": 5, "workers": 1, "quiet": True} | options
    return start(request(app, str(files / "*.txt"), run_options(given), registry=apps), out, ranks=ways)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("app", "device", "parse_at"),
    [
        pytest.param(app, device, way, marks=() if way == short else pytest.mark.exhaustive)
        for app, device, short in [
            (Growing(), "cpu", "auto"),
            (Shrinking(), "cpu", "storage"),
            (Unequal(), "cpu", "compute"),
            (OnDevice(), "sim", "auto"),
        ]
        for way in ("storage", "compute", "auto")
    ],
)
def test_the_scores_are_those_of_one_rank_and_storage_is_read_in_one_place(
    files: Path, tmp_path: Path, app: Any, device: str, parse_at: str
) -> None:
    alone = compute(files, tmp_path / "one", app, device=device)
    run = compute(files, tmp_path / "run", app, ranks(2, n_storage=1, parse_at=parse_at), device=device)
    np.testing.assert_array_equal(run.matrix(), alone.matrix())
    stats = run.stats
    assert stats["n_ranks"] == 3
    assert stats["bytes_per_level"]["storage"] == N * 508, "each file was read once, by the storage rank"
    assert stats["bytes_between_ranks"] > 0
    assert stats["storage_load_factor"] >= 1


@pytest.mark.slow
def test_auto_sends_what_takes_fewer_bytes(files: Path, tmp_path: Path) -> None:
    sent = {}
    for app in (Growing(), Shrinking()):
        for parse_at in ("storage", "compute", "auto"):
            ways = ranks(1, n_storage=1, parse_at=parse_at)
            run = compute(files, tmp_path / f"{type(app).__name__} {parse_at}", app, ways)
            sent[type(app).__name__, parse_at] = run.stats["bytes_between_ranks"]
    for name, better in (("Growing", "compute"), ("Shrinking", "storage")):
        worse = {"compute": "storage", "storage": "compute"}[better]
        assert sent[name, "auto"] == sent[name, better] < sent[name, worse]


@pytest.mark.slow
@pytest.mark.parametrize("parse_at", ["storage", "compute"])
def test_a_bad_file_fails_with_its_reason(files: Path, tmp_path: Path, parse_at: str) -> None:
    (files / "005.txt").write_bytes(b"bad")
    run = compute(files, tmp_path / "run", Growing(), ranks(2, n_storage=1, parse_at=parse_at))
    assert [(failure.i, failure.stage) for failure in run.failures] == [(5, "parse")]
    assert "bad file" in run.failures[0].reason


def test_without_a_storage_rank_all_read_for_themselves(files: Path, tmp_path: Path) -> None:
    run = compute(files, tmp_path / "run", Growing(), ranks(2))
    assert run.finished
    assert run.stats["bytes_per_level"]["storage"] >= N * 508


def test_where_to_parse_is_checked(files: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'there' is unknown"):
        tartan.allpairs(Growing(), str(files / "*.txt"), tmp_path / "run", on="local:2", parse_at="there")
    with pytest.raises(ConfigError, match="give `on=`, too"):
        tartan.allpairs(Growing(), str(files / "*.txt"), tmp_path / "run", parse_at="auto")
