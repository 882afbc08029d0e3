"""Checkpoints of a session: every space as a ``.npy`` file, and one JSON file that names them, written last."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from tartan.base.confined import ConfinedFolder
from tartan.base.files import disk_errors
from tartan.base.json_input import MOST_JSON_BYTES, parse_json
from tartan.base.machine import tartan_version
from tartan.blocks.sources import SpaceSource, source_of
from tartan.blocks.space import Space
from tartan.blocks.work import BlockFunction
from tartan.errors import ConfigError, StoreError

FILE_NAME = "checkpoint.json"
_UNFINISHED_NAME = f"{FILE_NAME}.new"
_FORMAT = 1
_PLACE = re.compile(r"checkpoint-([1-9]\d*)")
_VALUES = re.compile(r"\d+\.npy")


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says.

    Attributes
    ----------
    spaces : list of (Path, tuple of int)
        Values of each space in the order of their numbers, and the shape of its blocks.
    codes : dict of str to str
        Checksums of the functions that had run.
    notes : dict
    """

    spaces: list[tuple[Path, tuple[int, ...]]]
    codes: dict[str, str]
    notes: dict[str, Any]


class SavedSpaces:
    """The files of the newest checkpoint as sources of what is lost; their numbers are below those of spaces.

    Attributes
    ----------
    sources : dict of int to SpaceSource
    """

    def __init__(self) -> None:
        self.sources: dict[int, SpaceSource] = {}
        self._next = -1

    def replace(self, files: Mapping[int, Path]) -> dict[int, int]:
        """Take the files of a checkpoint, by space, in place of those before; return their numbers by space."""
        numbers = {space: self._next - k for k, space in enumerate(files)}
        self.sources = {numbers[space]: source_of(path, None, None) for space, path in files.items()}
        self._next -= len(files)
        return numbers


