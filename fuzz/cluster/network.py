"""A simulated network under the real stations: posts that are sent again until they are answered, requests, and beats.

What a post promises (it arrives once and in its order, or is lost with its receiver) is made here as
``cluster/courier.py`` makes it; the numbers by which twins are refused are judged by the real one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from fuzz.cluster.host import Process
from tartan.cluster.courier import CALL_SECONDS, Courier
from tartan.cluster.engine import DRIVER, Call, Capabilities, ClusterView, PeerLost, Timeout
from tartan.cluster.station import Roll, Station, fail, settle

if TYPE_CHECKING:
    from fuzz.cluster.world import World

RETRY_SECONDS = 0.2
LATENCY_SECONDS = 0.001
CAPABILITIES = Capabilities(elastic=True, survives_loss=True, encrypted=True)


@dataclass
class Weather:
    """What happens to messages now.

    Attributes
    ----------
    loss, twin, late : float
        Shares of the messages that are lost, come twice, or come late.
    cut : set of str
        Processes that reach only each other.
    """

    loss: float = 0.0
    twin: float = 0.0
    late: float = 0.0
    cut: set[str] = field(default_factory=set)


class Network:
    """Brings bytes and calls from one process to another.

    Parameters
    ----------
    world : World
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.weather = Weather()

    def reaches(self, one: Process, other: Process) -> bool:
        """Whether a message would get from one process to another now."""
        cut = self.weather.cut
        return other.alive and (not cut or (one.name in cut) == (other.name in cut))

    def send(self, source: Process, target: Process, act: Callable[[], None]) -> None:
        """Let something happen at another process, once or twice, late or never."""
        rng, weather = self._world.rng, self.weather
        if not self.reaches(source, target) or (weather.loss and rng.random() < weather.loss):
            return
        self._world.after(self._delay(), target, act)
        if weather.twin and rng.random() < weather.twin:
            self._world.after(self._delay() + rng.random(), target, act)

    def _delay(self) -> float:
        rng = self._world.rng
        delay = LATENCY_SECONDS * (0.5 + rng.random())
        if self.weather.late and rng.random() < self.weather.late:
            delay += rng.random() * 3.0
        return delay


class SimulatedStation(Station):
    """The engine of one process, without a thread; the driver's keeps the list of members.

    Parameters
    ----------
    world : World
    process : Process
    run : Membership
    name : str
    """

    def __init__(self, world: World, process: Process, run: Membership, name: str) -> None:
        super().__init__(run.name, name, CAPABILITIES)
        self._world, self.process, self.run = world, process, run
        self._courier = Courier(name, _send_nothing)
        self._pipes: dict[str, _Pipe] = {}
        self.on_served: Callable[[], None] = _do_nothing
        self.rank_timeout_seconds = world.rank_timeout_seconds

    # -- what adapters do ------------------------------------------------------------------------------------------

    def _begin_serving(self) -> None:
        """Have no thread: the world calls ``serve``."""

    def _carry(self, peer: str, data: bytes, waiting: Future[bytes] | None, timeout_seconds: float) -> None:
        if waiting is None:
            self._pipes.setdefault(peer, _Pipe(self, peer)).put(data)
            return
        receiver = self.run.stations.get(peer)
        if receiver is None:
            fail(waiting, PeerLost(f"{peer} is gone", context={"peer": peer}))
        elif receiver.process.frozen or not self._world.network.reaches(self.process, receiver.process):
            fail(waiting, Timeout(f"{peer} did not answer", retryable=True))
        else:
            with self._world.running(receiver.process):
                receiver.receive(data, partial(settle, waiting))
                receiver.serve()  # the answer is there even if it is killed after that
            if not waiting.done():
                fail(waiting, PeerLost(f"{peer} has ended", context={"peer": peer}))

    def _join(self) -> None:
        self.run.join(self)

    def _depart(self, reason: str) -> None:
        self.run.remove(self.me, reason)

    def end(self, reason: str) -> None:
        """Stop; there is no thread to wait for."""
        super().end(reason)
        self.run.stations.pop(self.me, None)

    def _handle_request(self, call: Call) -> bytes:
        if self.me == DRIVER:
            self._world.checks.on_handled(self.run, call.sender, call.do)
        return super()._handle_request(call)

    # -- what the driver alone may do ------------------------------------------------------------------------------

    def silence_seconds(self, peer: str) -> float:
        """Return how long nothing came from a rank."""
        return self.process.clock() - self.run.heard.get(peer, self.process.clock())

    def expel(self, peer: str, reason: str) -> None:
        """End the membership of a rank."""
        self.run.remove(peer, reason)

    # -- what arrives ----------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Handle what has come, then let the owner of this station go on."""
        self.serve_waiting()
        self.on_served()

    def take_post(self, sender: str, number: int, data: bytes) -> None:
        """Take a post that has arrived, unless it is a twin."""
        if self._courier.takes(sender, number):
            self.receive(data, None)
            self.serve()

    def take_view(self, view: ClusterView) -> None:
        """Take a view that the driver has sent."""
        self.adopt(view)
        self.serve()


