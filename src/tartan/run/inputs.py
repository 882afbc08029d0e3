"""The items of an application, from what is given as inputs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Literal

from tartan.application import Application, defines, splitter
from tartan.base.format import pluralize, show_value
from tartan.base.keys import are_numbers, distinct
from tartan.base.records import PART
from tartan.base.urls import is_url
from tartan.errors import ConfigError, ItemError
from tartan.runtime.items import parse_data
from tartan.sources.groups import open_groups
from tartan.sources.items import SequenceSource, Source, files_of, open_source, with_keys
from tartan.sources.paths import absolute, expand, folders_within, has_magic, names_files
from tartan.sources.rows.entries import as_entries
from tartan.sources.rows.unpacked import NUMBERS
from tartan.sources.split import Splitter

Texts = Literal["files", "items", "look"]


def open_items(
    app: Application,
    given: Any,
    keys: Any = None,
    *,
    texts: Texts = "files",
    group: str | os.PathLike[str] | None = None,
) -> Source:
    """Open inputs as an application reads them: the files of its suffixes, each split where it holds several items.

    Parameters
    ----------
    app : Application
    given : as ``items`` of ``tartan.allpairs``
    keys : as ``keys`` of ``tartan.allpairs``
    texts : {"files", "items", "look"}
        What a list of texts is: names of files, as in a shell; the items themselves; or these where it names no file
        and the application reads none.
    group : str, optional
        How files are grouped to items, as of ``open_groups``; by default each is one.

    Raises
    ------
    ConfigError
        If there are none, a file that holds several items cannot be split, or the keys do not fit.
    """
    if group is not None:
        if not isinstance(group, str | os.PathLike):
            raise ConfigError(
                f"group: {show_value(group)} says no groups; give 'folders', or the path of a table with the columns "
                "file and group",
                context={"option": "--group"},
            )
        return _open_groups(app, given, keys, os.fsdecode(group))
    if texts != "files" and _is_text_list(given) and (texts == "items" or not (_reads(app) or names_files(given))):
        given = SequenceSource(given)
    source = open_source(
        given, suffixes=app.item_suffixes, split=splitter(app), companions=app.companions, rows=app.rows
    )
    source = source if keys is None else _name_items(source, keys)
    return as_entries(source) if app.sparse_rows else source


def _name_items(source: Source, keys: Any) -> Source:
    """Give items the names that the user wants: those of a column where a table has one that is called so."""
    name_rows = getattr(source, "name_rows", None)
    if name_rows is None:
        return with_keys(source, _check_keys(source, keys))
    if isinstance(keys, str):
        name_rows(keys)
        return source
    name_rows(NUMBERS)
    return with_keys(source, _check_keys(source, keys))


def make_splitter(app: Application) -> Splitter | None:
    """Return what cuts files into items of an application; None where each is one."""
    split = splitter(app)
    return None if split is None else Splitter(split, app.companions)


def _open_groups(app: Application, given: Any, keys: Any, how: str) -> Source:
    names = [given] if isinstance(given, str | os.PathLike) else given
    context = {"option": "--group"}
    if not isinstance(names, list | tuple) or not all(isinstance(name, str | os.PathLike) for name in names):
        raise ConfigError(
            f"group: items are {show_value(given)}; only files are grouped: name folders or files", context=context
        )
    if not defines(app, "group"):
        raise ConfigError(
            f"group: {app.name or type(app).__name__} makes items of single files; an application that defines "
            "group(key, files) makes them of several",
            context=context,
        )
    if keys is not None:
        raise ConfigError("group: groups are items with names of their own; leave out `keys=`", context=context)
    return open_groups([os.fsdecode(name) for name in names], how, app.item_suffixes)


def leave_out_old(app: Application, given: Any, old: Source, removed: Set[str] = frozenset()) -> Any:
    """Return new inputs, of which folders and patterns stand for those files that a run does not have yet.

    Files that are named one by one stay, so that one which is an item already is refused, and one that was removed
    comes back; those that were removed (``removed``, by path) do not come back because a pattern stands for them, too.

    Raises
    ------
    ConfigError
        If the run has all that the folders and patterns stand for.
    """
    named = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(named, list | tuple) or not all(isinstance(name, str | os.PathLike) for name in named):
        return given
    names = [os.fspath(name) for name in named]
    wide = {name for name in names if not is_url(name) and (has_magic(name) or os.path.isdir(name))}  # noqa: PTH112 - as in paths
    if not wide or old.kind != "files":
        return given
    there, found, n_seen = set(removed), list[str](), 0
    for path in files_of(old):
        there |= {path, path.rpartition(PART)[0]}  # of a file that holds several items
    for name in names:
        listed = [location.name for location in expand([name], app.item_suffixes)] if name in wide else [name]
        n_seen += len(listed)
        found += [one for one in listed if name not in wide or absolute(one) not in there]
    if not found:
        raise ConfigError(
            f"the run has all {pluralize(n_seen, 'file')} of {_some(sorted(wide))} already; there is nothing to add",
            code="no-input",
        )
    return found


def _is_text_list(given: Any) -> bool:
    return isinstance(given, list | tuple) and bool(given) and all(isinstance(one, str) for one in given)


def _reads(app: Application) -> bool:
    """Whether an application is made for files."""
    return defines(app, "parse") or bool(app.item_suffixes) or splitter(app) is not None


def _check_keys(source: Source, keys: Any) -> list[str]:
    """Return names for items that have none, as text."""
    context = {"option": "--keys"}
    if not are_numbers(source.keys):
        raise ConfigError(
            "`keys=` is for items with numbers for names, as rows have; these have others, such as "
            f"{show_value(source.keys[0])}: leave it out",
            context=context,
        )
    if isinstance(keys, str | bytes | Mapping | Set) or not isinstance(keys, Iterable):
        raise ConfigError(f"`keys=` is {show_value(keys)}; give names in the order of the items", context=context)
    names = [str(key) for key in keys]
    if len(names) != source.n_items:
        raise ConfigError(
            f"`keys=` has {pluralize(len(names), 'name')} for {pluralize(source.n_items, 'item')}; each has one",
            context=context,
        )
    if "" in names:
        raise ConfigError(f"`keys=` is empty for item {names.index('')}, counted from 0", context=context)
    distinct(names)
    return names


def require_items(app: Application, source: Source, given: Any, least: int) -> None:
    """Refuse fewer items than are compared at a time: a run of no pairs would look like one that went well.

    Parameters
    ----------
    app : Application
    source : Source
    given : object
        What ``source`` was opened from.
    least : int
        2 for pairs, 3 for triples.

    Raises
    ------
    ConfigError
        With what was found, and where.
    """
    n_items = source.n_items
    if n_items >= least:
        return
    what = {2: "pairs need at least 2 items", 3: "triples need at least 3 items"}[least]
    names = _names(given)
    where = f"in {_some(names)} ({_some(source.keys)})" if names else f"in the {type(given).__name__}"
    folders = [within for name in names for within in folders_within(name, app.item_suffixes)]
    more = _why_unread(app, source) or _say_alone(app, source) or _way_out(folders, least)
    raise ConfigError(
        f"{what}; found {pluralize(n_items, 'item')} {where}{more}",
        code="no-input",
        context={"n_items": n_items},
    )


def _names(given: Any) -> list[str]:
    """Return the paths and globs that were given; none where it was something else."""
    listed = given if isinstance(given, list | tuple) else [given]
    paths = all(isinstance(name, str | os.PathLike) for name in listed)
    return [os.fsdecode(name) for name in listed] if paths else []


def _why_unread(app: Application, source: Source) -> str:
    """Say why the only file cannot be read, such as one that was to hold several items; "" if it can, or is none."""
    if source.kind != "files" or source.n_items != 1:
        return ""
    try:
        parse_data(app, source.keys[0], source.read(0))
    except ItemError as error:
        return f", which cannot be read: {error}"
    return ""


def _say_alone(app: Application, source: Source) -> str:
    """Say what the application has to say of the only file, which is one item; "" where it says nothing."""
    if source.kind != "files" or source.n_items != 1:
        return ""
    said = app.describe_alone(source.keys[0], source.read(0))
    return f"; {said}" if said else ""


def _way_out(folders: Sequence[str], least: int) -> str:
    if folders:
        glob = os.path.join(os.path.dirname(folders[0]), "**", "*")  # noqa: PTH118, PTH120 - paths are texts here
        return f"; more lie in {_some(folders)}: the glob {glob!r} takes them, too"
    if least == 2:
        return "; name more, or compare it with others by `against=`"
    return "; name more"


def _some(names: Sequence[str]) -> str:
    listed = [show_value(name) for name in names[:3]]
    return ", ".join(listed) + (" and others" if len(names) > len(listed) else "")
