"""The documents are true: their examples run, and the commands, options, links and words they name exist."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import os
import re
import shlex
import sys
import tokenize
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tartan.application import Application
from tartan.cli.commands import COMMANDS, FAMILIES, MOVED
from tartan.cli.main import build_parser, main

ROOT = Path(__file__).resolve().parents[1]
READMES = [*ROOT.glob("src/tartan/**/README.md"), *ROOT.glob("crates/*/README.md")]
RECORDS = [*(ROOT / "docs" / "design").glob("*.md")]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *RECORDS, *READMES])
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
INSIDE = [str(path.relative_to(ROOT)) for path in (*READMES, *RECORDS)] + ["ARCHITECTURE.md", "CONTRIBUTING.md"]
USED = {".py", ".md"}
SOURCE_FILE = re.compile(r"(?<![\w./-])\w[\w/-]*\.(?:py|rs)\b")
GALLERY = "docs/gallery.md"  # run with its lines of a shell in between, by tests/end_to_end/test_gallery.py
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
SECTION = re.compile(r"^## .*", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(rf"^tartan ((?:(?:{'|'.join(FAMILIES)}) )?[a-z][a-z-]*)(?![\w-])")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
TRANSCRIPT = re.compile(r"(?<=^<!-- transcript: )(\w+) (\d+) -->\n```console\n(.*?)(?=^```)", re.MULTILINE | re.DOTALL)
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
    return {command: set(OPTION.findall(" ".join(ENTRY.findall(_help(command))))) for command in COMMANDS}


def _help(command: str) -> str:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        assert main([*command.split(), "--help"]) == 0
    return written.getvalue()


def _code_of_today(name: str) -> list[str]:
    """Return the code of a document, without what the list of changes calls by the name of its time."""
    then = set(MOVED) if name == "CHANGELOG.md" else set()
    return [line for line in _code(name) if not ((found := COMMAND.match(line)) and found[1] in then)]


def _command_of(line: str) -> str | None:
    found = COMMAND.search(line)
    return found[1] if found else None


def test_there_are_documents():
    assert {"README.md", "ARCHITECTURE.md", "docs/applications.md"} <= set(NAMES)
    assert any(_python(name) for name in NAMES)


# Pages that are looked things up in, not read: one table of each word, and one section for each benchmark.
LOOKED_UP = {"docs/glossary.md", "docs/benchmarks.md"}
LONGEST_PAGE = 1500  # words; by judgement, what is read in ten minutes


@pytest.mark.parametrize("name", [name for name in NAMES if name == "README.md" or name.startswith("docs/")])
def test_pages_that_are_read_are_short(name):
    """Tables count, blocks of code do not; a longer page is a how-to, a reference and an explanation in one."""
    text = INDENTED.sub("", FENCE.sub("", _text(name)))
    assert name in LOOKED_UP or len(text.split()) <= LONGEST_PAGE


def test_no_section_stands_twice():
    """A text pasted twice says two things as soon as one of them is kept up to date."""
    twice = {
        name: [one for one, n in Counter(SECTION.findall(FENCE.sub("", _text(name)))).items() if n > 1]
        for name in NAMES
    }
    assert not {name: found for name, found in twice.items() if found}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if _python(name) and name != GALLERY])
def test_examples_run(name, tmp_path, monkeypatch, capsys):
    """The examples of one document run one after the other, in an empty folder, and print what is shown below them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules[__name__])
    scope: dict[str, object] = {"__name__": "__example__"}
    shown = printed = ""
    blocks = FENCE.findall(_text(name))
    for number, (language, body) in enumerate(blocks):
        if language == "python":
            exec(compile(body, f"{name}[{number}]", "exec"), scope)
            printed = capsys.readouterr().out
            shown += printed
        elif language == "text" and number and blocks[number - 1][0] == "python":
            assert body == printed, f"{name}[{number}]"
    assert shown.strip()


def _fill(shown: re.Match[str]) -> str:
    """Write the step of a case below its mark in a document."""
    case, number, _ = shown.groups()
    steps = tomllib.loads(_text(f"tests/cases/transcripts/{case}.toml"))["step"]
    return f"{case} {number} -->\n```console\n{steps[int(number) - 1]['transcript']}"


