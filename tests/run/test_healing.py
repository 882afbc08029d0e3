"""Failed items that are mended and tried again: only their pairs are computed, whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

import tartan
from tartan.base.files import FileWriter
from tartan.base.lock import FolderLock
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, NOT_COMPUTED
from tartan.errors import ConfigError, CorruptResultError, RunFailedError, StoreError
from tartan.options import RunOptions
from tartan.run.reopen import reopen_request
from tartan.run.session import RunSession
from tartan.store.failures import read_failures
from tartan.store.folder import RunFolder

N = 13
BROKEN = (0, 3, 7)
WAYS: dict[str, dict[str, Any]] = {
    "all": {},
    "top-k": {"reduce": {"kind": "top-k", "k": 3}},
    "threshold": {"reduce": {"kind": "threshold", "threshold": 60.0}},
    "pairs": {"pairs": [(0, 3), (1, 2), (3, 9), (4, 7), (5, 6), (2, 12)]},
}


class Sums(tartan.Application):
    """Counts nothing twice: (a + 2 b) tells the two ways apart where they are asked for."""

    releases_gil = True

    def __init__(self, *, both_ways: bool = False) -> None:
        self.both_ways = both_ways
        self.symmetric = not both_ways
        self.seen: set[tuple[int, int]] = set()

    def parameters(self) -> dict[str, Any]:
        return {"both_ways": self.both_ways}

    def parse(self, key: str, data: Any) -> np.ndarray:
        return np.array([float(data)])

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        self.seen |= {(int(a), int(b)) for a in left[:, 0] for b in right[:, 0]}
        return left + 2 * right.T if self.both_ways else left + right.T


def value(item: int) -> int:
    return 7 * item % 41 + 1


def mend(folder: Path, items: Sequence[int] = BROKEN) -> None:
    for item in items:
        (folder / f"{item:02}.txt").write_text(str(value(item)))


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Return a folder of numbers, three of which are none."""
    folder = tmp_path / "items"
    folder.mkdir()
    mend(folder, range(N))
    for item in BROKEN:
        (folder / f"{item:02}.txt").write_text(f"broken {item}")
    return folder


def made(inputs: Path, out: Path, *, both_ways: bool = False, tile: int = 4, **ways: Any) -> tartan.Run:
    return tartan.allpairs(Sums(both_ways=both_ways), str(inputs / "*.txt"), out, tile=tile, workers=1, **ways)


def healed(path: Path, app: Sums | None = None, **options: Any) -> tartan.Run:
    both_ways = bool(RunFolder.open(path).manifest.application["parameters"]["both_ways"])
    return tartan.resume(path, app=app or Sums(both_ways=both_ways), retry_failed=True, workers=1, **options)


def content(run: tartan.Run) -> Any:
    """Return everything that a run found, in an order of its own."""
    table = run.pairs().read_all().sort_by([("i", "ascending"), ("j", "ascending")])
    return table.to_pydict()


