"""What every cluster engine must pass: a pytest base class. Subclass it and say how members are started and harmed.

That takes a crew::

    class TestMyEngine(EngineKit):
        @contextlib.contextmanager
        def crew(self):
            yield MyCrew()            # see Crew

Ranks run ``RankProgram``, in threads or in processes of their own, and are told by messages what to try. Nothing here
sleeps: every wait ends when what it waits for happens, or fails after ``patience_seconds``.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import queue
import select
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from tartan.cluster import wire
from tartan.cluster.engine import (
    DRIVER,
    LIMIT_BYTES,
    Call,
    ClusterEngine,
    ClusterView,
    Oversize,
    PeerLost,
    StaleEpoch,
    Timeout,
)
from tartan.errors import InternalError, TartanError, TransportError

__all__ = ["Crew", "EngineKit", "RankProgram", "rank_main"]


class Crew(Protocol):
    """The members of one run, as a test sees them.

    Attributes
    ----------
    driver : ClusterEngine
        Not started yet.
    own_processes : bool
        Whether ranks run in processes of their own, so that one can hold its interpreter lock.
    """

    driver: ClusterEngine
    own_processes: bool

    def join(self) -> None:
        """Start one more rank, which runs ``RankProgram``; return at once."""
        ...

    def meet(self, name: str) -> None:
        """Take note of a rank that has become a member; it answers requests."""
        ...

    def kill(self, name: str) -> None:
        """End a rank as SIGKILL does."""
        ...

    def freeze(self, name: str) -> None:
        """Stop a rank as SIGSTOP does."""
        ...

    def thaw(self, name: str) -> None:
        """Let it continue."""
        ...

    def wait_ended(self, name: str, timeout_seconds: float) -> bool:
        """Return whether the program of a rank ends in time."""
        ...


@dataclass(frozen=True)
class _Errand:
    """A request that a rank is to make of another member."""

    ticket: int
    peer: str
    do: str
    body: bytes
    timeout_seconds: float
    epoch: int | None = None


@dataclass(frozen=True)
class _Outcome:
    """What became of an order: a body, or the class of an error."""

    ticket: int
    body: bytes
    error: str


@dataclass(frozen=True)
class _Gates:
    """Named pipes: what the rank writes when it holds its lock, and what lets it go on."""

    held: str
    go: str


class RankProgram:
    """What a rank of the kit does: it answers a few simple requests, and carries out each "order" and "hold" later.

    Parameters
    ----------
    engine : ClusterEngine
        Not started yet.
    """

    def __init__(self, engine: ClusterEngine) -> None:
        self._engine = engine
        self._orders: queue.SimpleQueue[_Errand | _Gates | None] = queue.SimpleQueue()

    def run(self) -> None:
        """Take part until this rank is no longer a member."""
        simple = {"echo": _echo, "fail": _fail, "large": _large, "pid": _pid}
        late = {"order": self._take, "hold": self._hold, "go": self._go}
        self._engine.start({**simple, **late, "resources": self._resources}, self._see)
        while (order := self._orders.get()) is not None:
            outcome = self._carry_out(order) if isinstance(order, _Errand) else _hold_lock(order)
            with contextlib.suppress(TartanError):
                self._engine.post(DRIVER, "outcome", wire.encode(outcome))
        self._engine.leave()

    def _see(self, view: ClusterView) -> None:
        if self._engine.me not in view.members:
            self._orders.put(None)

    def _take(self, call: Call) -> bytes:
        self._orders.put(wire.decode(call.body, _Errand))
        return b""

    def _hold(self, call: Call) -> bytes:
        self._orders.put(wire.decode(call.body, _Gates))
        return b""

    def _resources(self, _call: Call) -> bytes:
        return wire.encode(list(self._engine.resources))

    def _go(self, _call: Call) -> bytes:
        self._orders.put(None)
        return b""

    def _carry_out(self, order: _Errand) -> _Outcome:
        try:
            body = self._engine.request(
                order.peer, order.do, order.body, timeout_seconds=order.timeout_seconds, epoch=order.epoch
            )
        except TartanError as error:
            return _Outcome(order.ticket, str(error).encode(), type(error).__name__)
        return _Outcome(order.ticket, body, "")


def _echo(call: Call) -> bytes:
    return call.body


def _pid(_call: Call) -> bytes:
    return wire.encode(os.getpid())


def _hold_lock(gates: _Gates) -> _Outcome:
    """Hold the interpreter lock within one call, which tells the first pipe that it has begun and waits for the second.

    Whoever reads the first pipe knows that this process cannot answer: the lock is held until the second is written.
    """
    ctypes.PyDLL(None).system(f"echo held > {shlex.quote(gates.held)}; read _ < {shlex.quote(gates.go)}".encode())
    return _Outcome(0, b"", "")


def _fail(_call: Call) -> bytes:
    raise ValueError("told to fail")


def _large(call: Call) -> bytes:
    return b"x" * wire.decode(call.body, int)


class _Desk:
    """The driver's side of a test: what arrived, and waits for it."""

    def __init__(self, crew: Crew, patience_seconds: float) -> None:
        self.crew, self.engine = crew, crew.driver
        self._patience_seconds = patience_seconds
        self._changed = threading.Condition()
        self.views: list[ClusterView] = []
        self.posts: list[Call] = []
        self._outcomes: dict[int, _Outcome] = {}
        self._tickets = itertools.count(1)
        self.engine.start({"echo": _echo, "note": self._note, "outcome": self._learn}, self._see)

    def _see(self, view: ClusterView) -> None:
        with self._changed:
            self.views.append(view)
            self._changed.notify_all()

    def _note(self, call: Call) -> bytes:
        with self._changed:
            self.posts.append(call)
            self._changed.notify_all()
        return b""

    def _learn(self, call: Call) -> bytes:
        outcome = wire.decode(call.body, _Outcome)
        with self._changed:
            self._outcomes[outcome.ticket] = outcome
            self._changed.notify_all()
        return b""

    def wait(self, happened: Callable[[], bool], what: str) -> None:
        """Wait until something is true that messages or views make so."""
        with self._changed:
            assert self._changed.wait_for(happened, self._patience_seconds), f"never: {what}"

    def ranks(self, n: int) -> tuple[str, ...]:
        """Return the ranks, when there are ``n``."""
        self.wait(lambda: len(self.engine.view().ranks) == n, f"{n} ranks")
        return self.engine.view().ranks

    def hire(self, n: int) -> tuple[str, ...]:
        """Start ranks; return the names of all."""
        before = len(self.engine.view().ranks)
        for _ in range(n):
            self.crew.join()
        names = self.ranks(before + n)
        for name in names[before:]:
            self.crew.meet(name)
        return names

    def wait_gone(self, name: str) -> str:
        """Wait until a member is gone; return why."""
        self.wait(lambda: name in self.engine.view().gone, f"{name} is gone")
        return self.engine.view().gone[name]

    def order(self, rank: str, peer: str, do: str, body: bytes = b"", *, epoch: int | None = None) -> int:
        """Tell a rank to make a request; return the ticket of the outcome."""
        ticket = next(self._tickets)
        order = _Errand(ticket, peer, do, body, self._patience_seconds, epoch)
        self.engine.request(rank, "order", wire.encode(order), timeout_seconds=self._patience_seconds)
        return ticket

    def outcome(self, ticket: int) -> tuple[str, bytes]:
        """Wait for an outcome; return the name of the error, or "", and the body or text."""
        self.wait(lambda: ticket in self._outcomes, "an outcome")
        return self._outcomes[ticket].error, self._outcomes[ticket].body

    def ask(self, peer: str, do: str, body: bytes = b"", seconds: float | None = None) -> bytes:
        """Make a request."""
        return self.engine.request(peer, do, body, timeout_seconds=seconds or self._patience_seconds)


