"""One contract for both executors, then what only threads and only processes can do."""

from __future__ import annotations

import functools
import operator
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import executor_tasks
import numpy as np
import pytest

from tartan.errors import ConfigError, InternalError, TartanError
from tartan.workers.arena import Arena
from tartan.workers.executor import (
    Cancelled,
    Completed,
    Died,
    Executor,
    Outcome,
    Raised,
    TimedOut,
)
from tartan.workers.processes import ProcessExecutor
from tartan.workers.start import open_executor
from tartan.workers.threads import ThreadExecutor

DEADLINE = 60.0  # of a wait that succeeds; only a failing test gets there
KINDS = ["threads", pytest.param("processes", marks=pytest.mark.slow)]
ADD_ONE = functools.partial(operator.add, 1)


class Inbox:
    """Collects outcomes in the order of their arrival."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Any, Outcome]] = queue.SimpleQueue()
        self.threads: set[threading.Thread] = set()

    def done(self, label: Any = None) -> Callable[[Outcome], None]:
        def deliver(outcome: Outcome) -> None:
            self.threads.add(threading.current_thread())
            self._queue.put((label, outcome))

        return deliver

    def next(self) -> tuple[Any, Outcome]:
        return self._queue.get(timeout=DEADLINE)

    def outcome(self) -> Outcome:
        return self.next()[1]

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()


class Gate:
    """A task that says when it runs, and runs until it is let go; works across processes."""

    def __init__(self, folder: Path) -> None:
        self.announce, self.release = str(folder / "announce"), str(folder / "release")
        for path in (self.announce, self.release):
            os.mkfifo(path)

    def submit(self, executor: Executor, done: Callable[[Outcome], None], **options: Any) -> None:
        arguments = (self.announce, self.release)
        executor.submit(executor_tasks.announce_and_wait, arguments, done, **options)

    def wait(self) -> None:
        with open(self.announce) as pipe:
            assert pipe.read() == "running"

    def let_go(self) -> None:
        with open(self.release, "w") as pipe:
            pipe.write("released")


def make(kind: str, n_workers: int, **options: Any) -> Executor:
    return open_executor(ADD_ONE, n_workers, in_processes=kind == "processes", **options)


def run(executor: Executor, name: str, *args: Any, **options: Any) -> Outcome:
    inbox = Inbox()
    executor.submit(getattr(executor_tasks, name), args, inbox.done(), **options)
    return inbox.outcome()


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """Two workers, shared by the tests that leave them as they were."""
    executor = make(request.param, 2)
    yield executor
    executor.close(kill=True)


@pytest.fixture(params=KINDS)
def own(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """One worker for a test of its own, which may close it."""
    executor = make(request.param, 1)
    yield executor
    executor.close(kill=True)


@pytest.fixture
def processes() -> Iterator[ProcessExecutor]:
    executor = ProcessExecutor(ADD_ONE, 2)
    yield executor
    executor.close(kill=True)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


# The contract


def test_arguments_and_values_travel(pair: Executor) -> None:
    value = (1, "text", b"bytes", {"a": [None]})
    assert run(pair, "echo", *value) == Completed(value)
    assert run(pair, "echo") == Completed(())


def test_big_messages_travel(pair: Executor) -> None:
    block = os.urandom(1 << 20) * 9
    assert run(pair, "echo", block) == Completed((block,))


def test_the_application_is_in_the_context(pair: Executor) -> None:
    assert run(pair, "apply", 41) == Completed(42)


def test_functions_may_be_objects(pair: Executor) -> None:
    inbox = Inbox()
    pair.submit(executor_tasks.echo, (1,), inbox.done())
    pair.submit(lambda context, x: context.application(x), (1,), inbox.done())
    assert {repr(inbox.outcome()) for _ in range(2)} == {"Completed(value=(1,))", "Completed(value=2)"}


def test_state_lives_between_calls(own: Executor) -> None:
    assert [run(own, "count"), run(own, "count")] == [Completed(1), Completed(2)]


def test_an_exception_arrives_as_itself(pair: Executor) -> None:
    outcome = run(pair, "fail", "value")
    assert isinstance(outcome, Raised)
    assert isinstance(outcome.error, ValueError)
    assert outcome.error.__traceback__ is None
    assert (outcome.name, outcome.message) == ("ValueError", "the value 7 is wrong")
    assert "in fail" in outcome.traceback
    assert "in call" not in outcome.traceback


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("unpicklable", "UnpicklableError", "holds a lock"),
        ("unreadable", "UnreadableError", "two arguments"),
        ("exit", "SystemExit", "3"),
    ],
)
def test_an_exception_that_cannot_travel_is_rebuilt(pair: Executor, kind: str, name: str, message: str) -> None:
    outcome = run(pair, "fail", kind)
    assert isinstance(outcome, Raised)
    assert (outcome.name, outcome.message) == (name, message)
    if pair.in_processes or kind == "exit":
        assert isinstance(outcome.error, TartanError)
        assert outcome.error.code == "user-error"
        assert str(outcome.error) == f"{name}: {message}"
    else:
        assert type(outcome.error).__name__ == name


def test_lower_priority_values_go_first_and_equal_ones_in_order(own: Executor, gate: Gate) -> None:
    inbox = Inbox()
    gate.submit(own, inbox.done())
    gate.wait()
    for label, priority in [("c", 5), ("a", -1), ("d", 5), ("b", 0)]:
        own.submit(executor_tasks.echo, (label,), inbox.done(), priority=priority)
    gate.let_go()
    assert inbox.outcome() == Completed("released")
    assert [inbox.outcome() for _ in "abcd"] == [Completed((label,)) for label in "abcd"]


def test_what_has_not_started_is_dropped_on_close(own: Executor, gate: Gate) -> None:
    busy, waiting = Inbox(), Inbox()
    gate.submit(own, busy.done())
    gate.wait()
    for label in range(3):
        own.submit(executor_tasks.echo, (), waiting.done(label))
    closer = threading.Thread(target=own.close)
    closer.start()
    assert [waiting.next() for _ in range(3)] == [(label, Cancelled()) for label in range(3)]
    assert threading.current_thread() not in waiting.threads
    gate.let_go()
    closer.join(DEADLINE)
    assert busy.outcome() == Completed("released")


def test_done_may_submit(pair: Executor) -> None:
    inbox = Inbox()

    def again(outcome: Outcome) -> None:
        pair.submit(executor_tasks.echo, (outcome,), inbox.done())

    pair.submit(executor_tasks.echo, (1,), again)
    assert inbox.outcome() == Completed((Completed((1,)),))


def test_an_error_in_done_is_printed_and_harmless(pair: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: queue.SimpleQueue[Any] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", printed.put)

    def bad(_: Outcome) -> None:
        raise RuntimeError("in done")

    pair.submit(executor_tasks.echo, (), bad)
    assert str(printed.get(timeout=DEADLINE).exc_value) == "in done"
    assert run(pair, "echo") == Completed(())


def test_every_submit_is_answered_once(pair: Executor) -> None:
    inbox = Inbox()

    def submit(start: int) -> None:
        for number in range(start, start + 100):
            pair.submit(executor_tasks.echo, (number,), inbox.done(number))

    threads = [threading.Thread(target=submit, args=(start,)) for start in range(0, 400, 100)]
    for thread in threads:
        thread.start()
    answers = [inbox.next() for _ in range(400)]
    for thread in threads:
        thread.join()
    assert all(outcome == Completed((number,)) for number, outcome in answers)
    assert Counter(number for number, _ in answers) == Counter(range(400))
    assert run(pair, "echo") == Completed(())
    assert inbox.is_empty


def test_a_timeout_is_an_outcome_and_work_goes_on(own: Executor, gate: Gate) -> None:
    inbox = Inbox()
    own.submit(executor_tasks.block_until_readable, (gate.release,), inbox.done(), timeout_seconds=0.05)
    own.submit(executor_tasks.echo, (1,), inbox.done(), timeout_seconds=DEADLINE)
    outcome = inbox.outcome()
    assert isinstance(outcome, TimedOut)
    assert outcome.seconds >= 0.05
    assert inbox.outcome() == Completed((1,))
    if not own.in_processes:
        gate.let_go()  # ends the stuck thread


def test_a_timeout_of_ages_is_more_than_the_system_can_wait_for(own: Executor, gate: Gate) -> None:
    inbox = Inbox()
    gate.submit(own, inbox.done(), timeout_seconds=1e12)
    gate.wait()
    gate.let_go()
    assert isinstance(inbox.outcome(), Completed)
    assert run(own, "echo") == Completed(())


def test_close_drops_what_waits_and_finishes_what_runs(own: Executor, gate: Gate) -> None:
    busy, waiting = Inbox(), Inbox()
    gate.submit(own, busy.done())
    gate.wait()
    own.submit(executor_tasks.echo, (), waiting.done())
    closer = threading.Thread(target=own.close)
    closer.start()
    assert waiting.outcome() == Cancelled()
    own.submit(executor_tasks.echo, (), waiting.done())  # closing, not closed
    assert waiting.outcome() == Cancelled()
    assert busy.is_empty
    gate.let_go()
    closer.join(DEADLINE)
    assert not closer.is_alive()
    assert busy.outcome() == Completed("released")
    with pytest.raises(InternalError, match="closed") as caught:
        own.submit(executor_tasks.echo, (), waiting.done())
    assert caught.value.code == "executor-closed"
    own.close()


def test_kill_waits_for_nothing(own: Executor, gate: Gate) -> None:
    inbox = Inbox()
    gate.submit(own, inbox.done("ran"))
    gate.wait()
    own.submit(executor_tasks.echo, (), inbox.done("waited"))
    own.close(kill=True)
    answers = [inbox.next(), inbox.next()]
    assert inbox.is_empty
    assert sorted(answers) == [("ran", Cancelled()), ("waited", Cancelled())]
    if not own.in_processes:
        gate.let_go()  # ends the stuck thread


def test_kill_helps_a_close_that_waits(own: Executor, gate: Gate) -> None:
    inbox = Inbox()
    gate.submit(own, inbox.done())
    gate.wait()
    closer = threading.Thread(target=own.close)
    closer.start()
    own.close(kill=True)
    closer.join(DEADLINE)
    assert not closer.is_alive()
    assert inbox.outcome() == Cancelled()
    if not own.in_processes:
        gate.let_go()


def test_close_from_done_does_not_wait_for_itself(own: Executor) -> None:
    inbox = Inbox()

    def close(outcome: Outcome) -> None:
        own.close()
        inbox.done()(outcome)

    own.submit(executor_tasks.echo, (), close)
    assert inbox.outcome() == Completed(())
    own.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_executor_leaves_no_worker_behind(kind: str) -> None:
    before = set(threading.enumerate())
    executor = make(kind, 1)
    worker = run(executor, "pid")
    assert isinstance(worker, Completed)
    executor.close()
    assert Path(f"/proc/{worker.value}").exists() == (kind == "threads")
    assert {thread.name for thread in set(threading.enumerate()) - before} <= {"tartan-blas"}


@pytest.mark.parametrize("kind", KINDS)
def test_arenas_are_visible_on_both_sides(kind: str) -> None:
    with Arena(1 << 16, shared=True) as first, Arena(1 << 30, shared=True) as second:
        executor = make(kind, 1)
        executor.share("first", first)
        window = first.view(4096, (8,), np.float64)
        window[:] = 1.0
        assert run(executor, "fill", "first", 2.0) == Completed(8.0)
        assert window.tolist() == [2.0] * 8
        executor.share("second", second)
        assert run(executor, "fill", "second", 3.0) == Completed(0.0)
        assert second.view(4096, (1,), np.float64)[0] == 3.0
        assert run(executor, "arena_names") == Completed(["first", "second"])
        executor.share("first", second)
        assert run(executor, "fill", "first", 4.0) == Completed(24.0)
        if executor.in_processes:
            assert isinstance(run(executor, "die", "exit"), Died)
            assert run(executor, "fill", "second", 5.0) == Completed(32.0)
        executor.close()
        assert os.fstat(second.fd).st_blocks * 512 <= 1 << 21


@pytest.mark.parametrize("kind", KINDS)
def test_no_descriptor_and_no_thread_is_left(kind: str) -> None:
    make(kind, 2).close()  # whatever is opened once in a process
    descriptors, threads = open_descriptors(), threading.active_count()
    executor = make(kind, 2)
    assert run(executor, "echo") == Completed(())
    if executor.in_processes:
        assert isinstance(run(executor, "die", "exit"), Died)
        assert isinstance(run(executor, "spin", timeout_seconds=0.05), TimedOut)
    executor.close()
    assert open_descriptors() == descriptors
    assert threading.active_count() <= threads


@pytest.mark.parametrize("kind", [ThreadExecutor, ProcessExecutor])
def test_no_worker_is_wrong_use(kind: Any) -> None:
    with pytest.raises(ConfigError, match="workers is 0; it must be a whole number, 1 or more"):
        kind(ADD_ONE, 0)


@pytest.mark.parametrize(
    ("releases_gil", "in_processes"), [(True, False), pytest.param(False, True, marks=pytest.mark.slow)]
)
def test_the_application_chooses(releases_gil: bool, in_processes: bool) -> None:
    application = functools.partial(operator.add, 1)
    application.releases_gil = releases_gil  # type: ignore[attr-defined]
    executor = open_executor(application, 1)
    assert executor.in_processes is in_processes
    executor.close(kill=True)


# Threads


def test_stuck_threads_are_counted_until_they_return(gate: Gate) -> None:
    others = set(threading.enumerate())
    executor = ThreadExecutor(None, 1)
    args = (gate.release,)
    inbox = Inbox()
    executor.submit(executor_tasks.block_until_readable, args, inbox.done(), timeout_seconds=0.01)
    assert isinstance(inbox.outcome(), TimedOut)
    assert executor.n_stuck == 1
    stuck = [t for t in threading.enumerate() if t.name == "tartan-worker" and t not in others]
    executor.close()
    gate.let_go()
    for thread in stuck:
        thread.join(DEADLINE)
    assert executor.n_stuck == 0
    assert inbox.is_empty


def test_blas_is_bounded_while_any_executor_lives() -> None:
    from threadpoolctl import threadpool_info

    def n_threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    before = n_threads()
    alone = ThreadExecutor(None, 1)
    assert n_threads() == before
    first = ThreadExecutor(None, 2)
    assert n_threads() == {1}
    second = ThreadExecutor(None, 2)
    for executor in (alone, first):
        executor.close()  # the second still needs the bound
        assert n_threads() == {1}
    second.close()
    assert n_threads() == before


def test_no_worker_looks_for_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search beside an import in another thread can stand still for ever; before the workers start it is safe."""
    import threadpoolctl

    by: list[str] = []

    class Watched(threadpoolctl.ThreadpoolController):
        def __init__(self) -> None:
            by.append(threading.current_thread().name)
            super().__init__()

    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", Watched)
    ThreadExecutor(None, 4).close()
    assert set(by) <= {"tartan-blas"}  # none where another executor lives


