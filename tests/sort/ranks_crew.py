"""Ranks of a sort as threads of the test, and what a test does to them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tartan.cluster.engine import ClusterEngine, Handler, OnView
from tartan.cluster.launch import ClusterTarget
from tartan.cluster.thread_engine import ThreadEngine, ThreadHub
from tartan.sort.dtypes import parse_dtype
from tartan.sort.engine import Order, SortOptions
from tartan.sort.formats import Destination, open_sources
from tartan.sort.keys import parse_key
from tartan.sort.ranks.launch import RankedSort, SortWays
from tartan.sort.ranks.rank import STORAGE_RESOURCE, main
from tartan.sort.result import SortResult


class RankKilled(BaseException):
    """A rank ends at once."""


Posted = Callable[[str, str], None]


class TalkativeEngine(ThreadEngine):
    """Tells of every message before it is sent; what that raises ends the sender."""

    posted: Posted

    def post(self, peer: str, do: str, body: bytes = b"") -> None:
        """Send a message without an answer."""
        self.posted(self.me, do)
        super().post(peer, do, body)


class StartingEngine(ThreadEngine):
    """The driver's: starts the ranks once it is there."""

    begin: Callable[[], None]

    def start(self, handlers: Mapping[str, Handler], on_view: OnView) -> None:
        """Become a member."""
        super().start(handlers, on_view)
        self.begin()


@dataclass(frozen=True)
class ThreadWays(SortWays):
    """Ranks that are threads.

    Attributes
    ----------
    names : tuple of str
    storage : frozenset of str
        Those beside the data.
    locate : mapping of str to callable
        Where a rank looks for a file; default: where the driver has it.
    posted : callable
        Told the sender and the name of every message of a rank.
    """

    names: tuple[str, ...] = ("a", "b", "c", "d")
    storage: frozenset[str] = frozenset()
    locate: Mapping[str, Callable[[str], Path]] = field(default_factory=dict)
    posted: Posted = lambda sender, do: None

    @property
    def return_seconds(self) -> float:
        """Nobody starts a thread anew."""
        return 0.0

    @property
    def n_expected(self) -> int:
        """All of them."""
        return len(self.names)

    @contextlib.contextmanager
    def engine(self, run: str) -> Iterator[ClusterEngine]:
        """Return the driver's engine; wait for the threads of the ranks afterwards."""
        hub = ThreadHub(run)
        threads = [threading.Thread(target=self._be, args=(hub, name), daemon=True) for name in self.names]
        driver = StartingEngine(hub, "driver")

        def begin() -> None:
            for thread in threads:
                thread.start()

        driver.begin = begin
        yield driver
        driver.leave("the test is over")
        for thread in threads:
            if thread.is_alive():
                thread.join(20)

    def _be(self, hub: ThreadHub, name: str) -> None:
        engine = TalkativeEngine(hub, name)
        engine.posted = self.posted
        engine.resources = {STORAGE_RESOURCE: 1.0} if name in self.storage else {}
        try:
            main(engine, locate=self.locate.get(name, Path))
        except RankKilled:
            hub.remove(name, "it was killed")


def sort_ranked(
    sources: list[Path],
    target: Path,
    *,
    dtype: Any = None,
    key: str | None = None,
    ways: ThreadWays | None = None,
    memory: str = "1GB",
    resume: bool = True,
    **options: Any,
) -> SortResult:
    """Sort with ranks that are threads; all hold the memory of the test process."""
    found, record = open_sources(sources, dtype)
    order = Order(parse_dtype(record), parse_key(key, record, descending=options.pop("descending", False)))
    n_records = sum(source.n_bytes for source in found) // record.itemsize
    destination = Destination(target, record, n_records, found, in_place=False, overwrite=True)
    ways = ways or ThreadWays(ClusterTarget(n_local=4), folders=(str(target.parent),))
    read = SortOptions.read(memory=memory, tmp=target.parent, pack="auto", threads=1, direct="auto")
    return RankedSort(found, destination, order, read, ways).run(resume=resume, quiet=True)
