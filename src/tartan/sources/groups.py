"""Files that are items together: which file belongs to which group, and a source whose items are groups.

A group is a folder, or what a table says. A run records the files of each group when it begins: what is put into a
folder later belongs to no group of that run.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.files import read_regular
from tartan.base.format import name_some, pluralize, show_value
from tartan.base.keys import distinct
from tartan.base.urls import is_url
from tartan.errors import ConfigError
from tartan.sources.files import DEFAULT_MAX_ITEM_BYTES, FileSource, item_keys
from tartan.sources.paths import Location, absolute, expand, folders_within, has_magic, last_name, list_matching
from tartan.sources.split import Splitter

# ruff: noqa: PTH111, PTH112
# Paths are texts here, as in ``paths``.

#: Says that each folder that is named is a group.
FOLDERS = "folders"
# By judgement: a million files with names of a hundred letters.
_MOST_TABLE_BYTES = 128 << 20


class GroupSource(FileSource):
    """Groups of files; an item is the files of one, packed as ``tartan.base.bundle`` says.

    Parameters
    ----------
    groups : sequence of Location
        Of groups, see ``group_location``.
    patterns : sequence of str
        What the user named, for the manifest.
    how : str
        How they were grouped, as of ``open_groups``.
    max_item_bytes : int
        Groups with more bytes fail as items.
    keys : sequence of str, optional
        Default: the names of the groups.
    live : bool array (n,), optional
        As of ``FileSource``.
    recorded : mapping of str to list
        The files, as ``describe`` returns them, of groups that were removed from a run.
    """

    def __init__(
        self,
        groups: Sequence[Location],
        patterns: Sequence[str],
        how: str,
        max_item_bytes: int = DEFAULT_MAX_ITEM_BYTES,
        keys: Sequence[str] | None = None,
        live: np.ndarray | None = None,
        recorded: Mapping[str, Any] | None = None,
    ) -> None:
        named = distinct([group.path for group in groups]) if keys is None else keys
        super().__init__(groups, patterns, max_item_bytes, (), named, live)
        self.how, self.recorded = how, recorded or {}

    def only(self, keys: Sequence[str], stamped: tuple[Any, Any] | None) -> GroupSource:
        """Return the groups with these keys; all where none is there."""
        if list(self.keys) == list(keys):
            return self
        found = [group for group in self.find_locations(keys, stamped) if group is not None]
        return self._holding(found) if found else self

    def standing_for(self, keys: Sequence[str], patterns: Sequence[str]) -> FileSource:
        """Return groups of which none is an item any more; see ``FileSource.standing_for``."""
        dead = np.zeros(len(keys), bool)
        found = self._standing([self.locations[0]] * len(keys), dead, keys)
        found._patterns, found.recorded = list(patterns), {}
        return found

    def _holding(self, locations: Sequence[Location]) -> GroupSource:
        return GroupSource(locations, self._patterns, self.how, self._max_item_bytes)

    def _standing(
        self, locations: Sequence[Location], live: np.ndarray, keys: Sequence[str], patterns: Sequence[str] = ()
    ) -> GroupSource:
        recorded = {**self.recorded, **self._files_of(self.keys, self.locations)}
        recorded = {
            key: recorded[key] for key, alive in zip(keys, live.tolist(), strict=True) if not alive and key in recorded
        }
        return GroupSource(locations, self._patterns, self.how, self._max_item_bytes, keys, live, recorded)

    @property
    def locations(self) -> Sequence[Location]:
        """Where the groups are."""
        return self._locations

    def chosen(
        self,
        keeps_file: Callable[[Location], bool],
        most: int | None,
        splitter: Splitter | None,
        keeps_part: Callable[[Location], bool],
    ) -> GroupSource:
        """Return the first groups that are kept, of the files that are; those without files are left out."""
        kept = []
        for group in self._locations:
            if keeps_file(group):
                members = tuple((name, file) for name, file in group.members or () if keeps_file(file))
                kept += [replace(group, members=members)] if members else []
        return GroupSource(kept[:most], self._patterns, self.how, self._max_item_bytes)

    def find_locations(self, keys: Sequence[str], stamped: tuple[Any, Any] | None) -> list[Location | None]:
        """Return the group of each key, None where there is none; ``stamped`` is not needed to tell them apart."""
        named = dict(zip(self.keys, self._locations, strict=True))
        return [named.get(key) for key in keys]

    def lacks(self, keys: Sequence[str]) -> list[str]:
        """Return the keys that are not groups here."""
        here = set(self.keys)
        return [key for key in keys if key not in here]

    def describe(self) -> dict[str, Any]:
        live = [True] * self.n_items if self._live is None else self._live.tolist()
        there = [at for at, alive in enumerate(live) if alive]
        groups = {**self.recorded}
        groups |= self._files_of([self.keys[at] for at in there], [self._locations[at] for at in there])
        return super().describe() | {"grouping": self.how, "groups": groups}

    @staticmethod
    def _files_of(keys: Sequence[str], groups: Sequence[Location]) -> dict[str, list[list[str]]]:
        return {
            key: [[name, absolute(member.name)] for name, member in group.members or ()]
            for key, group in zip(keys, groups, strict=True)
        }


def group_location(key: str, members: Sequence[Location]) -> Location:
    """Return the location of a group: its name for a path, and its files sorted by their names in the group."""
    names = item_keys([member.name for member in members])
    return Location(key, members=tuple(sorted(zip(names, members, strict=True), key=lambda pair: pair[0])))


def open_groups(
    names: Sequence[str], how: str, suffixes: tuple[str, ...] = (), max_item_bytes: int = DEFAULT_MAX_ITEM_BYTES
) -> GroupSource:
    """Open files as groups.

    Parameters
    ----------
    names : sequence of str
        What the user named: folders, globs, files, URLs.
    how : str
        ``"folders"``: each folder that is named, or matched by a glob, is a group of the files in it; other files are
        groups of their own. Else the path of a table, CSV or tab-separated, with the columns ``file`` and ``group``:
        each file that is named belongs to the group that the table says.
    suffixes : tuple of str
        Lower-case endings that a folder is searched for.
    max_item_bytes : int
        Groups with more bytes fail as items.

    Raises
    ------
    ConfigError
        If a folder or group has no file, a file is in two groups, or a file is not in the table.
    """
    groups = _group_by_folder(names, suffixes) if how == FOLDERS else _group_by_table(names, Path(how), suffixes)
    seen: dict[str, str] = {}
    for group in groups:
        for _, member in group.members or ():
            path = os.path.realpath(member.path) if member.filesystem is None else member.name
            if path in seen:
                way_out = "leave it in one" + (": name its folder or itself, not both" if how == FOLDERS else "")
                raise ConfigError(
                    f"file {member.name!r} is in two groups, {seen[path]!r} and {group.path!r}; {way_out}",
                    code="duplicate-item",
                    context={"input": member.name, "groups": [seen[path], group.path]},
                )
            seen[path] = group.path
    return GroupSource(groups, names, how if how == FOLDERS else absolute(how), max_item_bytes)


def reopen_groups(leaf: Mapping[str, Any], patterns: Sequence[str]) -> GroupSource:
    """Open the groups that a manifest names, without those of which a file is gone."""
    groups, gone = [], {}
    for key, files in leaf["groups"].items():
        members = tuple((str(name), _location(str(path))) for name, path in files)
        if all(member.filesystem is not None or os.path.lexists(member.path) for _, member in members):
            groups.append(Location(str(key), members=members))
        else:
            gone[str(key)] = files
    return GroupSource(groups, patterns, str(leaf.get("grouping", FOLDERS)), recorded=gone)


def files_of_groups(leaf: Mapping[str, Any]) -> list[str]:
    """Return the files of all groups that a leaf of a manifest's inputs names; none where its items are not groups."""
    return [str(path) for members in (leaf.get("groups") or {}).values() for _, path in members]


