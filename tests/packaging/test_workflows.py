"""What is packaged for workflow systems runs, and names what there is: commands, options, parameters, dependencies."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
import pytest
import yaml

from tartan.apps.genomes import Genomes
from tartan.cli.commands import COMMANDS
from tartan.cli.main import main

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WRAPPER = PACKAGING / "snakemake/genomes"
MODULE = PACKAGING / "nf-core/tartan/genomes"
TOOL = PACKAGING / "galaxy/tartan_genomes.xml"
DATA = TOOL.parent / "test-data"
SPECIES = "item\tcluster\na1.fasta\t0\na2.fasta\t0\nb1.fasta\t1\n"

COMMAND = re.compile(r"(?<![\w./-])tartan +(--version|[a-z]+(?:-[a-z]+)*)")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
ENTRY = re.compile(r"^ {2}(-.*?)(?: {2}|$)", re.MULTILINE)  # what a page of help says of one option
PARAMETER = re.compile(r"\b(\w+)=(?=[{$\d])")
RENDER = """
import json, sys
from Cheetah.Template import Template
class Data(str):
    element_identifier = property(lambda self: self.rsplit("/", 1)[1])
template, values = json.load(sys.stdin)
values["genomes"] = [Data(path) for path in values["genomes"]]
print(Template(template, searchList=[values]))
"""


@functools.cache
def help_of(command: str) -> str:
    """Return what ``tartan COMMAND --help`` prints."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        assert main([command, "--help"]) == 0
    return written.getvalue()


def options(command: str) -> set[str]:
    """Return the options that the help of a command lists."""
    return set(OPTION.findall(" ".join(ENTRY.findall(help_of(command)))))


def commands() -> set[str]:
    return {"--version", *COMMANDS}


