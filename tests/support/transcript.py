"""Transcripts of a shell: commands and what they print, compared as text, and written anew where that is asked for.

::

    $ tartan neighbors run.tartan -k 1        a command; lines that begin with "> " continue it
    item    rank    neighbor    score         what it prints on stdout
    2> 3 of 3 items                           what it prints on stderr, after all of stdout
    [3]                                       its exit status, unless it is 0

``...`` stands for any text within a line, and in a line of its own for any number of lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Command", "agree", "generalize", "parse", "render", "replay"]

ANY = "..."
STDERR = "2> "
# What no two runs or versions of Python share: times, speeds, shares, dates, peaks of memory.
VARYING = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*"
    r"|\d[\d.,]*(?:e-?\d+)? ?\w+/s\b"
    r"|\d[\d.,]*(?:e-?\d+)?(?=%| [mµn]?s\b)"
    r"|(?<=peak memory )\d+"
    r"|(?<=needs at most )[\d.]+ .?B|(?<=B of memory: ).*"
)
USAGE = re.compile(r"(?<=2> usage: )(tartan(?: [a-z-]+)?) .*")
PERCENT = re.compile(r"\s*\d[\d.]* %  ")  # progress of jobs above two seconds, which a slow machine has
MORE_OR_LESS = re.compile(r"2>(?: +\.\.\. s  | {10})")  # progress: a slow machine prints more; a usage of several lines


@dataclass(frozen=True)
class Command:
    """A command of a transcript: the lines that write it, what the shell gets, and the lines that it should print."""

    lines: tuple[str, ...]
    printed: tuple[str, ...]

    @property
    def text(self) -> str:
        """What the shell gets."""
        return "\n".join(line[2:] for line in self.lines)


def parse(text: str) -> list[Command]:
    """Divide a transcript into its commands.

    Raises
    ------
    ValueError
        If lines stand before the first command.
    """
    commands: list[tuple[list[str], list[str]]] = []
    for line in text.strip("\n").split("\n"):
        if line.startswith("$ "):
            commands.append(([line], []))
        elif not commands:
            raise ValueError(f"a transcript begins with a command, '$ ...', not with {line!r}")
        elif f"{line} ".startswith("> ") and not commands[-1][1]:
            commands[-1][0].append(line)
        else:
            commands[-1][1].append(line)
    return [Command(tuple(lines), _strip(printed)) for lines, printed in commands]


def render(out: str, err: str, status: int) -> tuple[str, ...]:
    """Write what a command printed, but for how far it was, and its exit status, as the lines of a transcript."""
    errors = [f"{STDERR}{line}".rstrip() for line in err.splitlines() if not PERCENT.match(line)]
    return (*_strip(out.splitlines()), *_strip(errors), *([f"[{status}]"] if status else []))


def agree(expected: tuple[str, ...], printed: tuple[str, ...]) -> bool:
    """Say whether lines are those that a transcript expects, any text standing for its wildcards."""
    pattern = "".join(_pattern(line) for line in expected)
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in printed)) is not None


def generalize(printed: tuple[str, ...]) -> tuple[str, ...]:
    """Put wildcards where no two runs print the same: times, speeds, dates, lines of progress and of usage."""
    lines: list[str] = []
    for line in printed:
        wild = USAGE.sub(rf"\1 {ANY}", VARYING.sub(ANY, line))
        wild = ANY if MORE_OR_LESS.match(wild) else wild
        if wild != ANY or lines[-1:] != [ANY]:
            lines.append(wild)
    return tuple(lines)


def replay(text: str, run: Callable[[str], tuple[str, ...]]) -> str:
    """Run the commands of a transcript; return it with what they print now, where that is not what it says."""
    blocks = []
    for command in parse(text):
        printed = run(command.text)
        kept = command.printed if agree(command.printed, printed) else generalize(printed)
        blocks.append("\n".join((*command.lines, *kept)))
    return "\n".join(blocks) + "\n"


def _pattern(line: str) -> str:
    if line.strip() == ANY:
        return r"(?:.*\n)*?"
    return ".*?".join(re.escape(piece) for piece in line.rstrip().split(ANY)) + r"\n"


def _strip(lines: list[str]) -> tuple[str, ...]:
    """Leave out empty lines at the end: in a transcript they set commands apart."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return tuple(line.rstrip() for line in lines[:end])
