"""Consent: what a run folder names is run, opened or fetched only if this user made the folder, or says that it may be.

A folder says which code compares its items and where these lie. Whoever wrote the folder chose that. This is the only
place that decides whether a folder may act with the rights of the user who opens it.
"""

from __future__ import annotations

from tartan.errors import StoreError
from tartan.store.folder import RunFolder


def require_consent(folder: RunFolder, what: str, *, trust: bool) -> None:
    """Refuse a folder that was not made by this user on this machine, unless the user trusts it.

    Parameters
    ----------
    folder : RunFolder
    what : str
        What would be done and why it takes trust, as the end of "and ..": "resuming it runs FILE, which it names".
    trust : bool
        What the user said (``--trust``).

    Raises
    ------
    StoreError
        With code "not-trusted".
    """
    if trust or folder.sealed:
        return
    raise StoreError(
        f"{folder.path} was not made by this user on this machine (or by a Tartan that did not seal its folders), and "
        f"{what}. If you know where the folder comes from and trust it, say so with `trust=True`",
        code="not-trusted",
        context={"path": str(folder.path), "option": "--trust"},
    )
