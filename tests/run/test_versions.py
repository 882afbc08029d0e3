"""Items removed from runs and renamed: what is read is what a run that never had them has."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tartan
from tartan.errors import ConfigError, StoreError

N = 23
GONE = (0, 3, 9, 10, 22)
KEPT = [item for item in range(N) if item not in GONE]
POINTS = np.random.default_rng(5).normal(size=(N, 4))
KEYS = [f"item{i:02}" for i in range(N)]
FAILS = 7


def difference(a: Any, b: Any) -> float:
    return float(np.abs(a - b).sum())


class Plain(tartan.Application):
    releases_gil = True
    outputs: ClassVar = {"scores": "float64"}

    def compare_pair(self, a: Any, b: Any) -> Any:
        if a[0] == POINTS[FAILS, 0] and b[0] > 1:
            raise ValueError("it does not like that one")
        return float(np.abs(a - b).sum())


class OneWay(tartan.Application):
    releases_gil = True
    symmetric = False
    outputs: ClassVar = {"scores": "float64"}

    def compare_pair(self, a: Any, b: Any) -> Any:
        return float((a - 2 * b).sum())


class OneWayFiles(OneWay):
    item_suffixes = (".txt",)

    def parse(self, key: str, data: bytes) -> Any:
        return np.array([float(word) for word in data.split()])


class Itself(tartan.Application):
    releases_gil = True
    diagonal = True
    outputs: ClassVar = {"scores": "float64", "count": "int32"}

    def compare_pair(self, a: Any, b: Any) -> Any:
        return {"scores": float((a * b).sum()), "count": int(1000 * np.abs(a - b).sum())}


pytestmark = pytest.mark.slow
LIMIT = 4.0
LISTED = np.array([(i, j) for i in range(N) for j in range(i + 1, N) if (i * j + i) % 3 != 1])
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (Plain, {}),
    "one way": (OneWay, {}),
    "itself": (Itself, {}),
    "listed": (Plain, {"pairs": LISTED}),
    "threshold": (Plain, {"reduce": {"kind": "threshold", "threshold": LIMIT, "largest": False}}),
    "two sets": (OneWayFiles, {"against": 9}),
    "two sets, threshold": (
        OneWayFiles,
        {"against": 9, "reduce": {"kind": "threshold", "threshold": -1.0, "largest": False}},
    ),
    "two sets, best": (OneWayFiles, {"against": 9, "reduce": {"kind": "top-k", "k": 3, "largest": True}}),
    "one way, threshold": (OneWay, {"reduce": {"kind": "threshold", "threshold": -1.0, "largest": False}}),
}


def compute(kind: str, path: Path, items: list[int] | None = None) -> Any:
    """Compute a run of some items, under the names that they have among all."""
    app, options = KINDS[kind]
    items = list(range(N)) if items is None else items
    if "pairs" in options:
        place = {item: at for at, item in enumerate(items)}
        options = {"pairs": np.array([(place[i], place[j]) for i, j in LISTED.tolist() if {i, j} <= set(items)])}
    if "against" in options:
        return compute_sides(path, app, options, items)
    keys = [KEYS[item] for item in items]
    return tartan.allpairs(app(), POINTS[items], out=path, keys=keys, tile=8, workers=1, quiet=True, **options)


def compute_sides(path: Path, app: Any, options: dict[str, Any], items: list[int]) -> Any:
    """Compare the items before one with the others; files, because only these have names."""
    named: list[list[str]] = [[], []]
    for item in items:
        file = path.parent / "in" / f"{KEYS[item]}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(" ".join(map(str, POINTS[item].tolist())))
        named[item >= options["against"]].append(str(file))
    options = options | {"against": named[1]}
    return tartan.allpairs(app(), named[0], out=path, tile=8, workers=1, quiet=True, **options)


def rows_of(run: Any) -> list[tuple[Any, ...]]:
    table = run.pairs().read_all()
    return sorted(zip(*(column.to_pylist() for column in table.columns)), key=repr)


def answers(run: Any) -> dict[str, Any]:
    """Return what a run says, as far as it does not depend on its history."""
    said: dict[str, Any] = {
        "keys": list(run.keys),
        "counts": (run.n_items, run.n_pairs, run.n_pairs_done, run.n_pairs_failed, run.n_pairs_left, run.finished),
        "failures": [(f.i, f.j, f.stage, f.reason) for f in run.failures],
        "rows": rows_of(run),
        "shape": run.shape,
    }
    if run.manifest.reduce is None:
        for output in run.outputs:
            said[f"matrix {output}"] = run.matrix(output).tolist()
            view = run.view(output)
            said[f"bands {output}"] = [band.tolist() for _, band in view.bands(budget_bytes=500)]
            said[f"neighbors {output}"] = [part.tolist() for part in run.neighbors(3, output=output)]
        if run.manifest.symmetric:
            said["condensed"] = run.condensed().tolist()
        said["sorted"] = run.pairs_sorted(memory="2GB").read_all().to_pylist()
    return said


def refuse_differences(found: Any, expected: Any) -> None:
    a, b = answers(found), answers(expected)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_equal(a[name], b[name], err_msg=name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_removed_items_are_in_no_answer(kind: str, tmp_path: Path) -> None:
    before = compute(kind, tmp_path / "run.tartan")
    said = answers(before)
    expected = compute(kind, tmp_path / "other.tartan", KEPT)
    assert kind not in ("plain", "listed") or expected.n_pairs_failed
    ending = ".txt" if kind.startswith("two") else ""
    run = tartan.remove(tmp_path / "run.tartan", [KEYS[item] + ending for item in GONE])
    if kind == "two sets, best":
        assert run.n_pairs_left > 0
        run = tartan.resume(tmp_path / "run.tartan", app=OneWayFiles(), workers=1, quiet=True)
    assert (run.version, [version.change for version in run.versions]) == (2, ["run", "remove"])
    refuse_differences(run, expected)
    refuse_differences(tartan.open(tmp_path / "run.tartan"), expected)
    np.testing.assert_equal(answers(tartan.open(tmp_path / "run.tartan", 1)), said)
    np.testing.assert_equal(answers(before), said)  # a reader that had opened it before


def test_one_item_after_the_other_is_all_at_once(tmp_path: Path) -> None:
    compute("plain", tmp_path / "run.tartan")
    for item in GONE:
        run = tartan.remove(tmp_path / "run.tartan", [KEYS[item]])
    assert run.version == 1 + len(GONE)
    refuse_differences(run, compute("plain", tmp_path / "other.tartan", KEPT))
    for number in range(1, 2 + len(GONE)):
        there = [KEYS[item] for item in range(N) if item not in GONE[: number - 1]]
        assert list(tartan.open(tmp_path / "run.tartan", number).keys) == there


def test_a_name_changes_and_nothing_else(tmp_path: Path) -> None:
    before = compute("threshold", tmp_path / "run.tartan")
    rows = [row[:2] + row[4:] for row in rows_of(before)]
    run = tartan.rename(tmp_path / "run.tartan", KEYS[4], "other name")
    assert list(run.keys) == [*KEYS[:4], "other name", *KEYS[5:]]
    assert [row[:2] + row[4:] for row in rows_of(run)] == rows
    assert list(tartan.open(tmp_path / "run.tartan", 1).keys) == KEYS
    import pyarrow.parquet as pq

    merged = pq.read_table(tmp_path / "run.tartan" / "result.parquet")
    named = set(merged["key_i"].to_pylist()) | set(merged["key_j"].to_pylist())
    assert "other name" in named
    assert KEYS[4] not in named


def test_a_name_is_free_again_after_its_item_was_removed(tmp_path: Path) -> None:
    compute("plain", tmp_path / "run.tartan")
    with pytest.raises(ConfigError, match="has an item 'item05' already"):
        tartan.rename(tmp_path / "run.tartan", KEYS[4], KEYS[5])
    tartan.remove(tmp_path / "run.tartan", [KEYS[5]])
    assert tartan.rename(tmp_path / "run.tartan", KEYS[4], KEYS[5]).keys[4] == KEYS[5]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["item99"], "no item item99 among 23"),
        ([], "a list of names"),
        ("item01", "a list of names"),
        (KEYS, "no items"),
    ],
)
def test_what_cannot_be_removed_is_refused(keys: Any, said: str, tmp_path: Path) -> None:
    compute("plain", tmp_path / "run.tartan")
    with pytest.raises(ConfigError, match=said):
        tartan.remove(tmp_path / "run.tartan", keys)
    assert tartan.open(tmp_path / "run.tartan").version == 1
    assert not (tmp_path / "run.tartan" / "versions.jsonl").exists()


def test_names_of_a_top_k_run_change(tmp_path: Path) -> None:
    top = {"kind": "top-k", "k": 2, "largest": False}
    tartan.allpairs(Plain(), POINTS, out=tmp_path / "top.tartan", keys=KEYS, reduce=top, workers=1, quiet=True)
    assert tartan.rename(tmp_path / "top.tartan", KEYS[1], "new").keys[1] == "new"
    nearest = tartan.open(tmp_path / "top.tartan").neighbors(2)
    np.testing.assert_equal(nearest, tartan.open(tmp_path / "top.tartan", 1).neighbors(2))


def test_names_of_two_sets(tmp_path: Path) -> None:
    path = tmp_path / "sides.tartan"
    matrix = tartan.allpairs(OneWay(), POINTS[:5], against=POINTS[5:], out=path, workers=1, quiet=True).matrix()
    with pytest.raises(ConfigError, match=r"two items are called '1'.*A:1 .*B:1"):
        tartan.remove(path, ["1"])
    run = tartan.remove(path, ["A:1", "B:0", "17"])
    np.testing.assert_equal(run.matrix(), np.delete(np.delete(matrix, 1, axis=0), [0, 17], axis=1))
    run = tartan.rename(path, "A:0", "2000")
    assert run.keys[:2] == ["2000", "2"]
    assert tartan.rename(path, "2000", "5").keys[0] == "5"  # the other set has a 5
    with pytest.raises(ConfigError, match="has an item '3' already"):
        tartan.rename(path, "A:2", "3")
    with pytest.raises(ConfigError, match="one of them would have no items"):
        tartan.remove(path, [f"A:{key}" for key in ("5", "2", "3", "4")])
    with pytest.raises(ConfigError, match="compares rectangle"):
        tartan.replace(path, "17", "x", app=OneWay())
    np.testing.assert_equal(tartan.open(path, 1).matrix(), matrix)
    assert tartan.expire(path, now=True) >= 0
    assert tartan.open(path).shape == (4, 16)


def test_versions_that_are_not_there_are_named(tmp_path: Path) -> None:
    compute("plain", tmp_path / "run.tartan")
    assert tartan.open(tmp_path / "run.tartan", 1).version == 1
    with pytest.raises(ConfigError, match="no version 2; the run has versions 1 to 1"):
        tartan.open(tmp_path / "run.tartan", 2)
    with pytest.raises(ConfigError, match="no version 0"):
        tartan.open(tmp_path / "run.tartan", 0)


def test_an_addition_is_a_version(tmp_path: Path) -> None:
    path = tmp_path / "run.tartan"
    first = tartan.allpairs(difference, list(POINTS[:9]), out=path, keys=KEYS[:9], tile=8, workers=1, quiet=True)
    matrix = first.matrix()
    given = {"app": difference, "previous": list(POINTS[:9])}
    run = tartan.add(path, list(POINTS[9:]), keys=KEYS[9:], workers=1, quiet=True, **given)
    assert [(v.number, v.change, len(v.slots)) for v in run.versions] == [(1, "run", 9), (2, "add", N)]
    np.testing.assert_equal(tartan.open(path, 1).matrix(), matrix)
    assert tartan.open(path, 1).finished
    assert not (path / "versions.jsonl").exists()


def test_two_writers_exclude_each_other(tmp_path: Path) -> None:
    from tartan.base.lock import FolderLock

    compute("plain", tmp_path / "run.tartan")
    with FolderLock(tmp_path / "run.tartan"), pytest.raises(StoreError) as caught:
        tartan.remove(tmp_path / "run.tartan", [KEYS[1]])
    assert caught.value.code == "locked"


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    compute("plain", tmp_path / "run.tartan")
    tartan.remove(tmp_path / "run.tartan", [KEYS[1]])
    log = tmp_path / "run.tartan" / "versions.jsonl"
    whole = log.read_bytes()
    for at in range(0, len(whole) - 1, 7):
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StoreError, match=r"versions\.jsonl"):
            tartan.open(tmp_path / "run.tartan")
    for text in (b"", b"\n", whole[:-9], whole + whole, whole[: whole.index(b"\n") + 1]):
        log.write_bytes(text)
        with pytest.raises(StoreError, match=r"versions\.jsonl"):
            tartan.open(tmp_path / "run.tartan")


def test_a_version_is_sent_to_other_processes_as_itself(tmp_path: Path) -> None:
    import pickle

    compute("plain", tmp_path / "run.tartan")
    tartan.remove(tmp_path / "run.tartan", [KEYS[1]])
    old = tartan.open(tmp_path / "run.tartan", 1)
    again = pickle.loads(pickle.dumps(old.folder))
    assert (again.version.number, again.manifest.n_items) == (1, N)
