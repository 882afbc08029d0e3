"""What is installed is what was declared: dependencies, recipes, and a wheel that works without the checkout."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Modules whose names are not those of the packages that hold them.
PACKAGES = {
    "PIL": "pillow", "sklearn": "scikit-learn", "google_crc32c": "google-crc32c", "cupy": "cupy-cuda12x",
    "array_api_compat": "array-api-compat", "argparse_manpage": "argparse-manpage", "cupyx": "cupy-cuda12x",
}  # fmt: skip


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[; ]", requirement)[0] for requirement in requirements}


def imported(path: Path) -> Iterator[str]:
    """Yield the first words of what a file imports, in functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.slow
def test_every_import_is_a_dependency_or_of_an_extra() -> None:
    declared = names(PROJECT["dependencies"])
    for requirements in PROJECT["optional-dependencies"].values():
        declared |= names(requirements)
    used = {name for path in (ROOT / "src").rglob("*.py") for name in imported(path)}
    foreign = used - set(sys.stdlib_module_names) - {"tartan"}
    assert {PACKAGES.get(name, name) for name in foreign} - declared == set()


def test_the_conda_recipe_names_the_same_dependencies() -> None:
    recipe = (ROOT / "packaging/conda/recipe.yaml").read_text()
    listed = recipe[recipe.index("  run:") : recipe.index("tests:")]
    wanted = {requirement.replace(" ", "") for requirement in PROJECT["dependencies"]}
    assert {line.strip("- ").replace(" ", "") for line in listed.splitlines()[1:] if line} == wanted | {
        f"python{PROJECT['requires-python']}"
    }
    assert f'version: "{PROJECT["version"]}"' in recipe


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_a_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    """Only what the wheel declares is there: demo, clusters, a map, a tree, an export, completion."""
    maturin = Path(sys.executable).parent / "maturin"
    if not (ROOT / "target/release/lib_native.so").exists() or not maturin.exists():
        pytest.skip("needs what `make build` compiles in target/release")
    command = [maturin, "build", "--release", "--offline", "--quiet", "--out", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"VIRTUAL_ENV": sys.prefix})
    venv.create(tmp_path / "empty", with_pip=True, symlinks=True)
    program = tmp_path / "empty/bin"
    pip = [program / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, next(tmp_path.glob("*.whl"))], check=True)

    def tartan(*words: str) -> str:
        ran = subprocess.run([program / "tartan", *words], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, (words, ran.stderr)
        return ran.stdout

    tartan("demo", "demo", "--photos", "12", "--quiet")
    assert (tmp_path / "demo/report.html").exists()
    run = "demo/photos.tartan"
    assert len({line.split("\t")[1] for line in tartan("cluster", run, "-k", "4").splitlines()[1:]}) == 4
    tartan("embed", run, "-o", "map")
    tartan("tree", run, "-o", "tree.nwk")
    tartan("export", run, "matrix.csv")
    assert "cluster" in tartan("completion", "bash")
    shutil.rmtree(tmp_path / "empty")