class Membership:
    """One execution as its driver knows it: the real list of members, and who was heard of when."""

    def __init__(self, world: World, name: str, driver: Process) -> None:
        self._world, self.name, self.driver = world, name, driver
        self.roll = Roll()
        self.stations: dict[str, SimulatedStation] = {}
        self.heard: dict[str, float] = {}
        self.expelled_at: dict[str, float] = {}

    def join(self, station: SimulatedStation) -> None:
        """Make a station a member: one round trip to the driver; raises ClusterError where it does not get there."""
        process = station.process
        if station.me != DRIVER and (self.driver.frozen or not self._world.network.reaches(process, self.driver)):
            raise Timeout("the driver did not answer", retryable=True)
        view = self.roll.join(station.me)
        self.stations[station.me] = station
        self.heard[station.me] = self.driver.clock()
        station.adopt(view)
        self._publish(view)

    def remove(self, name: str, reason: str) -> None:
        """End a membership, at the driver."""
        view = self.roll.remove(name, reason)
        if view is not None:
            self.expelled_at[name] = self._world.now
            self._publish(view)

    def beat(self, name: str, epoch: int) -> None:
        """Take a sign of life; answer with the view where it is newer."""
        self.heard[name] = self.driver.clock()
        station = self.stations.get(name)
        if station is None:
            return
        view = self.roll.view if self.roll.view.epoch > epoch else None
        self._world.network.send(self.driver, station.process, partial(self._answer_beat, station, view))

    def _answer_beat(self, station: SimulatedStation, view: ClusterView | None) -> None:
        station.process.on_heard()  # type: ignore[attr-defined]
        if view is not None:
            station.take_view(view)

    def _publish(self, view: ClusterView) -> None:
        for station in list(self.stations.values()):
            if station.me == DRIVER:
                station.adopt(view)
                self._world.after(0.0, self.driver, station.serve)
            elif station.me in view.members or station.me in view.gone:
                self._world.network.send(self.driver, station.process, partial(station.take_view, view))


class _Pipe:
    """Posts of one station to another, one after the other."""

    def __init__(self, station: SimulatedStation, peer: str) -> None:
        self._station, self._peer = station, peer
        self._world = station._world
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._sends = False

    def put(self, data: bytes) -> None:
        """Send bytes after those before them."""
        self._waiting.append((next(self._station._courier._numbers), data))
        if not self._sends:
            self._sends = True
            self._send()

    def _send(self) -> None:
        """Send the first that waits, for the first time or again."""
        receiver = self._station.run.stations.get(self._peer)
        if receiver is None or self._peer not in self._station.view().members:
            self._waiting.clear()
            self._sends = False
            return
        world, process = self._world, self._station.process
        weather, rng = world.network.weather, world.rng
        number, data = self._waiting[0]
        take = partial(receiver.take_post, self._station.me, number, data)
        if not receiver.process.alive or not world.network.reaches(process, receiver.process):
            world.after(RETRY_SECONDS + (CALL_SECONDS if receiver.process.alive else 0.0), process, self._send)
            return
        lost = weather.loss and rng.random() < weather.loss
        if not lost:
            delay = world.network._delay()
            world.after(delay, receiver.process, take)
            if weather.twin and rng.random() < weather.twin:
                world.after(delay + rng.random() * 5.0, receiver.process, take)
        if lost or receiver.process.frozen or (weather.loss and rng.random() < weather.loss):  # no answer
            world.after(CALL_SECONDS + RETRY_SECONDS, process, self._send)
        else:
            world.after(delay + LATENCY_SECONDS, process, self._end)

    def _end(self) -> None:
        self._waiting.popleft()
        if self._waiting:
            self._send()
        else:
            self._sends = False


async def _send_nothing(address: str, **fields: object) -> dict[str, object]:
    return {}


def _do_nothing() -> None:
    pass
