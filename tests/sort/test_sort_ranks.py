"""A sort on several ranks gives the bytes of a sort on one, in balance, whatever the keys are and whoever is lost."""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks_crew import RankKilled, ThreadWays, sort_ranked

from tartan.cluster.launch import ClusterTarget
from tartan.errors import ClusterError, ConfigError, DiskFullError, InputChangedError, TartanError
from tartan.sort import sort_file
from tartan.sort.ranks import keeping, memory
from tartan.sort.ranks.disks import network_of
from tartan.sort.ranks.launch import LOCAL_PATIENCE_SECONDS

N = 240_000
rng = np.random.default_rng(3)
KEYS: dict[str, Callable[[], np.ndarray]] = {
    "uniform": lambda: rng.integers(-(2**63), 2**63 - 1, N),
    "equal": lambda: np.full(N, 7),
    "two": lambda: rng.integers(0, 2, N),
    "zipf": lambda: rng.zipf(1.2, N),
    "sorted": lambda: np.arange(N) * 5,
    "reversed": lambda: np.arange(N)[::-1] * 5,
    "stamps": lambda: 10**18 + np.cumsum(rng.exponential(1e6, N)).astype(np.int64) + rng.integers(0, 10**9, N),
}


def ways_in(folder: Path, **changes: Any) -> ThreadWays:
    return replace(ThreadWays(ClusterTarget(n_local=4), folders=(str(folder),)), **changes)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the output so finely that every rank merges several parts, and ask for little at a time."""
    monkeypatch.setattr(memory, "MOST_RANGE_BYTES", 1 << 17)
    monkeypatch.setattr(keeping, "ANSWER_BYTES", 1 << 16)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.bin"
    np.random.default_rng(9).integers(-(2**63), 2**63 - 1, N).tofile(path)
    return path


def expected(path: Path, dtype: str = "<i8") -> bytes:
    return np.sort(np.fromfile(path, dtype), kind="stable").tobytes()


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"in.bin", "out.bin"}


@pytest.mark.parametrize("name", list(KEYS))
def test_all_distributions_are_sorted_in_balance(tmp_path: Path, name: str) -> None:
    source = tmp_path / "in.bin"
    # The low half says where a record was, so that its place shows whether equal keys kept their order.
    records = np.zeros(N, [("key", "<i8"), ("place", "<u4")])
    records["key"], records["place"] = KEYS[name](), np.arange(N)
    records.tofile(source)
    result = sort_ranked([source], tmp_path / "out.bin", dtype="key:i8,place:u4", key="key")
    wanted = records[np.argsort(records["key"], kind="stable")]
    assert (tmp_path / "out.bin").read_bytes() == wanted.tobytes()
    assert result.ranks is not None
    assert result.ranks["largest_share"] <= 1.1
    assert sum(result.ranks["shares"].values()) == N
    assert left_in(tmp_path) == set()


@pytest.mark.parametrize("name", list(KEYS))
@pytest.mark.usefixtures("small_parts")
def test_lone_numbers_are_sorted_in_balance(tmp_path: Path, name: str) -> None:
    source = tmp_path / "in.bin"
    KEYS[name]().astype("<i8").tofile(source)
    result = sort_ranked([source], tmp_path / "out.bin", dtype="int64")
    assert (tmp_path / "out.bin").read_bytes() == expected(source)
    assert result.ranks is not None
    assert result.ranks["largest_share"] <= 1.1
    if name != "uniform":  # of which three quarters would cross links unpacked
        assert result.ranks["link_bytes"] <= 0.5 * 0.75 * 8 * N


def test_keys_that_repeat_are_packed_to_little_more_than_their_gaps(tmp_path: Path) -> None:
    """Zipf's distribution over values scattered across 64 bits, as ``tartan bench sort_ranks`` has it."""
    n, source = 120_000, tmp_path / "in.bin"
    ranks = np.exp(np.random.default_rng(2).random(n) * math.log(2**40)).astype(np.uint64)
    values = (ranks * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    values.tofile(source)
    result = sort_ranked([source], tmp_path / "out.bin", dtype="int64", ways=ways_in(tmp_path, names=("a",)))
    assert (tmp_path / "out.bin").read_bytes() == expected(source)
    chunks = np.array_split(values, int(result.run_files))
    least = sum(len(np.unique(chunk)) * (64 - math.log2(len(np.unique(chunk))) + 1.44) for chunk in chunks) / n
    assert result.bits_per_value is not None
    assert least < result.bits_per_value < least + 3.5  # all differences of a block alike wide take 14 more


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 7])
def test_the_number_of_ranks_does_not_matter(source: Path, n_ranks: int) -> None:
    target = source.with_name("out.bin")
    sort_ranked([source], target, dtype="int64", ways=ways_in(source.parent, names=tuple("abcdefg"[:n_ranks])))
    assert target.read_bytes() == expected(source)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 13])
