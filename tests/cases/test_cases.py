"""What people brought: each file ``*.toml`` below this folder is one case, read and followed by this one runner.

A case is made of a sentence, where it was reported, and steps that run in an empty folder, one after the other::

    what = "whole numbers beyond 38 digits keep their order"
    report = "blockchain-etl/ethereum-etl#350"   # a public report: repository and number; or what the file is

    [files]                                      # written before the first step; files beside the case are there, too
    "a.csv" = "id,value\n1,2\n"

    [[step]]
    python = "import numpy as np; np.save('a.npy', np.zeros((3, 2)))"   # asserts are expected values

    [[step]]
    run = "tartan sort wei.csv o.csv --key value"
    status = 0                                   # default: 0
    out = ["regular expression found in stdout"]
    err = ["regular expression found in stderr"]
    absent = ["regular expression found in neither"]
    files = { "o.csv" = "whole content" }        # a name ending in ~ is compared as regular expression

    [[step]]
    transcript = '''                             # commands and all that they print, as support/transcript.py says
    $ tartan sort wei.csv o.csv --key values
    2> tartan: error: wei.csv has no column 'values'; there are id, value
    [2]
    '''

``needs = ["rapidfuzz"]`` skips the case where a module is absent, ``slow = true`` and ``exhaustive = true`` mark it.
``tartan`` runs in this process; workers and ranks are processes as they always are. ``make transcripts`` writes into
transcripts what their commands print now, and transcripts into the documents that show them.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support import transcript
from tartan.cli.main import main

HERE = Path(__file__).parent
CASES = sorted(HERE.rglob("*.toml"))
KEYS = {"what", "report", "files", "needs", "slow", "exhaustive", "step", "use"}
KINDS = {"run", "python", "shell", "transcript"}
STEP_KEYS = {*KINDS, "status", "out", "err", "absent", "files"}
QUOTED = re.compile(r"""'[^']*'|"[^"$`]*\"""")
OF_A_SHELL = re.compile(r"[|&;<>$`*?~()\n]")  # what a shell does something with, outside of quotes


def _load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _parameter(path: Path) -> Any:
    case = _load(path)
    marks = [getattr(pytest.mark, name) for name in ("slow", "exhaustive") if case.get(name)]
    return pytest.param(path, id=str(path.relative_to(HERE).with_suffix("")), marks=marks)


@pytest.mark.parametrize("path", CASES, ids=lambda path: str(path.relative_to(HERE)))
def test_case_is_well_formed(path):
    case = _load(path)
    assert case.keys() <= KEYS
    assert case["what"].strip()
    assert case["report"].strip()
    assert case["step"]
    for step in case["step"]:
        assert step.keys() <= STEP_KEYS
        assert len(step.keys() & KINDS) == 1


@pytest.mark.parametrize("path", [_parameter(path) for path in CASES])
def test_case(path, tmp_path, monkeypatch, capfd):
    case = _load(path)
    for module in case.get("needs", []):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    folder = tmp_path / "case"
    folder.mkdir()
    for name in case.get("use", []):  # files beside the case
        target = folder / Path(name).name
        (shutil.copytree if (path.parent / name).is_dir() else shutil.copyfile)(path.parent / name, target)
    for name, text in case.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode("utf-8"))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    scope: dict[str, Any] = {"__name__": "__case__"}
    for number, step in enumerate(case["step"]):
        capfd.readouterr()
        if "transcript" in step:
            _compare(path, step["transcript"], partial(_say, capfd))
            continue
        status = _follow(step, scope, f"{path}[{number}]")
        out, err = capfd.readouterr()
        _judge(step, status, out, err)


def _compare(path: Path, text: str, run: Callable[[str], tuple[str, ...]]) -> None:
    """Compare a transcript with what its commands print now; write that into the case where this is asked for."""
    now = transcript.replay(text, run)
    if os.environ.get("TARTAN_TRANSCRIPTS") == "write" and now != text:
        case = path.read_text(encoding="utf-8")
        assert case.count(f"'''\n{text}'''") == 1, "two equal transcripts: write them by hand"
        assert "'''" not in now, "this ends the text: write the transcript by hand"
        path.write_text(case.replace(f"'''\n{text}'''", f"'''\n{now}'''"), encoding="utf-8")
        return
    if now != text:
        lines = difflib.unified_diff(text.splitlines(), now.splitlines(), "expected", "printed", lineterm="")
        pytest.fail("\n".join([*lines, "", "after a deliberate change: make transcripts"]), pytrace=False)


def _say(capfd: pytest.CaptureFixture[str], command: str) -> tuple[str, ...]:
    """Run a command of a transcript, here where no shell is needed; return what it printed."""
    plain = not OF_A_SHELL.search(QUOTED.sub("", command))
    if plain and command.startswith("python -c "):
        step = {"python": shlex.split(command)[2]}
    else:
        step = {"run" if plain and command.startswith("tartan ") else "shell": command}
    status = _follow(step, {"__name__": "__case__"}, command)
    return transcript.render(*capfd.readouterr(), status)


def _follow(step: dict[str, Any], scope: dict[str, Any], where: str) -> int:
    if "python" in step:
        exec(compile(step["python"], where, "exec"), scope)
        sys.stdout.flush()
        return 0
    if "shell" in step:  # pipes, signals and limits; `tartan` is the program of this environment
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(["bash", "-c", step["shell"]], env={**os.environ, "PATH": path}, timeout=240, check=False)
        return done.returncode
    program, *words = shlex.split(step["run"])
    assert program == "tartan"
    try:
        return main(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _judge(step: dict[str, Any], status: int, out: str, err: str) -> None:
    said = f"\n--- stdout\n{out}\n--- stderr\n{err}"
    assert status == step.get("status", 0), said
    for pattern in step.get("out", []):
        assert re.search(pattern, out), f"{pattern!r} is not in stdout{said}"
    for pattern in step.get("err", []):
        assert re.search(pattern, err), f"{pattern!r} is not in stderr{said}"
    for pattern in step.get("absent", []):
        assert not re.search(pattern, out + err), f"{pattern!r} was printed{said}"
    for name, text in step.get("files", {}).items():
        written = Path(name.removesuffix("~")).read_bytes().decode("utf-8")
        if name.endswith("~"):
            assert re.search(text, written), f"{name}: {written}"
        else:
            assert written == text, f"{name}: {written}"
