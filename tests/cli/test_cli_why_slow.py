"""``tartan info --why-slow``: ten lines, and the same as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.apps.vectors import Vectors
from tartan.cli.main import main


def test_it_says_in_ten_lines_where_the_time_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "run")
    run = tartan.allpairs(Vectors(), np.eye(9, dtype=np.float32), out=path, quiet=True)
    assert main(["info", path, "--why-slow"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("slow by ")
    assert main(["info", path, "--why-slow", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert f"{about['cause']}, " in lines[0]
    assert sum(about["seconds"].values()) == pytest.approx(about["device_seconds"])
    n_servers = run.stats["sizing"]["n_workers"]
    assert about["device_seconds"] == pytest.approx(n_servers * run.stats["wall_seconds"], rel=0.5)


def test_a_run_of_which_nothing_was_kept_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    tartan.allpairs(Vectors(), np.eye(5, dtype=np.float32), out=path, quiet=True)
    stats = json.loads((path / "stats.json").read_text())
    del stats["device_seconds"]
    (path / "stats.json").write_text(json.dumps(stats))
    assert main(["info", str(path), "--why-slow"]) == 2
    assert "keeps no times by cause" in capsys.readouterr().err
