"""``tartan run --on local:N``, with real processes: the bits of one process, also after the loss of ranks."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import struct
from pathlib import Path

import pytest
from cluster_program import check_same, command, lay_out, send, several, tartan_command, wait_ended

import tartan


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return lay_out(tmp_path)


@pytest.mark.exhaustive
def test_a_rank_is_killed_and_no_bit_differs(inputs: Path) -> None:
    with several(inputs) as run:
        send(run.both_compute()[0], signal.SIGKILL)
        status, errors = run.end()
    assert status == 0, errors
    assert "is lost: " in errors
    assert "; the others compute its part" in errors
    assert "2 ranks, 1 lost" in errors
    check_same(inputs)


@pytest.mark.exhaustive
def test_a_frozen_rank_is_given_up_and_ends_when_it_wakes(inputs: Path) -> None:
    with several(inputs, "--rank-timeout", "1", app="Slower") as run:
        frozen = run.both_compute()[0]
        send(frozen, signal.SIGSTOP)
        assert run.wait(lambda: frozen not in run.ranks())
        before = _claims(run.out, frozen)
        send(frozen, signal.SIGCONT)
        wait_ended([frozen])
        assert _claims(run.out, frozen) <= before
        status, errors = run.end()
    assert status == 0, errors
    assert "is lost: it was silent for too long" in errors
    check_same(inputs)


def _claims(run: Path, pid: int) -> set[Path]:
    """Return the claims on chunks that a process has made."""
    found = set()
    for path in run.glob("claims/*/*"):
        with contextlib.suppress(FileNotFoundError):  # another rank may have taken it away meanwhile
            if f".{pid}." in path.read_text():
                found.add(path)
    return found


@pytest.mark.exhaustive
def test_a_rank_that_holds_its_interpreter_lock_is_not_lost(inputs: Path) -> None:
    with several(inputs, "--rank-timeout", "1", app="Holds") as run:
        status, errors = run.end()
    assert status == 0, errors
    assert (inputs / "held").exists()
    assert "lost" not in errors
    check_same(inputs)


@pytest.mark.exhaustive
def test_a_pair_that_is_endless_on_one_rank_is_compared_by_the_other(inputs: Path) -> None:
    with several(inputs, "--tile-timeout", "2", app="EndlessOnOneRank") as run:
        status, errors = run.end()
    assert status == 0, errors
    assert (inputs / "first").exists()
    lines = [line for line in errors.splitlines() if line.endswith(" tries")]
    assert len(lines) == 1, errors
    assert "005.bin" in lines[0]
    assert "030.bin" in lines[0]
    check_same(inputs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", [(), ("--on", "local:2")])
def test_nothing_is_left_of_a_driver_that_is_killed_and_the_run_is_resumed(inputs: Path, more: tuple[str, ...]) -> None:
    with several(inputs) as run:
        run.both_compute()
        family = run.family()
        run.process.kill()
        wait_ended(family)
    assert len(family) >= 4
    assert not tartan.open(inputs / "several").finished
    resumed = tartan_command(inputs, "resume", "several", "--quiet", *more)
    assert resumed.returncode == 0, resumed.stderr
    check_same(inputs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("n_committed", [0, 1, 40, 70, 78])
def test_the_driver_is_interrupted_and_the_run_resumed(inputs: Path, n_committed: int) -> None:
    """In the launch, in the middle, while ranks take work from each other, and at the end."""
    with several(inputs, "--quiet") as run:
        run.wait(lambda: run.n_committed() >= n_committed and (n_committed > 0 or bool(run.family())))
        family = run.family()
        run.process.send_signal(signal.SIGINT)
        status, errors = run.end()
        wait_ended(family)
    assert status in (0, 130), errors
    resumed = tartan_command(inputs, *command("several", "--quiet"))
    assert resumed.returncode == 0, resumed.stderr
    check_same(inputs)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("starts", "last"),
    [
        (True, "tartan: interrupted"),
        (False, "tartan: error: the run was stopped before its end; run it again to resume"),
    ],
)
def test_ctrl_c_in_a_terminal_reaches_all_processes_and_one_speaks(inputs: Path, starts: bool, last: str) -> None:
    with several(inputs, "--quiet", app="Slower") as run:
        assert run.wait(lambda: len(run.family()) >= 2 if starts else run.n_committed() >= 1)
        family = run.family()
        os.killpg(run.process.pid, signal.SIGINT)
        status, errors = run.end()
        wait_ended(family)
    assert (status, errors) == (130, f"{last}\n")


@pytest.mark.exhaustive
def test_a_run_that_is_interrupted_while_it_merges_is_resumed(inputs: Path) -> None:
    with several(inputs, "--top-k", "5", "--quiet") as run:
        run.both_compute()
        run.wait(lambda: not (run.out / "ranks.json").exists())
        run.process.send_signal(signal.SIGINT)
        status, errors = run.end()
    assert status in (0, 130), errors
    assert tartan_command(inputs, "resume", "several", "--quiet").returncode == 0
    assert tartan_command(inputs, *command("one", "--top-k", "5", "--quiet")).returncode == 0
    found, plain = tartan.open(inputs / "several"), tartan.open(inputs / "one")
    for a, b in zip(found.neighbors(5), plain.neighbors(5), strict=True):
        assert (a == b).all()


@pytest.mark.exhaustive
def test_all_ranks_are_killed_and_the_run_can_be_resumed(inputs: Path) -> None:
    with several(inputs) as run:
        for rank in run.both_compute():
            send(rank, signal.SIGKILL)
        status, errors = run.end()
    assert status != 0
    assert "no rank is left" in errors
    assert tartan_command(inputs, "resume", "several", "--quiet").returncode == 0
    check_same(inputs)


@pytest.mark.exhaustive
def test_code_that_ends_every_rank_stops_the_run_and_says_how(inputs: Path) -> None:
    with several(inputs, app="Crashes") as run:
        status, errors = run.end()
    assert status == 1
    assert "no rank is left" in errors
    assert "killed by SIGSEGV" in errors
    assert not list((inputs / "several").glob("writers*/*/lease"))


@pytest.mark.exhaustive
def test_a_folder_that_is_renamed_under_its_ranks_is_said_to_be_gone(inputs: Path) -> None:
    with several(inputs, "--quiet", app="Slower") as run:
        run.both_compute()
        run.out.rename(inputs / "renamed")
        status, errors = run.end()
    assert status == 1
    assert errors == "tartan: error: several is gone: it was removed or renamed while the run was computed\n"


@pytest.mark.exhaustive
def test_a_rank_that_can_write_no_more_ends_alone(inputs: Path) -> None:
    with several(inputs) as run:
        resource.prlimit(run.both_compute()[0], resource.RLIMIT_FSIZE, (0, 0))
        status, errors = run.end()
    assert status == 0, errors
    assert "is lost: " in errors
    assert "larger than the file system or a limit of the shell" in errors
    check_same(inputs)


@pytest.mark.exhaustive
def test_a_second_run_on_the_folder_is_refused_and_harms_nothing(inputs: Path) -> None:
    with several(inputs, "--rank-timeout", "200") as run:
        run.both_compute()
        send(run.process.pid, signal.SIGSTOP)  # so that the run does not end meanwhile
        for words in (command("several", "--on", "local:2"), command("several"), ["resume", "several"]):
            second = tartan_command(inputs, *words)
            assert second.returncode == 1, second.stderr
            assert "several is in use by process" in second.stderr
        send(run.process.pid, signal.SIGCONT)
        status, errors = run.end()
    assert status == 0, errors
    check_same(inputs)


GARBAGE = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # half of a greeting of TLS
    struct.pack("<QQ", 1, 10 * 10**9) + b"half",  # a frame of 10 GB, as Dask begins one
    struct.pack("<I", 2**32 - 1) + b"half",
    b"\xff" * 100_000,
]


@pytest.mark.exhaustive
def test_garbage_on_every_port_of_a_run_does_no_harm(inputs: Path) -> None:
    with several(inputs, app="Slower") as run:
        run.both_compute()
        family = [run.process.pid, *run.family()]
        before, ports = _memory_bytes(family), _ports(family)
        assert len(ports) >= 9  # scheduler, driver, depot; of each rank worker, nanny and one for items
        for port in ports:
            for data in GARBAGE:
                _scan(port, data)
        assert _memory_bytes(family) - before < 200e6
        status, errors = run.end()
    assert status == 0, errors
    assert "lost" not in errors
    assert len([line for line in errors.splitlines() if "bulk connection" in line]) <= 4 * len(GARBAGE)
    check_same(inputs)


def _scan(port: int, data: bytes) -> None:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as scanner:
        scanner.sendall(data)
        scanner.shutdown(socket.SHUT_WR)
        scanner.settimeout(10)
        while scanner.recv(4096):
            pass


def _ports(pids: list[int]) -> list[int]:
    """Return the ports on which processes listen."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {f"socket:[{row[9]}]": int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
    found = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(listening.get(str(descriptor.readlink()), 0))
    return sorted(found - {0})


def _memory_bytes(pids: list[int]) -> int:
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * resource.getpagesize()
