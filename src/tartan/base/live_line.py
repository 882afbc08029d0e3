"""The one line that progress keeps drawing over on a terminal: a bar and a text."""

from __future__ import annotations

import os
from typing import TextIO

__all__ = ["LiveLine"]


class LiveLine:
    """A line at the foot of a terminal, redrawn in place; drawing starts at once.

    Parameters
    ----------
    stream : text file
        A terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(file=stream, force_terminal=True), auto_refresh=False, transient=True)
        self._live.start()

    @classmethod
    def on(cls, stream: TextIO) -> LiveLine | None:
        """Return a line where the stream is a terminal that can draw over what is there, else None."""
        able = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        return cls(stream) if able else None

    def draw(self, share: float, text: str) -> None:
        """Draw a bar, filled from 0 to 1, and a text beside it."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        line = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=1.0, completed=share, width=24)
        line.add_row(bar, Text(text, no_wrap=True, overflow="ellipsis"))
        self._live.update(line, refresh=True)

    def close(self) -> None:
        """Take the line away."""
        self._live.stop()
