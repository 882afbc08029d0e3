"""Turn exceptions of user code into the line and the traceback that a run records, both of bounded length."""

from __future__ import annotations

import contextlib
import traceback
from types import TracebackType

LONGEST_LINE = 1000
LONGEST_TRACEBACK = 20_000


def reason_of(error: BaseException) -> str:
    """Return the class and message of an exception in one line."""
    message = ""
    with contextlib.suppress(Exception):  # an exception may be too broken to be printed
        message = str(error)
    return line_of(type(error).__name__, message)


def line_of(name: str, message: str) -> str:
    """Join the name of an exception's class and its message to one line of bounded length."""
    line = " ".join(part.strip() for part in message[: 2 * LONGEST_LINE].splitlines())
    return clipped(f"{name}: {line}".rstrip(": "), LONGEST_LINE)


def traceback_of(error: BaseException, frames: TracebackType | None = None) -> str:
    """Return the traceback of an exception, without its middle where it is very long.

    Parameters
    ----------
    frames : traceback, optional
        Where to begin; default: where the exception was caught.
    """
    try:
        text = "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
    except Exception:
        text = f"{type(error).__name__}\n"
    return clipped(text, LONGEST_TRACEBACK)


def clipped(text: str, longest: int) -> str:
    """Return a text without its middle where it is too long."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} ... {text[-half:]}"
