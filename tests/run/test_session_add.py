"""What stays when a run goes on: the form of its items, its pairs, its totals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import tartan
from tartan.errors import ConfigError
from tartan.run.session import RunSession
from tartan.store.folder import RunFolder
from tartan.workers.shipping import load_application


class Sums(tartan.Application):
    """Works with items of one form, and with lists of unequal ones."""

    releases_gil = True
    formed: bool | None = None

    def parse(self, key: str, data: Any) -> Any:
        return np.frombuffer(data, np.uint8).astype(np.float32)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        assert self.formed is None or self.formed == isinstance(left, np.ndarray)
        return np.array([[abs(a.sum() - b.sum()) for b in right] for a in left])


def write(folder: Path, lengths: list[int]) -> str:
    folder.mkdir()
    for index, length in enumerate(lengths):
        (folder / f"{folder.name}{index:02d}.bin").write_bytes(bytes([index + 1]) * length)
    return str(folder / "*.bin")


def test_items_of_unequal_size_stay_so_when_a_look_at_some_would_say_otherwise(tmp_path: Path) -> None:
    # Of all nine, the first, the last and the middle one have five bytes; of the first six they have not.
    old, new = write(tmp_path / "a", [5, 3, 4, 9, 5, 7]), write(tmp_path / "b", [5, 5, 5])
    tartan.allpairs(Sums(), old, tmp_path / "run", workers=1)
    app = Sums()
    app.formed = False
    run = tartan.add(tmp_path / "run", new, app=app, workers=1)
    assert (run.n_pairs_done, run.failures) == (36, [])


def test_a_new_item_of_another_form_fails_and_changes_nothing_else(tmp_path: Path) -> None:
    old, new = write(tmp_path / "a", [5] * 6), write(tmp_path / "b", [3])
    tartan.allpairs(Sums(), old, tmp_path / "run", workers=1)
    app = Sums()
    app.formed = True
    run = tartan.add(tmp_path / "run", new, app=app, workers=1)
    assert (run.n_pairs, run.n_pairs_done, run.n_pairs_failed) == (21, 15, 6)
    (failure,) = run.failures
    assert (failure.i, failure.j) == (6, None)
    assert "float32 (3,)" in failure.reason


class Dot(tartan.Application):
    releases_gil = True

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return left @ right.T


ROWS = np.random.default_rng(1).normal(size=(30, 4))


def condensed(n: int) -> np.ndarray:
    return (ROWS[:n] @ ROWS[:n].T)[np.triu_indices(n, 1)].astype(np.float32)


def test_a_damaged_old_chunk_is_computed_again_together_with_new_items(tmp_path: Path) -> None:
    run = tartan.allpairs(Dot(), ROWS[:20], tmp_path / "run", tile=5, workers=1)
    chunk = run.path / "scores.zarr" / "c" / "0" / "1"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    run = tartan.add(run.path, ROWS[20:], app=Dot(), previous=ROWS[:20], workers=1)
    np.testing.assert_allclose(run.condensed(), condensed(30), rtol=1e-5)


def test_only_pairs_of_new_items_are_computed_though_chunks_are_shared(tmp_path: Path) -> None:
    run = tartan.allpairs(Dot(), ROWS[:22], tmp_path / "run", tile=9, workers=1)
    for n in (23, 30):
        before = run.stats["pairs_computed"]
        run = tartan.add(run.path, ROWS[run.n_items : n], app=Dot(), previous=ROWS[: run.n_items], workers=1)
        assert run.stats["pairs_computed"] - before == n * (n - 1) // 2 - before
        np.testing.assert_allclose(run.condensed(), condensed(n), rtol=1e-5)


def test_a_reduced_result_without_new_pairs_is_not_taken_for_the_result(tmp_path: Path) -> None:
    rule = {"kind": "threshold", "threshold": -100.0, "largest": True}

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    run = tartan.allpairs(Dot(), ROWS[:20], tmp_path / "run", tile=5, workers=1, reduce=rule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "replace_result", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tartan.add(run.path, ROWS[20:], app=Dot(), previous=ROWS[:20], workers=1)
    run = tartan.allpairs(Dot(), ROWS, run.path, workers=1, reduce=rule)
    assert (run.path / "result.parquet").exists()
    assert sum(batch.num_rows for batch in run.pairs()) == 435
    assert pq.read_table(run.path / "result.parquet").num_rows == 435


def test_the_bound_is_that_of_the_largest_room_and_of_the_pairs_that_are_wanted(tmp_path: Path) -> None:
    run = tartan.allpairs(Dot(), ROWS[:20], tmp_path / "run", tile=5, workers=1, host_cache="20items")
    run = tartan.add(run.path, ROWS[20:], app=Dot(), previous=ROWS[:20], workers=1, host_cache="10items")
    assert run.stats["host_slots"] == 20
    assert run.stats["load_factor"] >= run.stats["load_factor_bound"]

    few = tartan.allpairs(Dot(), ROWS, pairs=np.array([[3, 9], [9, 4], [5, 5]]), workers=1)
    assert few.stats["load_factor_bound"] == 4 / 30


def test_another_list_of_candidates_is_another_run(tmp_path: Path) -> None:
    pairs = np.array([[3, 9], [9, 4]])
    run = tartan.allpairs(Dot(), ROWS, tmp_path / "run", pairs=pairs, workers=1)
    again = tartan.allpairs(Dot(), ROWS, tmp_path / "run", pairs=pairs[::-1, ::-1], workers=1)
    assert again.stats == run.stats
    with pytest.raises(ConfigError, match="holds another run"):
        tartan.allpairs(Dot(), ROWS, tmp_path / "run", pairs=[[3, 9], [9, 5]], workers=1)


def test_what_a_run_has_already_is_not_added_again(tmp_path: Path) -> None:
    for name, rows in (("a", ROWS[:10]), ("b", ROWS[10:20]), ("c", ROWS[20:])):
        np.save(tmp_path / f"{name}.npy", rows)
    run = tartan.allpairs(Dot(), tmp_path / "a.npy", tmp_path / "run", workers=1)
    for name in "bc":
        tartan.add(run.path, tmp_path / f"{name}.npy", app=Dot(), workers=1)
        with pytest.raises(ConfigError, match="already an item"):
            tartan.add(run.path, tmp_path / "b.npy", app=Dot(), workers=1)
    np.testing.assert_allclose(tartan.open(run.path).condensed(), condensed(30), rtol=1e-5)


def test_a_file_that_an_earlier_add_brought_is_refused(tmp_path: Path) -> None:
    old, new, last = (write(tmp_path / name, [5] * 3) for name in "abc")
    tartan.allpairs(Sums(), old, tmp_path / "run", workers=1)
    tartan.add(tmp_path / "run", new, app=Sums(), workers=1)
    with pytest.raises(ConfigError, match="already an item"):
        tartan.add(tmp_path / "run", [*map(str, sorted((tmp_path / "b").iterdir())), last], app=Sums(), workers=1)


def test_of_folders_that_are_added_again_what_is_new_is_taken(tmp_path: Path) -> None:
    old, new, last = (write(tmp_path / name, [5] * 3) for name in "abc")
    tartan.allpairs(Sums(), old, tmp_path / "run", workers=1)
    tartan.add(tmp_path / "run", new, app=Sums(), workers=1)
    assert tartan.add(tmp_path / "run", [new, last], app=Sums(), workers=1).n_items == 9
    with pytest.raises(ConfigError, match=r"the run has all 9 files of .* already; there is nothing to add"):
        tartan.add(tmp_path / "run", [old, new, last], app=Sums(), workers=1)


def test_an_add_that_was_stopped_before_its_first_pair_is_resumed(tmp_path: Path) -> None:
    old, new = write(tmp_path / "a", [5] * 4), write(tmp_path / "b", [5] * 3)
    program = tmp_path / "sums.py"
    program.write_text(
        "import numpy as np, tartan\n"
        "class Sums(tartan.Application):\n"
        "    releases_gil = True\n"
        "    def parse(self, key, data): return np.frombuffer(data, np.uint8).astype('f4')\n"
        "    def compare(self, left, right, xp): return left @ right.T\n"
    )
    app = load_application(f"{program}:Sums", {})
    tartan.allpairs(app, old, tmp_path / "run", workers=1)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunSession, "execute", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tartan.add(tmp_path / "run", new, workers=1)
    run = tartan.resume(tmp_path / "run", workers=1)
    assert (run.n_items, run.n_pairs_done) == (7, 21)


class SeesStatistics(Sums):
    """Looks at the statistics of its own run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[Any] = []

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        self.seen.append(RunFolder.open(self.path).stats["executions"])
        return super().compare(left, right, xp)