def uses(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of tartan in a text, and the words up to the next one or the end of its paragraph."""
    for piece in re.split(r"\n\n|&&", text):
        found = list(COMMAND.finditer(piece))
        ends = [match.start() for match in found[1:]] + [len(piece)]
        yield from ((match[1], piece[match.end() : end]) for match, end in zip(found, ends))


def unknown(text: str) -> set[str]:
    """Return the commands, options and parameters of genomes in a text that there are not."""
    wrong = {command for command, _ in uses(text) if command not in commands()}
    for command, words in uses(text):
        if command not in {"--version", *wrong}:
            wrong |= {f"{command} {option}" for option in OPTION.findall(words) if option not in options(command)}
        if "--set" in words:
            wrong |= {
                f"--set {name}" for name in PARAMETER.findall(words.split("--set")[1]) if name not in parameters()
            }
    return wrong


def parameters() -> set[str]:
    return set(Genomes.__init__.__annotations__) - {"return"}


def script(name: str) -> str:
    """Return a block of the module of nf-core: script or stub."""
    return re.split(r'"""', (MODULE / "main.nf").read_text().partition(f"\n    {name}:\n")[2])[1]


def tool() -> ElementTree.Element:
    return ElementTree.parse(TOOL).getroot()


def galaxy_command() -> str:
    command = tool().findtext("command")
    assert command is not None
    return command


def texts() -> dict[str, str]:
    """Return the text of each file that names commands, for Galaxy and nf-core only what is run or explains options."""
    run, cluster, tree = re.findall(r"`(--[^`]*)`", (MODULE / "meta.yml").read_text())
    pieces = re.findall(r"`([^`]+)`", (PACKAGING / "README.md").read_text())  # options alone are those of cluster
    return {
        "wrapper.py": re.sub(r"^import.*\n|^from.*\n", "", (WRAPPER / "wrapper.py").read_text(), flags=re.MULTILINE),
        "main.nf": script("script") + "".join(re.findall(r"eval\('(.*?)\|", (MODULE / "main.nf").read_text())),
        "meta.yml": f"tartan run {run}\n\ntartan cluster {cluster}\n\ntartan tree {tree}",
        "tartan_genomes.xml": f"{galaxy_command()}\n\n{tool().findtext('version_command')}",
        "bioconda": "\n\n".join(bioconda()["test"]["commands"]),
        "README.md": "\n\n".join(re.sub("^--", "tartan cluster --", code) for code in pieces),
    }


def test_wrong_names_are_found() -> None:
    assert unknown("tartan run genomes x -o y --worker 3 --set q=3") == {"run --worker", "--set q"}
    assert unknown("tartan clusters y") == {"clusters"}
    assert unknown("tartan run genomes x && tartan tree x --cut 3") == {"tree --cut"}
    assert unknown("tartan cluster x --cut 0.95 --method average\n\ntartan --version") == set()


@pytest.mark.parametrize("name", ["wrapper.py", "main.nf", "meta.yml", "tartan_genomes.xml", "bioconda", "README.md"])
def test_every_command_and_option_exists(name: str) -> None:
    text = texts()[name]
    assert unknown(text) == set()
    least = {
        "wrapper.py": {"run", "cluster", "tree", "report", "export"},
        "main.nf": {"run", "cluster", "tree", "report", "--version"},
        "tartan_genomes.xml": {"run", "cluster", "tree", "report", "export", "--version"},
    }
    assert {command for command, _ in uses(text)} >= least.get(name, set())


def test_every_choice_of_the_galaxy_tool_exists() -> None:
    page = help_of("cluster").partition("options:")[2]
    method, ways = page.partition("--method ")[2], page.partition("--representative WAY")[2].partition("--picture")[0]
    known = {"method": method[1 : method.index("}")].split(","), "representative": re.findall(r"[a-z]\w+", ways)}
    for name, values in known.items():
        offered = {option.attrib["value"] for option in tool().iterfind(f".//param[@name='{name}']/option")}
        assert len(offered) > 2
        assert offered <= set(values), name


def bioconda() -> dict[str, Any]:
    """Return the recipe for bioconda, with what conda-build puts into it."""
    text = (PACKAGING / "bioconda/meta.yaml").read_text()
    calls = {
        "compiler": "{}_compiler".format, "stdlib": "{}_stdlib".format,
        "pin_subpackage": lambda name, max_pin: f"{name} {max_pin}", "PYTHON": "python",
    }  # fmt: skip
    read = yaml.safe_load(jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(text).render(calls))
    assert isinstance(read, dict)
    return read


def test_both_recipes_say_the_same() -> None:
    ours = bioconda()
    text = (PACKAGING / "conda/recipe.yaml").read_text()
    other = yaml.safe_load(text)
    assert ours["package"] == {"name": other["package"]["name"], "version": other["context"]["version"]}
    assert ours["package"] == {"name": PROJECT["name"], "version": PROJECT["version"]}
    assert ours["requirements"]["run"] == other["requirements"]["run"]
    assert set(ours["requirements"]["host"][1:]) == set(other["requirements"]["host"][1:])
    assert ours["build"]["entry_points"] == other["build"]["python"]["entry_points"]
    assert other["build"]["script"].removeprefix("python ") in ours["build"]["script"][-1]
    assert ours["test"]["commands"] == other["tests"][0]["script"]
    assert ours["about"]["license"] == other["about"]["license"] == PROJECT["license"]
    assert ours["about"]["summary"] == other["about"]["summary"]
    least = PROJECT["requires-python"].removeprefix(">=").replace(".", "")
    assert f"skip: True  # [not linux or py < {least}]" in (PACKAGING / "bioconda/meta.yaml").read_text()
    assert "noarch" not in ours["build"]


def test_every_package_asks_for_this_version() -> None:
    name, version = PROJECT["name"], PROJECT["version"]
    snakemake = yaml.safe_load((WRAPPER / "environment.yaml").read_text())
    assert snakemake["dependencies"] == [f"{name} ={version}"]
    nfcore = yaml.safe_load((MODULE / "environment.yml").read_text())
    assert nfcore["dependencies"] == [f"bioconda::{name}={version}"]
    [requirement] = tool().iterfind("requirements/requirement")
    assert (requirement.text, requirement.attrib["version"]) == (name, "@TOOL_VERSION@")
    assert tool().findtext("macros/token[@name='@TOOL_VERSION@']") == version
    assert set(re.findall(r'get\(2\) == "(.*?)"', (MODULE / "tests/main.nf.test").read_text())) == {version}


def test_descriptions_name_what_is_read_and_written() -> None:
    meta = yaml.safe_load((WRAPPER / "meta.yaml").read_text())
    text = (WRAPPER / "wrapper.py").read_text()
    assert set(re.findall(r"params\.get\([\"'](\w+)", text)) == set(meta["params"])
    assert set(re.findall(r"output\.get\([\"'](\w+)", text)) == {next(iter(one)) for one in meta["output"]}
    assert set(re.findall(r"\.input\.(?:get\(\")?(\w+)", text)) - {"get"} == {next(iter(one)) for one in meta["input"]}
    module = yaml.safe_load((MODULE / "meta.yml").read_text())
    emitted = re.findall(r"emit: (\w+)", (MODULE / "main.nf").read_text())
    assert emitted == list(module["output"])
    assert set(re.findall(r"val\(meta\), path\(\"(.*?)\"\)", (MODULE / "main.nf").read_text())) == {
        pattern for name in emitted[:-1] for pattern in module["output"][name][0][1]
    }


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Environment in which ``tartan`` is this checkout's."""
    shim = tmp_path / "bin/tartan"
    shim.parent.mkdir()
    source = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from tartan.__main__ import main; sys.exit(main())"
    )
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{source}" "$@"\n')
    shim.chmod(0o755)
    return {**os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}"}


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: python -m venv V && V/bin/pip install {name}, and V/bin on PATH")
    return found


