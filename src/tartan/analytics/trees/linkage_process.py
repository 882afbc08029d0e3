"""SciPy's linkage where it can be left: its code hears nothing until it has finished.

Few items are joined here. Many are joined by a process of its own, to which the pairs go through memory that both map;
it is killed when somebody asks for a stop, and the kernel ends it when this process ends, however that happens.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.monitor import Monitor
from tartan.errors import InternalError, ResourceError

__all__ = ["joined_by_scipy"]

Floats = NDArray[np.float64]

#: More items take SciPy longer than a quarter of a second.
_MOST_HERE = 3000
_WAIT_SECONDS = 0.1

# The words are: the file of the memory, the number of pairs and of steps, the method, our process, the path of modules.
_CODE = """
import ctypes, json, mmap, os, signal, sys
file, pairs, steps, method, parent, path = json.loads(sys.argv[1])
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the parent
if os.getppid() != parent:
    sys.exit(1)
sys.path[:] = path
import numpy as np
from scipy.cluster import hierarchy
memory = np.frombuffer(mmap.mmap(file, 8 * (pairs + 4 * steps)), np.float64)
memory[pairs:] = hierarchy.linkage(memory[:pairs], method).ravel()
"""


def joined_by_scipy(n: int, method: str, fill: Callable[[Floats], None], monitor: Monitor) -> Floats:
    """Return SciPy's linkage of n items, two or more.

    Parameters
    ----------
    method : str
        As SciPy calls it.
    fill : callable
        Writes the n (n - 1) / 2 pairs into the array that it is given.
    monitor : Monitor

    Raises
    ------
    RunCancelledError
        If the monitor was asked to stop.
    ResourceError
        If the process that joins was ended, which is what happens when memory is short.
    """
    n_pairs, n_steps = n * (n - 1) // 2, n - 1
    if n <= _MOST_HERE or not hasattr(os, "memfd_create"):
        from scipy.cluster import hierarchy

        pairs = np.empty(n_pairs)
        fill(pairs)
        monitor.report(f"{method} linkage")
        steps: Floats = hierarchy.linkage(pairs, method)
        monitor.check()
        return steps
    file = os.memfd_create("tartan-linkage")
    try:
        os.ftruncate(file, 8 * (n_pairs + 4 * n_steps))
        memory = np.frombuffer(mmap.mmap(file, 0), np.float64)
        fill(memory[:n_pairs])
        _join(file, [n_pairs, n_steps, method], monitor)
    finally:
        os.close(file)
    return memory[n_pairs:].reshape(n_steps, 4).copy()


def _join(file: int, about: list[Any], monitor: Monitor) -> None:
    """Let another process join, and wait for it as long as nobody asks for a stop."""
    words = json.dumps([file, *about, os.getpid(), sys.path])
    # A session of its own: Ctrl-C is for us to hear.
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE, words],
        pass_fds=[file], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            _wait(process, str(about[2]), monitor)
        except BaseException:
            process.kill()
            raise
        if process.returncode == 0:
            return
        said = (process.stderr.read() if process.stderr is not None else b"").decode(errors="replace").strip()
    last = said.splitlines()[-1] if said else ""
    if process.returncode < 0 or "MemoryError" in last:
        raise ResourceError(
            f"the process that joined {about[1] + 1:,} items ended ({last or f'signal {-process.returncode}'}), most "
            f"likely for want of memory: {16 * about[0] / 1e9:.3g} GB are needed; use method='single'"
        )
    raise InternalError(f"the process that joins items failed: {last}")


def _wait(process: subprocess.Popen[bytes], method: str, monitor: Monitor) -> None:
    while True:
        monitor.report(f"{method} linkage")
        monitor.check()
        try:
            process.wait(_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return
