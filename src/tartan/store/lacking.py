"""What is to be done about pairs or triples that a run lacks, in words, for all messages that say so."""

from __future__ import annotations

import shlex
from typing import Any


def is_past(run: Any) -> bool:
    """Whether a ``Run`` or ``RunFolder`` is an older version, of which nothing is computed any more."""
    version = getattr(run, "folder", run).version
    return version is not None and not version.newest


def say_way_on(run: Any, what: str = "them") -> str:
    """Return which command computes what is lacking; of an older version none does, and another way is named."""
    if not is_past(run):
        return f"`tartan resume {shlex.quote(str(run.path))}` computes {what}"
    return (
        f"version {getattr(run, 'folder', run).version.number} was changed before its last pairs were compared, and no "
        "command does that any more; leave out --at (in Python: version=) to read the newest version"
    )


def name_command_to_mend(run: Any) -> str:
    """Return the command that tries again what failed, once it is mended; where items are gone each is replaced."""
    named, folder = shlex.quote(str(run.path)), getattr(run, "folder", run)
    if folder.version is None or len(folder.version.slots) == folder.stored.manifest.n_items:
        return f"`tartan resume {named} --retry-failed`"
    return f"`tartan replace {named} KEY FILE`"
