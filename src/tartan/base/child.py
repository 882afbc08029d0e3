"""Start Python processes that run a function of this package, and say how they ended.

Workers, ranks behind their relays, the nodes of a program and replays side by side all start here. A child is a
fresh interpreter: the caller's script needs no main guard, and its threads and locks are not copied.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# The search path is set before anything else is imported: user code finds the modules that it finds in the parent, and,
# with -P, a file in the working directory cannot hide a module of the standard library.
_BOOT = (
    "import json, sys; sys.path[:], words = json.loads(sys.argv.pop()); "
    "from {module} import {function}; {function}(*words)"
)


def start_child(
    function: str,
    *words: int | str,
    pass_fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int = 2,
    stderr: int = 2,
    own_group: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a Python process that calls a function of this package.

    Parameters
    ----------
    function : str
        ``module:name``; the module is imported in the child only.
    words : int or str
        Arguments of the function.
    pass_fds : sequence of int, optional
        Descriptors that the child inherits, under the same numbers.
    env : mapping, optional
        Its environment; that of this process by default.
    stdin, stdout, stderr : int, optional
        As for ``subprocess.Popen``. Output goes to the standard error of this process by default, for standard output
        is for data, and user code prints; a stream that this process has closed is ``DEVNULL`` there.
    own_group : bool, optional
        Whether the child leads a session, so that Ctrl-C does not reach it and its process group can be killed.

    Returns
    -------
    subprocess.Popen

    Raises
    ------
    OSError
        If the system starts no process.
    """
    module, _, name = function.partition(":")
    paths = [str(Path(entry).absolute()) for entry in sys.path if isinstance(entry, str)]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT.format(module=module, function=name), json.dumps([paths, words])],
        stdin=stdin,
        stdout=_open_or_null(stdout),
        stderr=_open_or_null(stderr),
        pass_fds=pass_fds,
        env=env,
        start_new_session=own_group,
    )


def _open_or_null(stream: int) -> int:
    if stream < 0:
        return stream  # subprocess.PIPE, DEVNULL or STDOUT
    try:
        os.fstat(stream)
    except OSError:
        return subprocess.DEVNULL
    return stream


def die_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process when the thread that started it ends; end at once where it has."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)  # it was gone before the line above


def describe_exit(status: int | None) -> str:
    """Return how a process ended, given its return code; None where it has not ended although it was killed."""
    if status is None:
        return "killed, and still hanging inside the system"
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal other than the first and the last
        return f"killed by signal {-status}"
