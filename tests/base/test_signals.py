"""The first signal asks for a clean stop, the second one acts as without us; the handlers come back."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tartan.base.signals import cancel_on_signals, wait_for
from tartan.errors import RunCancelledError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_and_the_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    received: list[int] = []
    with cancel_on_signals(received.append):
        os.kill(os.getpid(), number)
        assert received == [number]
        assert signal.getsignal(number) is before
    assert signal.getsignal(number) is before


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