def _location(path: str) -> Location:
    """Return where a file lies that a manifest names; one that is gone fails when it is read."""
    return expand([path], ())[0] if is_url(path) else Location(path)


def _group_by_folder(names: Sequence[str], suffixes: tuple[str, ...]) -> list[Location]:
    folders: list[str] = []
    groups: list[tuple[str, list[Location]]] = []
    for name in names:
        for one in _matches(name):
            folder = (is_url(one) and one.endswith("/")) or (not is_url(one) and os.path.isdir(os.path.expanduser(one)))
            members = _list_members(one, suffixes)
            groups += [(one.rstrip("/"), members)] if folder else [(one, [member]) for member in members]
            folders += [one] if folder else []
    if not folders:
        raise ConfigError(
            f"group=folders: no folder is named, only files such as {show_value(groups[0][0])}; name the folders, or "
            "give a table with the columns file and group",
            context={"option": "--group"},
        )
    keys = distinct(item_keys([absolute(name) for name, _ in groups]))
    return [group_location(key, members) for key, (_, members) in zip(keys, groups, strict=True)]


def _list_members(name: str, suffixes: tuple[str, ...]) -> list[Location]:
    """Return the files of a folder or glob; of a folder of folders, say which names are groups."""
    try:
        return expand([name], suffixes)
    except ConfigError as error:
        within = folders_within(name, suffixes) if error.code == "no-input" else []
        if not within:
            raise
        raise ConfigError(
            f"folder {name!r} holds no such file itself, but {pluralize(len(within), 'folder')} of them; each folder "
            f"that is named is one group: name the inner ones, as {name.rstrip('/') + '/*'!r} does",
            code="no-input",
            context=error.context,
        ) from error


