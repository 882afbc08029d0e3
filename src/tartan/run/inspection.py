"""Look at single items of a run: facts and small arrays to draw, as its application describes them.

An item is opened only if its fingerprint is the one that the run recorded, from a local file, up to a size; and only
if the folder was made by this user on this machine, or is trusted: a manifest from elsewhere may name any file and any
program. What is returned are facts and arrays, never the bytes of a file.
"""

from __future__ import annotations

import hashlib
import shlex
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.application import Application
from tartan.base.bundle import is_bundle, unpack_files
from tartan.base.checksum import NOT_KNOWN, NOT_TELLING, checksum_of_bytes
from tartan.base.format import format_number, name_some
from tartan.base.urls import is_url
from tartan.errors import ConfigError, ItemError, TartanError
from tartan.run.reopen import locate_items, open_inputs
from tartan.runtime.items import parse_data
from tartan.sources.files import DEFAULT_MAX_ITEM_BYTES, read_location
from tartan.sources.groups import files_of_groups
from tartan.sources.items import Source
from tartan.sources.paths import Location
from tartan.store.folder import RunFolder
from tartan.store.items import ItemTable
from tartan.store.manifest import Manifest, leaves
from tartan.workers.shipping import Registry, known_parameters, load_application, names_builtin, source_hash

# By judgement: a page does not wait for more; photos and proteomes have a tenth of it. No benchmark.
MAX_ITEM_BYTES: Final = 256 * 2**20
# _MAX_FACTS and _MAX_TEXT, by judgement: a table beside a picture, one line a fact. No benchmark.
_MAX_FACTS: Final = 24
_MAX_TEXT: Final = 200
_NOT_TRUSTED: Final = (
    "{0} was not made by this user on this machine; if you trust it, `tartan cluster {0} --trust` opens its items"
)


