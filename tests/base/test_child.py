"""Processes that the package starts: what they import, inherit and print, and how they ended."""

import os
import signal
import subprocess
import sys

import pytest

from tartan import comm
from tartan.base.child import describe_exit, start_child
from tartan.errors import RankLostError
from tartan.plan.side_by_side import predict_all
from tartan.workers.handle import WorkerHandle, worker_environment
from tartan.workers.worker import STOP

STRANGE = "open({0!r}, 'w').close(); raise SystemExit('the module of the working directory was imported')"
SHADOWED = ("json", "signal", "pickle", "select")


@pytest.fixture
def folder_of_strange_modules(tmp_path, monkeypatch):
    """Work in a folder whose files have the names of modules of the standard library."""
    trace = tmp_path / "imported"
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text(STRANGE.format(str(trace)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return trace


def test_workers_import_nothing_of_the_working_directory(folder_of_strange_modules) -> None:
    handle = WorkerHandle(worker_environment())
    handle.send(STOP)  # which it reads when it has imported all
    assert handle.process.wait(30) == 0
    handle.bury()
    assert not folder_of_strange_modules.exists()


@pytest.mark.slow
def test_ranks_import_nothing_of_the_working_directory(folder_of_strange_modules) -> None:
    assert comm.run(lambda rank: rank.size, cpus=2, nodes=2) == [4] * 4
    assert not folder_of_strange_modules.exists()


@pytest.mark.slow
def test_replays_import_nothing_of_the_working_directory(folder_of_strange_modules) -> None:
    with pytest.raises(AssertionError):  # an answer that is no prediction
        predict_all([os.getpid], 1)
    assert not folder_of_strange_modules.exists()


def test_a_child_finds_the_modules_of_its_parent(tmp_path, monkeypatch) -> None:
    (tmp_path / "only_here.py").write_text("def show(*words): print(words, flush=True)")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    child = start_child("only_here:show", 1, "two", stdout=subprocess.PIPE)
    assert child.communicate(timeout=30)[0] == b"(1, 'two')\n"


def test_standard_output_goes_to_standard_error_and_a_closed_stream_to_nowhere(tmp_path) -> None:
    (tmp_path / "prints.py").write_text("def show(): print('data')\n")
    script = (
        "import os, sys; from tartan.base.child import start_child; "
        "sys.path.append({0!r}); {1}; raise SystemExit(start_child('prints:show').wait())"
    )
    for before, errors in (("pass", b"data\n"), ("os.close(2)", b""), ("os.close(1)", b"data\n")):
        done = subprocess.run(
            [sys.executable, "-c", script.format(str(tmp_path), before)], capture_output=True, timeout=60
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", errors)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "killed, and still hanging inside the system"),
        (0, "exit status 0"),
        (3, "exit status 3"),
        (-signal.SIGKILL, "killed by SIGKILL"),
        (-(signal.SIGRTMIN + 3), f"killed by signal {signal.SIGRTMIN + 3}"),
    ],
)
def test_how_a_process_ended(status, text) -> None:
    assert describe_exit(status) == text


def test_a_rank_that_a_real_time_signal_kills_is_named() -> None:
    def program(rank):
        if rank.rank == 1:
            os.kill(os.getpid(), signal.SIGRTMIN + 3)
        rank.barrier()

    with pytest.raises(RankLostError, match="rank 1 ended: killed by signal"):
        comm.run(program, cpus=2)
