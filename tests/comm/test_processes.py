"""Ranks as processes: what they return, how they fail, how they end, and that nothing is left of them."""

from __future__ import annotations

import os
import platform
import resource
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest

from tartan import comm
from tartan.base.freed_memory import MALLOC_VARIABLES
from tartan.comm.launch import divide_ranks
from tartan.errors import ConfigError, DeadlockError, RankLostError, ResourceError
from tartan.testing.communicator_kit import CommunicatorKit

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 60


@pytest.mark.exhaustive
class TestProcesses(CommunicatorKit):
    sizes = (1, 3)

    def run(self, size, function):
        return comm.run(function, cpus=size)


@pytest.mark.exhaustive
class TestProcessesOfSeveralNodes(CommunicatorKit):
    sizes = (4,)

    def run(self, size, function):
        return comm.run(function, cpus=size // 2, nodes=2)


def family(pid: int) -> set[int]:
    """Return the processes that a process has started, and those that these have."""
    found = set()
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        for child in map(int, file.read().split()):
            found |= {child} | family(child)
    return found


def alive(pids: set[int]) -> set[int]:
    """Return the processes that are there and no zombies."""
    found = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] not in "ZX":
                    found.add(pid)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def require_ended(pids: set[int]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while alive(pids) and time.monotonic() < deadline:
        pass
    assert not alive(pids)


@pytest.mark.parametrize("ways", [{"cpus": 3}, {"cpus": 3, "groups": 2}, {"cpus": (1, 3)}], ids=str)
def test_ranks_return_what_their_function_returned(ways) -> None:
    def work(ranks):
        shared = ranks.all_gather(np.full(5000, float(ranks.rank)), shared=True)
        if ranks.rank == 0:
            ranks.send(shared, to=ranks.size - 1, tag=7)
        if ranks.rank == ranks.size - 1:
            assert ranks.recv(source=0, tag=7).sum() == 5000 * sum(range(ranks.size))
        return os.getpid(), ranks.rank, float(ranks.all_reduce(np.ones(4000))[-1])

    size = int(np.sum(ways["cpus"]))
    found = comm.run(work, **ways)
    assert [row[1:] for row in found] == [(rank, size) for rank in range(size)]
    assert len({row[0] for row in found} | {os.getpid()}) == size + 1
    assert not alive({row[0] for row in found})


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep what they like")
@pytest.mark.parametrize("variables", [{}, {"MALLOC_TRIM_THRESHOLD_": "65536"}], ids=str)
def test_a_rank_keeps_freed_memory_unless_the_user_has_set_what_it_keeps(monkeypatch, variables) -> None:
    def pages_of_each_step(ranks):
        pages = [resource.getrusage(resource.RUSAGE_SELF).ru_minflt]
        for _ in range(3):
            arrays = [np.ones(1 << 18) for _ in range(8)]
            del arrays
            pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
        return np.diff(pages)

    for name in MALLOC_VARIABLES:  # Dask's workers, started in this process before, leave one behind
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (comm.run(pages_of_each_step, cpus=1)[0][-1] < 400) == (not variables)  # of 4096


def test_what_a_rank_raises_is_raised() -> None:
    def work(ranks):
        if ranks.rank == 1:
            raise ZeroDivisionError("on purpose")
        ranks.barrier()

    with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
        comm.run(work, cpus=3)
    assert "on rank 1:" in caught.value.__notes__[0]


@pytest.mark.parametrize("ways", [{"cpus": 3}, {"cpus": 2, "nodes": 2}], ids=str)
def test_a_killed_rank_ends_all_within_a_second_and_is_named(ways) -> None:
    def work(ranks):
        pids = ranks.all_gather(np.array([os.getpid()]))
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if ranks.rank == 0:
            while True:  # never calls
                time.sleep(0.01)
        ranks.recv()
        return pids

    start, before = time.monotonic(), family(os.getpid())
    with pytest.raises(RankLostError, match="rank 1 ended: killed by SIGKILL"):
        comm.run(work, **ways)
    assert time.monotonic() - start < LIMIT_SECONDS
    assert family(os.getpid()) <= before


def test_what_a_lost_program_has_started_ends_with_it(tmp_path) -> None:
    def work(ranks):
        child = subprocess.Popen(["sleep", "1000"])
        (tmp_path / str(ranks.rank)).write_text(str(child.pid))
        ranks.barrier()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        comm.run(work, cpus=2)
    pids = {int(path.read_text()) for path in tmp_path.iterdir()}
    assert len(pids) == 2
    require_ended(pids)


def test_the_end_of_a_fork_is_not_that_of_its_rank() -> None:
    def work(ranks, end):
        pid = os.fork()
        if pid == 0:
            return end()
        os.waitpid(pid, 0)
        return float(ranks.all_reduce(np.ones(1))[0])

    for end in (lambda: None, lambda: sys.exit(3), lambda: 1 / 0):
        assert comm.run(partial(work, end=end), cpus=2) == [2.0, 2.0]


def test_a_killed_node_process_ends_all_and_is_named() -> None:
    def work(ranks):
        ranks.barrier()
        if ranks.rank == 3:
            os.kill(os.getppid(), signal.SIGKILL)
        ranks.recv()

    before = family(os.getpid())
    with pytest.raises(RankLostError, match="node process 1 ended: killed by SIGKILL"):
        comm.run(work, cpus=2, nodes=2)
    assert family(os.getpid()) <= before


def test_ranks_that_wait_for_each_other_are_told_who_waits() -> None:
    with pytest.raises(DeadlockError, match="rank 0: recv from rank 1, tag 5; rank 1: barrier"):
        comm.run(lambda ranks: ranks.barrier() if ranks.rank else ranks.recv(source=1, tag=5), cpus=2)


def test_a_function_that_cannot_be_sent_is_refused() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"the function .*lambda> cannot be sent .*create on the rank"):
        comm.run(lambda ranks: lock, cpus=2)
    with pytest.raises(ConfigError, match="what rank 0 has returned cannot be sent between processes"):
        comm.run(lambda ranks: threading.Lock(), cpus=2)
    with pytest.raises(ConfigError, match="not 5"):
        comm.run(5, cpus=2)


