"""The program ``tartan``, also as ``python -m tartan``: imports the command line, which takes a moment, and runs it."""

import atexit
import contextlib
import os
import signal
import sys
import threading


def main() -> int:
    """Run one command; return its exit status."""
    try:
        from tartan.cli.main import main as run
    except KeyboardInterrupt:  # later ones are the command line's own
        print("tartan: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    status = run()
    if any(thread.name == "tartan-worker" for thread in threading.enumerate()):
        _leave(status)
    return status


def _leave(status: int) -> None:
    """End the process at once: compiled code that a stop left behind in a thread aborts an interpreter that ends."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