def test_more_ranks_than_records(tmp_path: Path, n: int) -> None:
    source, target = tmp_path / "in.bin", tmp_path / "out.bin"
    np.arange(n)[::-1].astype("<i8").tofile(source)
    sort_ranked([source], target, dtype="int64")
    assert np.fromfile(target, "<i8").tolist() == list(range(n))


def test_several_files_and_npy(tmp_path: Path) -> None:
    values = np.random.default_rng(4).random(N).astype(">f4")
    cuts = [0, 7, 7, 30_000, N]
    sources = []
    for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
        sources.append(tmp_path / f"in{number}.npy")
        np.save(sources[-1], values[begin:end])
    sort_ranked(sources, tmp_path / "out.npy", descending=True)
    one = sort_file(sources, tmp_path / "one.npy", descending=True, memory="1GB")
    assert one.n_records == N
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()
    assert np.array_equal(np.load(tmp_path / "out.npy"), np.sort(values)[::-1])


def test_keys_that_differ_only_after_four_kilobytes(tmp_path: Path) -> None:
    """Samples, splitters and their messages hold whole keys."""
    source, n = tmp_path / "in.bin", 900
    rows = np.full((n, 5000), ord("x"), np.uint8)
    rows[:, 4100:4102] = np.random.default_rng(5).integers(0, 256, (n, 2))
    rows.tofile(source)
    result = sort_ranked([source], tmp_path / "out.bin", dtype="record:5000")
    wanted = rows[np.lexsort((rows[:, 4101], rows[:, 4100]))]
    assert (tmp_path / "out.bin").read_bytes() == wanted.tobytes()
    assert result.ranks is not None
    assert result.ranks["largest_share"] <= 1.1


# -- losses ----------------------------------------------------------------------------------------------------------


class Killing:
    """Kills ranks when they have posted a message of one name so many times."""

    def __init__(self, victims: set[str], do: str, after: int) -> None:
        self._victims, self._do, self._after = victims, do, after
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.dead: set[str] = set()

    def __call__(self, sender: str, do: str) -> None:
        with self._lock:
            if sender in self._victims and do == self._do:
                self._seen[sender] += 1
                if self._seen[sender] > self._after:
                    self.dead.add(sender)
            if sender in self.dead:
                raise RankKilled(sender)


@pytest.mark.slow
@pytest.mark.parametrize("victims", [{"b"}, {"a", "d"}], ids=["one", "two"])
@pytest.mark.parametrize(
    ("do", "after"),
    [("hello", 0), ("held", 0), ("sorted", 1), ("sampled", 0), ("cut", 1), ("merged", 0), ("merged", 2)],
)
@pytest.mark.usefixtures("small_parts")
def test_what_a_lost_rank_had_is_done_by_others(source: Path, victims: set[str], do: str, after: int) -> None:
    target, killing = source.with_name("out.bin"), Killing(victims, do, after)
    ways = ways_in(source.parent, posted=killing)
    result = sort_ranked([source], target, dtype="int64", ways=ways)
    assert killing.dead == victims
    assert target.read_bytes() == expected(source)
    assert result.ranks is not None
    assert len(result.ranks["lost"]) == len(victims)
    assert left_in(source.parent) == set()
    if do in ("cut", "merged"):  # a lost rank costs its own runs, and no other
        assert result.run_files <= 12 + 3 * len(victims)


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_without_ranks_the_sort_ends_and_resumes(source: Path) -> None:
    target = source.with_name("out.bin")
    killing = Killing(set("abcd"), "merged", 0)
    with pytest.raises(ClusterError, match="no rank"):
        sort_ranked([source], target, dtype="int64", ways=ways_in(source.parent, posted=killing))
    assert not target.exists()
    result = sort_ranked([source], target, dtype="int64")
    assert (result.run_files_adopted, result.run_files) == (12, 0)
    assert target.read_bytes() == expected(source)
    assert left_in(source.parent) == set()


