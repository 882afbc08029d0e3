"""Sessions that begin with a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tartan.blocks.checkpoint import read_checkpoint
from tartan.blocks.session import Session


def resume(folder: str | os.PathLike[str], on: Any = None, **options: Any) -> Session:
    """Open a session that begins with the spaces of a checkpoint, under their numbers.

    Parameters
    ----------
    folder : path
        Of the session that wrote it.
    on, **options
        As for ``Session``; need not be those of before.

    Returns
    -------
    Session
        Its attribute ``notes`` has what the checkpoint was given. Functions that the older session had run must be the
        same.

    Raises
    ------
    StoreError
        If there is no checkpoint that can be read.
    """
    found = read_checkpoint(Path(folder))
    session = Session(on, folder=folder, **options)
    try:
        session.begin_with(found)
    except BaseException:
        session.close()
        raise
    return session
