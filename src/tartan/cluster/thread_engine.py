"""Members that are threads of one process: the engine of tests, and the simplest that keeps the port's promises.

``ThreadHub`` is what they share. It can kill, freeze and thaw members as a machine would, without a signal and without
waiting: the messages of a frozen member, in both directions, are kept until it is thawed.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from tartan.cluster.engine import DRIVER, Capabilities, ClusterView, Credentials, PeerLost
from tartan.cluster.station import Roll, Station, fail, settle

_CAPABILITIES = Capabilities(elastic=True, survives_loss=True, encrypted=True)


class ThreadHub:
    """The members of one run in one process.

    Parameters
    ----------
    run : str
        Names the run.
    clock : callable
        Returns the time in seconds by which silence is measured.

    Examples
    --------
    >>> hub = ThreadHub()
    >>> driver, rank = hub.engine("driver"), hub.engine("rank-0")
    >>> driver.start({"add": lambda call: call.body + b"!"}, lambda view: None)
    >>> rank.start({}, lambda view: None)
    >>> rank.request("driver", "add", b"hello", timeout_seconds=5)
    b'hello!'
    >>> driver.leave()
    """

    def __init__(self, run: str = "run", clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self.credentials = Credentials(secrets.token_bytes(32))
        self._clock = clock
        self._lock = threading.RLock()
        self._roll = Roll()
        self._engines: dict[str, ThreadEngine] = {}
        self._frozen: dict[str, float] = {}
        self._parked: list[tuple[str, str, Callable[[], None]]] = []

    def engine(self, name: str) -> ThreadEngine:
        """Return the engine of a new member; the driver's must be started first."""
        return ThreadEngine(self, name)

    # What tests do to members

    def kill(self, name: str) -> None:
        """End a member at once; its own view never says so."""
        self._engines[name].end("it was killed")
        self.remove(name, "it was killed")

    def freeze(self, name: str) -> None:
        """Keep all messages of a member, in both directions, until it is thawed."""
        with self._lock:
            self._frozen.setdefault(name, self._clock())

    def thaw(self, name: str) -> None:
        """Deliver what was kept."""
        with self._lock:
            self._frozen.pop(name, None)
            parked, self._parked = self._parked, []
            for source, target, act in parked:
                self.move(source, target, act)

    # For the engines

    def add(self, engine: ThreadEngine) -> None:
        """Make an engine a member."""
        with self._lock:
            view = self._roll.join(engine.me)
            self._engines[engine.me] = engine
            self._publish(view)

    def remove(self, name: str, reason: str) -> None:
        """End a membership."""
        with self._lock:
            view = self._roll.remove(name, reason)
            if view is not None:
                self._publish(view)

    def silence_seconds(self, name: str) -> float:
        """Return for how long a member has been frozen."""
        with self._lock:
            return self._clock() - self._frozen[name] if name in self._frozen else 0.0

    def carry(self, source: str, target: str, data: bytes, waiting: Future[bytes] | None) -> None:
        """Bring a message to its receiver, and the reply back."""
        with self._lock:
            if target not in self._roll.view.members:
                if waiting is not None:
                    fail(waiting, PeerLost(f"{target} is gone", context={"peer": target}))
                return
            receiver = self._engines[target]
            answer = None if waiting is None else partial(self._answer, source, target, waiting)
            self.move(source, target, partial(receiver.receive, data, answer))

    def move(self, source: str, target: str, act: Callable[[], None]) -> None:
        """Act now, or when neither of two members is frozen."""
        with self._lock:
            if source in self._frozen or target in self._frozen:
                self._parked.append((source, target, act))
            else:
                act()

    def _answer(self, asker: str, asked: str, waiting: Future[bytes], data: bytes) -> None:
        self.move(asked, asker, partial(settle, waiting, data))

    def _publish(self, view: ClusterView) -> None:
        for name, engine in self._engines.items():
            self.move(DRIVER, name, partial(engine.adopt, view))


class ThreadEngine(Station):
    """The engine of one member of a ``ThreadHub``."""

    def __init__(self, hub: ThreadHub, name: str) -> None:
        super().__init__(hub.run, name, _CAPABILITIES)
        self._hub = hub
        self.credentials = hub.credentials

    def silence_seconds(self, peer: str) -> float:
        """Return how long nothing came from a rank."""
        if self.me != DRIVER:
            return super().silence_seconds(peer)
        return self._hub.silence_seconds(peer)

    def expel(self, peer: str, reason: str) -> None:
        """End the membership of a rank."""
        if self.me != DRIVER:
            super().expel(peer, reason)
        self._hub.remove(peer, reason)

    def _carry(self, peer: str, data: bytes, waiting: Future[bytes] | None, timeout_seconds: float) -> None:
        self._hub.carry(self.me, peer, data, waiting)

    def _join(self) -> None:
        self._hub.add(self)

    def _depart(self, reason: str) -> None:
        self._hub.remove(self.me, reason)
