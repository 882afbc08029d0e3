"""Every tuned constant says why it has its value, and what chose it.

A tuned constant is a number with a name in capitals, of a module or a class in Python, a ``const`` in Rust, that was
chosen by measurement or judgement: a size in bytes, a time, a share, a depth, a number of tries. Its reason stands in
the comment above or beside it, or in the text below it, and contains one of ``REASONS``: the benchmark, the paper, the
convention or the arithmetic that chose it, or honestly "by judgement" with the reasoning. A comment above several
constants in a row holds for the first, and for those that it names.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "tartan"
CRATES = ROOT / "crates"

REASONS = re.compile(
    r"benches/\w|\bbench [a-z]|docs/benchmarks\.md|\b[Mm]easured\b|\b[Ss]imulated\b"
    r"|\b[Bb]y (judgement|arithmetic|construction|contract|format|convention|limit|definition|rule)\b"
    r"|\b[Pp]apers?\b|\((19|20)\d\d\)"
)

# What is not tuned, by rule: files whose numbers are looks, or data that is made up, ...
LOOKS = re.compile(r"^view/|_(image|drawing|picture)\.py$|/simulate\.py$|^testing/")
# ... numbers of formats and of the system's calls, by their names, members of enumerations, numbers that count up, ...
CODES = re.compile(r"VERSION|FORMAT$|^_?(PR_SET|SET)_|^_?MFD_")
# ... and values that stand for "none", "any", "as many as there can be" or the first of some codes.
SENTINELS = (-2, -1, 0, 1)
LARGEST = 2**60

HELD = ["", *sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())]

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}


@dataclass(frozen=True)
class Constant:
    """Where constants are set, and the words that stand about them."""

    place: str
    names: tuple[str, ...]
    words: str

    @property
    def has_reason(self) -> bool:
        return bool(REASONS.search(self.words))


# -- Python --------------------------------------------------------------------------------------------------------


def python_constants(name: str, text: str) -> Iterator[Constant]:
    """Return the tuned constants of a file."""
    lines, tree = text.splitlines(), ast.parse(text)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and not _is_enumeration(node)]
    for body in [tree.body, *(node.body for node in classes)]:
        codes = {
            one for three in zip(body, body[1:], body[2:], strict=False) if _counts_up(_values(three)) for one in three
        }
        for statement, below in zip(body, [*body[1:], None], strict=False):
            names, values = _assigned(statement)
            if statement in codes or _counts_up(values) or not any(map(_is_tuned, names, values)):
                continue
            words = [_above(lines, statement.lineno - 1, "#", names), _beside(lines, statement), _doc(below)]
            yield Constant(f"{name}:{statement.lineno}", names, " ".join(words))


def _is_enumeration(node: ast.ClassDef) -> bool:
    return any(re.search("Enum|Flag", ast.unparse(base)) for base in node.bases)


def _assigned(statement: ast.stmt) -> tuple[tuple[str, ...], list[ast.expr]]:
    """Return the names in capitals that a statement gives values to, and these."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pass
        case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            targets, values = [target], [value]
        case _:
            return (), []
    names = tuple(target.id for target in targets if isinstance(target, ast.Name))
    return (names, values) if all(re.fullmatch(r"_*[A-Z][A-Z0-9_]*", name) for name in names) else ((), [])


def _values(statements: Sequence[ast.stmt]) -> list[ast.expr]:
    values = [_assigned(statement)[1] for statement in statements]
    return [one for some in values for one in some] if all(len(some) == 1 for some in values) else []


def _counts_up(values: Sequence[ast.expr]) -> bool:
    """Whether several names get numbers that count up by one: codes."""
    numbers = [_number(value) for value in values]
    return len(numbers) > 1 and all(None not in (a, b) and b == a + 1 for a, b in pairwise(numbers))


def _is_tuned(name: str, value: ast.expr) -> bool:
    if CODES.search(name):
        return False
    numbers = [_number(one) for one in (value.elts if isinstance(value, ast.Tuple) else [value])]
    return all(one is not None for one in numbers) and any(
        one not in SENTINELS and abs(one) < LARGEST for one in numbers
    )


def _number(value: ast.expr) -> float | None:
    """Return the number that an expression stands for; None where it has none, or none but sentinels and names."""
    match value:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _number(operand)
            return None if number is None else -number
        case ast.BinOp(left=left, op=op, right=right):
            one, other = _number(left), _number(right)
            if one is not None and other is not None:
                return OPERATORS[type(op)](one, other)
            known = other if one is None else one
            return None if known in SENTINELS else known
    return None


def _beside(lines: Sequence[str], statement: ast.stmt) -> str:
    return lines[(statement.end_lineno or statement.lineno) - 1].partition("#")[2]


def _doc(below: ast.stmt | None) -> str:
    match below:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def _above(lines: Sequence[str], line: int, mark: str, names: Sequence[str]) -> str:
    """Return the comment right above a line, or above the lines that stand right before it if that has the names."""
    first = line
    while line > 0 and lines[line - 1].strip():
        begin = line
        while begin > 0 and lines[begin - 1].lstrip().startswith(mark):
            begin -= 1
        if begin < line:
            words = " ".join(part.strip().lstrip(f"{mark}!: ") for part in lines[begin:line])
            return words if line == first or all(re.search(rf"\b{name}\b", words) for name in names) else ""
        line -= 1
    return ""