def write_checkpoint(
    folder: Path, spaces: Sequence[Space], codes: Mapping[str, str], notes: Mapping[str, Any]
) -> tuple[Path, dict[int, Path], list[Path]]:
    """Write a checkpoint, and remove older ones.

    Returns
    -------
    file : Path
        The JSON file.
    saved : dict of int to Path
        What each space holds, by its number.
    in_use : list of Path
        Folders of older checkpoints from which a space has its first values: they stay as long as the session.

    Raises
    ------
    ConfigError
        If the notes are not plain values.
    DiskFullError
        If there is no space; the older checkpoint stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    confined, before = ConfinedFolder(folder), _places(folder)
    number = 1 + max((_number(path.name) for path in before), default=0)
    place = folder / f"checkpoint-{number}"
    about = {
        "format": _FORMAT,
        "tartan": tartan_version(),
        "spaces": [{"file": f"{place.name}/{one.number}.npy", "block": list(one.blocks.block)} for one in spaces],
        "codes": dict(codes),
        "notes": dict(notes),
    }
    try:
        text = json.dumps(about, indent=1)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"notes of a checkpoint are plain values: {error}") from None
    with disk_errors(folder):
        try:
            confined.make_folder(place)
            for space in spaces:
                write_space(space, confined, place / f"{space.number}.npy")
            _write_about(confined, folder / FILE_NAME, text)
        except BaseException:
            remove_checkpoint(place)
            raise
    sources = {Path(space.source.path).parent for space in spaces}
    in_use = [old for old in before if old.resolve() in sources]
    for old in before:
        if old not in in_use:
            remove_checkpoint(old)
    return folder / FILE_NAME, {one.number: place / f"{one.number}.npy" for one in spaces}, in_use


def remove_checkpoint(place: Path) -> None:
    """Remove what ``write_checkpoint`` has written to a folder, and the folder if nothing else is in it."""
    confined = ConfinedFolder(place.parent)
    with contextlib.suppress(OSError, StoreError):
        for name, _ in confined.entries(place):
            if _VALUES.fullmatch(name):
                confined.remove(place / name)
        confined.remove_folder(place)


def _places(folder: Path) -> list[Path]:
    """Return the folders of the checkpoints that are there; links in their place are refused."""
    confined = ConfinedFolder(folder)
    places = [folder / name for name, _ in confined.entries(folder) if _number(name)]
    for path in (*places, folder / FILE_NAME, folder / _UNFINISHED_NAME):
        confined.refuse_links(path)
    return places


def _number(name: str) -> int:
    """Return the number of the checkpoint whose folder has a name; 0 if none has."""
    found = _PLACE.fullmatch(name)
    return 0 if found is None else int(found[1])


def _write_about(confined: ConfinedFolder, path: Path, text: str) -> None:
    temporary = path.with_name(_UNFINISHED_NAME)
    confined.remove(temporary, missing_ok=True)
    with confined.new_file(temporary) as file:
        file.write(text.encode())
    confined.move(temporary, path)


def write_space(space: Space, confined: ConfinedFolder, path: Path) -> None:
    """Write a space as a ``.npy`` file, block by block: it may be larger than memory."""
    about = {"descr": np.lib.format.dtype_to_descr(space.dtype), "fortran_order": False, "shape": space.shape}
    with confined.new_file(path) as file:
        np.lib.format.write_array_header_1_0(file, about)
        file.flush()
        os.posix_fallocate(file.fileno(), 0, file.tell() + space.nbytes)  # else a full disk is a signal that kills
        values = np.memmap(file, space.dtype, "r+", file.tell(), space.shape)
        for number in range(space.blocks.n_blocks):
            where = tuple(slice(*interval) for interval in space.blocks.box(number))
            values[where] = space[where]
        values.flush()


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the newest checkpoint of a folder.

    Raises
    ------
    StoreError
        If there is none, or it cannot be understood, names files outside, or has a link.
    """
    path = folder / FILE_NAME
    confined = ConfinedFolder(folder)
    try:
        text = confined.read(path, MOST_JSON_BYTES)
    except FileNotFoundError:
        raise StoreError(f"{folder} has no checkpoint; Session.checkpoint writes one", code="no-checkpoint") from None
    try:
        found = parse_json(text)
        if found["format"] != _FORMAT:
            raise StoreError(f"{path} has format {found['format']}, this version of Tartan reads {_FORMAT}")
        spaces = [
            (_find_named_file(confined, str(one["file"])), tuple(map(int, one["block"]))) for one in found["spaces"]
        ]
        return Checkpoint(spaces, {str(k): str(v) for k, v in found["codes"].items()}, dict(found["notes"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is not a checkpoint that can be read: {error}", code="damaged") from None


def _find_named_file(confined: ConfinedFolder, name: str) -> Path:
    """Return the file of a space that a checkpoint names: one that ``write_checkpoint`` could have written."""
    place, _, file = name.partition("/")
    if not _number(place) or not _VALUES.fullmatch(file):
        raise ValueError(f"it names {name!r}, and values lie in checkpoint-NUMBER/NUMBER.npy beside it")
    confined.require_file(confined.path / place / file)
    return confined.path / place / file


def note_code(functions: Sequence[BlockFunction], codes: dict[str, str], resumed: Set[str]) -> None:
    """Note the code of functions by name; refuse those that are not what they were in the checkpoint.

    Parameters
    ----------
    functions : sequence of BlockFunction
    codes : dict of str to str
        What is known; changed.
    resumed : set of str
        Names that the checkpoint has.

    Raises
    ------
    ConfigError
        If the code of one of those is another.
    """
    for function in functions:
        name, code = function.name, _code_of_all(function)
        if codes.setdefault(name, code) != code and name in resumed:
            raise ConfigError(
                f"{name} is not what it was when the checkpoint was written; resume with the same code, or begin anew",
                code="other-code",
            )
        codes[name] = code


def _code_of_all(function: BlockFunction) -> str:
    """Return a checksum of what a function does, wherever it runs."""
    if function.gpu is None or function.gpu is function.call:
        return code_of(function.call)
    return f"{code_of(function.call)} {code_of(function.gpu)}"


def code_of(function: Any) -> str:
    """Return a checksum of what a function does: its code, without the values that it refers to."""
    code = getattr(function, "__code__", None) or getattr(vars(type(function)).get("__call__"), "__code__", None)
    if not isinstance(code, CodeType):
        return ""
    return hashlib.sha256("\0".join(_texts(code)).encode(errors="surrogatepass")).hexdigest()


def _texts(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _texts(constant)
        elif isinstance(constant, frozenset):  # in another order in every process
            yield from sorted(map(repr, constant))
        else:
            yield repr(constant)