@contextlib.contextmanager
def lock_held(engine: ClusterEngine, rank: str, patience_seconds: float) -> Iterator[None]:
    """Let a rank of the kit hold its interpreter lock from the first line within to the last."""
    with tempfile.TemporaryDirectory(prefix="tartan-kit-") as folder:
        gates = _Gates(str(Path(folder) / "held"), str(Path(folder) / "go"))
        for gate in (gates.held, gates.go):
            os.mkfifo(gate)
        reader = os.open(gates.held, os.O_RDONLY | os.O_NONBLOCK)  # a writer never waits for it
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        try:
            engine.request(rank, "hold", wire.encode(gates), timeout_seconds=patience_seconds)
            assert poll.poll(1000 * patience_seconds), "the rank never held its lock"
            try:
                yield
            finally:
                Path(gates.go).write_text("go\n")
        finally:
            os.close(reader)


def is_heard(engine: ClusterEngine, rank: str, patience_seconds: float) -> bool:
    """Wait until something comes from a rank: its silence, which only grows with time, is shorter than it was."""
    deadline, longest = time.monotonic() + patience_seconds, 0.0
    while time.monotonic() < deadline:
        silence = engine.silence_seconds(rank)
        if silence < longest:
            return True
        longest = silence
        threading.Event().wait(0.01)
    return False


