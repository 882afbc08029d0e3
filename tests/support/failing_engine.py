"""An engine that fails on command: it wraps another one, and is transparent until it is told otherwise.

Faults are of the member that holds it: what it sends is dropped, doubled or held back, it is frozen, or cut off from
others. A cut between two members takes both of their engines. Nothing here waits for time to pass, and the same seed
and the same calls meet the same faults.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tartan.cluster.engine import (
    Call,
    Capabilities,
    ClusterEngine,
    ClusterView,
    Credentials,
    Handler,
    OnView,
    PeerLost,
    Timeout,
)

_EVER = 600.0


@dataclass(frozen=True)
class MessageFault:
    """What happens to some of the messages that a member sends.

    Attributes
    ----------
    act : {"drop", "duplicate", "hold"}
        A dropped request raises Timeout at once. A held message waits for ``release``; others overtake it.
    do, peer : str, optional
        Which messages; default: all.
    skip : int
        How many of those go through first.
    times : int, optional
        How many are met after that; default: all.
    share : float
        Of those, how many are met, drawn by the seed.
    """

    act: Literal["drop", "duplicate", "hold"]
    do: str | None = None
    peer: str | None = None
    skip: int = 0
    times: int | None = None
    share: float = 1.0


class FailingEngine:
    """A ``ClusterEngine`` whose messages fail on command.

    Parameters
    ----------
    engine : ClusterEngine
        Carries what is not lost.
    faults : iterable of MessageFault
        The first that matches a message counts.
    seed : int
        Of the draws.
    """

    def __init__(self, engine: ClusterEngine, faults: Iterable[MessageFault] = (), *, seed: int = 0) -> None:
        self.me = engine.me
        self._engine = engine
        self._faults = list(faults)
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._met: dict[int, int] = {}
        self._cut: set[str] = set()
        self._held: list[Callable[[], None]] = []
        self._thawed = threading.Event()
        self._thawed.set()

    # Commands

    def add(self, fault: MessageFault) -> None:
        """Add a fault, after those that there are."""
        with self._lock:
            self._faults.append(fault)

    def heal(self) -> None:
        """Forget all faults and cuts; what was dropped stays lost."""
        with self._lock:
            self._faults.clear()
            self._met.clear()
            self._cut.clear()

    def release(self) -> None:
        """Send what was held back, in its order."""
        with self._lock:
            held, self._held = self._held, []
        for act in held:
            act()

    def cut(self, peer: str) -> None:
        """Reach a member no more."""
        with self._lock:
            self._cut.add(peer)

    def freeze(self) -> None:
        """Handle nothing and send nothing until ``thaw``; calls under way wait."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Continue."""
        self._thawed.set()

    # ClusterEngine

    @property
    def capabilities(self) -> Capabilities:
        """Those of the engine that is wrapped."""
        return self._engine.capabilities

    @property
    def credentials(self) -> Credentials:
        """Those of the engine that is wrapped."""
        return self._engine.credentials

    @property
    def host(self) -> str:
        """Interface under which others reach this process."""
        return self._engine.host

    @property
    def resources(self) -> Mapping[str, float]:
        """Those of the engine that is wrapped."""
        return self._engine.resources

    def start(self, handlers: Mapping[str, Handler], on_view: OnView) -> None:
        """Become a member."""
        self._engine.start({do: partial(self._handle, handler) for do, handler in handlers.items()}, self._see(on_view))

    def view(self) -> ClusterView:
        """Return the newest view."""
        return self._engine.view()

    def request(
        self, peer: str, do: str, body: bytes = b"", *, timeout_seconds: float, epoch: int | None = None
    ) -> bytes:
        """Send a message and return the body of its answer, unless a fault meets it."""
        self._wait(self._thawed, timeout_seconds, peer, do)
        ask = partial(self._engine.request, peer, do, body, timeout_seconds=timeout_seconds, epoch=epoch)
        match self._fate(peer, do):
            case "cut":
                raise PeerLost(f"{peer} cannot be reached: the connection is cut", context={"peer": peer})
            case "drop":
                raise Timeout(f"{peer} did not answer {do!r}: the message was dropped", retryable=True)
            case "hold":
                released = threading.Event()
                with self._lock:
                    self._held.append(released.set)
                self._wait(released, timeout_seconds, peer, do)
            case "duplicate":
                ask()
        return ask()

    def post(self, peer: str, do: str, body: bytes = b"") -> None:
        """Send a message without an answer, unless a fault meets it."""
        self._thawed.wait(_EVER)
        send = partial(self._engine.post, peer, do, body)
        match self._fate(peer, do):
            case "cut" | "drop":
                return
            case "hold":
                with self._lock:
                    self._held.append(send)
                return
            case "duplicate":
                send()
        send()

    def silence_seconds(self, peer: str) -> float:
        """Return how long nothing came from a rank."""
        return self._engine.silence_seconds(peer)

    def expel(self, peer: str, reason: str) -> None:
        """End the membership of a rank."""
        self._engine.expel(peer, reason)

    def leave(self, reason: str = "") -> None:
        """End the own membership."""
        self._engine.leave(reason)

    # Faults

    def _fate(self, peer: str, do: str) -> str:
        with self._lock:
            if peer in self._cut:
                return "cut"
            for number, fault in enumerate(self._faults):
                if fault.do in (None, do) and fault.peer in (None, peer):
                    return fault.act if self._is_met(number, fault) else ""
            return ""

    def _is_met(self, number: int, fault: MessageFault) -> bool:
        count = self._met[number] = self._met.get(number, -1) + 1
        late = fault.times is not None and count >= fault.skip + fault.times
        return not late and count >= fault.skip and self._random.random() < fault.share

    def _handle(self, handler: Handler, call: Call) -> bytes:
        self._thawed.wait(_EVER)
        return handler(call)

    def _see(self, on_view: OnView) -> OnView:
        def seen(view: ClusterView) -> None:
            self._thawed.wait(_EVER)
            on_view(view)

        return seen

    def _wait(self, event: threading.Event, timeout_seconds: float, peer: str, do: str) -> None:
        if not event.wait(timeout_seconds):
            raise Timeout(f"{peer} did not answer {do!r} within {timeout_seconds:g} s", retryable=True)