def ran(command: list[str], folder: Path, environment: dict[str, str], stdin: str = "") -> str:
    ended = subprocess.run(
        command, cwd=folder, env=environment, input=stdin, capture_output=True, text=True, timeout=200
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_the_snakemake_wrapper_runs(tmp_path: Path, environment: dict[str, str]) -> None:
    snakemake = program("snakemake")
    shutil.copytree(WRAPPER, tmp_path / "master/bio/tartan/genomes")
    work = tmp_path / "work"
    shutil.copytree(DATA, work / "genomes")
    shutil.copy(WRAPPER / "test/Snakefile", work)
    (work / "quality.tsv").write_text("genome\tCompleteness\na1.fasta\t90\na2.fasta\t99\nb1.fasta\t80\n")
    rules = re.findall(r"^rule (\w+):", (work / "Snakefile").read_text(), re.MULTILINE)
    prefix = ["--wrapper-prefix", f"file://{tmp_path}/"]
    ran([snakemake, "--cores", "2", *prefix, *rules], work, environment)
    assert [line.split("\t")[:2] for line in (work / "species.tsv").read_text().splitlines()] == [
        line.split("\t") for line in SPECIES.splitlines()
    ]
    assert (work / "best.tsv").read_text().splitlines()[1:] == [
        "a1.fasta\t0\ta2.fasta",
        "a2.fasta\t0\ta2.fasta",
        "b1.fasta\t1\tb1.fasta",
    ]
    assert (work / "genomes.nwk").read_text().strip().endswith(";")
    assert "<html" in (work / "genomes.html").read_text()
    assert (work / "ani.csv").read_text().startswith(",a1.fasta,a2.fasta,b1.fasta\n")
    assert (work / "genomes.tartan/manifest.json").is_file()
    assert "table in species.tsv" in (work / "logs/tartan_genomes.log").read_text()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_script_of_the_nextflow_module_runs(tmp_path: Path, environment: dict[str, str]) -> None:
    """Bash runs the script with what Nextflow would put into it; Nextflow itself is not needed."""
    values = {
        "prefix": "x", "task.cpus": "2", "args": "--set k=31 scaled=1", "args2": "--cut 0.95 --method average",
        "args3": "",
    }  # fmt: skip
    filled = re.sub(r"\$\{(.*?)\}", lambda found: values[found[1]], script("script")).replace("\\\\", "\\")
    (tmp_path / "genomes").mkdir()
    for name in ("a1", "a2", "b1"):
        (tmp_path / f"genomes/{name}.fasta").symlink_to(DATA / f"{name}.fasta")
    ran(["bash", "-euo", "pipefail", "-c", filled], tmp_path, environment)
    assert (tmp_path / "x.tsv").read_text() == SPECIES
    written = {path.name for path in tmp_path.glob("x.*")}
    stub = re.sub(r"\$\{prefix\}", "y", script("stub"))
    ran(["bash", "-euo", "pipefail", "-c", stub], tmp_path, environment)
    assert {path.name.replace("y", "x", 1) for path in tmp_path.glob("y.*")} == written
    declared = re.findall(r"path\(\"\$\{prefix\}(.*?)\"\)", (MODULE / "main.nf").read_text())
    assert written == {f"x{suffix}" for suffix in declared}


@pytest.mark.slow
def test_planemo_finds_no_fault(tmp_path: Path, environment: dict[str, str]) -> None:
    ran([program("planemo"), "lint", str(TOOL)], tmp_path, environment)


def values_of(test: ElementTree.Element) -> dict[str, Any]:
    """Return the values of a test of the Galaxy tool, with the defaults of its inputs."""
    values: dict[str, Any] = {}
    for param in tool().iterfind("inputs/param"):
        chosen = [option.attrib["value"] for option in param if option.get("selected")]
        values[param.attrib["name"]] = param.get("value") or ",".join(chosen)
    for param in test.iterfind("param"):
        values[param.attrib["name"]] = param.get("value", "")
    values["genomes"] = [str(DATA / name) for name in values["genomes"].split(",")]
    return values


def holds(claim: ElementTree.Element, text: str) -> bool:
    """Tell whether one assertion of Galaxy holds for a text."""
    lines = text.splitlines()
    match claim.tag:
        case "has_n_lines":
            return len(lines) == int(claim.attrib["n"])
        case "has_n_columns":
            return len(lines[0].split("\t")) == int(claim.attrib["n"])
        case "has_line":
            return claim.attrib["line"] in lines
        case "has_text":
            return claim.attrib["text"] in text
    raise AssertionError(claim.tag)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_the_galaxy_tool_runs(number: int, tmp_path: Path, environment: dict[str, str]) -> None:
    """Cheetah, which comes with planemo, fills in the command, and Bash runs it; Galaxy itself is not needed."""
    python = Path(program("planemo")).parent / "python"
    test = list(tool().iterfind("tests/test"))[number]
    command = ran([str(python), "-c", RENDER], tmp_path, environment, json.dumps([galaxy_command(), values_of(test)]))
    ran(["bash", "-euo", "pipefail", "-c", command.replace("\n", " ")], tmp_path, environment)
    files = {data.attrib["name"]: tmp_path / data.attrib["from_work_dir"] for data in tool().iterfind("outputs/data")}
    assert sum(path.is_file() for path in files.values()) == int(test.attrib["expect_num_outputs"])
    for output in test.iterfind("output"):
        text = files[output.attrib["name"]].read_text()
        claims = list(output.iterfind("assert_contents/*"))
        assert claims
        assert [claim.attrib for claim in claims if not holds(claim, text)] == []
