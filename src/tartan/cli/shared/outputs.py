"""The files and folders that commands write: ``--overwrite``, and what is refused before anything is computed."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tartan.base.outputs import require_writable, require_writable_folder
from tartan.cli.shared.output import say
from tartan.cli.shared.wording import in_options
from tartan.errors import ConfigError, TartanError

if TYPE_CHECKING:
    from tartan.run.inspection import Inspector
    from tartan.store.folder import RunFolder


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

_OF_FILES = frozenset(
    [
        *(".tsv", ".csv", ".txt", ".tab", ".html", ".htm", ".png", ".jpg", ".jpeg", ".svg", ".pdf"),
        *(".npy", ".npz", ".json", ".parquet", ".phy", ".phylip", ".nwk", ".xlsx", ".gz"),
    ]
)
"""Suffixes by which someone means one file."""


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


@contextlib.contextmanager
def name_written(args: argparse.Namespace, *outputs: Path | None) -> Iterator[None]:
    """Write files of which one may fail: those that are whole stay, since they may have taken hours, and are named.

    Parameters
    ----------
    args : namespace
        With ``overwrite``.
    outputs : paths
        As ``require_outputs`` took them: unless ``overwrite`` is given, they were not there.
    """
    try:
        yield
    except BaseException:
        there = [str(path) for path in outputs if path is not None and path.is_file()]
        if there and not args.overwrite:
            say(f"kept: {', '.join(there)}; the same command with `--overwrite` writes all again")
        raise


def require_no_file(path: Path, what: str, otherwise: str) -> None:
    """Refuse the name of one file, of another kind, for what a command writes.

    Parameters
    ----------
    path : Path
        A folder that is there has its name already, and keeps it.
    what : str
        What the command writes: "a run is a folder".
    otherwise : str
        The way out.

    Raises
    ------
    ConfigError
        With the name and the way out.
    """
    if path.suffix.lower() in _OF_FILES and not path.is_dir():
        raise ConfigError(f"{path} cannot be written: {what}; {otherwise}", context={"path": str(path)})


def require_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something, or has the name of a file, before anything is computed.

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
    require_no_file(folder, "the files go into a folder", f"name the folder, such as {folder.with_suffix('')}")
    require_writable_folder(folder, overwrite=overwrite)


def make_folder(folder: Path, *, overwrite: bool) -> None:
    """Make a folder for files, and those above it; parameters and errors as of ``require_folder``."""
    require_folder(folder, overwrite=overwrite)
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


# Opening items of a run to look at them, for the commands that do so.


def inspector_of(folder: RunFolder, args: argparse.Namespace, *, any_size: bool = False) -> Inspector:
    """Return what opens items of a run, up to a size unless any will do; without consent it says why it does not."""
    from tartan import apps
    from tartan.run.inspection import Inspector
    from tartan.run.trust import require_consent
    from tartan.sources.files import DEFAULT_MAX_ITEM_BYTES
    from tartan.workers.shipping import names_builtin

    about = folder.manifest.application
    runs_nothing = about["kind"] == "object" or names_builtin(str(about["source"]))
    code = "" if runs_nothing else f", and runs {about['source']}"
    try:
        require_consent(folder, f"showing its items opens the files that it names{code}", trust=args.trust)
    except TartanError as error:
        return Inspector(folder, apps, in_options(str(error), args.parser))
    return Inspector(folder, apps, max_bytes=DEFAULT_MAX_ITEM_BYTES) if any_size else Inspector(folder, apps)