def _matches(name: str) -> list[str]:
    """Return what a glob of local names stands for, folders too; any other name as it is."""
    if is_url(name) or not has_magic(os.path.expanduser(name)):
        return [name]
    found = sorted(path for path in list_matching(os.path.expanduser(name)) if not last_name(path).startswith("."))
    if not found:
        raise ConfigError(f"no file or folder matches {name!r}; check the path", code="no-input")
    return found


def _group_by_table(names: Sequence[str], path: Path, suffixes: tuple[str, ...]) -> list[Location]:
    """Group the files that are named as a table says."""
    found = expand(names, suffixes)
    by_name: dict[str, list[Location]] = {}
    for location in found:
        by_name.setdefault(last_name(location.name), []).append(location)
    group_of: dict[str, str] = {}
    groups: dict[str, list[Location]] = {}
    for line, file, group in _rows(path):
        alike = [one for one in by_name.get(last_name(file), ()) if _fits(one, file, path.parent)]
        if len(alike) != 1:
            what = "names no file of the inputs" if not alike else f"may be {name_some([one.name for one in alike])}"
            way_out = "leave out its line, or name it among the inputs" if not alike else "write its path"
            raise ConfigError(
                f"{path}, line {line}: {show_value(file)} {what}; {way_out}", context={"option": "--group"}
            )
        name = alike[0].name
        if name in group_of:
            before = group_of[name]
            what = "two groups" if before != group else "the table twice, in group"
            raise ConfigError(
                f"{path}, line {line}: file {show_value(file)} is in {what}, {show_value(before)}"
                + (f" and {show_value(group)}" if before != group else "")
                + "; leave it in one",
                code="duplicate-item",
                context={"input": name, "option": "--group"},
            )
        group_of[name] = group
        groups.setdefault(group, []).append(alike[0])
    missing = [location.name for location in found if location.name not in group_of]
    if missing:
        raise ConfigError(
            f"{path} has no line for {name_some([show_value(name) for name in missing])}; add them, or leave them out "
            "of the inputs",
            context={"option": "--group"},
        )
    return [group_location(key, members) for key, members in groups.items()]


def _fits(location: Location, file: str, folder: Path) -> bool:
    """Whether a file is the one that a table names: by its path, from the table or from here, or by its last parts."""
    name = location.name if location.filesystem is not None else absolute(location.path)
    if name in (file, absolute(file), absolute(str(folder / file))):
        return True
    return not file.startswith(("/", "../")) and name.endswith("/" + file.removeprefix("./"))


def _rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, file and group of each row of a table."""
    option = {"option": "--group"}
    try:
        text = read_regular(path, _MOST_TABLE_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(
            f"group: {show_value(str(path))} cannot be read ({reason}); write 'folders', or the path of a table with "
            "the columns file and group",
            context=option,
        ) from error
    head = text.partition("\n")[0]
    separator = max("\t;,", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    rows = _refuse_malformed(reader, path)
    columns = [name.strip().lower() for name in next(rows, [])]
    if not {"file", "group"} <= set(columns):
        raise ConfigError(
            f"{path}: its first line has the columns {name_some(columns) or 'of nothing'}; it must have file and group",
            context=option,
        )
    file, group = columns.index("file"), columns.index("group")
    for row in rows:
        if not any(row):
            continue
        if len(row) <= max(file, group) or not row[file].strip() or not row[group].strip():
            raise ConfigError(f"{path}, line {reader.line_num}: a file or a group is missing", context=option)
        yield reader.line_num, row[file].strip(), row[group].strip()


def _refuse_malformed(reader: Any, path: Path) -> Iterator[list[str]]:
    """Yield the rows of a table; refuse what is none, such as a field without an end."""
    try:
        yield from reader
    except csv.Error as error:
        raise ConfigError(
            f"{path}, line {reader.line_num}: this is not CSV ({error}); a quote may have no end",
            context={"option": "--group"},
        ) from error
