"""What all engines have in common: the view, the thread that calls handlers, the requests that wait for answers.

An adapter says how bytes travel (``_carry``), how a member joins (``_join``) and goes (``_depart``), and calls
``receive`` and ``adopt`` for what arrives. It may call both from any thread; neither blocks nor runs a handler.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from functools import partial

from tartan.base.daemon_pool import ByteBudget
from tartan.base.format import reason_of
from tartan.base.logs import logger_of
from tartan.cluster import wire
from tartan.cluster.engine import (
    DRIVER,
    LIMIT_BYTES,
    Call,
    Capabilities,
    ClusterView,
    Credentials,
    Handler,
    OnView,
    PeerLost,
    StaleEpoch,
    Timeout,
)
from tartan.errors import ClusterError, InternalError, TransportError

_log = logger_of(__name__)

# By judgement: 64 messages of LIMIT_BYTES that wait for a handler; beyond, who sends waits. No benchmark.
_WAITING_BYTES = 64 << 20
# By arithmetic: run, epoch, version and names take some hundred bytes.
_HEAD_BYTES = 1 << 10
# By judgement: as _CLOSE_SECONDS of cluster/dask_engine.
_END_SECONDS = 5.0

Answer = Callable[[bytes], None]


class Station(ABC):
    """The part of an engine that does not depend on what carries the bytes; see ``ClusterEngine`` for its methods.

    Parameters
    ----------
    run : str
        Names one execution of a run; messages of others are refused.
    me : str
        Name of this member.
    capabilities : Capabilities
    """

    def __init__(self, run: str, me: str, capabilities: Capabilities) -> None:
        self.me = me
        self.capabilities = capabilities
        self.credentials = Credentials()
        self.host = "127.0.0.1"
        self.resources: Mapping[str, float] = {}
        self._run = run
        self._handlers: Mapping[str, Handler] = {}
        self._on_view: OnView = _ignore
        self._view = ClusterView()
        self._lock = threading.Lock()
        self._ended = ""
        self._waiting: dict[Future[bytes], str] = {}
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._budget = ByteBudget(_WAITING_BYTES)
        self._thread = threading.Thread(target=self._serve, name=f"tartan-engine-{me}", daemon=True)

    # How bytes travel

    @abstractmethod
    def _carry(self, peer: str, data: bytes, waiting: Future[bytes] | None, timeout_seconds: float) -> None:
        """Send bytes to another member without blocking; ``waiting`` gets the reply's bytes, or PeerLost."""

    @abstractmethod
    def _join(self) -> None:
        """Become a member; ``adopt`` the first view."""

    @abstractmethod
    def _depart(self, reason: str) -> None:
        """Tell the others that this member has left, and let go of what carries the bytes."""

    # ClusterEngine

    def start(self, handlers: Mapping[str, Handler], on_view: OnView) -> None:
        """Become a member."""
        self._handlers, self._on_view = dict(handlers), on_view
        self._begin_serving()
        try:
            self._join()
        except BaseException:
            self.end("it could not join")
            raise

    def view(self) -> ClusterView:
        """Return the newest view."""
        with self._lock:
            return self._view

    def request(
        self, peer: str, do: str, body: bytes = b"", *, timeout_seconds: float, epoch: int | None = None
    ) -> bytes:
        """Send a message and return the body of its answer."""
        if threading.current_thread() is self._thread:
            raise InternalError(f"a handler must not wait for an answer ({do!r} to {peer})")
        data = self._seal(do, body, epoch)
        _log.debug("%s to %s from %s, to be answered: %d bytes", do, peer, self.me, len(data))
        waiting: Future[bytes] = Future()
        with self._lock:
            if peer not in self._view.members:
                raise _make_lost_error(peer, self._view)
            self._waiting[waiting] = peer
        try:
            self._send(peer, data, waiting, timeout_seconds)
            return self._answer_of(waiting.result(timeout_seconds), peer, do)
        except TimeoutError:
            raise Timeout(f"{peer} did not answer {do!r} within {timeout_seconds:g} s", retryable=True) from None
        finally:
            with self._lock:
                self._waiting.pop(waiting, None)
            waiting.cancel()

    def post(self, peer: str, do: str, body: bytes = b"") -> None:
        """Send a message without an answer."""
        data = self._seal(do, body, None)
        _log.debug("%s to %s from %s: %d bytes", do, peer, self.me, len(data))
        if peer in self.view().members:
            self._send(peer, data, None, 0.0)

    def silence_seconds(self, peer: str) -> float:
        """Refuse: only the driver can say."""
        raise InternalError(f"{self.me} cannot say how long {peer} has been silent, only the driver can")

    def expel(self, peer: str, reason: str) -> None:
        """Refuse: only the driver may."""
        raise InternalError(f"{self.me} must not expel {peer} ({reason}), only the driver may")

    def leave(self, reason: str = "") -> None:
        """End the own membership."""
        with self._lock:
            done = bool(self._ended)
        if not done:
            self._depart(reason or "it left")
            self.end(reason or "it left")

    # For adapters

    def receive(self, data: bytes, answer: Answer | None) -> None:
        """Queue a message for its handler; ``answer`` is called with the reply's bytes, in any thread, at most once."""
        if self._budget.offer(len(data)):
            self._work.put(partial(self._handle, data, answer))
        elif answer is not None:
            answer(self._reply("busy", f"{self.me} has too many messages to answer"))

    def adopt(self, view: ClusterView) -> None:
        """Take over a newer view; requests to members that are gone raise PeerLost."""
        with self._lock:
            if self._ended or view.epoch <= self._view.epoch:
                return
            known, self._view = self._view, view
            orphans = [(future, peer) for future, peer in self._waiting.items() if peer not in view.members]
            if self.me in view.members:
                self._work.put(partial(self._show, view))
            else:
                self._work.put(partial(self._expel, view))
        _note_view(known, view)
        for future, peer in orphans:
            fail(future, _make_lost_error(peer, view))

    def end(self, reason: str) -> None:
        """Stop: nothing is handled any more, and all calls raise StaleEpoch."""
        with self._lock:
            if self._ended:
                return
            self._ended = reason
            waiting = list(self._waiting)
        for future in waiting:
            fail(future, self._stale())
        self._work.put(None)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_END_SECONDS)

    # Sending

    def _send(self, peer: str, data: bytes, waiting: Future[bytes] | None, timeout_seconds: float) -> None:
        if peer == self.me:
            self.receive(data, None if waiting is None else partial(settle, waiting))
        else:
            self._carry(peer, data, waiting, timeout_seconds)

    def _seal(self, do: str, body: bytes, epoch: int | None) -> bytes:
        with self._lock:
            view, ended = self._view, self._ended
        if ended or self.me not in view.members:
            raise self._stale()
        if epoch is not None and epoch < view.epoch:
            raise StaleEpoch(f"{do!r} rests on epoch {epoch}, the present one is {view.epoch}", view.epoch)
        envelope = wire.Envelope(
            wire.VERSION, self._run, view.epoch if epoch is None else epoch, self.me, do, body, epoch is not None
        )
        return wire.seal(envelope)

    def _stale(self) -> StaleEpoch:
        reason = self._view.gone.get(self.me) or self._ended or "it has not joined"
        return StaleEpoch(f"{self.me} is not a member of the run: {reason}", self._view.epoch)

    def _answer_of(self, data: bytes, peer: str, do: str) -> bytes:
        reply = wire.open_reply(data)
        if reply.status != "done":
            raise self._refusal(reply, peer, do)
        return reply.body

    def _refusal(self, reply: wire.Reply, peer: str, do: str) -> ClusterError:
        reason = reply.body.decode(errors="replace")
        if reply.status == "expelled":
            mine = self.view()
            others = tuple(name for name in mine.members if name != self.me)
            self.adopt(ClusterView(max(reply.epoch, mine.epoch + 1), others, {**mine.gone, self.me: reason}))
        if reply.status in ("stale", "expelled"):
            return StaleEpoch(reason, reply.epoch)
        return TransportError(f"{peer} did not carry out {do!r}: {reason}", retryable=reply.status == "busy")

    # Receiving: all of it in the thread of this engine

    def _begin_serving(self) -> None:
        """Start the thread; an engine whose owner calls ``serve_waiting`` has none."""
        self._thread.start()

    def serve_waiting(self) -> None:
        """Handle what has come, and wait for nothing; for an engine without a thread."""
        while not self._work.empty():
            if (work := self._work.get()) is not None:
                work()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _show(self, view: ClusterView) -> None:
        """Give a view to its handler, which may send; who has left since then has nobody to send to."""
        try:
            self._on_view(view)
        except StaleEpoch:
            with self._lock:
                is_member = not self._ended and self.me in self._view.members
            if is_member:
                raise

    def _expel(self, view: ClusterView) -> None:
        self._show(view)
        self.end(view.gone.get(self.me) or "it was expelled")

    def _handle(self, data: bytes, answer: Answer | None) -> None:
        self._budget.give(len(data))
        with self._lock:
            view, ended = self._view, self._ended
        if ended:
            return
        reply = self._judge(data, view)
        if answer is not None:
            answer(reply)

    def _judge(self, data: bytes, view: ClusterView) -> bytes:
        try:
            envelope = wire.open_envelope(data, self._run)
        except wire.WireError as error:
            _log.warning("a message of %d bytes is refused: %s", len(data), error)
            return self._reply("refused", str(error))
        _log.debug("%s from %s to %s: %d bytes", envelope.do, envelope.sender, self.me, len(data))
        refused = judge_sender(envelope, view)
        if refused is not None:
            _log.info("%s of %s is refused by %s: %s", envelope.do, envelope.sender, self.me, refused[1])
            return self._reply(*refused)
        return self._handle_request(Call(envelope.sender, envelope.do, envelope.epoch, envelope.body))

    def _handle_request(self, call: Call) -> bytes:
        handler = self._handlers.get(call.do)
        if handler is None:
            return self._reply("refused", f"{self.me} does not know the message {call.do[:100]!r}")
        try:
            body = handler(call)
        except Exception as error:
            return self._reply("failed", reason_of(error))
        if len(body) > LIMIT_BYTES - _HEAD_BYTES:
            return self._reply("failed", f"its answer has {len(body):,} bytes, a message at most {LIMIT_BYTES:,}")
        return wire.encode(wire.Reply("done", self._view.epoch, body))

    def _reply(self, status: str, reason: str) -> bytes:
        return wire.encode(wire.Reply(status, self._view.epoch, reason.encode()))


