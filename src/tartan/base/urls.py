"""Tell addresses of fsspec from local paths, and take no more than one file system at a time."""

from __future__ import annotations

import os
import re

from tartan.base.format import show_value
from tartan.errors import ConfigError

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(::|://)")
_LOCAL = re.compile(r"(file|local)://", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Whether a name is an fsspec URL (``s3://..``) and not a local path."""
    return URL.match(text) is not None and not os.path.lexists(text)  # noqa: PTH - a Path would change URLs


def without_local_scheme(text: str) -> str:
    """Return the path of ``file:///path``, and any other name as it is: local files are read in one way."""
    return _LOCAL.sub("", text, count=1) if is_url(text) and _LOCAL.match(text) else text


def refuse_chained(url: str) -> None:
    """Refuse URLs that lead through one file system into another: some of these run templates of the files they read.

    Raises
    ------
    ConfigError
        For ``zip://a.fa::https://host/b.zip``, ``reference::file``, ``simplecache::s3://..``.
    """
    if "::" in url:
        raise ConfigError(
            f"input {show_value(url)}: URLs chained by '::' are not read, because some run what they name; "
            "fetch or unpack "
            "the files first, and name these",
            code="chained-url",
            context={"input": url},
        )