def test_an_execution_counts_from_its_start(tmp_path: Path) -> None:
    """So that one that is killed is not forgotten."""
    app, items = SeesStatistics(tmp_path / "run"), write(tmp_path / "a", [5] * 3)
    app.compare = lambda left, right, xp: Sums.compare(app, left, right, xp)  # type: ignore[method-assign]
    tartan.allpairs(app, items, tmp_path / "run", workers=1)
    del app.compare
    tartan.add(tmp_path / "run", write(tmp_path / "b", [5]), app=app, workers=1)
    assert set(app.seen) == {2}


def test_the_room_of_open_chunks_is_in_the_statistics(tmp_path: Path) -> None:
    run = tartan.allpairs(Sums(), write(tmp_path / "a", [5] * 40), tmp_path / "run", tile=32, workers=1)
    one = -(-32 * 32 * (4 + 1) // 4096) * 4096  # scores and codes, in whole pages
    assert run.stats["result_buffer_bytes"] >= 2 * one
    assert run.stats["result_buffer_bytes"] % one == 0


def test_lengths_of_files_say_how_many_items_of_unequal_size_fit(tmp_path: Path) -> None:
    """The first, the last and the middle one, which are looked at, are a hundred times smaller than the others."""
    lengths = [100 if index in (0, 6, 12) else 10_000 for index in range(13)]
    app = Sums()
    app.ragged = True
    run = tartan.allpairs(app, write(tmp_path / "a", lengths), tmp_path / "run", workers=1, host_cache="200kB")
    assert (run.n_pairs_done, run.failures) == (78, [])
    assert run.stats["host_peak"] < 300_000  # all together: 400,000
