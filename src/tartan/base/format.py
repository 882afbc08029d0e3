"""Format figures for people: counts, sizes, speeds and durations."""

from __future__ import annotations

import contextlib
import itertools
import math
import numbers
import re
import reprlib
import traceback
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

#: What does something to a terminal, or turns the direction of what follows, but tabs and ends of lines; for regular
#: expressions.
CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[{CONTROL}]")
_SHORT_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def printable(text: str) -> str:
    """Return a text that does nothing to a terminal but appear: characters that control it are written as escapes.

    Tabs and ends of lines stay.

    Examples
    --------
    >>> print(printable("red\x1b[31m"))
    red\\x1b[31m
    """
    return _CONTROL.sub(lambda found: escape_character(found[0]), text)


def escape_character(character: str) -> str:
    """Return the escape of a character, as Python writes it."""
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def in_one_line(text: str) -> str:
    """Return a text without anything that breaks its line: as ``printable``, with tabs and ends of lines as escapes."""
    return re.sub(r"[\t\n]", lambda found: escape_character(found[0]), printable(text))


class _Brief(reprlib.Repr):
    """Writes values in one line: arrays by shape and dtype, others without their middle."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 120

    def repr1(self, x: Any, level: int) -> str:
        return " ".join(super().repr1(x, level).split())

    def repr_ndarray(self, x: Any, level: int) -> str:
        return f"an array of shape {x.shape} and dtype {x.dtype}"


def show_value(value: object) -> str:
    """Write a value that is wrong as a message can have it: in one line, long ones without their middle.

    Examples
    --------
    >>> shown("near"), shown(list(range(10**6)))
    ("'near'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    return _Brief().repr(value)


def name_some(names: Sequence[str], count: int | None = None, *, most: int = 3) -> str:
    """Name the first few and count the rest, of ``count`` in all if not all names are given.

    Examples
    --------
    >>> name_some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    count = len(names) if count is None else count
    return ", ".join(names[:most]) + (f" and {count - most:,} more" if count > most else "")


def format_number(value: object, digits: int = 3) -> str:
    """Write a number with a few significant digits and no needless zeros; whole numbers in full, None as "-"."""
    if value is None:
        return "-"
    is_fraction = isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral)
    return f"{value:.{digits}g}" if is_fraction else str(value)


def round_marks(low: float, high: float, most: int, letters: float = math.inf) -> list[tuple[float, str]]:
    """Return round numbers for the marks of an axis, from low to high, with their texts: at most so many, 1 at least.

    Of an axis as long as so many letters every second mark is left out, or more, until no two texts touch.

    Examples
    --------
    >>> round_marks(0.438, 0.496, 4)
    [(0.44, '0.44'), (0.46, '0.46'), (0.48, '0.48')]
    """
    low, high = min(low, high), max(low, high)
    if not (math.isfinite(low) and math.isfinite(high)) or high - low <= 1e-12 * max(abs(low), abs(high)):
        return [(low, f"{low:.6g}")]
    power = 10.0 ** math.floor(math.log10((high - low) / max(1, most)))
    for step in (power * factor for factor in (1, 2, 5, 10, 20, 50)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < max(1, most) and last >= first:
            marks = [(k * step, f"{k * step:.10g}") for k in range(first, last + 1)]
            return _thin_out(marks, letters * step / (high - low))
    return [(low, f"{low:.6g}")]


def _thin_out(marks: list[tuple[float, str]], apart: float) -> list[tuple[float, str]]:
    """Take every k-th of marks that lie so many letters apart: a text and a space fit between two."""
    needed = 1 + max(len(text) for _, text in marks)
    return marks[:: max(1, math.ceil(needed / apart))]


def pluralize(count: int, noun: str) -> str:
    """Write a number of things: 1 cluster, 1,200 clusters."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def say_conversion(formula: str) -> str:
    """Say how scores became distances: in words that can be pasted, and numbers with four digits.

    Examples
    --------
    >>> say_conversion("max(max,0.015128841196122723)-s")
    'distance = max(max,0.01513)-s of the score s'
    """
    return f"distance = {shorten_formula(formula)} of the score s"


def shorten_formula(formula: str) -> str:
    """Return a formula with four digits of its long numbers."""
    return re.sub(r"\d+\.\d{5,}(e[-+]?\d+)?", lambda found: f"{float(found[0]):.4g}", formula)


def name_distance(formula: str | None, unit: str) -> str:
    """Say what a distance is: the scores themselves, or made of them by a formula; "distance" where nothing says.

    Examples
    --------
    >>> name_distance("1-s", "ANI"), name_distance(None, "distance D")
    ('distance, 1-s of ANI', 'distance D')
    """
    return unit if formula is None else f"distance, {shorten_formula(formula)} of {unit}"


def format_count(count: float) -> str:
    """Write a number with three digits and a letter: 950, 1.23 M, 45.6 G."""
    for limit, factor, unit in ((1e3, 1, ""), (1e6, 1e3, " k"), (1e9, 1e6, " M"), (1e12, 1e9, " G")):
        if abs(count) < limit * 0.9995:
            return _three_digits(count / factor) + unit
    return _three_digits(count / 1e12) + " T"


def _three_digits(value: float) -> str:
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f}"


