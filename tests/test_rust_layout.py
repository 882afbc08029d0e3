"""The shape of the Rust crates: no two files need each other, directly or through others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CRATES = sorted(path.parent for path in ROOT.glob("crates/*/Cargo.toml"))

# A crate: the path of every module, and its source without comments, literals and tests.
Modules = dict[tuple[str, ...], str]

NOISE = re.compile(
    r"//[^\n]*"  # comment
    r"|/\*.*?\*/"
    r'|b?r(#*)".*?"\1'  # raw string
    r'|b?"(?:\\.|[^"\\])*"'  # string
    r"|b?'(?:\\.[^']*|[^'\\])'",  # character, not a lifetime
    re.DOTALL,
)
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?(?:mod\s+(\w+)\s*([;{])|use[^;]*;)")
INLINE = re.compile(r"\bmod\s+(\w+)\s*\{")
USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
PATH = re.compile(r"(?<![\w:])\$?((?:\w+::)+\w+)")


def after_block(source: str, start: int) -> int:
    """Return the place behind the brace that closes the block whose inside begins at ``start``."""
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(source[start], 0)
        start += 1
    return start


def without_tests(source: str) -> tuple[str, set[str]]:
    """Return a source without comments, literals and test modules, and the names of test modules in other files."""
    source = NOISE.sub(" ", source)
    files = set()
    while match := TESTS.search(source):
        end = after_block(source, match.end()) if match[2] == "{" else match.end()
        if match[2] == ";":
            files.add(match[1])
        source = source[: match.start()] + source[end:]
    return source, files


def with_inline(module: tuple[str, ...], source: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield a module and the modules inside its file."""
    while match := INLINE.search(source):
        end = after_block(source, match.end())
        yield from with_inline((*module, match[1]), source[match.end() : end - 1])
        source = source[: match.start()] + source[end:]
    yield module, source


def module_at(name: str) -> tuple[str, ...]:
    """Return the module of a file below ``src``."""
    parts = tuple(name.removesuffix(".rs").split("/"))
    return () if parts == ("lib",) else parts[:-1] if parts[-1] == "mod" else parts


def leaves(tree: str) -> Iterator[tuple[str, ...]]:
    """Yield the paths that a ``use`` names: ``a::{b, c as d}`` gives ``a::b`` and ``a::c``; aliases do not matter."""
    head, brace, rest = "".join(re.sub(r"\s+as\s+\w+", "", tree).split()).partition("{")
    if not brace:
        yield tuple(head.split("::"))
        return
    depth, start, inner = 0, 0, rest.removesuffix("}") + ","
    for place, letter in enumerate(inner):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if start < place:
                for leaf in leaves(inner[start:place]):
                    yield (*[part for part in head.split("::") if part], *leaf)
            start = place + 1


def paths_in(source: str) -> Iterator[tuple[str, ...]]:
    """Yield every path that a source names, in ``use`` and elsewhere."""
    for match in USE.finditer(source):
        yield from leaves(match[2])
    for match in PATH.finditer(USE.sub(";", source)):
        yield tuple(match[1].split("::"))


class Crate:
    """Which file of a crate needs which other; files are given by their path below ``src``."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        plain = {module_at(name): without_tests(source) for name, source in sources.items()}
        tests = {(*module, name) for module, (_, names) in plain.items() for name in names}
        self.files = plain.keys() - tests
        self.modules: Modules = dict(
            pair for module in sorted(self.files) for pair in with_inline(module, plain[module][0])
        )
        self.exports = {
            (module, leaf[-1]): leaf
            for module, source in self.modules.items()
            for match in USE.finditer(source)
            if match[1]
            for leaf in leaves(match[2])
        }

    def file(self, module: tuple[str, ...]) -> tuple[str, ...]:
        """Return the module that has a file of its own and holds ``module``."""
        return module if module in self.files else self.file(module[:-1])

    def target(self, module: tuple[str, ...], path: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the module that defines what ``path`` means in ``module``; None outside the crate."""
        if path[0] == "crate":
            place, path = (), path[1:]
        elif path[0] in ("super", "self") or (*module, path[0]) in self.modules:
            place = module
        else:
            return None
        while path and path[0] in ("super", "self"):
            place, path = (place[:-1] if path[0] == "super" else place), path[1:]
        while path and (*place, path[0]) in self.modules:
            place, path = (*place, path[0]), path[1:]
        export = self.exports.get((place, path[0])) if path else None
        return place if export is None else self.target(place, export) or place

    def needs(self) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
        """Return the files that each file needs besides itself."""
        needs: dict[tuple[str, ...], set[tuple[str, ...]]] = {file: set() for file in self.files}
        for module, source in self.modules.items():
            targets = {self.target(module, path) for path in paths_in(source)} - {None}
            needs[self.file(module)] |= {self.file(target) for target in targets if target is not None}
        return {file: others - {file} for file, others in needs.items()}


def circles(needs: Mapping[tuple[str, ...], set[tuple[str, ...]]]) -> list[str]:
    """Return the groups of modules that need each other, directly or through others."""

    def reached(module: tuple[str, ...]) -> set[tuple[str, ...]]:
        seen: set[tuple[str, ...]] = set()
        waiting = [module]
        while waiting:
            new = needs[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    reach = {module: reached(module) for module in needs}
    groups = {
        frozenset(other for other in reach[module] if module in reach[other])
        for module in needs
        if module in reach[module]
    }
    return sorted(", ".join(sorted("::".join(module) or "lib" for module in group)) for group in groups)


def crate_at(folder: Path) -> Crate:
    """Return the crate in ``folder``."""
    src = folder / "src"
    return Crate({path.relative_to(src).as_posix(): path.read_text() for path in src.rglob("*.rs")})


@pytest.mark.parametrize("folder", CRATES, ids=lambda folder: folder.name)
def test_no_circle_of_files(folder: Path) -> None:
    assert circles(crate_at(folder).needs()) == []


def test_the_check_sees_circles_of_two_and_of_three() -> None:
    files = {
        "lib.rs": "mod a;\nmod b;\nmod c;\nmod d;\nmod e;",
        "a.rs": "use crate::b::{Left, Right as R};\nfn f() {}",
        "b.rs": "use super::{c, d};\npub struct Left;",
        "c.rs": 'fn g() { let x = "{"; crate::a::f(); } // use crate::e;',
        "d.rs": "fn h<'a>(x: &'a u8) {}\nstruct Own;\nmod inside { use super::Own; }",
        "e.rs": "mod inner;\npub use inner::Thing;\npub struct Own;",
        "e/inner.rs": "use super::Own;\npub struct Thing;",
    }
    assert circles(Crate(files).needs()) == ["a, b, c", "e, e::inner"]


@pytest.mark.slow
def test_the_check_follows_names_to_the_file_that_defines_them() -> None:
    files = {
        "lib.rs": "pub mod room;",
        "room.rs": "mod one;\nmod two;\npub use one::One;\npub use two::Two;",
        "room/one.rs": "pub struct One;\n#[cfg(test)]\nmod tests {\n use super::*; use super::super::Two;\n}",
        "room/two.rs": "use super::One;\npub struct Two(One);\n#[cfg(test)]\nmod tests;",
        "room/two/tests.rs": "use super::*;",
    }
    needs = Crate(files).needs()
    assert needs[("room", "two")] == {("room", "one")}
    assert ("room", "two", "tests") not in needs
    assert circles(needs) == []
