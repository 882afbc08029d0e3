"""Publish a chunk as one of several writers: one atomic act decides whose version counts, and it is published whole.

A writer lays out all files of a chunk under its own name, and a plan that lists them. It then links the plan to the
name of the claim on that chunk, which exists once: the link that succeeds decides. From then on every writer that comes
to the chunk, and the next process that holds the folder alone, carries out the plan that was decided for: it renames
the files of the winner to their places, outputs first and status last. A rename takes a file once, so any number of
writers may do that at a time, and one that was stopped between two steps finds nothing left to do. The loser removes
its own files. README.md names the states.

A claim is for one state of the chunk, the one that its version was made from, so that a chunk may be committed again
where an earlier commit left pairs out. Claims stay until a process holds the folder alone: a writer that was stopped
for any time still finds that the chunk is decided.

This module knows files and their places, not what is in them.
"""

from __future__ import annotations

import contextlib
import json
import re
import stat
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.confined import ConfinedFolder
from tartan.base.files import FileWriter, disk_errors
from tartan.base.json_input import parse_json
from tartan.base.lock import WRITERS_NAME
from tartan.core.pairs.ledger import DONE, NOT_COMPUTED, OPENED, Failure
from tartan.errors import StoreError
from tartan.store.manifest import FILE_NAME as MANIFEST_NAME

NAME = "claims"
Chunk = tuple[int, int]
Targets = Callable[[Chunk], Sequence[Path]]
File = tuple[Path, Sequence[Any]]
Steps = Generator[str, None, bool]
"""Yields the name of each step before it is taken; returns whether the version of who takes them counts."""

# By judgement: a claim names a writer and a place, some hundred bytes; a bound against strangers' folders. No
# benchmark.
_MOST_CLAIM_BYTES = 1 << 20
_WRITER = re.compile(r"[\w-]+\.\d+\.[0-9a-f]{8}")
_STAGED = re.compile(r"[\w-]+\.\d+\.[0-9a-f]{8}-\d+")
_CLAIM = re.compile(r"(\d+)\.[0-9a-z]+")


TAKEN = "taken"
"""State of an encoded chunk that was in the ledger when it was encoded."""


@dataclass(frozen=True)
class EncodedChunk:
    """A finished chunk as the bytes of its files: what one process sends and another commits.

    Attributes
    ----------
    chunk : (int, int)
    state : str
        Of the chunk that it was made from.
    files : tuple of bytes
        In the order of publication.
    failures : tuple of Failure
        Reasons of its failed items and pairs.
    """

    chunk: tuple[int, int]
    state: str
    files: tuple[bytes, ...]
    failures: tuple[Failure, ...] = ()


