"""Counts lines of code: without blank lines, comments, docstrings and tests; Python and Rust apart, by package.

    python -m benches.project.lines [root=CHECKOUT]

The checkout is this one by default. Python is read with its own parser and tokenizer, so that a string that
documents is told from one that is used. In Rust, what stands behind ``#[cfg(test)]`` is left out.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

from benches.shared._measure import options_of

_SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
_RUST_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<code>r(?P<hash>\#*)".*?"(?P=hash)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'|[^\s])""",
    re.DOTALL,
)


def python_lines(text: str) -> int:
    """Return how many lines of Python hold code."""
    tree = ast.parse(text)
    documenting: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            strings = [one for one in body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
            for one in strings:
                if isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                    documenting.update(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            used.update(range(token.start[0], token.end[0] + 1))
    return len(used - documenting)


def rust_lines(text: str) -> int:
    """Return how many lines of Rust hold code that is not for tests."""
    used: set[int] = set()
    kept = _without_tests(_blanked(text))
    for number, line in enumerate(kept.splitlines()):
        if line.strip():
            used.add(number)
    return len(used)


def _blanked(text: str) -> str:
    """Return Rust with comments taken out and what stands in strings made harmless; lines stay where they are."""

    def harmless(match: re.Match[str]) -> str:
        found = match.group(0)
        if match.group("comment"):
            return re.sub(r"[^\n]", " ", found)
        return re.sub(r"[^\n]", "s", found) if len(found) > 1 else found

    return _RUST_TOKEN.sub(harmless, text)


def _without_tests(text: str) -> str:
    """Return Rust without the items that stand behind ``#[cfg(test)]``."""
    while (start := text.find("#[cfg(test)]")) >= 0:
        end = _end_of_item(text, start + len("#[cfg(test)]"))
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return text


def _end_of_item(text: str, start: int) -> int:
    """Return where the item ends that begins at ``start``: at its closing brace, or at a semicolon before any."""
    depth = 0
    for place in range(start, len(text)):
        match text[place]:
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return place + 1
            case ";" if depth == 0:
                return place + 1
    return len(text)


def count(root: Path) -> tuple[Counter[str], Counter[str]]:
    """Return the lines of each package of Python and of each crate of Rust."""
    python: Counter[str] = Counter()
    package = root / "src" / "tartan"
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        python[parts[0] if len(parts) > 1 else "(top)"] += python_lines(path.read_text(encoding="utf-8"))
    rust: Counter[str] = Counter()
    for path in sorted((root / "crates").rglob("*.rs")):
        crate, *within = path.relative_to(root / "crates").parts
        if "tests" not in within and path.stem not in {"tests", "testing"} and "benches" not in within:
            rust[crate] += rust_lines(path.read_text(encoding="utf-8"))
    return python, rust


def main(words: list[str]) -> None:
    """Print both tables."""
    root = Path(options_of(words, root=str(Path(__file__).resolve().parents[2])).root)
    for language, lines in zip(("Python", "Rust"), count(root)):
        for name, number in sorted(lines.items()):
            print(f"{language:8}{name:20}{number:8,}")
        print(f"{language:8}{'all':20}{sum(lines.values()):8,}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
