"""One part of a run that several processes compute without talking to each other: ``--part 3/16``.

The part that comes first creates the run folder, the others wait for it. Each computes its share (core/pairs/shares.py)
as one of several writers, and cleans nothing up: failures, statistics and the merged result of a reduced run are for a
later resume.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tartan.base.files import disk_errors
from tartan.base.format import format_duration
from tartan.base.lock import FolderLock
from tartan.base.logs import logger_of
from tartan.base.progress import ProgressLine
from tartan.core.pairs.shares import MOST_PARTS
from tartan.errors import ConfigError, StoreError
from tartan.store.folder import RunFolder
from tartan.store.manifest import FILE_NAME as MANIFEST_NAME

_log = logger_of(__name__)

# By judgement: creating a run lists and probes its input, which takes minutes for 10**6 files on a busy file system
# (_LISTING_SECONDS is 300). No benchmark.
CREATION_SECONDS = 900.0
"""How long a part waits for another one that creates the run folder."""
# By judgement: three times JOIN_SECONDS of base/lock, for parts that start at once. bench cluster_parts starts
# four.
JOIN_SECONDS = 30.0
"""How long it waits to join: the creator holds the folder for a moment longer than the folder is unfinished."""
# By judgement: a quarter more is a quarter of an hour an hour; whole chunks alone make some per cent. No benchmark.
UNEVEN = 1.25
"""Largest over mean share from which a new run says that its parts are uneven."""
# By judgement: not felt, and no load on a shared file system. No benchmark.
_POLL_SECONDS = 0.1
_TEXT = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")


@dataclass(frozen=True)
class Share:
    """Which of the fixed shares of a run one process computes.

    Attributes
    ----------
    index : int
        From 1.
    n_parts : int
    """

    index: int
    n_parts: int

    def __str__(self) -> str:
        return f"{self.index}/{self.n_parts}"

    @property
    def group(self) -> str:
        """The name that all parts of a run have in common as writers."""
        return f"{self.n_parts} parts"

    @property
    def about(self) -> dict[str, Any]:
        """What a lease says of the part."""
        return {"part": self.index, "what": f"part {self}"}

    def chunks(self, folder: RunFolder) -> list[tuple[int, int]]:
        """Return the chunks of the share."""
        return folder.pairs.shares(self.n_parts)[self.index - 1]


def parse_share(text: str) -> Share:
    """Read ``3/16``.

    Raises
    ------
    ConfigError
        If it is anything else, or there is no such part.
    """
    found = _TEXT.fullmatch(str(text))
    if found is None:
        raise _wrong(text, "write I/N, such as 3/16")
    index, n_parts = int(found[1]), int(found[2])
    if not 1 <= n_parts <= MOST_PARTS:
        raise _wrong(text, f"a run has 1 to {MOST_PARTS:,} parts")
    if index == 0:
        raise _wrong(text, f"parts are counted from 1: 1/{n_parts} to {n_parts}/{n_parts} (Slurm: --array=1-{n_parts})")
    if index > n_parts:
        raise _wrong(text, f"the last part is {n_parts}/{n_parts}")
    return Share(index, n_parts)


def _wrong(text: str, way_out: str) -> ConfigError:
    return ConfigError(f"part: {text!r} is not part of a run; {way_out}", context={"option": "--part", "value": text})


class Waiting:
    """Waits until a folder that another process holds is free, and says so.

    Parameters
    ----------
    share : Share
        Who waits, for messages.
    limit_seconds : float
    quiet : bool
    clock, sleep : callable
        Replaced in tests.
    """

    def __init__(
        self,
        share: Share,
        limit_seconds: float,
        *,
        quiet: bool = True,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._share = share
        self._limit = limit_seconds
        self._quiet = quiet
        self._clock = clock
        self._sleep = sleep
        self._begun: float | None = None
        self._line: ProgressLine | None = None

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.close()

    def pause(self, busy: StoreError) -> None:
        """Wait a moment.

        Parameters
        ----------
        busy : StoreError
            What the folder said; it names its holder.

        Raises
        ------
        StoreError
            With that and the time waited, when the time is over.
        """
        now = self._clock()
        if self._begun is None:
            self._begun = now
            self._line = ProgressLine(quiet=self._quiet)
            self._line.say(f"part {self._share} waits: {str(busy).partition(';')[0]}")
            _log.info("part %s waits: %s", self._share, busy)
        waited = now - self._begun
        if waited >= self._limit:
            raise StoreError(
                f"part {self._share} has waited for {format_duration(waited)}: {busy}",
                code=busy.code,
                context=busy.context,
                retryable=True,
            ) from busy
        if self._line is not None:
            self._line.show(0, 1, lambda _: f"part {self._share} has waited for {format_duration(waited)}")
        self._sleep(_POLL_SECONDS)


def create_or_wait(path: Path, create: Callable[[], RunFolder], waiting: Waiting) -> RunFolder | None:
    """Create a run folder, or wait until another part has.

    Parameters
    ----------
    path : Path
    create : callable
        Creates it; called by one process at a time, which holds the lock.
    waiting : Waiting

    Returns
    -------
    RunFolder or None
        None where the folder is there, by another process.
    """
    while True:
        with disk_errors(path):
            if (path / MANIFEST_NAME).exists():
                return None
            path.mkdir(parents=True, exist_ok=True)
        try:
            with FolderLock(path):
                return None if (path / MANIFEST_NAME).exists() else create()
        except StoreError as error:
            if error.code != "locked":
                raise
            waiting.pause(error)


@contextlib.contextmanager
def join_as_part(folder: RunFolder, share: Share, waiting: Waiting) -> Iterator[RunFolder]:
    """Write to a folder as a part of its run; wait where another process holds it alone.

    Raises
    ------
    ConfigError
        If the run is divided into another number of parts.
    StoreError
        As ``RunFolder.join``.
    """
    with contextlib.ExitStack() as stack:
        while True:
            try:
                folder.refuse_other_division(share.n_parts)
                stack.enter_context(folder.join(share.group, share.about))
                break
            except StoreError as error:
                if error.code != "locked":
                    raise
                waiting.pause(error)
        folder.divide(share.n_parts)
        yield folder


def say_if_uneven(folder: RunFolder, n_parts: int, *, quiet: bool) -> None:
    """Say on stderr where one part of a new run has much more to do than the others: its chunks are too large."""
    counts = [sum(folder.pairs.n_in(*chunk) for chunk in chunks) for chunks in folder.pairs.shares(n_parts)]
    largest, mean = max(counts), sum(counts) / n_parts
    if not quiet and mean and largest > UNEVEN * mean:
        with ProgressLine() as line:
            line.say(
                f"part {counts.index(largest) + 1} of {n_parts} has {largest / mean:.1f} times the pairs of the mean "
                f"part; with --tile below {folder.manifest.chunk} parts are more alike"
            )
