"""The link over MPI: what it refuses, without MPI; and, where an MPI is installed, jobs of mpiexec."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tartan.comm.link_mpi import (
    MpiLink,
    MpiPlace,
    mpi_place,
    pause_after,
    require_alike,
    require_joined,
    without_mpi,
)
from tartan.errors import ConfigError

LIMIT_SECONDS = 120


def test_a_process_knows_its_place_by_the_environment() -> None:
    assert mpi_place({"PMI_RANK": "1", "PMI_SIZE": "4"}) == MpiPlace(1, 4)
    both = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "2"}
    assert mpi_place(both) == MpiPlace(2, 3, "Open MPI")
    with pytest.raises(ConfigError, match="not started by mpiexec"):
        mpi_place({"PMI_RANK": "1"})


def test_processes_of_mpiexec_that_would_all_do_the_same_are_refused() -> None:
    two = {"PMI_RANK": "0", "PMI_SIZE": "2"}
    with pytest.raises(ConfigError, match="has started 2 of these, and each would do all the work"):
        require_joined(None, two)
    for link, environment in [("loopback", two), ("mpi", two), (None, {}), (None, two | {"PMI_SIZE": "1"})]:
        require_joined(link, environment)


def test_ranks_are_no_processes_of_mpiexec() -> None:
    kept = {"HOME": "/", "PATH": "/bin"}
    assert without_mpi(kept | {"PMI_FD": "7", "PMIX_ID": "1", "OMPI_COMM_WORLD_RANK": "0", "PRTE_X": ""}) == kept


def test_without_mpi4py_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ConfigError, match=r"needs mpi4py .*tartan-allpairs\[mpi\]"):
        MpiLink(MpiPlace(0, 1), {}, patience_seconds=1.0).open(lambda *_: pytest.fail("nothing is received"))


def test_nodes_that_differ_are_told_in_what() -> None:
    one = {"the version of Tartan": "1", "the number of ranks": "2"}
    require_alike([one, dict(one)])
    with pytest.raises(ConfigError, match="the number of ranks is 2 on node 0 and 3 on node 1"):
        require_alike([one, one | {"the number of ranks": "3"}])
    with pytest.raises(ConfigError, match="what is new is nothing on node 0 and x on node 1"):
        require_alike([one, one | {"what is new": "x"}])


def test_the_longer_nothing_comes_the_longer_are_the_pauses() -> None:
    pauses = [pause_after(seconds) for seconds in (0.0, 0.009, 0.02, 0.9, 5.0, 1e9)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 1e-4
    assert pauses[-1] <= 0.01


def test_nobody_sleeps_while_a_bulk_is_under_way_unless_it_stands_still() -> None:
    assert [pause_after(seconds, bulk=True) for seconds in (0.0, 0.9)] == [0.0, 0.0]
    assert pause_after(5.0, bulk=True) == pause_after(5.0)


SCRIPT = """
import os, sys
import numpy as np
from tartan import comm

world = comm.world()
what = sys.argv[1]
assert "mpi4py" not in sys.modules
with open("/proc/self/maps") as maps:
    assert "libmpi" not in maps.read()
assert not any(name.startswith(("PMI", "OMPI")) for name in os.environ)
rows = np.full(30_000, float(world.rank))
whole = world.all_gather(rows)
assert (whole.reshape(world.size, -1) == np.arange(world.size)[:, None]).all()
assert world.sendrecv(rows, (world.rank + 1) % world.size)[0] == (world.rank - 1) % world.size
total = world.all_reduce(np.array([0.1 * world.rank]))
if what == "lose-rank" and world.rank == 1:
    os.kill(os.getpid(), 9)
if what == "lose-node" and world.rank == world.size - 1:
    os.kill(os.getppid(), 9)
if what == "exit" and world.rank == 2:
    sys.exit(7)
if what == "wait":
    world.recv(source=(world.rank + 1) % world.size, tag=world.rank)
if what == "mismatch" and world.rank == 3:
    world.all_reduce(rows)
if what == "sleep":
    os.write(1, b"ready" + bytes([10]))
    while True:
        world.probe(wait=False)
world.barrier()
if world.rank == 0:
    print(world.size, float(total[0]))
"""


def mpiexec() -> list[str]:
    """Return the mpiexec that belongs to this Python's mpi4py; skip the test where there is none."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no MPI: mpi4py is not installed (the extra mpi)")
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("no MPI: there is no mpiexec")
    words = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=LIMIT_SECONDS).stdout
    if "HYDRA" in words:
        return [found]
    return [found, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def tartan(*words: str) -> list[str]:
    return [sys.executable, "-m", "tartan", *words]


def start(command: list[str], tmp_path: Path) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, text=True, cwd=tmp_path, start_new_session=True, **pipes)


