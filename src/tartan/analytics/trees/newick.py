"""The text of trees: Newick tokens to arrays, and the quoting of names."""

from __future__ import annotations

import math
import re

from tartan.errors import ConfigError

# One token of Newick: a comment, a quoted label, a mark, or anything else up to the next mark.
_TOKEN = re.compile(
    r"\[(?P<comment>[^\]]*)\]|'(?P<quoted>(?:[^']|'')*)'|(?P<mark>[(),:;])|(?P<plain>[^\s()\[\]',:;]+)|(?P<wrong>\S)"
)
# What a label must be quoted for. An underscore in a bare label stands for a blank.
_QUOTE = re.compile(r"[\s()\[\]',:;_]")


def quoted(name: str) -> str:
    """Return a name as Newick writes it."""
    return "'" + name.replace("'", "''") + "'" if _QUOTE.search(name) else name


def parse(text: str) -> tuple[list[int], list[float], list[str]]:
    """Return parents, lengths and names of the nodes of one tree; the root is node 0."""
    reader = _Reader()
    for token in _TOKEN.finditer(text):
        if reader.done and token.lastgroup != "comment":
            raise reader.error(token.start(), "text follows the semicolon")
        reader.take(token)
    if not reader.done:
        raise reader.error(len(text), "the semicolon at the end is missing")
    return reader.parents, reader.lengths, reader.names


class _Reader:
    """A tree that grows token by token."""

    def __init__(self) -> None:
        self.parents, self.lengths, self.names = [-1], [math.nan], [""]
        self.node = 0
        self.done = False
        # What the node has: nothing, children, a name, a colon, a length; in this order.
        self._stage = 0

    def error(self, position: int, problem: str) -> ConfigError:
        return ConfigError(f"not Newick, at character {position}: {problem}", context={"position": position})

    def take(self, token: re.Match[str]) -> None:
        kind, position = token.lastgroup, token.start()
        if kind == "mark":
            self._mark(token[0], position)
        elif kind == "wrong":
            raise self.error(position, f"{token[0]!r} is out of place")
        elif kind != "comment":
            label = token["quoted"].replace("''", "'") if kind == "quoted" else token["plain"]
            self._text(label, kind == "quoted", position)

    def _text(self, label: str, quoted: bool, position: int) -> None:
        if self._stage == 3:
            try:
                self.lengths[self.node] = float(label)
            except ValueError as error:
                raise self.error(position, f"{label!r} is no length") from error
            if math.isinf(self.lengths[self.node]):
                raise self.error(position, f"{label!r} is no length: it is not finite")
        elif self._stage < 2:
            self.names[self.node] = label if quoted else label.replace("_", " ")
        else:
            raise self.error(position, f"{label!r} follows a name or a length; put names with blanks in quotes")
        self._stage = 4 if self._stage == 3 else 2

    def _mark(self, mark: str, position: int) -> None:
        parent = self.parents[self.node]
        if mark == ":":
            wrong = self._stage > 2
            self._stage = 3
        elif mark == "(":
            wrong = self._stage > 0
            self._add(self.node)
        elif mark == ",":
            wrong = self._stage == 3 or parent < 0
            self._add(parent)
        elif mark == ")":
            wrong = self._stage == 3 or parent < 0
            self.node, self._stage = parent, 1
        else:
            wrong = self._stage == 3 or parent >= 0
            self.done = True
        if wrong:
            raise self.error(position, f"{mark!r} is out of place")

    def _add(self, parent: int) -> None:
        self.node, self._stage = len(self.parents), 0
        self.parents.append(parent)
        self.lengths.append(math.nan)
        self.names.append("")
