"""Trees in files that a command is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics import Tree


def read_tree(path: Path) -> Tree:
    """Read a file of Newick.

    Raises
    ------
    ConfigError
        If it cannot be read, or holds no tree.
    """
    from tartan.analytics import read_newick

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        return read_newick(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", context=error.context) from error