def format_long_count(count: float) -> str:
    """Write a number in words: 12,345 in full, 12.3 million in short."""
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:.3g} {name}"
    return f"{count:,.0f}"


def format_bytes(count: float) -> str:
    """Write an amount of memory in powers of ten: 512 B, 4.00 MB."""
    number, _, unit = format_count(count).partition(" ")
    return f"{number} {unit}B"


def format_memory(total_bytes: float, parts: Iterable[tuple[str, float]], free_bytes: float = math.inf) -> str:
    """Say how much memory a command needs, and what for, the largest part first; what is free, where that is less.

    >>> format_memory(430e6, [("items", 80e6), ("programs", 350e6)])
    'needs at most 430 MB of memory: 350 MB programs, 80 MB items'
    """
    listed = sorted(parts, key=lambda part: -part[1])
    said = ", ".join(
        f"{_round_bytes(float(f'{n_bytes:.2g}'))} {what}" for what, n_bytes in listed if n_bytes >= total_bytes / 100
    )
    free = "" if total_bytes <= free_bytes else f"; {_round_bytes(float(f'{free_bytes:.2g}'))} are free"
    return f"needs at most {_round_bytes(total_bytes)} of memory: {said}{free}"


def _round_bytes(count: float) -> str:
    """Write an amount without zeros at the end of a fraction: 430 MB, 1.2 GB."""
    number, _, unit = format_count(count).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}B"


def format_rate(per_second: float, what: str = "pairs") -> str:
    """Write a speed: 1.23 Mpairs/s."""
    number, _, unit = format_count(per_second).partition(" ")
    return f"{number} {unit}{what}/s"


def format_duration(seconds: float) -> str:
    """Write a time with its two largest units: 0.25 s, 45 s, 3 min 20 s, 3 h 20 min, 2 d 4 h."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    total = round(seconds)
    for (size, name), (small, small_name) in itertools.pairwise(_UNITS):
        if total >= size:
            rest = total % size // small
            return f"{total // size} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{total} s"


# Turn exceptions of user code into the line and the traceback that a run records, both of bounded length.

# LONGEST_LINE and LONGEST_TRACEBACK, by judgement: some lines of a terminal, and some hundred lines of a traceback;
# errors of pandas and CuPy are longer. No benchmark.
LONGEST_LINE = 1000
LONGEST_TRACEBACK = 20_000


def reason_of(error: BaseException) -> str:
    """Return the class and message of an exception in one line."""
    message = ""
    with contextlib.suppress(Exception):  # an exception may be too broken to be printed
        message = str(error)
    return make_line(type(error).__name__, message)


def make_line(name: str, message: str) -> str:
    """Join the name of an exception's class and its message to one line of bounded length."""
    line = " ".join(part.strip() for part in message[: 2 * LONGEST_LINE].splitlines())
    return clip_middle(f"{name}: {line}".rstrip(": "), LONGEST_LINE)


def traceback_of(error: BaseException, frames: TracebackType | None = None) -> str:
    """Return the traceback of an exception, without the middle of lines and of itself where they are very long.

    Parameters
    ----------
    frames : traceback, optional
        Where to begin; default: where the exception was caught.
    """
    try:
        text = "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
    except Exception:
        text = f"{type(error).__name__}\n"
    lines = [clip_middle(line, LONGEST_LINE) for line in text.split("\n")]
    return clip_middle("\n".join(lines), LONGEST_TRACEBACK)


def clip_middle(text: str, longest: int) -> str:
    """Return a text without its middle where it is too long."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} ... {text[-half:]}"