# -- Rust ----------------------------------------------------------------------------------------------------------

RUST = re.compile(
    # Codes of a protocol have 16 bits.
    r"\s*(?:pub(?:\([a-z]+\))? )?const (?P<name>[A-Z][A-Z0-9_]*): (?:[uif](?!16)\d+|[ui]size|Duration) = (?P<value>.*)"
)


def rust_constants(name: str, text: str) -> Iterator[Constant]:
    """Return the tuned constants of a file."""
    lines, inside = text.splitlines(), False  # a module in the file: codes of a protocol, or tests
    for line, found in ((line, RUST.match(text)) for line, text in enumerate(lines)):
        if lines[line][:1].strip(" }"):
            inside = re.match(r"(pub )?mod \w+ \{", lines[line]) is not None
        if found is None or inside or CODES.search(found["name"]):
            continue
        value = found["value"].partition("//")[0].strip().rstrip(";")
        if value in map(str, SENTINELS) or not re.search(r"\d", re.sub(r"\b[a-zA-Z_]\w*", "", value)):
            continue
        first = line
        while first > 0 and lines[first - 1].lstrip().startswith("#["):
            first -= 1
        words = f"{_above(lines, first, '//', [found['name']])} {lines[line].partition('//')[2]}"
        yield Constant(f"{name}:{line + 1}", (found["name"],), words)


# -- what they hold --------------------------------------------------------------------------------------------------


def without_reasons(constants: Iterator[Constant]) -> list[str]:
    """Return the constants that have none, each with its place."""
    return [f"{one.place} {', '.join(one.names)}" for one in constants if not one.has_reason]


@pytest.mark.slow
@pytest.mark.parametrize("package", HELD)
def test_tuned_constants_have_reasons(package: str) -> None:
    files = sorted((PACKAGE / package).rglob("*.py") if package else PACKAGE.glob("*.py"))
    files = [path for path in files if not LOOKS.search(path.relative_to(PACKAGE).as_posix())]
    bare = [one for path in files for one in without_reasons(python_constants(path.name, path.read_text()))]
    assert not bare, "say in a comment why it has this value and what chose it: " + "; ".join(bare)


@pytest.mark.parametrize("crate", sorted(path.parent.name for path in CRATES.glob("*/Cargo.toml")))
def test_tuned_constants_of_crates_have_reasons(crate: str) -> None:
    files = [path for path in sorted((CRATES / crate / "src").rglob("*.rs")) if "tests" not in (*path.parts, path.stem)]
    bare = [one for path in files for one in without_reasons(rust_constants(path.name, path.read_text()))]
    assert not bare, "say in a comment why it has this value and what chose it: " + "; ".join(bare)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("_AHEAD = 3\n", ["a.py:1 _AHEAD"]),
        ("# Orders that a rank has.\n_AHEAD = 3\n", ["a.py:2 _AHEAD"]),
        ("# By judgement: two fetches overlap. No benchmark.\n_AHEAD = 3\n", []),
        ("_AHEAD = 3  # by judgement: two fetches overlap\n", []),
        ('_AHEAD = 3\n"""Orders; `tartan bench blocks` chose three."""\n', []),
        ("# By judgement: short.\nA = 3\nB = 4\n", ["a.py:3 B"]),
        ("# A and B, by judgement: short.\nA = 3\nB = 4\n", []),
        ("# A and B, by judgement: short.\nA = 3\n\nB = 4\n", ["a.py:4 B"]),
        ("A, B = 3, 32\n", ["a.py:1 A, B"]),
        ("SHARES = 0.5, 0.7\n", ["a.py:1 SHARES"]),
        ("A: Final = 4 << 20\n", ["a.py:1 A"]),
        ("B = 4 * A\n", ["a.py:1 B"]),
        ("class C:\n    A = 3\n", ["a.py:2 A"]),
        ("NONE = -1\nNEVER = 2**62\nFORMAT = 3\nB = A + 1\nC = 'a'\n", []),
        ("LOAD, TASK, STOP = 1, 2, 3\n", []),
        ("LOAD = 1\nTASK = 2\nSTOP = 3\n", []),
        ("class Kind(IntEnum):\n    A = 3\n", []),
    ],
)
def test_the_check_sees_what_it_should(text: str, bare: list[str]) -> None:
    assert without_reasons(python_constants("a.py", text)) == bare


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("const SMALL: usize = 16 * 1024;\n", ["a.rs:1 SMALL"]),
        ("/// By judgement: two pages.\n#[cfg(test)]\npub const SMALL: usize = 8192;\n", []),
        ("const TURN: Duration = Duration::from_millis(100); // by judgement: not felt\n", []),
        ("const ANY: i32 = -1;\nconst HALF: usize = WHOLE;\nconst SEND: u16 = 3;\n", []),
        ("pub mod kind {\n    pub const LOST: u32 = 2;\n}\nconst SMALL: usize = 8;\n", ["a.rs:4 SMALL"]),
    ],
)
def test_the_check_sees_what_it_should_in_rust(text: str, bare: list[str]) -> None:
    assert without_reasons(rust_constants("a.rs", text)) == bare
