"""Progress: the numbers without a clock, the drawing with a clock that we turn."""

from __future__ import annotations

import io
import sys
import threading
import types

import pytest

from tartan.base.progress import Display, Progress, RateWindow, Snapshot, format_line, is_watched


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_line_says_everything() -> None:
    state = Snapshot(1_200_000, 4_000_000, per_second=14_000)
    line = "30.0 %  1.2 million of 4 million pairs  14 kpairs/s  R 2.10  3 failed  3 min 20 s left"
    assert format_line(state, loads=210, n_items=100, failed=3) == line


def test_line_tells_loads_from_fills_where_ranks_share_items() -> None:
    line = format_line(Snapshot(1, 10), loads=104, n_items=100, fills=297)
    assert line == "10.0 %  1 of 10 pairs  R 1.04  F 2.97"


def test_line_leaves_out_what_is_not_known() -> None:
    assert format_line(Snapshot(0, 10)) == "0.0 %  0 of 10 pairs"


def test_nothing_to_do_is_all_done() -> None:
    state = Snapshot(0, 0, per_second=1)
    assert format_line(state).startswith("100.0 %")


def test_almost_done_is_not_done() -> None:
    assert format_line(Snapshot(999_999, 1_000_000)).startswith("99.9 %")


class TestRateWindow:
    def test_what_an_earlier_run_did_does_not_count(self) -> None:
        window = RateWindow(0.0, 1_000_000)
        rates = [window.add(10.0 * step, 1_000_000 + 100 * step) for step in (1, 2, 3)]
        assert rates == [0.0, 0.0, 10.0]

    def test_a_slow_start_is_no_speed(self) -> None:
        window = RateWindow(0.0, 0)
        assert [window.add(float(second), 0) for second in range(60)] == [0.0] * 60
        states = [window.snapshot(60 + step / 10, 100 * step, 10_000) for step in range(1, 40)]
        said = [state.time_left for state in states]
        assert said[:2] == ["", ""]
        first = next(text for text in said if text)
        assert first == "9 s left"  # at 1,000 a second, of which 1,000 are done

    def test_a_pause_between_the_first_moves_counts(self) -> None:
        window = RateWindow(0.0, 0)
        assert [window.add(time, done) for time, done in ((1.0, 10), (11.0, 10), (21.0, 20), (31.0, 40))][-1] == 1.0

    def test_old_speed_is_forgotten(self) -> None:
        window = RateWindow(0.0, 0)
        for second in range(1, 11):
            window.add(float(second), second * 1000)
        for second in range(11, 101):
            rate = window.add(float(second), 10_000 + second - 10)
        assert rate == pytest.approx(1.0)

    def test_bursts_even_out(self) -> None:
        window = RateWindow(0.0, 0)
        rates = [window.add(t / 2, (t // 20) * 1000) for t in range(1, 400)]
        assert all(60 <= rate <= 140 for rate in rates[100:])

    def test_standstill_is_zero(self) -> None:
        window = RateWindow(0.0, 5)
        assert window.add(0.0, 5) == 0.0
        assert window.add(50.0, 5) == 0.0

    def test_memory_is_bounded(self) -> None:
        window = RateWindow(0.0, 0)
        for step in range(20_000):
            window.add(step * 0.1, step)
        assert 200 < len(window) <= 260


def test_a_time_left_is_said_when_it_is_known_well() -> None:
    assert Snapshot(10, 1000, 10.0, measured_seconds=9.8).time_left == ""
    assert Snapshot(10, 1000, 10.0, measured_seconds=9.9).time_left == "1 min 39 s left"
    assert Snapshot(10, 10**9, 10.0, measured_seconds=10.0).time_left.endswith(" left")


def test_before_the_first_pair_a_line_says_what_is_loaded(clock: Clock) -> None:
    out = io.StringIO()
    progress = Progress(1128, stream=out, clock=clock, n_items=48)
    for done, loads in ((0, 0), (0, 12), (7, 30)):
        clock.now += 10
        progress.update(done, loads, 48)
    assert [line.split("pairs")[1].strip() for line in out.getvalue().splitlines()] == [
        "loading the first of 48 items",
        "12 of 48 items loaded",
        "",
    ]


def test_a_watched_line_names_the_loading_at_once(clock: Clock) -> None:
    out = Terminal()
    with Progress(1128, stream=out, clock=clock, n_items=48):
        assert "loading the first of 48 items" in out.getvalue()
    resumed = Terminal()
    with Progress(1128, 1128, stream=resumed, clock=clock, n_items=48):
        assert "loading" not in resumed.getvalue()


class TestPlain:
    def test_short_run_prints_the_summary_only(self, clock: Clock) -> None:
        out = io.StringIO()
        with Progress(100, stream=out, clock=clock) as progress:
            for done in range(0, 101, 5):
                clock.now += 0.04
                progress.update(done)
            progress.close("100 pairs done")
        assert out.getvalue() == "100 pairs done\n"

    def test_a_line_every_tenth(self, clock: Clock) -> None:
        out = io.StringIO()
        progress = Progress(100, stream=out, clock=clock)
        for done in range(1, 31):
            clock.now += 1
            progress.update(done, loads=done, n_items=10)
        lines = out.getvalue().splitlines()
        assert [line.split()[0] for line in lines] == ["10.0", "20.0", "30.0"]
        assert lines[0] == "10.0 %  10 of 100 pairs  1 pairs/s  1 min 30 s left"

    def test_a_line_every_ten_seconds_when_slow(self, clock: Clock) -> None:
        out = io.StringIO()
        progress = Progress(1_000_000, stream=out, clock=clock)
        for done in range(1, 36):
            clock.now += 1
            progress.update(done)
        assert len(out.getvalue().splitlines()) == 3

    def test_resumed_run_starts_at_its_tenth(self, clock: Clock) -> None:
        out = io.StringIO()
        progress = Progress(100, 55, stream=out, clock=clock)
        clock.now += 2
        progress.update(56)
        assert out.getvalue() == ""
        clock.now += 2
        progress.update(60)
        assert out.getvalue().startswith("60.0 %")

    def test_quiet_prints_nothing(self, clock: Clock) -> None:
        out = Terminal()
        progress = Progress(100, quiet=True, stream=out, clock=clock)
        clock.now += 60
        progress.update(50)
        progress.close("summary")
        assert out.getvalue() == ""

    def test_closed_twice_prints_once_and_draws_no_more(self, clock: Clock) -> None:
        out = io.StringIO()
        progress = Progress(100, stream=out, clock=clock)
        progress.close("summary")
        progress.close("again")
        clock.now += 60
        progress.update(50)
        assert out.getvalue() == "summary\n"

    @pytest.mark.parametrize("error", [ValueError("closed"), BrokenPipeError()], ids=["closed", "no reader"])
    def test_closed_stream_does_not_stop_a_run(self, clock: Clock, error: Exception) -> None:
        refused: list[str] = []

        class Closed(io.StringIO):
            def write(self, text: str) -> int:
                refused.append(text)
                raise error

        progress = Progress(100, stream=Closed(), clock=clock)
        clock.now += 60
        progress.update(50)
        assert refused[0].startswith("50.0 %")
        progress.close("summary")
        assert refused[-1].startswith("summary")

    def test_stderr_is_the_default(self, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
        Progress(1, clock=clock).close("over")
        assert capsys.readouterr() == ("", "over\n")

    def test_never_waits_for_another_thread(self, clock: Clock) -> None:
        entered, leave = threading.Event(), threading.Event()

        class Slow(io.StringIO):
            def write(self, text: str) -> int:
                entered.set()
                assert leave.wait(10)
                return super().write(text)

        out = Slow()
        progress = Progress(100, stream=out, clock=clock)
        clock.now += 60
        drawing = threading.Thread(target=progress.update, args=(50,))
        drawing.start()
        assert entered.wait(10)
        progress.update(90)  # returns although the other thread is inside
        leave.set()
        drawing.join(10)
        assert out.getvalue().count("%") == 1


class TestLive:
    @pytest.fixture(autouse=True)
    def _terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")

    def test_draws_at_most_ten_times_a_second(self, clock: Clock) -> None:
        out = Terminal()
        with Progress(1000, stream=out, clock=clock) as progress:
            for done in range(0, 1000):
                clock.now += 0.001
                progress.update(done)
        assert 8 <= out.getvalue().count("of 1,000 pairs") <= 10

    def test_line_goes_away_and_the_summary_stays(self, clock: Clock) -> None:
        out = Terminal()
        progress = Progress(1000, stream=out, clock=clock, verbose=True)
        clock.now += 1
        progress.update(500, loads=30, n_items=20)
        progress.close("all done")
        assert "R 1.50" in out.getvalue()
        assert out.getvalue().endswith("all done\n")
        assert "\x1b[?25h" in out.getvalue()  # the cursor is back

    def test_dumb_terminal_gets_plain_lines(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "dumb")
        out = Terminal()
        progress = Progress(100, stream=out, clock=clock)
        clock.now += 60
        progress.update(50)
        progress.close()
        assert "\x1b" not in out.getvalue()
        assert out.getvalue().startswith("50.0 %")


class TestDisplay:
    @pytest.fixture(autouse=True)
    def _terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "40")

    def test_a_line_that_stays_is_there_at_the_end(self) -> None:
        out = Terminal()
        display = Display(out, stays=True)
        display.draw("first")
        display.draw("last")
        display.close()
        assert "last\n" in out.getvalue()
        assert "\x1b[?25h" in out.getvalue().partition("first")[0]  # the cursor is never hidden for long

    def test_a_long_line_is_cut_to_the_terminal(self) -> None:
        out = Terminal()
        display = Display(out, stays=True)
        display.draw("x" * 100)
        display.close()
        assert "x" * 39 + "…" in out.getvalue()

    def test_the_next_line_is_another(self) -> None:
        out = Terminal()
        display = Display(out, stays=True)
        for text in ("first", "second"):
            display.draw(text)
            display.close()
        assert [text in out.getvalue() for text in ("first\n", "second\n")] == [True, True]

    def test_a_terminal_that_is_gone_is_no_error(self) -> None:
        out = Terminal()
        display = Display(out)
        display.draw("first", 0.5)
        out.close()
        display.draw("second", 0.6)
        display.say("third")
        display.close()


class TestWatched:
    def test_a_terminal_is_watched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        assert is_watched(Terminal())
        monkeypatch.setenv("TERM", "dumb")
        assert not is_watched(Terminal())
        assert not is_watched(io.StringIO())

    def test_a_notebook_is_watched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not is_watched()
        shell = types.SimpleNamespace(kernel=object())
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
        assert is_watched()
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
        assert not is_watched()


def test_a_notebook_shows_one_line_that_changes() -> None:
    stream = io.StringIO()
    display = Display(stream, notebook=True)
    assert display.is_live
    display.open()
    display.draw("10 of 100", 0.1)
    display.draw("20 of 100")
    display.say("done")
    display.close()
    assert stream.getvalue() == "\r10 of 100\r20 of 100\r         \rdone\n"


def test_a_line_that_stays_ends_in_a_notebook() -> None:
    stream = io.StringIO()
    display = Display(stream, stays=True, notebook=True)
    display.draw("all")
    display.close()
    display.close()
    assert stream.getvalue() == "\rall\n"