class Deserted(ThreadWays):
    patience_seconds = 0.0


def test_that_no_rank_has_come_is_said(source: Path) -> None:
    ways = Deserted(ClusterTarget(n_local=4), folders=(str(source.parent),), names=())
    with pytest.raises(ClusterError, match=r"^no rank has come within 0 s; run the same command again"):
        sort_ranked([source], source.with_name("out.bin"), dtype="int64", ways=ways)
    assert ThreadWays(ClusterTarget(n_local=4)).patience_seconds == LOCAL_PATIENCE_SECONDS
    assert ThreadWays(ClusterTarget(address="tls://a:1")).patience_seconds < LOCAL_PATIENCE_SECONDS


@pytest.mark.parametrize("n_ranks", [1, 3, 5])
def test_another_number_of_ranks_resumes(source: Path, n_ranks: int) -> None:
    target = source.with_name("out.bin")
    with pytest.raises(ClusterError):
        sort_ranked([source], target, dtype="int64", ways=ways_in(source.parent, posted=Killing(set("abcd"), "cut", 0)))
    ways = ways_in(source.parent, names=tuple("vwxyz"[:n_ranks]))
    result = sort_ranked([source], target, dtype="int64", ways=ways)
    assert (result.run_files_adopted, result.run_files) == (12, 0)
    assert target.read_bytes() == expected(source)
    assert left_in(source.parent) == set()


def test_fresh_uses_nothing_from_before(source: Path) -> None:
    target = source.with_name("out.bin")
    with pytest.raises(ClusterError):
        sort_ranked([source], target, dtype="int64", ways=ways_in(source.parent, posted=Killing(set("abcd"), "cut", 0)))
    result = sort_ranked([source], target, dtype="int64", resume=False)
    assert (result.run_files_adopted, result.run_files) == (0, 12)
    assert target.read_bytes() == expected(source)
    assert left_in(source.parent) == set()


def test_run_files_of_another_source_are_not_used(source: Path) -> None:
    target = source.with_name("out.bin")
    with pytest.raises(TartanError):
        sort_ranked([source], target, dtype="int64", ways=ways_in(source.parent, posted=Killing(set("abcd"), "cut", 0)))
    np.arange(N)[::-1].tofile(source)
    result = sort_ranked([source], target, dtype="int64")
    assert result.run_files_adopted == 0
    assert len(result.notes) >= 12
    assert target.read_bytes() == expected(source)


@pytest.mark.usefixtures("small_parts")
def test_a_damaged_run_file_is_sorted_again(source: Path) -> None:
    target, lock = source.with_name("out.bin"), threading.Lock()
    damaged: list[Path] = []

    def damage(sender: str, do: str) -> None:
        with lock:
            if do == "cut" and not damaged:
                damaged.append(min(source.parent.glob("*-rank-*/run-*.trun")))
                with damaged[0].open("r+b") as file:
                    file.seek(4096 + 100)
                    byte = file.read(1)
                    os.pwrite(file.fileno(), bytes([byte[0] ^ 255]), 4096 + 100)

    result = sort_ranked([source], target, dtype="int64", ways=ways_in(source.parent, posted=damage))
    assert damaged
    assert target.read_bytes() == expected(source)
    assert any("damaged" in note for note in result.notes)
    assert result.run_files == 13


def test_a_source_that_changes_meanwhile_is_refused(source: Path) -> None:
    def change(sender: str, do: str) -> None:
        if do == "sorted":
            os.utime(source, ns=(1, 1))

    with pytest.raises(InputChangedError, match=r"in\.bin was changed"):
        sort_ranked([source], source.with_name("out.bin"), dtype="int64", ways=ways_in(source.parent, posted=change))
    assert not source.with_name("out.bin").exists()
    assert not list(source.parent.glob(".*"))


# -- what ranks see --------------------------------------------------------------------------------------------------


def nowhere(text: str) -> Path:
    return Path("/nowhere") / Path(text).name if text.endswith("in.bin") else Path(text)


def walled(text: str) -> Path:
    return Path("/nowhere") / Path(text).name if text.endswith("tartan-part") else Path(text)


def test_a_rank_that_does_not_see_the_source_merges(source: Path) -> None:
    target = source.with_name("out.bin")
    result = sort_ranked([source], target, dtype="int64", ways=ways_in(source.parent, locate={"b": nowhere}))
    assert target.read_bytes() == expected(source)
    assert any("rank b does not see the sources" in note and "/nowhere/in.bin" in note for note in result.notes)
    assert result.ranks is not None
    assert set(result.ranks["shares"]) == set("abcd")


