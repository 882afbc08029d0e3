"""Outputs of which the same command keeps and uses what is whole, however it ended before."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.confined import ConfinedFolder, make_private
from tartan.base.files import disk_errors
from tartan.base.json_input import parse_json
from tartan.base.lock import FILE_NAME as LOCK_NAME
from tartan.base.lock import LEASE_NAME, FolderLock
from tartan.base.logs import logger_of
from tartan.base.temporary import is_writers_name, temporary_names
from tartan.blocks.checkpoint import write_space
from tartan.blocks.spill import remove_abandoned
from tartan.blocks.zarr_output import ComputeAndWrite, WriteChunk, make_array, require_free, seal_of, zarr_task
from tartan.core.blocks.output_record import ABSENT, ChunkSeal, chunks_in, differences, format_line, is_due
from tartan.core.blocks.space import BlockGrid
from tartan.errors import DiskFullError, StoreError, TartanError

if TYPE_CHECKING:
    from tartan.blocks.session import Session
    from tartan.blocks.space import Space

_log = logger_of(__name__)

# By judgement: an ordinary disk; the first save replaces the guess by what it took. No benchmark.
_SAVE_SECONDS, _SAVED_BYTES_A_SECOND = 0.1, 2e8
"""How long it is expected to take to save a step, as long as none was saved."""


class UnfinishedOutput:
    """A Zarr array while it is made; a context manager that leaves what is whole to the same command.

    Parameters
    ----------
    path : Path
        Of the output.
    identify : callable
        Returns what tells the command and its inputs from others: plain values by name, lists as stamps of files.
    overwrite : bool
        Whether what is at the path is replaced at the end.

    Attributes
    ----------
    anew : str
        Why what was there before is not used; empty if it is, or there was nothing.
    n_there : int
        Chunks that were there.
    step : int
        Of a program of steps: the one after which values were saved; 0 for none.
    values : Path
        These values.

    Raises
    ------
    StoreError
        On entering, if another process makes this output (code "locked"), or something is at the path already.
    """

    def __init__(self, path: Path, identify: Callable[[], Mapping[str, Any]], *, overwrite: bool = False) -> None:
        self.path, self._identify, self._overwrite = path, identify, overwrite
        self._target = Path(os.path.realpath(path))
        self._aside = AsideFolder(self._target)
        self._about: Mapping[str, Any] = {}
        self._write: WriteChunk | None = None
        self.anew = ""
        self.n_there = self.step = 0
        self._saved_at, self._save_seconds = 0.0, 0.0

    def __enter__(self) -> UnfinishedOutput:
        """Lock the folder beside the output, and take what belongs to the command."""
        require_free(self.path, overwrite=self._overwrite)
        with disk_errors(self.path):
            self._target.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(self._target.parent)
            self._aside.lock()
            try:
                self._open()
            except BaseException:
                self._aside.unlock()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        """Let others have the folder; it goes if nothing in it is of use."""
        try:
            if not self.kept:
                self._aside.remove()
        finally:
            self._aside.unlock()

    @property
    def folder(self) -> Path:
        """The folder beside the output."""
        return self._aside.path

    @property
    def values(self) -> Path:
        """Values after ``step``."""
        return self._aside.values

    @property
    def n_chunks(self) -> int:
        """Chunks of the array; 0 before it was begun."""
        return self._aside.n_chunks

    @property
    def notes(self) -> dict[str, Any]:
        """What the program noted at its beginning; empty before one."""
        return dict(self._aside.found.get("notes", {}))

    @property
    def kept(self) -> str:
        """What is there for the same command; empty for nothing."""
        n_chunks, step = len(self._aside.chunks()), self._aside.step
        found = f"{n_chunks} of {self.n_chunks} output blocks" if n_chunks else ""
        return " and ".join(filter(None, (found, f"the values after step {step}" if step else "")))

    def begin(self, space: Space, **notes: Any) -> list[Index]:
        """Begin the array of a space, or go on with it; return the indices of the blocks that are not there.

        The spaces that are read must be there already, so that their sources are those that were looked at. ``notes``
        are plain values that the program goes on with.

        Raises
        ------
        StoreError
            If an input was changed meanwhile.
        """
        if dict(self._identify()) != self._about:
            raise StoreError(f"an input of {self.path} was changed meanwhile; run the command again")
        shape = {"shape": list(space.shape), "dtype": space.dtype.str, "block": list(space.blocks.block)}
        found = self._aside.found
        with disk_errors(self.path):
            if found and any(found[name] != value for name, value in shape.items()):
                self.anew = "its array has another shape"
            if not found or self.anew:
                self._aside.begin(self._about, {**shape, "notes": notes})
                self.step = 0
            make_array(space, self._aside.array, self.path)
        self._write = WriteChunk(self._aside.array, space.blocks.block, self.path, self._aside.record)
        there = self._aside.chunks()
        self.n_there = len(there)
        return [index for index in space.grid if index not in there]

    def writing(self, call: Callable[..., None]) -> Callable[..., None]:
        """Return a function that also writes its last array: the block of the output at the index of its subtask."""
        assert self._write is not None
        return ComputeAndWrite(call, self._write)

    def save(self, space: Space, step: int) -> None:
        """Keep the values of a space after a step, if that takes little of the time and there is space on the disk."""
        began = time.monotonic()
        expected = self._save_seconds or _SAVE_SECONDS + space.nbytes / _SAVED_BYTES_A_SECOND
        if not is_due(began - self._saved_at, expected):
            return
        older = self._aside.step
        try:
            with disk_errors(self.path):
                self._aside.save(space, step)
                if older not in (0, self.step):  # that one is the source of a space
                    self._aside.forget(older)
        except DiskFullError:  # the output itself may still fit
            _log.warning("%s has no room for the values after step %d; they are not saved", self.folder, step)
            self._aside.forget(step)
            self._save_seconds = math.inf
            return
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - began
        _log.info("the values after step %d are saved in %s", step, self.folder)

    def finish(self, session: Session, space: Space) -> None:
        """Write the blocks that are not there yet, and give the array its name."""
        assert self._write is not None
        if self._overwrite:
            session.require_no_source(self._target)
        there = self._aside.chunks()
        left = [index for index in space.grid if index not in there]
        if left:
            session.run(zarr_task(space, left, self._write))
        require_free(self.path, overwrite=self._overwrite)
        with disk_errors(self.path):
            self._aside.publish(self._target)
            self._aside.clear()

    def _open(self) -> None:
        self._aside.give_back(self._target)
        require_free(self.path, overwrite=self._overwrite)  # also where another command has finished meanwhile
        self._about = dict(self._identify())
        self.anew = self._aside.open(self._about)
        if self.anew:
            _log.info("begins anew: %s is not of this command: %s", self.folder, self.anew)
        elif self.kept:
            _log.info("resumes from %s, which has %s", self.folder, self.kept)
        self.step = self._aside.step
        self._saved_at = time.monotonic()


# The folder beside an output that is not finished, and the record of what in it is whole.
#
# The folder ``.NAME.unfinished`` has the lock, ``about.json`` (which command and which inputs it belongs to), and for
# each beginning a folder of another name: the array, a line for each whole chunk (``chunks``), and the step that was
# saved last. So what a rank of a killed command still writes is right, or lies in a folder that is gone.
#
# A chunk counts if its line is whole and its file has the checksum of the line. So nothing need be forced to the disk.

_ABOUT, _CHUNKS, _STEP = "about.json", "chunks", "step.json"
_FORMAT = 1
# By judgement: MOST_BLOCKS (10**8) lines of a hundred bytes fit; a bound against strangers' folders. No benchmark.
_MOST_RECORD_BYTES = 16 << 30

Index = tuple[int, ...]


class AsideFolder:
    """The folder of one output.

    Parameters
    ----------
    target : Path
        Of the output, without links.

    Attributes
    ----------
    path : Path
    found : dict
        What ``about.json`` says; empty before a beginning.
    step : int
        That was saved last; 0 for none.
    """

    def __init__(self, target: Path) -> None:
        self.path, self._name = target.with_name(f".{target.name}.unfinished"), target.name
        self._beside, self._confined = ConfinedFolder(target.parent), ConfinedFolder(self.path)
        self._lock = FolderLock(self.path)
        self.found: dict[str, Any] = {}
        self.step = 0

    def lock(self) -> None:
        """Make the folder and lock it; refuse links in it.

        Raises
        ------
        StoreError
            If another process has it, or there is a link.
        ConfigError
            If it is not this user's.
        """
        make_private(self.path)
        held = self._beside.open(self.path, os.O_PATH | os.O_DIRECTORY)
        try:
            self._lock.__enter__()
            if not self.path.exists() or not os.path.samestat(os.fstat(held), self.path.stat()):
                self.unlock()
                raise StoreError(f"another command removed {self.path} at this moment; run this one again")
            self._confined.refuse_links(self.path)
        except BaseException:
            self.unlock()
            raise
        finally:
            os.close(held)

    def unlock(self) -> None:
        """Let other processes have it; it goes if nothing is in it."""
        self._lock.__exit__(None, None, None)
        with contextlib.suppress(OSError):
            self._beside.remove_folder(self.path)

    def open(self, about: Mapping[str, Any]) -> str:
        """Take what belongs to a command, and remove the rest; return why something was not taken, empty if all was."""
        try:
            self.found = parse_json(self._confined.read(self.path / _ABOUT))
            others = differences(self.found["about"], about)
            if self.found["format"] != _FORMAT or not is_writers_name(str(self.found["place"])) or not self.n_chunks:
                others = ["it is of another version"]
            else:
                self._confined.require_file(self.record)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, TartanError):
            others = ["its record cannot be read"] if os.path.lexists(self.path / _ABOUT) else []
            self.found = {}
        if others or not self.found:
            self.clear()
            return ", ".join(others)
        self._remove_all_but(self._locks | {self.path / _ABOUT, self.place}, self.path)
        self._keep_whole()
        return ""

    def begin(self, about: Mapping[str, Any], shape: Mapping[str, Any]) -> None:
        """Begin anew."""
        self.clear()
        self.found = {"format": _FORMAT, "place": next(temporary_names()), **shape, "about": about}
        self._confined.make_folder(self.place)
        self._confined.new_file(self.record).close()
        self._write_json(self.path / _ABOUT, self.found)

    @property
    def n_chunks(self) -> int:
        """Chunks of the array; 0 before a beginning."""
        return BlockGrid(tuple(self.found["shape"]), tuple(self.found["block"])).n_blocks if self.found else 0

    @property
    def place(self) -> Path:
        """The folder of this beginning."""
        return self.path / str(self.found["place"])

    @property
    def array(self) -> Path:
        """The array."""
        return self.place / self._name

    @property
    def record(self) -> Path:
        """The lines of whole chunks."""
        return self.place / _CHUNKS

    @property
    def values(self) -> Path:
        """The values that were saved with the last step."""
        return self._values(self.step)

    def chunks(self) -> dict[Index, ChunkSeal]:
        """Return the chunks of which the record says that they are whole."""
        if not self.found:
            return {}
        with contextlib.suppress(FileNotFoundError):
            return chunks_in(self._confined.read(self.record, _MOST_RECORD_BYTES))
        return {}

    def save(self, space: Space, step: int) -> None:
        """Write what a space holds after a step; the file of the step before stays, as a space may read it."""
        file = self._values(step)
        self._confined.remove(file, missing_ok=True)
        write_space(space, self._confined, file)
        seal = seal_of(self._confined, file)
        self._write_json(self.place / _STEP, {"step": step, **seal._asdict()})
        self.step = step

    def forget(self, step: int) -> None:
        """Remove the values of a step."""
        self._confined.remove(self._values(step), missing_ok=True)

    def publish(self, target: Path) -> None:
        """Give the array its name; what has it lies in the folder for a moment."""
        if os.path.lexists(target):
            self._beside.move(target, self._before)
        self._beside.move(self.array, target)

    def give_back(self, target: Path) -> None:
        """Give what was about to be replaced its name again, after a kill between the two."""
        if os.path.lexists(self._before) and not os.path.lexists(target):
            self._beside.move(self._before, target)

    def clear(self) -> None:
        """Remove what is in the folder, but for the lock."""
        self.found, self.step = {}, 0
        self._remove_all_but(self._locks, self.path)

    def remove(self) -> None:
        """Remove all that is in the folder."""
        self.clear()
        self._confined.remove(self.path / LOCK_NAME, missing_ok=True)

    @property
    def _locks(self) -> set[Path]:
        return {self.path / LOCK_NAME, self.path / LEASE_NAME}

    @property
    def _before(self) -> Path:
        return self.path / "before"

    def _keep_whole(self) -> None:
        """Remove what is not a whole chunk, nor the last step if that is whole."""
        there = self.chunks()
        files = {self.array.joinpath("c", *map(str, index)): index for index in there}
        files = {file: index for file, index in files.items() if seal_of(self._confined, file) == there[index]}
        self._find_step()
        step = {self.values, self.place / _STEP} if self.step else set()
        chunks = {file for file, index in files.items() if there[index].n_bytes != ABSENT}
        self._remove_all_but(chunks | step, self.place)
        with self._confined.new_file(new := self.record.with_suffix(".new")) as file:
            file.writelines(format_line(index, there[index]) for index in files.values())
        self._confined.move(new, self.record)

    def _find_step(self) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            saved = parse_json(self._confined.read(self.place / _STEP))
            if seal_of(self._confined, self._values(int(saved["step"]))) == (saved["n_bytes"], saved["crc"]):
                self.step = int(saved["step"])

    def _values(self, step: int) -> Path:
        return self.place / f"step-{step}.npy"

    def _write_json(self, path: Path, value: Mapping[str, Any]) -> None:
        new = path.with_suffix(".new")
        self._confined.remove(new, missing_ok=True)
        with self._confined.new_file(new) as file:
            file.write(json.dumps(value, indent=1).encode())
        self._confined.move(new, path)

    def _remove_all_but(self, keep: set[Path], folder: Path) -> None:
        """Remove what is in a folder, but what is kept, the folders on the way to it, and the record of chunks."""
        on_the_way = {parent for path in keep for parent in path.parents}
        for name, _ in self._confined.entries(folder):
            path = folder / name
            if path in on_the_way:
                self._remove_all_but(keep, path)
            elif path not in keep and name != _CHUNKS:
                self._confined.remove_tree(path)