# Processes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "expected"),
    [("segfault", "killed by SIGSEGV"), ("exit", "exit status 1"), ("kill", "killed by SIGKILL")],
)
def test_a_dead_worker_is_an_outcome_and_is_replaced(
    processes: ProcessExecutor, how: str, expected: str, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = run(processes, "die", how)
    assert isinstance(outcome, Died)
    assert outcome.how == expected
    assert outcome.seconds >= 0
    assert ("in die" in outcome.traceback) == (how == "segfault")
    assert run(processes, "apply", 1) == Completed(2)
    processes.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_only_the_task_that_ran_dies_with_its_worker() -> None:
    executor = ProcessExecutor(None, 1)
    inbox = Inbox()
    for number in range(200):  # short ones first: the next is then sent ahead
        executor.submit(executor_tasks.echo, (number,), inbox.done(number))
        if number % 50 == 49:
            executor.submit(executor_tasks.die, ("exit",), inbox.done("die"))
    answers = [inbox.next() for _ in range(204)]
    assert [label for label, outcome in answers if isinstance(outcome, Died)] == ["die"] * 4
    echoes = [label for label, outcome in answers if isinstance(outcome, Completed)]
    assert sorted(echoes) == list(range(200))
    executor.close()
    assert inbox.is_empty


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spin", "pause_in_c"])
def test_what_never_returns_is_killed(processes: ProcessExecutor, name: str) -> None:
    inbox = Inbox()
    before = run(processes, "pid"), *processes.worker_pids
    processes.submit(getattr(executor_tasks, name), (), inbox.done(), timeout_seconds=0.1)
    outcome = inbox.outcome()
    assert isinstance(outcome, TimedOut)
    assert outcome.seconds >= 0.1
    assert run(processes, "apply", 1) == Completed(2)
    assert len(set(processes.worker_pids) & set(before)) == 1
    for _ in range(2):
        processes.submit(getattr(executor_tasks, name), (), inbox.done())
    processes.close(kill=True)
    assert [inbox.outcome(), inbox.outcome()] == [Cancelled(), Cancelled()]
    assert processes.worker_pids == []


@pytest.mark.slow
def test_what_cannot_travel_is_an_outcome(processes: ProcessExecutor) -> None:
    for name, args in [("echo", (threading.Lock(),)), ("give_lock", ())]:
        outcome = run(processes, name, *args)
        assert isinstance(outcome, Raised)
        assert "pickle" in outcome.message
    assert run(processes, "echo", executor_tasks.Explosive("raise")) != Completed(())


@pytest.mark.slow
def test_surroundings_of_a_worker() -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    with Arena(4096, shared=True) as arena:
        executor = ProcessExecutor(None, 1)
        executor.share("a", arena)
        outcome = run(executor, "surroundings")
        executor.close()
        secret = str(Path(f"/proc/self/fd/{write_end}").readlink())
    os.close(read_end)
    os.close(write_end)
    assert isinstance(outcome, Completed)
    seen = outcome.value
    files = seen.pop("files")
    assert secret not in files
    # stdin, socket, crash file, the arena's descriptor and the one inside its mapping; twice standard error.
    assert len(files) == 7
    assert seen == {
        "stdin": "/dev/null",
        "stdout_is_stderr": True,
        "threads": "1",
        "core": 0,
        "sigint": True,
        "sigterm": True,
        "mask": 0,
        "main": None,
    }


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_whole_job_leave_workers_to_their_parent(
    processes: ProcessExecutor, gate: Gate, number: signal.Signals
) -> None:
    """A terminal sends Ctrl-C, and schedulers send SIGTERM, to every process: calls under way still end."""
    inbox = Inbox()
    gate.submit(processes, inbox.done())
    gate.wait()
    for worker in processes.worker_pids:
        os.kill(worker, number)
    gate.let_go()
    assert inbox.outcome() == Completed("released")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "message", "options"),
    [
        ("raise", "ImportError: no module named nonsense", {}),
        ("exit", "exit status 7", {}),
        ("hang", "not ready after", {"start_timeout_seconds": 0.1}),
    ],
)
def test_an_application_that_cannot_be_loaded_stops_the_executor(
    how: str, message: str, options: dict[str, float]
) -> None:
    inbox = Inbox()
    executor = ProcessExecutor(executor_tasks.Explosive(how), 2, **options)
    for label in range(2):
        executor.submit(executor_tasks.echo, (), inbox.done(label))
    outcomes = [inbox.outcome(), inbox.outcome(), run(executor, "echo")]
    for outcome in outcomes:
        assert isinstance(outcome, Raised)
        assert message in outcome.message
        assert isinstance(outcome.error, TartanError)
        assert outcome.error.code == "worker-start"
        assert ("in explode" in outcome.traceback) == (how == "raise")
    executor.close()
    assert inbox.is_empty


