"""Every environment variable of Tartan is documented, in one place, and none that is not read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"TARTAN_[A-Z_]+")
PAGE = (ROOT / "docs" / "environment.md").read_text()


def names_in(path: Path) -> Iterator[str]:
    """Yield the names of variables that a file reads or sets: whole texts of a program, assignments of a shell."""
    text = path.read_text()
    if "TARTAN_" not in text:
        return
    if path.suffix == ".py":
        texts = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
        yield from (text for text in texts if isinstance(text, str) and NAME.fullmatch(text))
    elif path.suffix == ".rs":
        yield from re.findall(r'"(TARTAN_[A-Z_]+)"', text)
    else:
        yield from re.findall(r"\b(TARTAN_[A-Z_]+)=", text)


def names_below(*places: str) -> set[str]:
    files = [path for place in places for path in (ROOT / place).rglob("*") if path.suffix in (".py", ".rs")]
    return {name for path in files if path != Path(__file__).resolve() for name in names_in(path)}


def section(title: str) -> set[str]:
    return set(NAME.findall(PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]))


def test_what_the_package_reads_is_listed_and_what_is_listed_is_read() -> None:
    in_tests = section("For tests and benchmarks of Tartan itself")
    assert names_below("src", "crates") - in_tests == section("Of Tartan")
    shell = {name for path in (ROOT / "Makefile", ROOT / ".ci" / "run") for name in names_in(path)}
    everywhere = names_below("src", "crates", "tests", "benches", "fuzz", "examples") | shell
    assert everywhere == set(NAME.findall(PAGE))


def test_the_search_sees_what_it_should(tmp_path: Path) -> None:
    program, crate, script = (tmp_path / name for name in ("a.py", "a.rs", "run"))
    program.write_text('"""Of TARTAN_NOT_ME."""\nos.environ.get("TARTAN_A")\nMARK = "TARTAN_B"\n"-DTARTAN_C=1"\n')
    crate.write_text('let a = std::env::var("TARTAN_D");\n#define TARTAN_E 1\n')
    script.write_text("export TARTAN_F=1\n")
    found = {name for path in (program, crate, script) for name in names_in(path)}
    assert found == {"TARTAN_A", "TARTAN_B", "TARTAN_D", "TARTAN_F"}