@dataclass(frozen=True)
class Portrait:
    """What can be shown of an item.

    Attributes
    ----------
    facts : mapping of str to str
    arrays : mapping of str to ndarray
        What to draw, by title: (m,) a line, (h, w) grey, (h, w, 3) uint8 colours.
    problem : str
        Why the item was not opened; "" where it was.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    problem: str = ""


class Inspector:
    """Opens items of one run; may be used by several threads.

    Parameters
    ----------
    folder : RunFolder
    registry : Registry
        The built-in applications.
    refusal : str
        Why items of this folder are not opened; "" if they are (``tartan.run.trust``).
    max_bytes : int
        Larger files are not opened.
    """

    def __init__(
        self, folder: RunFolder, registry: Registry, refusal: str = "", max_bytes: int = MAX_ITEM_BYTES
    ) -> None:
        self._max_bytes = max_bytes
        self._keys = folder.keys
        self._folder, self._slots = folder.stored, folder.slots
        self._registry = registry
        self._refusal = refusal
        self._lock = threading.Lock()

    def parse(self, item: int) -> Any:
        """Open an item and return it parsed; raises as ``describe``."""
        if self._refusal:
            raise ConfigError(self._refusal)
        with self._lock:
            return parse_data(self._application, self._keys[item], self._read(item))

    def look_closely(self, item: int) -> Any:
        """Open an item and return its patterns (``Application.look_closely``), or None; raises as ``describe``."""
        if self._refusal:
            raise ConfigError(self._refusal)
        with self._lock:
            app, data = self._application, self._read(item)
            if not app.releases_gil:
                return app.look_closely(parse_data(app, self._keys[item], data))
        return app.look_closely(parse_data(app, self._keys[item], data))

    def describe_pair(self, a: int, b: int) -> dict[str, str]:
        """Open two items and return what the application says of them beyond their scores; nothing where it cannot."""
        if self._refusal or type(self._application).describe_pair is Application.describe_pair:
            return {}
        try:
            one, other = self.parse(a), self.parse(b)
            return {
                str(name): str(text)[:_MAX_TEXT] for name, text in self._application.describe_pair(one, other).items()
            }
        except Exception:  # each item says why it cannot be opened
            return {}

    def describe(self, item: int) -> Mapping[str, Any]:
        """Open an item and return what its application says of it, as it says it.

        Raises
        ------
        TartanError
            If the item must not be opened, cannot be, or is not the one that was compared.
        """
        if self._refusal:
            raise ConfigError(self._refusal)
        with self._lock:
            return _describe(self._application, self._keys[item], self._read(item))

    def portrait(self, item: int) -> Portrait:
        """Open an item and describe it; what prevents that is named in the portrait."""
        if self._refusal:
            return Portrait(problem=self._refusal)
        try:
            described = self.describe(item)
        except TartanError as error:
            return Portrait(problem=str(error))
        except Exception as error:  # code of the user, decoders of damaged files
            return Portrait(problem=f"the item cannot be described: {type(error).__name__}: {error}")
        return _sort_out(described)

    @cached_property
    def _application(self) -> Application:
        about = self._folder.manifest.application
        if about["kind"] == "object":
            return Application()
        _require_same(about)
        parameters = known_parameters(about["source"], about["parameters"], self._registry)
        return load_application(about["source"], parameters, self._registry)[0]

    @cached_property
    def _locations(self) -> list[Location | None]:
        items = self._folder.items
        assert items is not None
        return locate_items(self._folder.manifest, items, self._application, lenient=self._slots is not None)

    @cached_property
    def _rows(self) -> Source:
        return open_inputs(self._folder.path, self._folder.manifest, None, self._application)

    def _read(self, item: int) -> Any:
        _refuse_urls(self._folder.manifest)
        item = item if self._slots is None else int(self._slots[item])
        items = self._folder.items
        if items is not None and items.sizes is not None and items.mtimes is not None:  # rows with names have none
            return self._read_file(items, item, (int(items.sizes[item]), int(items.mtimes[item])))
        _require_same_arrays(self._folder.manifest)
        return self._rows.read(item)

    def _read_file(self, items: ItemTable, item: int, recorded: tuple[int, int]) -> bytes:
        location = self._locations[item]
        if location is None:
            raise ItemError("the file is gone")
        if recorded[0] > self._max_bytes:
            raise ItemError(f"the item has {recorded[0]:,} bytes; up to {self._max_bytes:,} are opened")
        try:
            data = read_location(location, self._max_bytes, recorded)
        except OSError as error:
            raise ItemError(f"the item is not opened: {error.strerror or error}") from error
        total = int(self._folder.checksums[item])
        if total not in (NOT_KNOWN, NOT_TELLING, checksum_of_bytes(data)) or (
            items.contents is not None and items.contents[item] != hashlib.sha256(data).hexdigest()
        ):
            raise ItemError("the file is not the one that was compared: its contents have changed")
        return data


def closer_look(folder: RunFolder, registry: Registry, *, trust: bool = False) -> Callable[[int], Any] | None:
    """Return what looks closely at items of a run (``Inspector.look_closely``).

    None where the application has no clearer patterns of items. Where items of the folder are not opened without
    consent, it refuses each by a ConfigError that says so.
    """
    said = folder.manifest.application.get("meaning") or {}
    closely = any((meaning.get("groups") or {}).get("closely") for meaning in said.values())
    if not closely:
        return None
    refusal = "" if trust or folder.sealed else _NOT_TRUSTED.format(shlex.quote(str(folder.path)))
    return Inspector(folder, registry, refusal, DEFAULT_MAX_ITEM_BYTES).look_closely


def _describe(app: Application, key: str, data: Any) -> Mapping[str, Any]:
    """Return what an application says of an item; of a group what it says of the first file, and how many there are."""
    if not is_bundle(data):
        return app.describe_item(key, data)
    files = unpack_files(data)
    about = {"files": f"{len(files):,}: {name_some([name for name, _ in files])}", "drawn": files[0][0]}
    return about | dict(app.describe_item(*files[0]))


def _require_same(about: Mapping[str, Any]) -> None:
    """Refuse to run code that is not what computed the run; built-in applications are not compared."""
    source = str(about["source"])
    if names_builtin(source):
        return
    found = source_hash(source)
    if found is None:
        raise ConfigError(f"{source}, the application of this run, cannot be read; its items are not opened")
    if found != about.get("source_hash"):
        raise ConfigError(f"{source}, the application of this run, has changed since; its items are not opened")


def _refuse_urls(manifest: Manifest) -> None:
    for leaf in leaves(manifest.inputs):
        if any(is_url(str(name)) for name in [*(leaf.get("patterns") or ()), *files_of_groups(leaf)]):
            raise ItemError("items behind URLs are not fetched to be shown")


def _require_same_arrays(manifest: Manifest) -> None:
    """Refuse rows of files that have changed since the run began."""
    for leaf in leaves(manifest.inputs):
        named = leaf.get("patterns")
        if not named or "size_bytes" not in leaf:
            raise ItemError("the items were objects of a program, or have no fingerprint; they are not opened")
        try:
            status = Path(named[0]).stat()
        except OSError as error:
            raise ItemError(f"the array of the items cannot be read: {error.strerror}") from error
        if (status.st_size, status.st_mtime_ns) != (leaf["size_bytes"], leaf["mtime_ns"]):
            raise ItemError("the array is not the one that was compared: the file has changed")


def _sort_out(described: Mapping[str, Any]) -> Portrait:
    """Tell facts from arrays."""
    facts: dict[str, str] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in described.items():
        if isinstance(value, np.ndarray) and value.ndim:
            arrays[str(name)] = value
        elif len(facts) < _MAX_FACTS:
            facts[str(name)] = _say(value)[:_MAX_TEXT]
    return Portrait(facts, arrays)


def _say(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    return format_number(value) if isinstance(value, float | np.floating) else str(value)
