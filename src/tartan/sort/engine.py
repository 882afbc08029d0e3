"""Open the engine: with which options, how much memory, which key."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tartan._native import SortFailure, SortJob, sort_overhead
from tartan.base.checks import check_one_of, whole
from tartan.base.format import format_bytes
from tartan.base.machine import held_bytes, usable_cores
from tartan.base.machine import memory as machine_memory
from tartan.errors import ConfigError
from tartan.options import Size, parse_bytes
from tartan.sort.dtypes import DType
from tartan.sort.failures import error_of
from tartan.sort.keys import KeyPart
from tartan.sort.plan import EngineLayout, Shape, SortPlan, plan_sort
from tartan.sort.space import LEAST_MEMORY_BYTES, memory_for_engine
from tartan.sort.work import check_folders

PathLike = str | os.PathLike[str]
Pack = Literal["auto", "always", "never"]
Direct = Literal["auto", "always", "never"]
Nulls = Literal["last", "first"]

# By judgement: a signal is heard and progress is drawn ten times a second; the engine works meanwhile. No benchmark.
POLL_SECONDS = 0.1
# By contract: WIDEST of crates/tartan-sort/src/form.rs.
MAX_RECORD_BYTES = 1 << 16
# Measured: Python with NumPy, Arrow and the engine holds 71 MB; as much again for what is imported late, and some room.
_OWN_BYTES = 200 * 10**6  # more than a process holds that does nothing but sort


@dataclass(frozen=True)
class SortOptions:
    """How a sort is executed; no option changes the result.

    Attributes
    ----------
    memory_bytes : int
        Limit for the whole process.
    folders : tuple of Path
        For run files.
    pack : {"auto", "always", "never"}
        Whether run files are packed.
    threads : int
        Number of threads that sort.
    direct : {"auto", "always", "never"}
        Whether the page cache is bypassed.
    """

    memory_bytes: int
    folders: tuple[Path, ...]
    pack: Pack
    threads: int
    direct: Direct

    @classmethod
    def read(
        cls,
        *,
        memory: str | int | Size | None,
        tmp: PathLike | Iterable[PathLike],
        pack: Pack,
        threads: int | None,
        direct: Direct,
    ) -> SortOptions:
        """Read options as users give them.

        Raises
        ------
        ConfigError
            If a value is not allowed.
        """
        folders = [tmp] if isinstance(tmp, str | os.PathLike) else list(tmp)
        return cls(
            memory_bytes=_memory_bytes(memory),
            folders=tuple(check_folders([Path(folder) for folder in folders])),
            pack=check_one_of("pack", pack, ("auto", "always", "never")),
            threads=usable_cores() if threads is None else whole("threads", threads, 1),
            direct=check_one_of("direct", direct, ("auto", "always", "never")),
        )


def _memory_bytes(memory: str | int | Size | None) -> int:
    if memory is None:
        return max(LEAST_MEMORY_BYTES, machine_memory().available_bytes // 2)
    return parse_bytes(memory, option="memory")


@dataclass(frozen=True)
class Order:
    """Type of the records, and the key that they are sorted by.

    Attributes
    ----------
    dtype : numpy.dtype
    parts : tuple of KeyPart
    """

    dtype: DType
    parts: tuple[KeyPart, ...]

    def __post_init__(self) -> None:
        if self.dtype.itemsize > MAX_RECORD_BYTES:
            raise ConfigError(
                f"records of {self.dtype.itemsize} bytes are too wide; {MAX_RECORD_BYTES} is the most: sort keys with "
                "the positions of their records instead",
                context={"record_bytes": self.dtype.itemsize},
            )

    @property
    def key(self) -> list[tuple[int, str, bool]]:
        """The key as the engine takes it."""
        return [(part.offset, part.kind, part.descending) for part in self.parts]

    @property
    def is_word(self) -> bool:
        """Whether the records are lone numbers of 4 or 8 bytes."""
        (first, *others) = self.parts
        width = self.dtype.itemsize
        return not others and first.kind[0] in "<>" and first.width_bytes == width and width in (4, 8)

    def plan(self, n_bytes: int, options: SortOptions, *, kept_bytes: int = 0) -> SortPlan:
        """Divide the memory that is left.

        Parameters
        ----------
        n_bytes : int
            Bytes of records.
        options : SortOptions
        kept_bytes : int
            Memory that the caller will also hold.

        Raises
        ------
        ConfigError
            Code "memory", if too little is left.
        """
        width = self.dtype.itemsize
        shape = Shape(-(-n_bytes // width), width, self.is_word, options.threads)
        held = held_bytes() + kept_bytes

        def overhead(layout: EngineLayout) -> int:
            return sort_overhead(record_bytes=width, key=self.key, threads=options.threads, **vars(layout))

        try:
            return plan_sort(shape, memory_for_engine(options.memory_bytes, held), overhead)
        except ConfigError as error:
            raise _with_what_is_held(error, options.memory_bytes, held, kept_bytes) from None

    def open_engine(self, plan: SortPlan, options: SortOptions, folders: Sequence[Path], fingerprint: bytes) -> SortJob:
        """Start the engine; run files go to ``folders`` and carry the fingerprint."""
        return SortJob(
            record_bytes=self.dtype.itemsize,
            key=self.key,
            fingerprint=fingerprint,
            folders=[str(path) for path in folders],
            threads=options.threads,
            pack=options.pack,
            direct=options.direct,
            **vars(plan.layout),
        )


def _with_what_is_held(error: ConfigError, promised: int, held: int, kept: int) -> ConfigError:
    """Say how much the whole process needs, if the plan says how much the engine needs."""
    if not {"least_bytes", "available_bytes"} <= error.context.keys():
        return error
    needed = int(1.02 * (promised - error.context["available_bytes"] + error.context["least_bytes"]))
    reading = f", and reading and writing take {format_bytes(kept)}" if kept else ""
    apart = ", or sort in a process of its own" if held - kept > _OWN_BYTES else ""
    return ConfigError(
        f"memory of {format_bytes(promised)} is too little: this process holds {format_bytes(held - kept)} already"
        f"{reading}; give {needed // 10**6 + 1}MB{apart}",
        code="memory",
        context={"memory_bytes": promised, "held_bytes": held, "least_bytes": needed},
    )


@contextlib.contextmanager
def translate_engine_errors() -> Iterator[None]:
    """Turn failures of the engine into errors of Tartan."""
    try:
        yield
    except SortFailure as failure:
        raise error_of(failure) from failure
