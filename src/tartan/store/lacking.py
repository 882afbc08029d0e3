"""What is to be done about pairs or triples that a run lacks, in words, for all messages that say so."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tartan.store.folder import RunFolder


def say_way_on(folder: RunFolder, what: str = "them") -> str:
    """Return which command computes what is lacking; of an older version none does, and another way is named."""
    version = folder.version
    if version is None or version.newest:
        return f"`tartan resume {shlex.quote(str(folder.path))}` computes {what}"
    return (
        f"version {version.number} was changed before its last pairs were compared, and no command does that any more; "
        "leave out --at (in Python: version=) to read the newest version"
    )


def name_command_to_mend(folder: RunFolder) -> str:
    """Return the command that tries again what failed, once it is mended; where items are gone each is replaced."""
    run, version = shlex.quote(str(folder.path)), folder.version
    if version is None or len(version.slots) == folder.stored.manifest.n_items:
        return f"`tartan resume {run} --retry-failed`"
    return f"`tartan replace {run} KEY FILE`"
