"""A job around an engine that fails on command: what is said, what is kept, what is put in place."""

from __future__ import annotations

import errno
import functools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_sort_engine import FakeSortJob, failure

from tartan.base.lock import FolderLock
from tartan.errors import (
    ConfigError,
    CorruptRunFileError,
    DiskFullError,
    InputChangedError,
    InternalError,
    ResourceError,
    RunCancelledError,
    SortError,
    StoreError,
)
from tartan.sort import engine as engine_room
from tartan.sort import job, sort_file, work
from tartan.sort.job import DAMAGED_RUN_FILES
from tartan.sort.space import Disk

Script = Callable[[FakeSortJob, str], None]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[FakeSortJob]:
    class Engine(FakeSortJob):
        made: ClassVar[list[FakeSortJob]] = []
        script = staticmethod(lambda engine, phase: None)

    monkeypatch.setattr(engine_room, "SortJob", Engine)
    return Engine


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.npy"
    np.save(path, np.array([3, -1, 2, 7], np.int64))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out.npy"


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class TestSuccess:
    def test_result_is_in_place_and_nothing_is_left(self, engine: Any, source: Path, target: Path) -> None:
        result = sort_file(source, target, memory="8GB", threads=3, pack="never", direct="never")
        assert np.load(target).tolist() == [-1, 2, 3, 7]
        assert left_in(target.parent) == {"in.npy", "out.npy"}
        (made,) = engine.made
        assert made.closed is False
        given = made.options
        assert (given["key"], given["record_bytes"]) == ([(0, "<i8", False)], 8)
        assert (given["threads"], given["pack"], given["direct"]) == (3, "never", "never")
        assert result.n_records == 4
        assert result.bits_per_value == 9.5
        assert result.direct == {"read": True, "runs": True, "write": False}
        assert result.edges["run_write"].bytes_per_second == 64

    def test_result_is_plain_values_for_json(self, engine: Any, source: Path, target: Path) -> None:
        about = json.loads(json.dumps(sort_file(source, target).to_dict()))
        assert about["edges"]["source_read"]["n_bytes"] == 32
        assert about["path"] == str(target)

    def test_in_place(self, engine: Any, source: Path) -> None:
        sort_file(source, in_place=True, descending=True)
        assert np.load(source).tolist() == [7, 3, 2, -1]
        assert left_in(source.parent) == {"in.npy"}

    def test_several_sources(self, engine: Any, source: Path, target: Path) -> None:
        np.save(source.with_name("in2.npy"), np.array([5, -9]))
        sort_file(f"{source.parent}/in*.npy", target)
        assert np.load(target).tolist() == [-9, -1, 2, 3, 5, 7]

    def test_folders_of_its_own_in_each_temporary_folder(self, engine: Any, source: Path, target: Path) -> None:
        parents = [source.parent / name for name in "abc"]
        for parent in parents[:2]:
            parent.mkdir()
        parents[2].symlink_to(parents[0])
        sort_file(source, target, tmp=parents)
        folders = engine.made[0].options["folders"]
        assert [Path(folder).parent.name for folder in folders] == ["a", "b"]
        assert all(Path(folder).name.startswith("out.npy.tartan-sort-") for folder in folders)
        assert left_in(parents[0]) == left_in(parents[1]) == set()


