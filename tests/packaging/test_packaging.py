"""What is installed is what was declared: dependencies, recipes, and a wheel that works without the checkout."""

from __future__ import annotations

import ast
import json
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
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Modules whose names are not those of the packages that hold them.
PACKAGES = {
    "PIL": "pillow", "pillow_heif": "pillow-heif", "sklearn": "scikit-learn", "google_crc32c": "google-crc32c",
    "cupy": "cupy-cuda12x",
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


def targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def is_program(name: str) -> bool:
    return os.access(ROOT / name, os.X_OK)


def test_every_make_target_that_is_named_exists() -> None:
    texts = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")]
    texts += [*ROOT.glob("docs/**/*.md"), *ROOT.glob("packaging/build-wheel"), *ROOT.glob("packaging/Dockerfile")]
    named = {
        (path.name, target)
        for path in texts
        for target in re.findall(r"(?:`|^    |echo \")make ([a-z][a-z-]*)", path.read_text(), re.MULTILINE)
    }
    gate = re.search(r"^make (.*)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert gate is not None
    named |= {("run", target) for target in gate[1].split()}
    assert {target for _, target in named} >= {"demo", "test", "lint", "wheel", "fuzz"}
    assert {(name, target) for name, target in named if target not in targets()} == set()


def test_the_workflow_runs_programs_of_this_checkout() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    jobs = workflow["jobs"]
    assert {job["needs"] for job in jobs.values() if "needs" in job} <= set(jobs)
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands
    assert [command for command in commands if not is_program(command.split()[0])] == []
    assert all("@" in step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step)


def test_the_image_is_built_from_what_is_there() -> None:
    lines = [line for line in (ROOT / "packaging/Dockerfile").read_text().splitlines() if line and line[0] != "#"]
    words = [line.split() for line in lines]
    assert {line[0] for line in words} <= {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}
    stages = {line[3] for line in words if line[0] == "FROM" and len(line) > 3}
    assert {word.partition("=")[2] for line in words for word in line if word.startswith("--from=")} == stages
    assert [line[1] for line in words if line[0] == "RUN" and "/" in line[1] and not is_program(line[1])] == []
    hidden = (ROOT / ".dockerignore").read_text().split()
    assert not {"crates", "src", "packaging", "Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md"} & set(hidden)
    assert [json.loads(line.partition(" ")[2]) for line in lines if line.startswith("ENTRYPOINT")] == [["tartan"]]


def test_the_conda_recipe_can_be_read() -> None:
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
    assert (ROOT / "packaging/conda" / recipe["source"]["path"]).resolve() == ROOT.resolve()
    name, _, entry = recipe["build"]["python"]["entry_points"][0].partition(" = ")
    assert {name: entry} == PROJECT["scripts"]
    assert (ROOT / recipe["about"]["license_file"]).exists()


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
    tartan("cluster", run, "-k", "4", "-o", "groups.tsv")
    tartan("sort", "groups.tsv", "sorted.tsv", "--key", "cluster")
    assert (tmp_path / "sorted.tsv").read_text().splitlines()[1].endswith("\t0")
    assert "cluster" in tartan("completion", "bash")
    shutil.rmtree(tmp_path / "empty")
