"""The files and folders that commands write: ``--overwrite``, and what is refused before anything is computed."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from tartan.base.outputs import require_writable, require_writable_folder
from tartan.errors import ConfigError


@dataclass(frozen=True)
class FileKind:
    """What a command writes into a file.

    Attributes
    ----------
    name : str
        For messages.
    suffixes : tuple of str
        Those that fit, in lower case.
    otherwise : str
        How other suffixes are meant.
    named : bool
        Whether a suffix is needed.
    """

    name: str
    suffixes: tuple[str, ...]
    otherwise: str = ""
    named: bool = False


TABLE = FileKind("a table", (".tsv", ".csv", ".txt", ".tab"))
NEWICK = FileKind(
    "Newick", (".nwk", ".newick", ".nw", ".tree", ".tre", ".treefile", ".txt"), "; a picture is drawn with --picture"
)
PAGE = FileKind("a page", (".html", ".htm"), named=True)
PNG = FileKind("this picture", (".png",), named=True)
COORDINATES = FileKind("a map", (".tsv", ".csv", ".txt", ".npy"))


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Add ``--overwrite``."""
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")


def require_outputs(args: argparse.Namespace, *outputs: tuple[Path | None, FileKind | None]) -> None:
    """Refuse files that cannot be written as asked, before anything is computed.

    Parameters
    ----------
    args : namespace
        With ``overwrite``.
    outputs : pairs of a file and what is written into it
        Files that are None are not asked for; of those without a form the suffix is checked elsewhere.

    Raises
    ------
    ConfigError
        With the name of the file and the way out.
    """
    asked = [(path, form) for path, form in outputs if path is not None]
    for place, (path, form) in enumerate(asked):
        if form is not None:
            _require_suffix(path, form)
        if any(path == other for other, _ in asked[:place]):
            raise ConfigError(f"{path} is named for two files; give each a name of its own")
        require_writable(path, overwrite=args.overwrite)


def make_folder(folder: Path, *, overwrite: bool) -> None:
    """Make a folder for files, and those above it; refuse one that holds something.

    Parameters
    ----------
    folder : Path
    overwrite : bool
        Whether files in it may be replaced.

    Raises
    ------
    ConfigError
        With the name of the folder and the way out.
    """
    require_writable_folder(folder, overwrite=overwrite)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made a folder: {error.strerror}; name another one") from error


def _require_suffix(path: Path, form: FileKind) -> None:
    suffix = path.suffix.lower()
    if suffix in form.suffixes or str(path).startswith("/dev/") or not (suffix or form.named):
        return
    *most, last = form.suffixes
    known = f"{', '.join(most)} or {last}" if most else last
    raise ConfigError(
        f"{path} cannot be written: {form.name} is written as {known}{form.otherwise}", context={"path": str(path)}
    )