def test_transcripts_in_documents_are_those_that_run():
    """What stands below ``<!-- transcript: CASE STEP -->`` is that step of a case, which tests/cases runs."""
    showing = [name for name in NAMES if TRANSCRIPT.search(_text(name))]
    assert len(showing) > 2
    for name in showing:
        text = _text(name)
        assert len(TRANSCRIPT.findall(text)) == text.count("<!-- transcript")
        now = TRANSCRIPT.sub(_fill, text)
        if os.environ.get("TARTAN_TRANSCRIPTS") == "write":
            (ROOT / name).write_text(now, encoding="utf-8")
        else:
            assert text == now, "make transcripts"


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist(name):
    named = {command for line in _code_of_today(name) if (command := _command_of(line))}
    assert named <= set(_options())


@pytest.mark.parametrize("name", NAMES)
def test_options_exist(name):
    every = set().union(*_options().values()) | OTHER_TOOLS
    for line in _code_of_today(name):
        if line.startswith("python "):  # a script has options of its own
            continue
        command = _command_of(line)
        known = _options()[command] if command else every
        assert set(OPTION.findall(line)) <= known | {"--help"}, line


def test_whole_command_lines_are_accepted():
    lines = [line for name in NAMES for line in _code_of_today(name) if COMMAND.match(line)]
    whole = [line for line in lines if not re.search(r"APP|COMMAND", line)]
    assert len(whole) > 5
    parser = build_parser()
    for line in whole:
        words = shlex.split(line)[1:]
        if " ".join(words) not in COMMANDS or words[0] in ("plan", "demo", "doctor"):
            assert parser.parse_args(words).command == words[0]


def test_every_command_is_in_the_reference():
    assert {command for line in _code("docs/commands.md") if (command := _command_of(line))} == set(_options())


@cache
def _anchors(path: Path) -> set[str]:
    """The places in a document that a link may name, one for each heading."""
    headings = re.findall(r"^#+ (.*)", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", re.sub(r"\]\(.*?\)", "", one).lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)\s]+)\)", _text(name)):
        if not target.startswith("http"):
            file, _, anchor = target.partition("#")
            path = (ROOT / name).parent / file if file else ROOT / name
            assert path.exists(), target
            assert not anchor or anchor in _anchors(path), target


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


@cache
def _names_of_sources() -> set[str]:
    """The names of all source files, without their folders."""
    return {
        path.name
        for kind in ("py", "rs")
        for folder in ("src", "crates")
        for path in (ROOT / folder).rglob(f"*.{kind}")
    }


def _is_source(document: str, named: str) -> bool:
    """Whether a file that a document names is there: beside it, or below the package; from the root, anywhere."""
    folder = (ROOT / document).parent
    if any((place / named).is_file() for place in (folder, folder / "src", ROOT / "src/tartan", ROOT)):
        return True
    return folder == ROOT and "/" not in named and named in _names_of_sources()


@pytest.mark.parametrize("name", sorted(INSIDE))
def test_source_files_that_a_document_for_developers_names_exist(name):
    """A table of files that was not mended when files moved sends its reader astray."""
    gone = {named for named in SOURCE_FILE.findall(_text(name)) if "NAME" not in named and not _is_source(name, named)}
    assert not gone, f"{name} names files that are not there: say where their content is now"


