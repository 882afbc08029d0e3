"""How the program ends while a worker that a stop has left behind is still in compiled code."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, threading
from tartan.__main__ import main

class Last:
    def __del__(self):
        print("the interpreter ends")

last = Last()
atexit.register(print, "at exit")
if sys.argv.pop() == "busy":
    threading.Thread(target=threading.Event().wait, name="tartan-worker", daemon=True).start()
sys.argv[1:] = ["frobnicate"]
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("worker", "said"), [("busy", ["at exit"]), ("none", ["at exit", "the interpreter ends"])])
def test_the_interpreter_does_not_end_under_a_worker(worker: str, said: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, worker], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.splitlines() == said
    assert "no command 'frobnicate'" in done.stderr
    assert done.returncode == 2
