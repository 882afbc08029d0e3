"""The documents are true: their examples run, and the commands, options, links and words they name exist."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tartan.application import Application
from tartan.cli.main import build_parser, main

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
SECTION = re.compile(r"^## .*", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"^tartan ([a-z][a-z-]*)(?![\w-])")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
ENTRY = re.compile(r"^ {2}(-.*?)(?: {2}|$)", re.MULTILINE)  # what a page of help says of one option
OTHER_TOOLS = {"--strict", "--memory-limit", "--nthreads", "--resources", "--bind-to"}  # mypy, dask worker, mpiexec


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _python(name: str) -> list[str]:
    return [body for language, body in FENCE.findall(_text(name)) if language == "python"]


def _code(name: str) -> list[str]:
    """Lines and pieces of code that are not Python."""
    text = FENCE.sub("", _text(name))
    lines = [line.strip() for block in INDENTED.findall(text) for line in block.splitlines()]
    pieces = lines + CODE.findall(INDENTED.sub("", text))
    return [piece.split(" # ")[0].strip() for piece in pieces]


@cache
def _options() -> dict[str, set[str]]:
    """The options of each command."""
    commands = re.findall(r"^ {4}([a-z][a-z-]*)(?![\w-])", build_parser().format_help(), re.MULTILINE)
    return {command: set(OPTION.findall(" ".join(ENTRY.findall(_help(command))))) for command in commands}


def _help(command: str) -> str:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        assert main([command, "--help"]) == 0
    return written.getvalue()


def _command_of(line: str) -> str | None:
    found = COMMAND.search(line)
    return found.group(1) if found else None


def test_there_are_documents():
    assert {"README.md", "ARCHITECTURE.md", "docs/applications.md"} <= set(NAMES)
    assert any(_python(name) for name in NAMES)


def test_no_section_stands_twice():
    """A text pasted twice says two things as soon as one of them is kept up to date."""
    twice = {
        name: [one for one, n in Counter(SECTION.findall(FENCE.sub("", _text(name)))).items() if n > 1]
        for name in NAMES
    }
    assert not {name: found for name, found in twice.items() if found}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if _python(name)])
def test_examples_run(name, tmp_path, monkeypatch, capsys):
    """The examples of one document run one after the other, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules[__name__])
    scope: dict[str, object] = {"__name__": "__example__"}
    for number, example in enumerate(_python(name)):
        exec(compile(example, f"{name}[{number}]", "exec"), scope)
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist(name):
    named = {command for line in _code(name) if (command := _command_of(line))}
    assert named <= set(_options())


@pytest.mark.parametrize("name", NAMES)
def test_options_exist(name):
    every = set().union(*_options().values()) | OTHER_TOOLS
    for line in _code(name):
        if line.startswith("python "):  # a script has options of its own
            continue
        command = _command_of(line)
        known = _options()[command] if command else every
        assert set(OPTION.findall(line)) <= known | {"--help"}, line


def test_whole_command_lines_are_accepted():
    lines = [line for name in NAMES for line in _code(name) if COMMAND.match(line)]
    whole = [line for line in lines if not re.search(r"APP|COMMAND", line)]
    assert len(whole) > 5
    parser = build_parser()
    for line in whole:
        words = shlex.split(line)[1:]
        if len(words) > 1 or words[0] in ("plan", "demo", "doctor"):
            assert parser.parse_args(words).command == words[0]


def test_every_command_is_in_the_readme():
    assert {command for line in _code("README.md") if (command := _command_of(line))} == set(_options())


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)", _text(name)):
        if not target.startswith("http"):
            assert ((ROOT / name).parent / target).exists(), target


@pytest.mark.parametrize("name", NAMES)
def test_make_targets_exist(name):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {target for line in _code(name) for target in re.findall(r"\bmake ([a-z-]+)", line)}
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_files_of_the_package_exist(name):
    for piece in _code(name):
        if re.fullmatch(r"(core|src/tartan|crates|docs|tests|benches)/[\w/.-]*\w", piece):
            path = ROOT / "src/tartan" / piece if piece.startswith("core/") else ROOT / piece
            assert path.exists() or "NAME" in piece, piece


def test_parameters_of_the_applications_are_documented():
    from tartan.apps import builtin

    text = _text("docs/applications.md")
    for app in ("forensics", "microscopy", "phylogeny", "vectors"):
        section = text.split(f"## {app}:")[1].split("\n## ")[0]
        for parameter in builtin(app)().parameters():
            assert f"| `{parameter}` |" in section, f"{app}: {parameter}"


def test_every_hook_of_an_application_is_declared_and_documented():
    """What built-in applications use is open to all: the table of methods is that of the class, and the other way."""
    table = _text("docs/applications.md").partition("**The methods**")[2].partition("**Parameters**")[0]
    documented = set(re.findall(r"^\| `(\w+)", table, re.MULTILINE))
    declared = {name for name in vars(Application) if not name.startswith("_")}
    assert documented <= declared
    attributes = {name for name in declared if not callable(getattr(Application, name))}
    assert declared - attributes - documented == {"parameters"}


@pytest.mark.parametrize("app", ["forensics", "microscopy", "phylogeny", "vectors"])
def test_built_in_applications_define_no_hook_that_is_not_declared(app):
    from tartan.apps import builtin

    kind = builtin(app)
    own = {name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))}
    assert own <= set(vars(Application))