def _prose(path: Path) -> str:
    """Comments of a source file, and its docstrings."""
    text = path.read_text(encoding="utf-8")
    if not SOURCE_FILE.search(text):
        return ""
    if path.suffix != ".py":
        return "\n".join(re.findall(r"//(.*)", text))
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    texts = [node.value.value for node in nodes if isinstance(node.value, ast.Constant)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join([*comments, *(one for one in texts if isinstance(one, str))])


@pytest.mark.slow
def test_source_files_that_comments_name_exist():
    """Where a file was merged into another one, what is said of it elsewhere names the other one."""
    folders = [ROOT / folder for folder in ("src", "crates", "benches", "examples", "tests")]
    there = [path for folder in folders for path in folder.rglob("*.*")]
    ends = {"/".join(path.parts[-count:]) for path in there for count in range(1, 6)}
    gone = {
        f"{path.relative_to(ROOT)}: {named}"
        for path in there
        if path.suffix in {".py", ".rs", ".h", ".cu"} and not path.is_relative_to(ROOT / "tests")
        for named in SOURCE_FILE.findall(_prose(path))
        if named not in ends
    }
    assert not gone


def test_a_readme_names_files_of_its_own_folder():
    assert _is_source("src/tartan/store/README.md", "ledger.py")
    assert not _is_source("src/tartan/store/README.md", "schedule.py")
    assert _is_source("src/tartan/store/README.md", "core/pairs/schedule.py")
    assert _is_source("ARCHITECTURE.md", "schedule.py")


@pytest.mark.parametrize("name", NAMES)
def test_benchmarks_that_a_document_names_exist(name):
    named = {word for line in _code(name) for word in re.findall(r"\btartan bench ([a-z][a-z_-]+)", line)} - {"all"}
    there = {path.stem for path in (ROOT / "benches").glob("*/*.py")}
    assert {word.replace("-", "_") for word in named} <= there


def test_the_changelog_is_readable_and_numbers_no_version_that_was_not_released():
    lines = _text("CHANGELOG.md").splitlines()
    assert [line for line in lines if len(line) > 120] == []
    headings = [line for line in lines if line.startswith("## ")]
    released = headings[1:] if headings[0] == "## [Unreleased]" else headings
    assert [line for line in released if not re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", line)] == []


def test_changes_are_files_that_the_next_changelog_takes():
    kinds = {kind["directory"] for kind in tomllib.loads(_text("pyproject.toml"))["tool"]["towncrier"]["type"]}
    for path in (ROOT / "changes").iterdir():
        if path.name != "README.md":
            named = re.fullmatch(r"\+[a-z0-9-]+\.([a-z]+)\.md", path.name)
            assert named, path.name
            assert named[1] in kinds, path.name
            lines = path.read_text(encoding="utf-8").splitlines()
            assert lines, path.name
            assert max(map(len, lines)) <= 120, path.name


def test_every_record_of_a_decision_is_in_the_index_and_complete():
    index = _text("docs/design/index.md")
    for path in RECORDS:
        if path.name != "index.md":
            assert index.count(f"]({path.name})") == 1, path.name
            text = path.read_text(encoding="utf-8")
            missing = [
                word for word in ("Question", "Tried", "Decision", "Cost", "Reconsider") if f"**{word}" not in text
            ]
            assert not missing, path.name


@pytest.mark.slow
def test_words_of_the_glossary_are_explained_once_and_used():
    rows = [row for row in re.findall(r"^\| ([^|]+) \|", _text("docs/glossary.md"), re.MULTILINE) if row != "word"]
    words = [word for row in rows for word in row.split(", ")]
    assert len(words) == len(set(words))
    assert len(rows) <= 65, "a word that every reader of Dask, MPI, Zarr or SciPy knows needs no row"
    used = " ".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "src/tartan").rglob("*.*") if path.suffix in USED
    )
    gone = [word for word in words if not re.search(rf"(?i)(?<![a-z]){re.escape(word.split()[0])}", used)]
    assert not gone


def test_parameters_of_the_applications_are_documented():
    from tartan.apps import BUILTIN, builtin

    for app in BUILTIN:
        page = _text(f"docs/app-{app}.md")
        for parameter in inspect.signature(builtin(app)).parameters:
            assert f"| `{parameter}` |" in page, f"{app}: {parameter}"
        assert f"](app-{app}.md)" in _text("docs/applications.md")


def test_every_hook_of_an_application_is_declared_and_documented():
    """What built-in applications use is open to all: the table of methods is that of the class, and the other way."""
    table = _text("docs/hooks.md").partition("## Methods")[2].partition("## Attributes")[0]
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


def test_modules_of_the_site_are_there():
    named = re.findall(r"automodule:: ([\w.]+)", _text("docs/site/api.rst"))
    assert len(named) > 20
    for name in named:
        place = ROOT / "src" / name.replace(".", "/")
        assert place.with_suffix(".py").is_file() or (place / "__init__.py").is_file(), name
