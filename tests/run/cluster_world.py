"""Runs on several ranks that are threads of this process, and what happens to some of them."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from tartan import apps
from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.engine import DRIVER, ClusterEngine, Handler, OnView
from tartan.cluster.launch import ClusterTarget
from tartan.cluster.thread_engine import ThreadEngine, ThreadHub
from tartan.errors import ClusterError
from tartan.options import run_options
from tartan.run.cluster_rank import main
from tartan.run.cluster_run import ClusterWays
from tartan.run.request import request

N = 45
OPTIONS = {"host_cache": "16items", "tile": 6, "workers": 1, "quiet": True}


class Sums(tartan.Application):
    """Sums of two numbers; ``happens`` is called in every call of compare, but those of one pair before a run."""

    releases_gil = True
    ragged = False

    def __init__(self, bad: int = -1, happens: Callable[[], None] | None = None) -> None:
        self.bad = bad
        self.happens = happens

    def parameters(self) -> dict[str, Any]:
        return {"bad": self.bad}

    def parse(self, key: str, data: Any) -> Any:
        if data == self.bad:
            raise ValueError("bad item")
        return np.full(2, data, np.float64)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        if self.happens is not None and len(left) * len(right) > 1:
            self.happens()
        a, b = left[:, 0][:, None], right[:, 0][None, :]
        return xp.minimum(a, b) * 1000 + xp.maximum(a, b)


class _Driver(ThreadEngine):
    """Starts the ranks as soon as there is a driver to join; a frozen rank that it has given up wakes."""

    def __init__(self, hub: ThreadHub, launch: Callable[[], None]) -> None:
        super().__init__(hub, DRIVER)
        self._launch, self._thaw = launch, hub.thaw

    def expel(self, peer: str, reason: str) -> None:
        super().expel(peer, reason)
        self._thaw(peer)

    def start(self, handlers: Mapping[str, Handler], on_view: OnView) -> None:
        super().start(handlers, on_view)
        self._launch()


@dataclass(frozen=True)
class InThreads(ClusterWays):
    """Ranks in threads; ``locate`` says where each looks for the run folder, given its number and the place."""

    hubs: list[ThreadHub] = field(default_factory=list)
    locate: Callable[[int, str], Path] = lambda number, place: Path(place)
    n_storage: int = 0
    throttle: Throttle | None = None

    @property
    def may_have_storage(self) -> bool:
        return self.n_storage > 0

    @contextlib.contextmanager
    def engine(self, run: str) -> Iterator[ClusterEngine]:
        hub = ThreadHub(run)
        self.hubs.append(hub)
        n_ranks = self.n_local + self.n_storage
        engines = [hub.engine(f"rank-{number}") for number in range(n_ranks)]
        for engine in engines[self.n_local :]:
            engine.resources = {"storage": 1.0}
        threads = [
            threading.Thread(target=_rank, args=(engine, partial(self.locate, number), self.throttle), daemon=True)
            for number, engine in enumerate(engines)
        ][::-1]

        def launch() -> None:
            for thread in threads:
                thread.start()

        try:
            yield _Driver(hub, launch)
        finally:
            for thread in threads:
                if thread.ident is not None:
                    thread.join(60)
                assert not thread.is_alive()


def _rank(engine: ClusterEngine, locate: Callable[[str], Path], throttle: Throttle | None) -> None:
    with contextlib.suppress(ClusterError):
        main(engine, locate=locate, throttle=throttle)
        engine.leave()


def ranks(n: int = 3, **ways: Any) -> InThreads:
    return InThreads(ClusterTarget(n_local=n), **ways)


def asked(app: Any = None, n: int = N, **ways: Any) -> Any:
    options = OPTIONS | {name: ways.pop(name) for name in list(ways) if name not in ("against", "pairs", "reduce")}
    return request(app or Sums(), list(range(n)), run_options(options), registry=apps, **ways)


def expected(n: int = N) -> np.ndarray:
    x = np.arange(n, dtype=np.float64)
    scores = x[:, None] * 1000 + x[None, :]
    return np.triu(scores, 1) + np.triu(scores, 1).T


def check(run: tartan.Run, n: int = N) -> None:
    assert run.finished
    matrix = run.matrix()
    np.fill_diagonal(matrix, 0)
    np.testing.assert_array_equal(matrix, expected(n))
    assert not list(run.path.glob("writers*")), "writers left something"
    assert not (run.path / "ranks.json").exists()


class Bomb:
    """Kills a rank in the middle of a run, once."""

    def __init__(self, hubs: list[ThreadHub], at: int, names: tuple[str, ...]) -> None:
        self._hubs, self._at, self._names = hubs, at, names
        self._n_calls = 0
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._n_calls += 1
            if self._n_calls == self._at:
                for name in self._names:
                    self._hubs[-1].kill(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _bomb, (_remember(self),)


_BOMBS: list[Bomb] = []


def _remember(bomb: Bomb) -> int:
    _BOMBS.append(bomb)
    return len(_BOMBS) - 1


def _bomb(number: int) -> Bomb:
    return _BOMBS[number]


class Once:
    """Calls a function at one of the calls of compare."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self._calls, self._at, self._act = itertools.count(1), at, act

    def __call__(self) -> None:
        if next(self._calls) == self._at:
            self._act()

    def __reduce__(self) -> tuple[Any, ...]:
        _ONCE.append(self)
        return _once, (len(_ONCE) - 1,)


_ONCE: list[Once] = []


def _once(number: int) -> Once:
    return _ONCE[number]