def ended(command: list[str], tmp_path: Path) -> tuple[int, str, str]:
    """Run a command; return exit status, stdout and stderr."""
    with start(command, tmp_path) as process:
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, out, err


def job(tmp_path: Path, what: str, n_nodes: int = 2) -> tuple[int, str, str]:
    """Run the script on two ranks a node; return exit status, stdout and stderr."""
    words = [*mpiexec(), "-n", str(n_nodes), *tartan("ranks", "--cpus", "2", "--link", "mpi", "script.py", what)]
    return ended(words, tmp_path)


def left_behind(folder: Path) -> list[int]:
    """Return the processes whose working folder this is."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
        except OSError:  # it has ended, or is not ours
            continue
    return found


def require_nothing_left(folder: Path) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while left_behind(folder) and time.monotonic() < deadline:
        pass
    assert not left_behind(folder)


@pytest.mark.slow
def test_outside_mpiexec_the_way_in_is_named(tmp_path) -> None:
    words = tartan("ranks", "--cpus", "1", "--link", "mpi", "script.py", "sum")
    status, _, err = ended(words, tmp_path)
    assert status == 2
    assert "mpiexec -n NODES tartan" in err


@pytest.mark.exhaustive
@pytest.mark.parametrize("n_nodes", [1, 3])
def test_ranks_of_several_nodes_exchange_arrays(tmp_path, n_nodes) -> None:
    status, out, err = job(tmp_path, "sum", n_nodes)
    total = 0.0
    for rank in range(2 * n_nodes):
        total += 0.1 * rank
    assert (status, out) == (0, f"{2 * n_nodes} {total}\n"), err
    require_nothing_left(tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("what", "status", "text"),
    [
        ("lose-rank", 1, "error: rank 1 ended: killed by SIGKILL"),
        ("exit", 7, "rank 2 has failed: it ended itself with exit status 7"),
        (
            "wait",
            1,
            "rank 0: recv from rank 1, tag 0; rank 1: recv from rank 2, tag 1; rank 2: recv from rank 3, tag 2",
        ),
        ("mismatch", 1, "rank 2 calls barrier; rank 3 calls all_reduce"),
    ],
)
def test_failures_end_all_nodes_and_are_named(tmp_path, what, status, text) -> None:
    found, _, err = job(tmp_path, what)
    assert found == status, err
    assert text in err
    require_nothing_left(tmp_path)


@pytest.mark.exhaustive
def test_a_lost_node_process_ends_the_job(tmp_path) -> None:
    before = set(Path("/dev/shm").iterdir())
    status, _, err = job(tmp_path, "lose-node")
    assert status in (9, 128 + signal.SIGKILL), err
    require_nothing_left(tmp_path)
    assert not {path for path in set(Path("/dev/shm").iterdir()) - before if "mpi" in path.name}


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
def test_the_end_of_mpiexec_ends_all(tmp_path, number) -> None:
    words = [*mpiexec(), "-n", "2", *tartan("ranks", "--cpus", "2", "--link", "mpi", "script.py", "sleep")]
    with start(words, tmp_path) as process:
        assert [process.stdout.readline() for _ in range(4)] == ["ready\n"] * 4
        process.send_signal(number)
        process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode != 0
    require_nothing_left(tmp_path)


@pytest.mark.exhaustive
def test_a_node_that_waits_for_others_ends_by_a_signal(tmp_path) -> None:
    script = f"open({str(tmp_path / 'stands')!r}, 'w').close(); import time; time.sleep(1000)"
    node = tartan("ranks", "--cpus", "2", "--link", "mpi", "script.py", "sum")
    words = [*mpiexec(), "-n", "1", *node, ":", "-n", "1", sys.executable, "-c", script]
    with start(words, tmp_path) as process:
        while not (tmp_path / "stands").exists() or len(left_behind(tmp_path)) < 4:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode != 0
    require_nothing_left(tmp_path)


@pytest.mark.exhaustive
def test_nodes_may_have_other_numbers_of_ranks(tmp_path) -> None:
    command = [*mpiexec(), "-n", "2", *tartan("ranks", "--cpus", "1,3", "--link", "mpi", "script.py", "sum")]
    status, out, err = ended(command, tmp_path)
    assert (status, err) == (0, "")
    assert out
    require_nothing_left(tmp_path)


@pytest.mark.exhaustive
def test_nodes_with_other_options_are_refused(tmp_path) -> None:
    one, other = (tartan("ranks", "--cpus", cpus, "--link", "mpi", "script.py", "sum") for cpus in "23")
    status, out, err = ended([*mpiexec(), "-n", "1", *one, ":", "-n", "1", *other], tmp_path)
    assert (status, out) == (2, "")
    assert err.count("the number of ranks is 2 on node 0 and 3 on node 1") == 1
    require_nothing_left(tmp_path)