class TestFailures:
    @pytest.mark.parametrize(
        ("kind", "error", "said"),
        [
            (
                "no_space",
                DiskFullError,
                "no space left on the disk .*/there.*free some space or name more temporary folders",
            ),
            ("source_changed", InputChangedError, "was changed while it was read"),
            ("folder_lost", SortError, "a temporary folder is gone .*/there.*restore it"),
            ("read", SortError, "cannot read .*/there.*run the same command again"),
            ("write", SortError, "cannot write .*/there"),
            ("foreign_run", CorruptRunFileError, "damaged"),
            ("memory", ResourceError, "memory cannot be allocated"),
            ("key", ConfigError, "the key cannot be used"),
            ("direct_refused", SortError, "refuses direct I/O"),
            ("misuse", InternalError, "a defect of Tartan"),
        ],
    )
    @pytest.mark.parametrize("phase", ["sort", "write"])
    def test_of_the_engine_are_errors_with_a_way_out(
        self, engine: Any, source: Path, target: Path, kind: str, error: Any, said: str, phase: str
    ) -> None:
        def script(_: FakeSortJob, now: str) -> None:
            if now == phase:
                raise failure(kind, path="/there")

        engine.script = staticmethod(script)
        with pytest.raises(error, match=said) as caught:
            sort_file(source, target)
        assert caught.value.context["path"] == "/there"
        assert engine.made[0].closed is True  # run files are kept
        assert not target.exists()
        assert not any(name.endswith("part") for name in left_in(target.parent))

    def test_a_damaged_run_file_is_sorted_again(self, engine: Any, source: Path, target: Path) -> None:
        def script(made: FakeSortJob, phase: str) -> None:
            if phase == "write" and len(engine.made) < 3:
                run = Path(made.options["folders"][0]) / f"run-{len(engine.made)}.trun"
                run.write_bytes(b"damaged")
                raise failure("corrupt_run", path=str(run), offset=7)

        engine.script = staticmethod(script)
        result = sort_file(source, target)
        assert np.load(target).tolist() == [-1, 2, 3, 7]
        assert len(engine.made) == 3
        assert [note.partition("(")[0] for note in result.notes] == [
            f"run file {engine.made[0].options['folders'][0]}/run-{number}.trun is damaged " for number in (1, 2)
        ]

    def test_a_disk_that_damages_everything_is_given_up(self, engine: Any, source: Path, target: Path) -> None:
        def script(_: FakeSortJob, phase: str) -> None:
            raise failure("corrupt_run", path="/there")

        engine.script = staticmethod(script)
        with pytest.raises(CorruptRunFileError, match="check the disk"):
            sort_file(source, target)
        assert len(engine.made) == DAMAGED_RUN_FILES

    def test_a_source_that_changes_is_noticed_before_the_destination_is_written(
        self, engine: Any, source: Path, target: Path
    ) -> None:
        engine.script = staticmethod(lambda made, phase: os.utime(source, ns=(0, 7)))
        with pytest.raises(InputChangedError, match=r"in\.npy was changed"):
            sort_file(source, target)
        assert not target.exists()

    def test_two_jobs_on_one_destination_are_refused(self, engine: Any, source: Path, target: Path) -> None:
        def script(_: FakeSortJob, phase: str) -> None:
            engine.script = staticmethod(lambda made, phase: None)
            with pytest.raises(Exception, match=f"in use by process {os.getpid()}"):
                sort_file(source, target)

        engine.script = staticmethod(script)
        sort_file(source, target)
        assert len(engine.made) == 1


class TestStop:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_signals_stop_and_name_themselves(
        self, engine: Any, source: Path, target: Path, number: signal.Signals
    ) -> None:
        before = signal.getsignal(number)
        engine.script = staticmethod(lambda made, phase: os.kill(os.getpid(), number))
        expected = KeyboardInterrupt if number == signal.SIGINT else RunCancelledError
        with pytest.raises(expected, match="was stopped; run the same command again") as caught:
            sort_file(source, target)
        error = caught.value if isinstance(caught.value, RunCancelledError) else caught.value.__cause__
        assert isinstance(error, RunCancelledError)
        assert error.context == {"signal": number}
        assert signal.getsignal(number) == before
        assert engine.made[0].closed is True
        assert not target.exists()