class Claims:
    """The claims on chunks of one run folder, for one of its writers; methods may be called from several threads.

    Parameters
    ----------
    folder : Path
        The run folder.
    writer : FileWriter
        Whose unfinished files lie in ``place``.
    place : Path
        The folder of this writer: ``writers/HOST.PID.TOKEN``.
    targets : callable
        All files of a chunk in the order of their publication, the status last.
    step : callable
        Called with the name of each step before it is taken; tests stop a writer there.
    """

    def __init__(
        self,
        folder: Path,
        writer: FileWriter,
        place: Path,
        targets: Targets,
        *,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._folder = folder
        self._writer = writer
        self._place = place
        self._targets = targets
        self._step = step

    def take(self, steps: Steps) -> bool:
        """Take all steps, each after the hook of this writer was called with its name; return what they return."""
        try:
            name = next(steps)
            while True:
                try:
                    self._step(name)
                except BaseException as error:
                    name = steps.throw(error)
                else:
                    name = next(steps)
        except StopIteration as end:
            return bool(end.value)

    def publish(self, chunk: Chunk, state: str, files: Iterable[File]) -> bool:
        """Publish a chunk, or see to it that the version of another writer is.

        Parameters
        ----------
        chunk : (int, int)
        state : str
            What the chunk is made from: letters and digits that name the status it had.
        files : iterable of (Path, buffers)
            In the order of ``targets``; taken one after the other, each before the next is made.

        Returns
        -------
        bool
            Whether the version of this writer is the one that counts.

        Raises
        ------
        StoreError
            If this writer was silent for so long that its folder was taken away, or the file system has no links.
        DiskFullError
            If the disk is full.
        """
        return self.take(self.publishing(chunk, state, files))

    def publishing(self, chunk: Chunk, state: str, files: Iterable[File]) -> Steps:
        """Return the steps of ``publish``, for who does something else between two of them."""
        staged: list[Path] = []
        needed = False
        try:
            for _, buffers in files:
                yield "stage"
                staged.append(self._writer.stage(buffers))
            own = _plan(self._place.name, staged)
            yield "plan"
            staged.append(self._writer.stage([own]))
            yield "claim"
            claim, needed = self._path(chunk, state), True
            self._writer.link(staged[-1], claim, lasting=False)
            decided = self._writer.folder.read(claim, _MOST_CLAIM_BYTES)
            needed = decided == own
            yield from self._carrying_out(chunk, decided)
            needed = False
            return decided == own
        except (StoreError, OSError) as error:
            self._refuse_if_gone(error)
            raise
        finally:
            if not needed:  # what was decided for and could not be published waits for the next process
                yield "discard"
                self._writer.discard(staged)

    def _path(self, chunk: Chunk, state: str) -> Path:
        return self._folder / NAME / str(chunk[0]) / f"{chunk[1]}.{state}"

    def _carrying_out(self, chunk: Chunk, plan: bytes) -> Generator[str, None, None]:
        for source, target in _read_plan(self._folder / WRITERS_NAME, plan, self._targets(chunk)):
            yield f"publish {target.name}"
            self._writer.publish(source, target)

    def _refuse_if_gone(self, error: Exception) -> None:
        """Say why nothing can be written any more, if that is so."""
        folder = self._writer.folder
        if folder.is_folder(self._place):
            return
        try:
            folder.stat(self._folder / MANIFEST_NAME)
        except OSError:
            raise make_gone_error(self._folder) from error
        else:
            raise StoreError(
                f"{self._folder}: this process was silent for too long, and another has taken over its part of the "
                "run, or the folder is being removed; what it had not committed is computed again",
                code="taken-over",
                context={"path": str(self._folder)},
            ) from error


def make_gone_error(folder: Path) -> StoreError:
    """Return the error of a run whose folder is no longer there."""
    message = f"{folder} is gone: it was removed or renamed while the run was computed"
    return StoreError(message, code="gone", context={"path": str(folder)})


def _plan(writer: str, staged: Sequence[Path]) -> bytes:
    return json.dumps({"writer": writer, "files": [path.name for path in staged]}).encode()


def _read_plan(writers: Path, plan: bytes, targets: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Return from where to where a plan moves files; none where it is damaged or names anything else."""
    try:
        said = parse_json(plan)
        writer, files = str(said["writer"]), [str(name) for name in said["files"]]
    except (ValueError, KeyError, TypeError):
        return []
    if _WRITER.fullmatch(writer) is None or len(files) != len(targets) or not all(map(_STAGED.fullmatch, files)):
        return []
    place = writers / writer
    return [(place / name, target) for name, target in zip(files, targets, strict=True)]


def settle(folder: Path, writers: Path, writer: FileWriter, targets: Targets, state: Callable[[Chunk], str]) -> None:
    """Carry out what was decided for and not published, and remove all claims; the caller holds the folder alone.

    Parameters
    ----------
    folder : Path
        The run folder.
    writers : Path
        Where the folders of the writers are.
    writer : FileWriter
    targets : callable
        As of ``Claims``.
    state : callable
        What a chunk is now.
    """
    confined, place = writer.folder, folder / NAME
    if not confined.is_folder(place):
        return
    claims = [(chunk, path) for row in _rows(confined, place) for chunk, path in _claims_of(confined, row)]
    for chunk, path in claims:
        if path.name == f"{chunk[1]}.{state(chunk)}":
            for source, target in _read_plan(writers, confined.read(path), targets(chunk)):
                writer.publish(source, target)
    writer.sync_all()  # a writer that was killed has not forced what it committed last, and nobody else would
    with disk_errors(place):
        for _, path in claims:
            confined.remove(path)
        for emptied in (*_rows(confined, place), place):
            with contextlib.suppress(OSError):  # what is not a claim stays
                confined.remove_folder(emptied)


def contend(
    status: np.ndarray,
    read: Callable[[], tuple[str, np.ndarray | None]],
    publishing: Callable[[str, np.ndarray, np.ndarray | None], Steps],
) -> Steps:
    """Commit what the ledger lacks of a chunk, until all of it is there or a version of this writer counts.

    Another writer that wins a claim may leave pairs out: what it left is claimed anew, of the state that it made.

    Parameters
    ----------
    status : uint8 array
        Codes of a commit.
    read : callable
        Returns what the chunk is now: the name of its state, and its codes.
    publishing : callable
        Returns the steps that publish codes, given the state, the codes that are lacking and those that are there.
    """
    won, lacking = False, True
    while lacking and not won:
        state, before = read()
        status = find_lacking(mark_lacking(before), leave_opened(before, status))
        lacking = before is None or bool((status != NOT_COMPUTED).any())
        if lacking:
            won = yield from publishing(state, status, before)
    return won


def find_lacking(before: np.ndarray | None, status: np.ndarray) -> np.ndarray:
    """Return the codes of a commit without those of pairs that are in the ledger already; itself where none is."""
    if before is None or not (taken := (before != NOT_COMPUTED) & (status != NOT_COMPUTED)).any():
        return status
    return np.where(taken, np.uint8(NOT_COMPUTED), status)


def mark_lacking(codes: np.ndarray | None) -> np.ndarray | None:
    """Return codes for a writer: what a removal opened is to be computed."""
    return None if codes is None else np.where(codes == OPENED, np.uint8(NOT_COMPUTED), codes)


def leave_opened(before: np.ndarray | None, status: np.ndarray) -> np.ndarray:
    """Return the codes of a commit without failures of pairs that a removal opened; itself where there is none.

    They stay opened, so that older versions keep what they have of them. That they failed says the record of failures.
    """
    if before is None or not (failed := (before == OPENED) & (status > DONE)).any():
        return status
    return np.where(failed, np.uint8(NOT_COMPUTED), status)


def _rows(confined: ConfinedFolder, place: Path) -> list[Path]:
    return [place / name for name, found in confined.entries(place) if name.isdecimal() and stat.S_ISDIR(found.st_mode)]


def _claims_of(confined: ConfinedFolder, row: Path) -> list[tuple[Chunk, Path]]:
    found = ((_CLAIM.fullmatch(name), row / name) for name, _ in confined.entries(row))
    return [((int(row.name), int(named[1])), path) for named, path in found if named is not None]