@pytest.mark.slow
def test_an_interpreter_that_cannot_be_started_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    executor = ProcessExecutor(None, 1)
    outcome = run(executor, "echo")
    executor.close()
    assert isinstance(outcome, Raised)
    assert "/nonexistent/python" in outcome.message


@pytest.mark.slow
def test_the_system_without_process_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    executor = ProcessExecutor(ADD_ONE, 1)
    assert isinstance(run(executor, "die", "segfault"), Died)
    assert run(executor, "apply", 1) == Completed(2)
    executor.close()


def test_private_arenas_are_refused() -> None:
    executor = ProcessExecutor(None, 1)
    with Arena(4096, shared=False) as arena, pytest.raises(InternalError, match="'a' is not shared"):
        executor.share("a", arena)
    executor.close()


PARENT = """
import os, sys
from tartan.workers.processes import ProcessExecutor
from tartan.workers.start import open_executor
sys.path.append(sys.argv[1])
import executor_tasks
executor = ProcessExecutor(None, 2)
state, announcements = sys.argv[2], sys.argv[3:]
if state == "stuck":
    for announce in announcements:
        executor.submit(executor_tasks.announce_and_pause, (announce,), print)
    for announce in announcements:
        open(announce).read()
elif state == "idle":
    executor.submit(executor_tasks.echo, (), lambda outcome: open(announcements[0], "w").close())
    open(announcements[0]).read()
while len(executor.worker_pids) < 2:
    pass
print(*executor.worker_pids, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("state", ["starting", "idle", "stuck"])
def test_a_killed_parent_leaves_no_worker(state: str, tmp_path: Path) -> None:
    announcements = [str(tmp_path / "first"), str(tmp_path / "second")]
    for path in announcements:
        os.mkfifo(path)
    command = [sys.executable, "-c", PARENT, str(Path(__file__).parent), state, *announcements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            workers = [int(word) for word in parent.stdout.readline().split()]
            assert len(workers) == 2
            exits = [os.pidfd_open(pid) for pid in workers]
        finally:
            parent.kill()
    for fd in exits:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(DEADLINE * 1000), "a worker outlives its parent"
        os.close(fd)


@pytest.mark.slow
def test_a_worker_process_ends_as_python_does(tmp_path: Path) -> None:
    inbox = Inbox()
    executor = ProcessExecutor(None, 1)
    executor.submit(executor_tasks.leaves_to_the_end, (str(tmp_path),), inbox.done())
    assert isinstance(inbox.outcome(), Completed)
    executor.close()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("unclosed", "atexit", "thread"), "x"
    )
