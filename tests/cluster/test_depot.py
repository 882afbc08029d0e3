"""The depot of the driver: what it serves, whom it refuses, and what becomes of a disk that is full."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tartan.base.files import FileWriter
from tartan.cluster.depot import BorrowedFiles, Depot, DepotLink
from tartan.cluster.engine import Credentials
from tartan.core.pairs.ledger import DONE
from tartan.errors import DiskFullError, ItemError, StoreError, TartanError, TransportError
from tartan.sources.files import FileSource
from tartan.sources.items import open_source
from tartan.store.folder import RunFolder
from tartan.store.manifest import Manifest
from tartan.store.remote import RemoteFolder

CREDENTIALS = Credentials(b"t" * 32)
HOST = "127.0.0.1"


class World:
    """A run folder of the driver, its depot, and links of ranks to that."""

    def __init__(self, path: Path, stack: contextlib.ExitStack) -> None:
        self.path, self.stack = path, stack
        self.lines: list[str] = []
        self.errors: list[TartanError] = []
        self.disk_is_full = False
        application = {"name": "t", "source": "t", "source_hash": "1", "parameters": {}, "symmetric": True}
        application |= {"outputs": {"scores": "float64"}, "diagonal": False}
        manifest = Manifest(
            application,
            {"kind": "all"},
            8,
            dict.fromkeys(("chunk", "panel", "strip", "span"), 4),
            inputs={"kind": "array"},
        )
        RunFolder.create(path / "run", manifest)
        self.folder = RunFolder.open(path / "run", writable=True, writer=FileWriter(path / "run", write=self._write))
        stack.enter_context(self.folder.join("group"))
        self.source = open_source(str(self._files()))
        self.source.fingerprints()
        self.depot = Depot(
            self.folder, self.source, CREDENTIALS, HOST,
            members=lambda: ["driver", "rank-0"], failed=self.errors.append, log=self.lines.append,
        )  # fmt: skip
        stack.callback(self.depot.close)

    def _write(self, descriptor: int, buffers: list[bytes]) -> int:
        if self.disk_is_full:
            raise OSError(errno.ENOSPC, "no space left")
        return os.writev(descriptor, buffers)

    def _files(self) -> Path:
        folder = self.path / "items"
        folder.mkdir()
        for number in range(8):
            (folder / f"{number}.txt").write_text(f"item {number}")
        return folder

    def link(self, member: str = "rank-0", credentials: Credentials = CREDENTIALS) -> DepotLink:
        link = DepotLink(self.depot.address, member, credentials, HOST, self.lines.append)
        self.stack.callback(link.close)
        return link

    def remote(self, link: DepotLink) -> RemoteFolder:
        own = self.path / "own"
        own.mkdir()
        folder = RemoteFolder.unpack(own, link.folder(), link)
        self.stack.enter_context(folder.join("group"))
        return folder


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        yield World(tmp_path, stack)


def commit(folder: RunFolder, value: float) -> bool:
    return folder.commit(0, 1, {"scores": np.full((4, 4), value)}, np.full((4, 4), DONE, np.uint8))


def test_a_chunk_is_committed_where_the_folder_is(world: World) -> None:
    remote = world.remote(world.link())
    assert commit(remote, 7.0)
    np.testing.assert_array_equal(world.folder.read_chunk("scores", 0, 1), np.full((4, 4), 7.0))
    assert not list((world.path / "own").rglob("c/*"))
    remote.write_stats({"loads": 3})
    assert world.folder.writers_stats() == {"rank-0": {"loads": 3}}
    assert world.lines == [f"rank rank-0 does not see {world.path / 'run'}; its chunks are committed here"]


def test_of_two_versions_of_a_chunk_one_counts(world: World) -> None:
    remote = world.remote(world.link())
    assert commit(world.folder, 1.0)
    assert not commit(remote, 2.0)
    assert not commit(remote, 3.0)
    np.testing.assert_array_equal(world.folder.read_chunk("scores", 0, 1), np.full((4, 4), 1.0))


def test_a_full_disk_stops_the_run(world: World) -> None:
    remote = world.remote(world.link())
    world.disk_is_full = True
    with pytest.raises(TransportError, match="no space left"):
        commit(remote, 7.0)
    assert [type(error) for error in world.errors] == [DiskFullError]
    assert world.folder.chunk_status(0, 1) is None


def test_who_is_no_member_commits_nothing(world: World) -> None:
    with pytest.raises(TransportError, match="rank-9 is not a member of the run"):
        world.link("rank-9").folder()
    with pytest.raises(TransportError, match="does not accept the token of this run"):
        world.link(credentials=Credentials(b"another")).folder()
    late = world.link("rank-1")
    with pytest.raises(TransportError, match="not a member"):
        late.folder()
    remote = world.remote(world.link())
    encoded = remote.encode(0, 1, {"scores": np.ones((4, 4))}, np.full((4, 4), DONE, np.uint8))
    with pytest.raises(TransportError, match="not a member"):
        late.commit(encoded)
    assert world.folder.chunk_status(0, 1) is None


def test_an_excerpt_that_names_a_file_elsewhere_is_refused(world: World) -> None:
    for name in ("../manifest.json", "/etc/passwd", "a/../../b", ""):
        with pytest.raises(StoreError, match="is not in it"):
            RemoteFolder.unpack(world.path / "own", {name: b""}, world.link())


def test_files_that_are_absent_or_changed_here_are_read_by_the_driver(world: World) -> None:
    there = FileSource.__new__(FileSource)
    there.__dict__.update(world.source.__dict__)
    kept = {index: world.source.read(index) for index in (2, 3)}
    (world.path / "items" / "2.txt").unlink()
    (world.path / "items" / "3.txt").write_text("other 33")
    reasons: list[str] = []
    borrowed = BorrowedFiles(there, lambda index, reason: (reasons.append(reason), kept[index])[1])
    assert [borrowed.read(index) for index in (1, 2, 3)] == [b"item 1", b"item 2", b"item 3"]
    assert borrowed.n_borrowed == 2
    assert reasons[0].startswith(f"cannot read {world.path}/items/2.txt: ")
    assert "changed" in reasons[1]
    (world.path / "items").rename(world.path / "elsewhere")
    assert borrowed.read(2) == b"item 2"
    assert reasons[2] == f"does not see the folder {world.path}/items of the input"
    (world.path / "elsewhere").rename(world.path / "items")
    nowhere = BorrowedFiles(there, world.link().item)
    for index, reason in ((2, "No such file"), (3, "changed")):
        with pytest.raises(ItemError, match=reason):
            nowhere.read(index)