def judge_sender(envelope: wire.Envelope, view: ClusterView) -> tuple[str, str] | None:
    """Return why a message is refused by a member that knows a view, as status and reason; None where it is taken.

    One of a sender that this view does not know is taken where the sender knows a newer one: it has joined since.
    """
    if envelope.sender not in view.members and envelope.epoch <= view.epoch:
        reason = view.gone.get(envelope.sender, "it never joined")
        return "expelled", f"{envelope.sender[:100]} is not a member of the run: {reason}"
    if envelope.strict and envelope.epoch < view.epoch:
        return "stale", f"the sender knows epoch {envelope.epoch}, the receiver knows {view.epoch}"
    return None


class Roll:
    """The list of members that the driver keeps; every change makes a new view.

    Not safe for threads: the owner holds its lock.
    """

    def __init__(self) -> None:
        self.view = ClusterView()

    def join(self, name: str) -> ClusterView:
        """Add a member.

        Raises
        ------
        ClusterError
            If the name was used before, or the driver is not there.
        """
        view = self.view
        if name in view.members or name in view.gone:
            raise ClusterError(f"there is, or was, a member named {name!r}; every rank needs a name of its own")
        if name != DRIVER and DRIVER not in view.members:
            raise ClusterError(f"{name} cannot join: the run has no driver")
        self.view = ClusterView(view.epoch + 1, (*view.members, name), view.gone)
        return self.view

    def note(self, name: str, reason: str) -> ClusterView | None:
        """Remove a member, or record why a process could not become one; None where its end is known."""
        if name in self.view.members:
            return self.remove(name, reason)
        if name in self.view.gone or DRIVER not in self.view.members:
            return None
        view = self.view
        self.view = ClusterView(view.epoch + 1, view.members, {**view.gone, name: reason})
        return self.view

    def remove(self, name: str, reason: str) -> ClusterView | None:
        """Remove a member, with the driver all of them; None where it is none."""
        view = self.view
        if name not in view.members:
            return None
        going = view.members if name == DRIVER else (name,)
        reasons = {member: reason if member == name else f"the driver is gone: {reason}" for member in going}
        left = tuple(member for member in view.members if member not in going)
        self.view = ClusterView(view.epoch + 1, left, {**view.gone, **reasons})
        return self.view


def fail(waiting: Future[bytes], error: BaseException) -> None:
    """Let a request raise, unless it has its answer or waits no more."""
    with contextlib.suppress(InvalidStateError):
        waiting.set_exception(error)


def settle(waiting: Future[bytes], data: bytes) -> None:
    """Give a request its answer, unless it has one or waits no more."""
    with contextlib.suppress(InvalidStateError):
        waiting.set_result(data)


def _note_view(old: ClusterView, new: ClusterView) -> None:
    """Log who has come and gone."""
    if not _log.isEnabledFor(logging.DEBUG):
        return
    for name in set(new.members) - set(old.members):
        _log.debug("epoch %d: %s is a member", new.epoch, name)
    for name in new.gone.keys() - old.gone.keys():
        _log.debug("epoch %d: %s is gone: %s", new.epoch, name, new.gone[name])


def _make_lost_error(peer: str, view: ClusterView) -> PeerLost:
    reason = view.gone.get(peer, "it never joined")
    return PeerLost(f"{peer} is not a member of the run: {reason}", context={"peer": peer})


def _ignore(_view: ClusterView) -> None:
    """Do nothing."""