def test_numbers_that_cannot_be() -> None:
    for ways, match in [((0, 1, 1), "cpus"), ((1, 0, 1), "nodes"), ((2, 1, 3), "3 .* node 0 of 2 CPU ranks")]:
        with pytest.raises(ConfigError, match=match):
            divide_ranks(*ways)
    with pytest.raises(ConfigError, match=r"2 memory groups on node 1 of 1 CPU rank: .*--groups"):
        divide_ranks([4, 1], None, 2)
    with pytest.raises(ResourceError, match="use fewer"):
        divide_ranks(10_000_000, 1, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        for ways in [(100, 1, 1), (1, 20, 1), (20, 1, 20)]:
            with pytest.raises(ResourceError, match=r"open files, .* may have 200"):
                divide_ranks(*ways)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, hard))
    try:
        with pytest.raises(ResourceError, match=r"2 ranks share memory .*ulimit -f"):
            divide_ranks(2, 1, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert divide_ranks(3, 2, 2) == (0, 0, 1, 2, 2, 3)
    assert divide_ranks((3, 1, 2), None, 1) == (0, 0, 0, 1, 2, 2)
    for cpus, nodes, match in [
        ((3, 1), 3, "3,1, which .* 2 nodes .* there are 3"),
        ((), None, "empty"),
        ((2, 0), None, "0"),
    ]:
        with pytest.raises(ConfigError, match=match):
            divide_ranks(cpus, nodes, 1)


def test_modules_that_cannot_be_imported_are_named(tmp_path, monkeypatch, capfd) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    for modules, match in [
        ("json", "named by a list of texts, not 'json'"),
        (None, "not None"),
        ([3], r"not \[3\] \(modules\)"),
        (["no_such_module"], "no_such_module cannot be imported: ModuleNotFoundError"),
        (["json", "broken_module"], "broken_module cannot be imported: ZeroDivisionError"),
    ]:
        with pytest.raises(ConfigError, match=match):
            comm.run(lambda ranks: ranks.rank, cpus=2, nodes=2, modules=modules)
    with pytest.raises(ConfigError, match="grace_seconds"):
        comm.run(lambda ranks: ranks.rank, cpus=2, grace_seconds="soon")
    assert capfd.readouterr().err == ""


SCRIPT = """
import sys, time
import numpy as np
from tartan import comm

world = comm.world()
total = world.all_reduce(np.array([world.rank]))
if sys.argv[1] == "sum" and world.rank == 0:
    print(world.size, int(total[0]), *sys.argv[1:])
if sys.argv[1].startswith("exit") and world.rank == 1:
    sys.exit(int(sys.argv[1][4:]))
if sys.argv[1] == "raise" and world.rank == 1:
    raise KeyError("on purpose")
if sys.argv[1] == "raises-much" and world.rank == 1:
    raise ValueError("head " + "x" * 100_000 + " tail") from KeyError("inner")
if sys.argv[1].startswith("raise"):
    world.barrier()
if sys.argv[1] == "wait":
    if world.rank == 0:
        print("ready", flush=True)
    world.recv()
"""


def command(tmp_path, *words, **ways):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, "-m", "tartan", "ranks", *words[:-1], str(script), words[-1]]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **ways)


@pytest.mark.parametrize(
    ("what", "status", "text"),
    [("sum", 0, ""), ("exit7", 7, ""), ("exit256", 1, ""), ("raise", 1, "KeyError: 'on purpose'")],
)
def test_the_command_runs_a_script(tmp_path, what, status, text) -> None:
    process = command(tmp_path, "--cpus", "3", what)
    out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert (process.returncode, out) == (status, "3 3 sum\n" if what == "sum" else ""), err
    assert text in err
    if what != "raise":  # else the others say it, unless they are stopped before
        assert "RankLostError" not in err


def test_a_long_exception_is_printed_once_without_its_middle(tmp_path):
    process = command(tmp_path, "--cpus", "3", "raises-much")
    _, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 1
    assert "KeyError: 'inner'" in err
    # Each of the others names its ends, unless it is stopped before it has printed.
    assert 1 <= err.count("xxx tail\n") <= 1 + 2
    assert err.count("x") < 2_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=str)
def test_the_end_of_the_command_ends_all(tmp_path, number) -> None:
    process = command(tmp_path, "--cpus", "2", "--nodes", "2", "wait", start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    pids = family(process.pid)
    assert len(pids) == 6
    process.send_signal(number)
    process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode in (-number, 128 + number)
    require_ended(pids)


def test_a_script_that_asks_for_nothing_is_warned_of(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('hello')")
    words = [sys.executable, "-m", "tartan", "ranks", "--cpus", "2", str(script)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert (found.returncode, found.stdout.count("hello")) == (0, 2)
    assert "has not asked for comm.world()" in found.stderr
    found = subprocess.run([*words[:-1], "none.py"], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert found.returncode == 2
    assert "there is no script none.py" in found.stderr
