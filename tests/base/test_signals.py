"""The first signal asks for a clean stop, the second one acts as without us; the handlers come back."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import pytest

from tartan.base.signals import cancel_on_signals, remember_interrupts, wait_for, was_interrupted
from tartan.errors import RunCancelledError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_and_the_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    received: list[int] = []
    with cancel_on_signals(received.append):
        os.kill(os.getpid(), number)
        assert received == [number]
    assert signal.getsignal(number) is before


def test_a_signal_sent_twice_at_once_is_one_and_a_later_one_is_the_second() -> None:
    """``timeout`` signals the command and then its group, so the command is signalled twice."""
    now = 100.0
    came: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: came.append("without us"))
    try:
        with cancel_on_signals(lambda _: came.append("cancel"), clock=lambda: now):
            os.kill(os.getpid(), signal.SIGTERM)
            now += 0.9
            os.kill(os.getpid(), signal.SIGTERM)
            assert came == ["cancel"]
            now += 0.2
            os.kill(os.getpid(), signal.SIGTERM)
            assert came == ["cancel", "without us"]
            os.kill(os.getpid(), signal.SIGTERM)
            assert came == ["cancel", "without us", "without us"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_a_signal_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with cancel_on_signals(print):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_belong_to_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGINT)
    found = []

    def call() -> None:
        with cancel_on_signals(print):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert found == [before]


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, RunCancelledError)]
)
def test_ctrl_c_is_a_keyboard_interrupt(number: signal.Signals, expected: type[BaseException]) -> None:
    def call() -> None:
        with cancel_on_signals(print):
            os.kill(os.getpid(), number)
            raise RunCancelledError("stopped; call again to resume", context={"signal": number})

    with pytest.raises(expected, match="call again to resume"):
        call()


def test_a_cancel_without_a_signal_stays_what_it_is() -> None:
    with pytest.raises(RunCancelledError), cancel_on_signals(print):
        raise RunCancelledError("stopped")


def test_an_event_that_has_happened_is_not_waited_for() -> None:
    happened = threading.Event()
    threading.Timer(0, happened.set).start()
    wait_for(happened)
    assert happened.is_set()


def test_ctrl_c_that_was_lost_before_ends_the_next_call_that_can_be_cancelled() -> None:
    """As in compiled code that swallows it while it is imported."""
    with remember_interrupts():
        assert not was_interrupted()
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert was_interrupted()
        with pytest.raises(KeyboardInterrupt), cancel_on_signals(print):
            pytest.fail("nothing begins")
    assert not was_interrupted()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with remember_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