@pytest.mark.slow
@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_healed_run_is_what_a_fresh_one_would_be(inputs: Path, tmp_path: Path, way: str, both_ways: bool) -> None:
    broken = made(inputs, tmp_path / "run", both_ways=both_ways, **WAYS[way])
    assert [failure.i for failure in broken.failures] == list(BROKEN)
    mend(inputs)
    run = healed(tmp_path / "run")
    fresh = made(inputs, tmp_path / "fresh", both_ways=both_ways, **WAYS[way])
    assert (run.finished, run.failures, run.n_pairs_failed) == (True, [], 0)
    assert content(run) == content(fresh)
    if way == "all":
        assert run.matrix().tobytes() == fresh.matrix().tobytes()
    if way == "top-k":
        for one, other in zip(run.neighbors(3), fresh.neighbors(3), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_healed_run_of_two_sides_is_what_a_fresh_one_would_be(inputs: Path, tmp_path: Path) -> None:
    names = [str(inputs / f"{item:02}.txt") for item in range(N)]
    for reduce in (None, {"kind": "top-k", "k": 2}, {"kind": "threshold", "threshold": 60.0}):
        for item in BROKEN:
            (inputs / f"{item:02}.txt").write_text("broken")
        out = tmp_path / str(reduce and reduce["kind"])
        ways: dict[str, Any] = {"against": names[5:], "reduce": reduce, "tile": 4, "workers": 1}
        tartan.allpairs(Sums(), names[:5], out, **ways)
        mend(inputs)
        run = healed(out)
        assert run.failures == []
        assert content(run) == content(tartan.allpairs(Sums(), names[:5], out.with_suffix(".fresh"), **ways))


def test_only_pairs_of_healed_items_are_computed(inputs: Path, tmp_path: Path) -> None:
    pairs_before = made(inputs, tmp_path / "run").stats["pairs_computed"]
    before = {path: path.read_bytes() for path in (tmp_path / "run/scores.zarr").rglob("*") if path.is_file()}
    assert len(before) > 9
    mend(inputs, [7])
    app = Sums()
    run = healed(tmp_path / "run", app)
    assert run.stats["pairs_computed"] - pairs_before == N - len(BROKEN)
    assert run.n_pairs_left == 0
    assert [(failure.i, failure.reason[:6]) for failure in run.failures] == [(0, "00.txt"), (3, "03.txt")]
    assert run.n_pairs_failed == (N - 1) + (N - 2)
    # Chunks (0, 0), (0, 2), .. without item 7 are not even written again.
    for path, data in before.items():
        if "/c/" in str(path) and "1" not in path.parts[-2:]:
            assert path.read_bytes() == data


def test_an_item_that_fails_again_has_its_new_reason_and_nothing_is_computed(inputs: Path, tmp_path: Path) -> None:
    old = made(inputs, tmp_path / "run")
    (inputs / "03.txt").write_text("still no number")
    app = Sums()
    run = healed(tmp_path / "run", app)
    assert app.seen <= {(1, 1), (value(1), value(1))} | {
        (value(N - 1),) * 2,
        (value(N // 2),) * 2,
    }  # a look at one item
    assert "still no number" in run.failures[1].reason
    assert [failure.i for failure in run.failures] == list(BROKEN)
    assert run.stats["pairs_computed"] == old.stats["pairs_computed"]
    assert run.finished
    assert tartan.add(tmp_path / "run", _new(inputs), app=Sums(), workers=1).n_items == N + 1


def _new(inputs: Path) -> str:
    (inputs.parent / "new.txt").write_text("99")
    return str(inputs.parent / "new.txt")


def test_fingerprints_of_retried_items_alone_are_replaced(inputs: Path, tmp_path: Path) -> None:
    first = made(inputs, tmp_path / "run").folder
    before, sums = first.items, first.checksums
    mend(inputs, [0, 3])
    again = healed(tmp_path / "run").folder
    after = again.items
    assert before is not None
    assert after is not None
    assert np.flatnonzero(before.mtimes != after.mtimes).tolist() == [0, 3]
    assert np.flatnonzero(before.ctimes != after.ctimes).tolist() == [0, 3]
    assert np.flatnonzero(sums != again.checksums).tolist() == [0, 3]
    assert made(inputs, tmp_path / "run", verify=True).finished  # it is the run of these very files


@pytest.mark.parametrize("retry", [True, False])
def test_any_other_changed_input_is_refused(inputs: Path, tmp_path: Path, retry: bool) -> None:
    made(inputs, tmp_path / "run")
    mend(inputs)
    (inputs / "05.txt").write_text("55555")
    state = _state(tmp_path / "run")
    call = healed if retry else lambda path: made(inputs, path)
    with pytest.raises(StoreError, match=r"size of items has changed: .*05\.txt") as caught:
        call(tmp_path / "run")
    assert "--retry-failed" not in str(caught.value)
    assert _state(tmp_path / "run") == state


def test_the_way_out_is_named_where_only_failed_items_have_changed(inputs: Path, tmp_path: Path) -> None:
    made(inputs, tmp_path / "run")
    mend(inputs, [3])
    with pytest.raises(StoreError, match="tartan resume RUN --retry-failed"):
        made(inputs, tmp_path / "run")


def _state(run: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.name != "run.lock"
    }


@pytest.mark.parametrize("options", [{"on_error": "raise"}, {"max_failures": 1}])
def test_rules_on_failures_hold_for_retries_and_change_nothing(
    inputs: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    made(inputs, tmp_path / "run")
    mend(inputs, [3])
    state = _state(tmp_path / "run")
    with pytest.raises(RunFailedError, match="broken 0"):
        healed(tmp_path / "run", **options)
    assert _state(tmp_path / "run") == state


def test_a_run_without_failures_has_nothing_to_retry(inputs: Path, tmp_path: Path) -> None:
    mend(inputs)
    made(inputs, tmp_path / "run")
    state = _state(tmp_path / "run")
    assert healed(tmp_path / "run").finished
    assert _state(tmp_path / "run") == state


def test_objects_of_a_program_are_given_again(tmp_path: Path) -> None:
    def apart(a: Any, b: Any) -> float:
        return abs(a - b)

    class Apart(tartan.Application):
        releases_gil = True

        def parse(self, key: str, data: Any) -> float:
            if data is None:
                raise ValueError("nothing")
            return float(data)

        def compare_pair(self, a: float, b: float) -> float:
            return abs(a - b)

    items: list[Any] = [1.0, None, 4.0, 8.0]
    tartan.allpairs(Apart(), items, tmp_path / "run", workers=1)
    with pytest.raises(ConfigError, match="exists only in the program"):
        tartan.resume(tmp_path / "run", retry_failed=True)
    items[1] = 2.0
    run = tartan.resume(tmp_path / "run", app=Apart(), previous=items, retry_failed=True, workers=1)
    assert run.condensed().tolist() == [1.0, 3.0, 7.0, 2.0, 6.0, 4.0]


def test_failed_pairs_are_tried_again(tmp_path: Path) -> None:
    class Fickle(tartan.Application):
        releases_gil = True
        broken = True

        def parameters(self) -> dict[str, Any]:
            return {}

        def compare_pair(self, a: float, b: float) -> float:
            if self.broken and {a, b} == {1.0, 4.0}:
                raise ValueError("not today")
            return abs(a - b)

    app, items = Fickle(), [1.0, 2.0, 4.0]
    app.releases_gil = True
    assert tartan.allpairs(app, items, tmp_path / "run", workers=1).n_pairs_failed == 1
    again = tartan.resume(tmp_path / "run", app=app, previous=items, retry_failed=True, workers=1)
    assert [(failure.i, failure.j) for failure in again.failures] == [(0, 2)]
    app.broken = False
    run = tartan.resume(tmp_path / "run", app=app, previous=items, retry_failed=True, workers=1)
    assert (run.condensed().tolist(), run.failures) == ([1.0, 3.0, 2.0], [])


class ChangesMeanwhile(Sums):
    """An input changes after some of its pairs are computed; the item fails when it is read again."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def parameters(self) -> dict[str, Any]:
        return {"both_ways": False}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        if value(N - 1) in right and len(left) > 1:  # single pairs are compared before the run
            self.path.write_text("1000")
        return super().compare(left, right, xp)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["all", "threshold", "top-k"])
def test_scores_of_what_an_item_was_before_are_computed_again(inputs: Path, tmp_path: Path, way: str) -> None:
    mend(inputs)
    app, changes = ChangesMeanwhile(inputs / "12.txt"), {"host_cache": "3items", "tile": 4, "workers": 1}
    broken = tartan.allpairs(app, str(inputs / "*.txt"), tmp_path / "run", **WAYS[way], **changes)
    assert [failure.i for failure in broken.failures] == [12]
    assert 0 < broken.n_pairs_failed < N - 1
    again = ChangesMeanwhile(tmp_path / "elsewhere")
    if way == "top-k":
        with pytest.raises(StoreError, match=r"has compared 12\.txt before"):
            tartan.resume(tmp_path / "run", app=again, retry_failed=True, workers=1)
        return
    run = tartan.resume(tmp_path / "run", app=again, retry_failed=True, workers=1)
    assert run.failures == []
    assert content(run) == content(made(inputs, tmp_path / "fresh", **WAYS[way]))


# -- kills ---------------------------------------------------------------------------------------------------------


class KilledError(BaseException):
    """The process is gone."""


class Mortal(FileWriter):
    """Dies before or after one of its steps, and does nothing from then on."""

    def __init__(self, root: Path, lives: float, *, after: bool) -> None:
        super().__init__(root)
        self.lives = lives
        self._after = after

    def _step(self) -> None:
        if self.lives <= 0:
            raise KilledError
        self.lives -= 1

    @contextlib.contextmanager
    def _around(self) -> Iterator[None]:
        if not self._after:
            self._step()
        yield
        if self._after:
            self._step()

    def replace(self, target: Path, buffers: Any) -> None:
        with self._around():
            super().replace(target, buffers)

    @contextlib.contextmanager
    def new_file(self, target: Path) -> Iterator[BinaryIO]:
        self._step()
        with super().new_file(target) as file:
            yield file

    def append(self, target: Path, data: bytes) -> None:
        with self._around():
            super().append(target, data)

    def remove(self, target: Path) -> None:
        with self._around():
            super().remove(target)

    def sync(self) -> int:
        if self.lives <= 0:
            raise KilledError
        return super().sync()


def heal_until_killed(path: Path, lives: float, *, after: bool) -> bool:
    """Heal with a writer that dies; return whether it did."""
    app = Sums(both_ways=bool(RunFolder.open(path).manifest.application["parameters"]["both_ways"]))
    try:
        folder = RunFolder.open(path, writable=True, writer=Mortal(path, lives, after=after))
        asked = reopen_request(folder, RunOptions(workers=1), tartan.apps, app=app)
        with RunSession(asked) as session:
            session.heal(folder)
            session.execute(folder)
    except KilledError:
        return True
    return False


def check_reader(path: Path, truth: np.ndarray) -> None:
    """Whatever a reader finds is right, and the run is called finished only if it is."""
    run = tartan.open(path)
    matrix = run.matrix()
    known = ~np.isnan(matrix)
    np.testing.assert_array_equal(matrix[known], truth[known])
    if run.finished:
        assert int((run.status[:] == NOT_COMPUTED)[np.triu_indices(N, 1)].sum()) == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "way", ["plain resume", "both ways", pytest.param("retry again", marks=pytest.mark.exhaustive)]
)
def test_killed_at_every_step(inputs: Path, tmp_path: Path, way: str, after: bool) -> None:
    """Nothing is lost, nothing is mixed, and the next command finishes what was begun."""
    both_ways = way == "both ways"
    made(inputs, tmp_path / "broken", both_ways=both_ways, tile=8)
    mend(inputs, [0, 7])
    made(inputs, tmp_path / "fresh", both_ways=both_ways, tile=8)
    fresh = tartan.open(tmp_path / "fresh")
    truth, killed, lives = fresh.matrix(), True, 0
    while killed:
        path = tmp_path / f"run{lives}"
        shutil.copytree(tmp_path / "broken", path)
        killed = heal_until_killed(path, lives, after=after)
        check_reader(path, truth)
        run = tartan.open(path)
        if way != "retry again":
            # Before the decision is made nothing is to be done; after it everything is.
            tartan.resume(path, app=Sums(both_ways=both_ways), workers=1)
            check_reader(path, truth)
            if not run.finished or not killed:
                np.testing.assert_array_equal(tartan.open(path).matrix(), truth)
        run = healed(path)
        assert run.finished
        np.testing.assert_array_equal(run.matrix(), truth)
        assert [failure.i for failure in run.failures] == [3]
        assert not (path / "healing.json").exists()
        lives += 1
    assert lives > 12


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["top-k", pytest.param("threshold", marks=pytest.mark.exhaustive)])
def test_a_reduced_run_killed_at_every_step(inputs: Path, tmp_path: Path, way: str) -> None:
    made(inputs, tmp_path / "broken", tile=8, **WAYS[way])
    mend(inputs)
    truth = content(made(inputs, tmp_path / "fresh", tile=8, **WAYS[way]))
    killed, lives = True, 0
    while killed:
        path = tmp_path / f"run{lives}"
        shutil.copytree(tmp_path / "broken", path)
        killed = heal_until_killed(path, lives, after=bool(lives % 2))
        if not tartan.open(path).finished:
            tartan.resume(path, app=Sums(), workers=1)
            assert content(tartan.open(path)) == truth
        run = healed(path)
        assert (run.finished, content(run), run.failures) == (True, truth, [])
        lives += 1
    assert lives > 12


def test_a_file_that_changes_between_a_kill_and_the_resume_is_refused(inputs: Path, tmp_path: Path) -> None:
    """Scores of two versions of a mended file never meet."""
    made(inputs, tmp_path / "run")
    mend(inputs)
    assert heal_until_killed(tmp_path / "run", 14, after=False)
    assert not tartan.open(tmp_path / "run").finished
    (inputs / "07.txt").write_text("777")
    for retry in (False, True):
        with pytest.raises(StoreError, match=r"07\.txt"):
            tartan.resume(tmp_path / "run", app=Sums(), retry_failed=retry, workers=1)
    mend(inputs, [7])


def test_two_processes_do_not_heal_at_once(inputs: Path, tmp_path: Path) -> None:
    made(inputs, tmp_path / "run")
    mend(inputs)
    state = _state(tmp_path / "run")
    with FolderLock(tmp_path / "run"), pytest.raises(StoreError, match="is in use by process") as caught:
        healed(tmp_path / "run")
    assert caught.value.code == "locked"
    assert _state(tmp_path / "run") == state


def decision(**body: Any) -> str:
    """Return a decision with a checksum that fits, as anyone can write it."""
    text = json.dumps({"failures": [], "anew": [], "fingerprints": {}} | body)
    return json.dumps({"body": text, "checksum": hashlib.sha256(text.encode()).hexdigest()[:16]})


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", '{"body": "{}", "checksum": "0"}', decision(fingerprints={"13": {}}), decision(anew=[-1]),
        decision(failures=[{"i": 1}]), decision(fingerprints={"x": {}}), decision(fingerprints=[1]),
        decision(anew=None),
    ],
)  # fmt: skip
def test_a_damaged_decision_is_named(inputs: Path, tmp_path: Path, text: str) -> None:
    made(inputs, tmp_path / "run")
    (tmp_path / "run/healing.json").write_text(text)
    assert not tartan.open(tmp_path / "run").finished
    with pytest.raises(CorruptResultError, match=r"healing\.json cannot be read .* remove it"):
        tartan.resume(tmp_path / "run", app=Sums())
    (tmp_path / "run/healing.json").unlink()
    mend(inputs)
    assert healed(tmp_path / "run").failures == []


def test_codes_and_failures_agree_when_an_item_stays_failed(inputs: Path, tmp_path: Path) -> None:
    made(inputs, tmp_path / "run")
    mend(inputs, [0])
    run = healed(tmp_path / "run")
    status = np.asarray(run.status[:])
    for i in range(N):
        for j in range(i + 1, N):
            assert status[i, j] == (FAILED_ITEM if {i, j} & {3, 7} else DONE)
    assert {failure.i for failure in read_failures(tmp_path / "run")} == {3, 7}
    assert json.loads((tmp_path / "run/stats.json").read_text())["executions"] == 2