class EngineKit:
    """The suite. See the module for how to use it."""

    patience_seconds = 20.0
    short_seconds = 0.05

    @contextlib.contextmanager
    def crew(self) -> Iterator[Crew]:
        """Yield the members of a new run; afterwards end what is left of them."""
        raise NotImplementedError
        yield

    @contextlib.contextmanager
    def desk(self, n_ranks: int) -> Iterator[tuple[_Desk, tuple[str, ...]]]:
        """Yield a started driver and its ranks."""
        with self.crew() as crew:
            desk = _Desk(crew, self.patience_seconds)
            try:
                yield desk, desk.hire(n_ranks)
            finally:
                desk.engine.leave("the test is over")

    def test_members_join_and_the_epoch_grows(self) -> None:
        with self.desk(2) as (desk, ranks):
            assert len({*ranks, DRIVER}) == 3
            assert desk.engine.view().members == (DRIVER, *ranks)
            desk.wait(lambda: desk.views[-1:] == [desk.engine.view()], "the view is shown")
            epochs = [view.epoch for view in desk.views]
            assert epochs == sorted(set(epochs))
            assert epochs[0] >= 1

    def test_requests_are_answered_in_every_direction(self) -> None:
        with self.desk(2) as (desk, (first, second)):
            assert desk.ask(first, "echo", b"to a rank") == b"to a rank"
            assert desk.outcome(desk.order(first, second, "echo", b"among ranks")) == ("", b"among ranks")
            assert desk.outcome(desk.order(second, DRIVER, "echo", b"to the driver")) == ("", b"to the driver")

    def test_requests_of_many_threads_keep_their_answers_apart(self) -> None:
        with self.desk(2) as (desk, ranks):
            found: dict[int, bytes] = {}

            def call(number: int) -> None:
                found[number] = desk.ask(ranks[number % 2], "echo", b"%d" % number)

            threads = [threading.Thread(target=call, args=(number,)) for number in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(self.patience_seconds)
            assert found == {number: b"%d" % number for number in range(16)}

    def test_a_handler_that_fails_gives_its_reason(self) -> None:
        with self.desk(1) as (desk, (rank,)):
            with pytest.raises(TransportError, match="ValueError: told to fail"):
                desk.ask(rank, "fail")
            with pytest.raises(TransportError, match="does not know the message 'dance'"):
                desk.ask(rank, "dance")
            assert desk.ask(rank, "echo", b"still there") == b"still there"

    def test_oversize_messages_are_refused(self) -> None:
        with self.desk(1) as (desk, (rank,)):
            whole = b"x" * (LIMIT_BYTES - 2000)
            assert desk.ask(rank, "echo", whole) == whole
            with pytest.raises(Oversize, match="beside the engine"):
                desk.ask(rank, "echo", b"x" * LIMIT_BYTES)
            with pytest.raises(Oversize):
                desk.engine.post(rank, "echo", b"x" * LIMIT_BYTES)
            with pytest.raises(TransportError, match="its answer has"):
                desk.ask(rank, "large", wire.encode(LIMIT_BYTES))
            assert desk.ask(rank, "echo", b"still there") == b"still there"

    def test_a_killed_rank_is_lost_and_the_others_continue(self) -> None:
        with self.desk(2) as (desk, (first, second)):
            before = desk.engine.view().epoch
            desk.crew.kill(first)
            assert desk.wait_gone(first)
            assert desk.engine.view().epoch > before
            assert second in desk.engine.view().ranks
            with pytest.raises(PeerLost, match=first):
                desk.ask(first, "echo")
            assert desk.outcome(desk.order(second, first, "echo"))[0] == "PeerLost"
            assert desk.ask(second, "echo", b"alive") == b"alive"

    def test_a_request_that_waits_for_a_killed_rank_ends(self) -> None:
        with self.desk(2) as (desk, (first, second)):
            desk.crew.freeze(first)
            ticket = desk.order(second, first, "echo")
            desk.crew.kill(first)
            assert desk.outcome(ticket)[0] == "PeerLost"

    def test_a_frozen_rank_is_silent_and_harmless_when_it_wakes(self) -> None:
        with self.desk(2) as (desk, (first, second)):
            desk.crew.freeze(first)
            with pytest.raises(Timeout, match=f"{first} did not answer 'echo' within"):
                desk.ask(first, "echo", seconds=self.short_seconds)
            assert desk.engine.silence_seconds(first) > 0.0
            ticket = desk.order(second, first, "echo")
            desk.engine.expel(first, "silent for too long")
            assert desk.wait_gone(first) == "silent for too long"
            assert desk.outcome(ticket)[0] == "PeerLost"
            desk.crew.thaw(first)
            assert desk.crew.wait_ended(first, self.patience_seconds)
            assert second in desk.engine.view().ranks
            assert first not in desk.engine.view().ranks

    def test_a_rank_that_holds_its_interpreter_lock_is_not_silent(self) -> None:
        with self.desk(1) as (desk, (rank,)):
            if not desk.crew.own_processes:
                pytest.skip("the ranks share the interpreter lock of this process")
            with lock_held(desk.engine, rank, self.patience_seconds):
                with pytest.raises(Timeout):
                    desk.ask(rank, "echo", seconds=self.short_seconds)
                assert is_heard(desk.engine, rank, self.patience_seconds)
            desk.outcome(0)
            assert desk.ask(rank, "echo", b"here again") == b"here again"
            assert desk.engine.view().ranks == (rank,)

    def test_a_rank_may_join_late(self) -> None:
        with self.desk(1) as (desk, (first,)):
            if not desk.engine.capabilities.elastic:
                pytest.skip("members of this engine are fixed")
            epoch = desk.engine.view().epoch
            late = desk.hire(1)[-1]
            assert desk.engine.view().epoch > epoch
            desk.wait(lambda: bool(desk.views) and desk.views[-1].ranks == (first, late), "the newcomer is shown")
            assert desk.outcome(desk.order(late, first, "echo", b"hello")) == ("", b"hello")
            assert desk.outcome(desk.order(first, late, "echo", b"hello")) == ("", b"hello")

    def test_a_request_that_rests_on_an_old_view_is_refused(self) -> None:
        with self.desk(2) as (desk, (first, second)):
            now = desk.engine.view().epoch
            with pytest.raises(StaleEpoch) as caught:
                desk.engine.request(first, "echo", timeout_seconds=self.patience_seconds, epoch=now - 1)
            assert caught.value.epoch == now
            assert desk.outcome(desk.order(first, second, "echo", epoch=now - 1))[0] == "StaleEpoch"
            assert desk.outcome(desk.order(first, second, "echo", b"new", epoch=now)) == ("", b"new")

    def test_posts_of_one_member_arrive_in_their_order(self) -> None:
        with self.desk(1) as (desk, (rank,)):
            for number in range(20):
                desk.engine.post(DRIVER, "note", b"%d" % number)
            desk.wait(lambda: len(desk.posts) == 20, "all posts")
            assert [call.body for call in desk.posts] == [b"%d" % number for number in range(20)]
            assert {call.sender for call in desk.posts} == {DRIVER}
            desk.crew.kill(rank)
            desk.wait_gone(rank)
            desk.engine.post(rank, "note")  # lost without an error

    def test_a_rank_that_leaves_is_gone(self) -> None:
        with self.desk(2) as (desk, (first, second)):
            desk.engine.post(first, "go")
            assert "left" in desk.wait_gone(first)
            assert desk.crew.wait_ended(first, self.patience_seconds)
            assert desk.ask(second, "echo", b"alive") == b"alive"

    def test_ranks_end_when_the_driver_leaves(self) -> None:
        with self.desk(2) as (desk, ranks):
            desk.engine.leave("all is done")
            assert all(desk.crew.wait_ended(name, self.patience_seconds) for name in ranks)
            with pytest.raises(StaleEpoch, match="all is done"):
                desk.ask(ranks[0], "echo")
            desk.engine.leave("a second time")

    def test_handlers_must_not_wait(self) -> None:
        with self.crew() as crew:
            problems: queue.SimpleQueue[str] = queue.SimpleQueue()

            def impatient(_view: ClusterView) -> None:
                try:
                    crew.driver.request(DRIVER, "echo", timeout_seconds=self.patience_seconds)
                except InternalError as error:
                    problems.put(str(error))

            crew.driver.start({"echo": _echo}, impatient)
            assert "must not wait" in problems.get(timeout=self.patience_seconds)
            crew.driver.leave()


def rank_main(engine: ClusterEngine) -> None:
    """Run the program of the kit as a rank in a process of its own."""
    RankProgram(engine).run()
