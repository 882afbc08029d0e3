"""A Slurm of two nodes on this machine: real daemons with keys, ports and folders of their own, for one test module."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from whole_program import find_marked

__all__ = ["DAEMONS", "Slurm", "find_daemons", "running_slurm"]

DAEMONS = ("slurmctld", "slurmd", "munged")
PROGRAMS = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
NODES = ("n1", "n2")
CONFIG = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
SlurmdTimeout=10
ReturnToService=2
KillWait=30
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=4000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=4000
PartitionName=tests Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
"""A job that is put back into the queue waits until its credential has expired: 5 seconds here, 120 by default."""


class Slurm:
    """The commands of a Slurm that runs.

    Parameters
    ----------
    env : dict
        Names its configuration, and is what jobs start with.
    """

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env

    def call(self, *words: object, folder: Path | None = None) -> str:
        """Run one of its commands and return what it prints."""
        done = subprocess.run([*map(str, words)], env=self.env, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout.strip()

    def show(self, job: str) -> dict[str, str]:
        """Return what is known of a job, or of a task of an array (``17_3``)."""
        words = self.call("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: str, happened: Callable[[dict[str, str]], bool], seconds: float = 180.0) -> dict[str, str]:
        """Wait until something is so of a job, and return what is known of it then."""
        end = time.monotonic() + seconds
        while not happened(known := self.show(job)):
            assert time.monotonic() < end, known
            time.sleep(0.2)
        return known

    def wait_for_end(self, job: str) -> str:
        """Wait until a job has ended for good, and return its state."""
        return self.wait(job, lambda known: known["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"))["JobState"]


def find_daemons() -> dict[str, str] | None:
    """Return the paths of the daemons, or None where one is not installed."""
    found = {name: shutil.which(name, path=PROGRAMS) for name in (*DAEMONS, "sbatch")}
    return {name: path for name, path in found.items() if path} if all(found.values()) else None


@contextlib.contextmanager
def running_slurm(folder: Path, daemons: dict[str, str]) -> Iterator[Slurm]:
    """Start munged, slurmctld and two slurmd; at the end nothing that they have started is left.

    Parameters
    ----------
    folder : Path
        Of a short name, since it holds a socket.
    daemons : dict
        Their paths, by name.
    """
    folder.chmod(0o755)  # munged looks
    bin_folder = Path(sys.executable).parent
    env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{bin_folder}:{PROGRAMS}"}
    _write_files(folder)
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *options: str) -> None:
        with (folder / "daemons.log").open("ab") as log:
            words = [daemons[name], *options]
            started.append(subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    try:
        start("munged", "--foreground", "--force", *_munge_options(folder))
        _wait_for(folder / "munge.sock")
        start("slurmctld", "-D")
        for node in NODES:
            start("slurmd", "-D", "-N", node)
        slurm = Slurm(env)
        _wait_for_nodes(slurm)
        yield slurm
    finally:
        for daemon in started:
            daemon.kill()
            daemon.wait()
        _kill_marked(f"SLURM_CONF={folder}/slurm.conf")  # slurmd hands nothing else to slurmstepd


def _kill_marked(mark: str) -> None:
    """Kill what the daemons have started; one that is killed may just have started another one."""
    while pids := find_marked(mark):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _write_files(folder: Path) -> None:
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    config = CONFIG.format(host=socket.gethostname(), user=getpass.getuser(), ports=_free_ports(3), folder=folder)
    (folder / "slurm.conf").write_text(config)


def _free_ports(n: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _munge_options(folder: Path) -> list[str]:
    files = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return [f"--{option}={folder}/munge.{suffix}" for option, suffix in files.items()]


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 30.0
    while not path.exists():
        assert time.monotonic() < end, f"{path} does not appear"
        time.sleep(0.1)


def _wait_for_nodes(slurm: Slurm) -> None:
    end = time.monotonic() + 60.0
    while (states := _states(slurm)) != ["idle"] * len(NODES):
        assert time.monotonic() < end, states
        time.sleep(0.2)


def _states(slurm: Slurm) -> list[str]:
    with contextlib.suppress(AssertionError):  # slurmctld does not answer yet
        return slurm.call("sinfo", "--Node", "--noheader", "--format=%t").split()
    return []