def test_a_rank_that_does_not_see_the_destination_sorts(source: Path) -> None:
    target = source.with_name("out.bin")
    result = sort_ranked([source], target, dtype="int64", ways=ways_in(source.parent, locate={"c": walled}))
    assert target.read_bytes() == expected(source)
    assert result.ranks is not None
    assert set(result.ranks["shares"]) == set("abd")


@pytest.mark.parametrize(("locate", "what"), [(nowhere, "sources"), (walled, "destination")])
def test_what_no_rank_sees_is_refused(source: Path, locate: Callable[[str], Path], what: str) -> None:
    ways = ways_in(source.parent, locate=dict.fromkeys("abcd", locate))
    with pytest.raises(ConfigError, match=rf"no rank sees the {what} \(/nowhere/"):
        sort_ranked([source], source.with_name("out.bin"), dtype="int64", ways=ways)
    assert left_in(source.parent) == set()


def test_ranks_beside_the_data_sort_and_the_others_merge(source: Path) -> None:
    target = source.with_name("out.bin")
    locate = {"a": walled, "b": walled, "c": nowhere, "d": nowhere}
    ways = ways_in(source.parent, storage=frozenset("ab"), locate=locate)
    result = sort_ranked([source], target, dtype="int64", ways=ways)
    assert target.read_bytes() == expected(source)
    assert result.ranks is not None
    assert set(result.ranks["shares"]) == set("cd")
    assert result.ranks["plain_link_bytes"] == 8 * N  # all of it crosses once, packed


def test_a_rank_on_a_small_disk_gets_less(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = source.parent / "tiny-disk"
    small.mkdir()
    statvfs = os.statvfs

    def shrink(path: Any) -> Any:
        found = statvfs(path)
        if "tiny-disk" not in str(path):
            return found
        return os.statvfs_result([*found[:3], *[400_000 // found.f_frsize] * 2, *found[5:], 0][:11])

    monkeypatch.setattr(os, "statvfs", shrink)

    def on_small(text: str) -> Path:
        return small if Path(text) == source.parent else Path(text)

    ways = ways_in(source.parent, locate={"d": on_small})
    sort_ranked([source], source.with_name("out.bin"), dtype="int64", ways=ways)
    assert source.with_name("out.bin").read_bytes() == expected(source)
    with pytest.raises(DiskFullError, match="no room for the run files"):
        sort_ranked([source], source.with_name("o.bin"), dtype="int64", ways=ways_in(small, names=("a",)))


@pytest.mark.parametrize(("mount", "found"), [("/", ""), ("/scratch", "nfs4"), ("/scratch/own", "")])
def test_network_file_systems_are_known_by_their_mounts(tmp_path: Path, mount: str, found: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/vda / ext4 rw 0 0\nserver:/export /scratch nfs4 rw,vers=4.2 0 0\n/dev/nvme /scratch/own xfs rw 0 0\n"
    )
    assert network_of(Path(mount) / "tmp", mounts) == found
    assert network_of(tmp_path, tmp_path / "none") == ""


def test_run_files_on_a_network_are_told(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tartan.sort.ranks.rank.network_of", lambda folder: "nfs4")
    result = sort_ranked([source], source.with_name("out.bin"), dtype="int64")
    assert any("a network file system (nfs4)" in note and "--tmp" in note for note in result.notes)


# -- what ranks do not sort ------------------------------------------------------------------------------------------


def test_signs_of_zeros_are_refused(tmp_path: Path) -> None:
    records = np.zeros(4, [("x", "<f8"), ("y", "<i4")])
    records["x"][2] = -0.0
    np.save(tmp_path / "in.npy", records)
    with pytest.raises(ConfigError, match=r"-0\.0 in a key.*--total-order"):
        sort_file(tmp_path / "in.npy", tmp_path / "out.npy", key="x", on="local:2")


def test_too_little_memory_is_refused_with_what_a_rank_holds(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tartan.sort.ranks.rank.held_bytes", lambda: 124_000_000)
    with pytest.raises(ConfigError, match=r"holds .* before it begins.*--memory") as caught:
        sort_ranked([source], source.with_name("out.bin"), dtype="int64", memory="128MB")
    assert caught.value.code == "memory"
