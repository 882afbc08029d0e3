"""What people should know of a run that goes on: in Python a warning, on the command line a message."""

from __future__ import annotations


class RunNotice(RuntimeWarning):
    """Something to know of a run; the command line says it without the place in the code."""