class TestWrongUse:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"pack": "maybe"}, "pack: 'maybe' is unknown; choose from auto, always, never"),
            ({"direct": "no"}, "direct: 'no' is unknown"),
            ({"threads": 0}, "threads is 0; it must be a whole number, 1 or more"),
            ({"memory": "100MB"}, "memory of 100 MB is too little; 128 MB is the least"),
            ({"memory": "60items"}, "counts items"),
            ({"memory": "lots"}, "memory: 'lots' is not a size"),
            ({"tmp": "nowhere"}, "temporary folder nowhere does not exist; create it"),
            ({"tmp": []}, "there is no temporary folder; name one, or omit `tmp=`"),
            ({"key": "x"}, "no fields"),
            ({"dtype": "f8"}, "not the <f8 asked for"),
            ({"in_place": True}, "one source and no destination"),
        ],
    )
    def test_is_refused_before_anything_starts(
        self, engine: Any, source: Path, target: Path, options: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(ConfigError, match=said):
            sort_file(source, target, **options)
        assert engine.made == []
        assert left_in(target.parent) == {"in.npy"}

    def test_no_destination(self, engine: Any, source: Path) -> None:
        with pytest.raises(ConfigError, match="there is no destination"):
            sort_file(source)

    def test_records_that_are_too_wide(self, engine: Any, tmp_path: Path) -> None:
        (tmp_path / "wide").touch()
        with pytest.raises(ConfigError, match="70000 bytes are too wide; 65536 is the most"):
            sort_file(tmp_path / "wide", tmp_path / "out", dtype="record:70000")

    def test_memory_that_the_process_holds_already(
        self, engine: Any, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine_room, "held_bytes", lambda: 500 * 10**6)
        with pytest.raises(ConfigError, match=r"this process holds 500 MB already; give 5..MB, or sort in a process"):
            sort_file(source, target, memory="400MB")

    def test_too_little_temporary_space_is_said_before_the_start(
        self, engine: Any, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job, "disks_of", lambda folders: [Disk(1, 1000)])
        with pytest.raises(
            DiskFullError, match=r"only 0 B are free besides the 16.8 MB of each disk that stay free; free some"
        ):
            sort_file(source, target)
        assert engine.made == []
        assert left_in(target.parent) == {"in.npy"}


def test_without_kernel_locks_the_lease_is_renewed(
    engine: Any, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(work, "FolderLock", functools.partial(FolderLock, flock=refuse))
    monkeypatch.setattr(job, "RENEW_SECONDS", 0.0)
    ages: list[int] = []

    def script(made: FakeSortJob, phase: str) -> None:
        lease = Path(made.options["folders"][0]) / "run.lease"
        ages.append(lease.stat().st_mtime_ns)
        os.utime(lease, ns=(7, 7))

    engine.script = staticmethod(script)
    sort_file(source, target)
    assert len(ages) > 3
    assert all(age > 7 for age in ages[1:3])
    assert left_in(target.parent) == {"in.npy", "out.npy"}


def foreseen(target: Path, tmp: Path) -> Path:
    """Return the folder that a sort will use in a temporary one, as anyone can know it."""
    return job.WorkFolders([tmp], target, {}, print).paths[0]


@pytest.mark.parametrize("name", ["run.lock", "manifest.json", "run-0-1-0.trun", "run-0-1-0.trun.part", "anything"])
def test_no_link_in_a_work_folder_is_followed(
    engine: Any, source: Path, target: Path, tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "authorized_keys"
    victim.write_text("precious")
    folder = foreseen(target, tmp_path)
    folder.mkdir()
    (folder / name).symlink_to(victim)
    with pytest.raises(StoreError, match=f"{name} is a symbolic link") as caught:
        sort_file(source, target, tmp=tmp_path)
    assert (caught.value.code, victim.read_text(), target.exists()) == ("link", "precious", False)


def test_a_work_folder_is_of_this_user_alone(engine: Any, source: Path, target: Path, tmp_path: Path) -> None:
    folder, seen = foreseen(target, tmp_path), set[int]()
    folder.mkdir(mode=0o755)
    engine.script = staticmethod(lambda *_: seen.add(folder.stat().st_mode & 0o777))
    sort_file(source, target, tmp=tmp_path)
    assert seen == {0o700}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=r"--tmp .* is not a folder of this user alone"):
        sort_file(source, target, tmp=tmp_path, overwrite=True)
    folder.unlink()
    if os.geteuid() == 0:
        folder.mkdir(mode=0o777)
        os.chown(folder, 1002, 1002)
        with pytest.raises(ConfigError, match=r"--tmp .* is not a folder of this user alone"):
            sort_file(source, target, tmp=tmp_path, overwrite=True)


def test_only_files_of_the_job_are_removed(engine: Any, source: Path, target: Path, tmp_path: Path) -> None:
    folder = foreseen(target, tmp_path)
    folder.mkdir()
    names = {"thesis.part", "run-notes.trun", "run-1.trun"}
    for name in names:
        (folder / name).write_text("precious")
    sort_file(source, target, tmp=tmp_path)
    assert left_in(folder) == names


def test_a_link_at_the_name_of_the_unfinished_file_is_replaced(engine: Any, source: Path, target: Path) -> None:
    victim = target.with_name("victim")
    victim.write_text("precious")
    target.with_name(f".{target.name}.tartan-part").symlink_to(victim)
    sort_file(source, target)
    assert (victim.read_text(), np.load(target).tolist()) == ("precious", [-1, 2, 3, 7])
    assert not target.is_symlink()


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_a_link_at_the_name_of_an_unfinished_table_is_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / "in.csv").write_text("a,b\n2,x\n1,y\n")
    pq.write_table(pa.table({"a": [2, 1]}), tmp_path / "in.parquet")
    victim, target = tmp_path / "victim", tmp_path / name
    victim.write_text("precious")
    target.with_name(f".{name}.tartan-part").symlink_to(victim)
    sort_file(tmp_path / f"in.{name.split('.')[1]}", target, key="a")
    assert victim.read_text() == "precious"
    assert target.is_file()
    assert not target.is_symlink()


def test_a_foreign_lock_is_respected(engine: Any, source: Path, target: Path, tmp_path: Path) -> None:
    folder = job.WorkFolders([tmp_path], target, {}, print).paths[0]
    folder.mkdir()
    with FolderLock(folder), pytest.raises(Exception, match="in use by process"):
        sort_file(source, target)
