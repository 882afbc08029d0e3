"""Everything works with the lowest versions of the dependencies that pyproject.toml allows."""

from __future__ import annotations

import re
import subprocess
import tomllib
import venv
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("http", "cluster", "plots")


def lowest(requirement: str) -> str:
    """Return a requirement of the lowest version that is allowed: ``a>=1.2,<3`` becomes ``a==1.2``."""
    return re.sub(r">=([\d.]+)(,<[\d.]+)?", r"==\1", requirement)


def test_every_dependency_has_a_lowest_version() -> None:
    optional = [requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra]
    for requirement in (*PROJECT["dependencies"], *optional):
        assert re.search(r">=\d", requirement), requirement
    assert lowest("zarr>=3.1,<4") == "zarr==3.1"


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_commands_work_with_the_lowest_versions(tmp_path: Path) -> None:
    venv.create(tmp_path / "lowest", with_pip=True, symlinks=True)
    python = tmp_path / "lowest/bin/python"
    optional = [requirement for extra in EXTRAS for requirement in PROJECT["optional-dependencies"][extra]]
    wanted = [lowest(requirement) for requirement in (*PROJECT["dependencies"], *optional)]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *wanted], check=True)
    next((tmp_path / "lowest/lib").glob("python*/site-packages")).joinpath("src.pth").write_text(f"{ROOT / 'src'}\n")

    def tartan(*words: str) -> str:
        command = [python, "-m", "tartan", *words]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, (words, ran.stderr)
        return ran.stdout

    np.save(tmp_path / "rows.npy", np.random.default_rng(0).random((60, 8)))
    (tmp_path / "table.csv").write_text("id,name\n2,b\n1,a\n")
    tartan("run", "vectors", "rows.npy", "-o", "run", "--tile", "16")
    whole = (tmp_path / "run/scores.zarr/c/0/1").read_bytes()
    (tmp_path / "run/status.zarr/c/0/1").unlink()
    (tmp_path / "run/scores.zarr/c/0/1").unlink()
    tartan("resume", "run")
    assert (tmp_path / "run/scores.zarr/c/0/1").read_bytes() == whole
    tartan("run", "vectors", "rows.npy", "-o", "ranks", "--tile", "16", "--on", "local:2")
    assert (tmp_path / "ranks/scores.zarr/c/0/1").read_bytes() == whole
    assert len(tartan("cluster", "run", "-k", "3").splitlines()) == 61
    tartan("tree", "run", "-o", "tree.nwk", "--picture", "tree.png")
    tartan("embed", "run", "-o", "map")
    tartan("report", "run", "-o", "report.html")
    tartan("export", "run", "scores.parquet")
    tartan("export", "run", "matrix.svg")
    tartan("sort", "table.csv", "sorted.csv", "--key", "id")
    assert (tmp_path / "sorted.csv").read_text() == "id,name\n1,a\n2,b\n"
    tartan("demo", "demo", "--photos", "4", "--quiet")
