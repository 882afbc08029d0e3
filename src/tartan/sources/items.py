"""Where items come from: files, rows of an array, elements of a sequence.

``open_source`` accepts what a user writes and answers with a ``Source``: n items in a fixed order, each with
a stable key. A source reads; it never parses, and keeps nothing that it has read (but a Zarr source, the few
decoded bands that the next blocks will ask for).

Invariants: the order and the keys depend on the input alone; every method may be called from any thread;
``read`` raises ``ItemError`` and nothing else for an item that cannot be read.
"""

from __future__ import annotations

import bisect
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tartan.base.files import open_regular
from tartan.base.format import name_some
from tartan.base.keys import IndexKeys, SideKeys, distinct
from tartan.base.urls import is_url, without_local_scheme
from tartan.errors import ConfigError, ItemError
from tartan.sources.arrays import ArraySource, open_stored_array
from tartan.sources.files import DEFAULT_MAX_ITEM_BYTES, FileSource, Fingerprints, ListedFile, split_files
from tartan.sources.fps import holds_fps, open_fps
from tartan.sources.paths import absolute, expand, has_magic
from tartan.sources.rows.entries import bring_together
from tartan.sources.rows.opening import open_rows
from tartan.sources.rows.sparse import csr_of
from tartan.sources.split import Split, Splitter

Kind = Literal["files", "array", "sequence"]


@runtime_checkable
class Source(Protocol):
    """n items in a fixed order.

    Attributes
    ----------
    kind : {"files", "array", "sequence"}
        What ``read`` returns: bytes, a row, or an element.
    n_items : int
        Number of items.
    keys : sequence of str
        Stable names, all different; of array items lazily "0", "1", ...
    """

    @property
    def kind(self) -> Kind: ...
    @property
    def n_items(self) -> int: ...
    @property
    def keys(self) -> Sequence[str]: ...

    def read(self, index: int) -> Any:
        """Return the bytes of a file, a row of an array, an element of a sequence.

        Raises
        ------
        ItemError
            If it cannot be read; the message names the key and the reason.
        """
        ...

    def read_block(self, start: int, stop: int) -> np.ndarray:
        """Return rows start..stop of kind "array", shape (stop - start, ...), a view where possible.

        Raises
        ------
        TypeError
            If the source is of another kind.
        """
        ...

    def fingerprints(self) -> Fingerprints | None:
        """Return what tells versions of files apart, -1 where unknown.

        None for sources that are not files. Taken when first asked for; a file that has changed since cannot be read.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return what the manifest records of the input (JSON-able), with absolute paths."""
        ...


class SequenceSource:
    """Python objects; an item is one of them. Use it directly where a list of texts *is* the input.

    Parameters
    ----------
    items : sequence
        The objects, kept by reference.
    keys : sequence of str, optional
        Their names; default "0", "1", ...

    Attributes
    ----------
    in_memory : bool
        Whether all objects are there, and none is made when it is asked for.

    Raises
    ------
    ConfigError
        If two keys are equal.
    """

    kind: Kind = "sequence"

    def __init__(self, items: Sequence[Any], keys: Sequence[str] | None = None) -> None:
        self._items = items
        self.in_memory = isinstance(items, list | tuple)
        self.n_items = len(items)
        self.keys: Sequence[str] = IndexKeys(self.n_items) if keys is None else distinct(keys)

    def read(self, index: int) -> Any:
        try:
            return self._items[index]
        except Exception as error:  # a user's sequence may load lazily
            key = self.keys[index]
            raise ItemError(
                f"{key}: cannot be read: {type(error).__name__}: {error}", code="read", context={"key": key}
            ) from error

    def read_block(self, start: int, stop: int) -> np.ndarray:
        raise TypeError(f"a source of kind {self.kind!r} has no blocks; use read")

    def fingerprints(self) -> None:
        return None

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind}


class JoinedSource:
    """Several sources, one after the other, in one index space; use ``join_sources``.

    Attributes
    ----------
    parts : list of Source
    starts : list of int
        Index of the first item of each part, and the number of items.
    """

    def __init__(self, sources: Sequence[Source], keys: Sequence[str]) -> None:
        self.parts = list(sources)
        self.starts = [0, *itertools.accumulate(source.n_items for source in sources)]
        self.kind: Kind = self.parts[0].kind
        self.n_items = self.starts[-1]
        self.keys = keys

    def within(self, index: int) -> tuple[Source, int]:
        """Return the part that holds an item, and the index of the item there."""
        position = bisect.bisect_right(self.starts, index) - 1
        return self.parts[position], index - self.starts[position]

    def read(self, index: int) -> Any:
        part, at = self.within(index)
        return part.read(at)

    def read_block(self, start: int, stop: int) -> np.ndarray:
        blocks = []
        for source, first in zip(self.parts, self.starts, strict=False):
            low, high = max(start - first, 0), min(stop - first, source.n_items)
            if low < high:
                blocks.append(source.read_block(low, high))
        if not blocks:
            return self.parts[0].read_block(0, 0)
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def fingerprints(self) -> Fingerprints | None:
        parts = [source.fingerprints() for source in self.parts]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return Fingerprints(*(np.concatenate(columns) for columns in zip(*known, strict=True)))

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "parts": [source.describe() for source in self.parts]}


class CastSource:
    """Rows of an array in another dtype.

    Parameters
    ----------
    inner : Source
        Of kind "array".
    dtype : dtype
    """

    kind: Kind = "array"

    def __init__(self, inner: Source, dtype: np.dtype[Any]) -> None:
        self.inner, self.dtype = inner, dtype
        self.n_items, self.keys = inner.n_items, inner.keys
        self.in_memory = bool(getattr(inner, "in_memory", False))
        self.paths = list(files_of(inner))

    def read(self, index: int) -> np.ndarray:
        return np.asarray(self.inner.read(index)).astype(self.dtype, copy=False)

    def read_block(self, start: int, stop: int) -> np.ndarray:
        return self.inner.read_block(start, stop).astype(self.dtype, copy=False)

    def fingerprints(self) -> None:
        return None

    def describe(self) -> dict[str, Any]:
        return self.inner.describe()

    def stamp(self) -> dict[str, Any]:
        """Return what tells versions of the array apart; the dtype of its rows is not part of it."""
        found: dict[str, Any] = getattr(self.inner, "stamp", dict)()
        return found


def with_keys(source: Source, keys: Sequence[str]) -> Source:
    """Give items other keys, all different; return their source.

    Parameters
    ----------
    source : Source
        No files: these are found by their keys.
    keys : sequence of str
    """
    assert isinstance(source, ArraySource | SequenceSource | JoinedSource | CastSource)
    source.keys = keys
    return source


def join_sources(
    *sources: Source, allow_repeats: bool = False, sides: bool = False, dtype: np.dtype[Any] | None = None
) -> Source:
    """Put sources one after the other: A x B workloads, and items added to a run.

    Keys of earlier sources never change. A later file whose key is taken is known by its path instead. Arrays of
    unlike dtypes are converted to the one that holds the values of all.

    Parameters
    ----------
    *sources : Source
        At least one, all of one kind; arrays must agree in row shape.
    allow_repeats : bool
        Whether one file may occur on both sides (A x B); its second key is then its path.
    sides : bool
        Whether these are the two sides of A x B, of which each keeps its own keys.
    dtype : dtype, optional
        What arrays are converted to instead.

    Raises
    ------
    ConfigError
        If the kinds or the row shapes differ, or a file occurs twice without ``allow_repeats``.
    """
    if len(sources) == 1:
        return sources[0]
    _same_kind(sources)
    if not allow_repeats:
        _refuse_repeats(sources)
    if sources[0].kind == "array":
        sources = tuple(_alike(bring_together(sources, sides=sides), dtype))
    if sides:
        return JoinedSource(sources, SideKeys(sources[0].keys, sources[1].keys))
    if all(isinstance(source.keys, IndexKeys) for source in sources) and sources[0].kind == "array":
        return JoinedSource(sources, IndexKeys(sum(source.n_items for source in sources)))
    return JoinedSource(sources, _join_keys(sources))


def _same_kind(sources: Sequence[Source]) -> None:
    kinds = [source.kind for source in sources]
    if len(set(kinds)) > 1:
        rows = "; one row is an array of shape (1, n)" if set(kinds) == {"array", "files"} else ""
        raise ConfigError(f"inputs of different kinds cannot be joined: {', '.join(kinds)}{rows}")


def _alike(sources: Sequence[Source], wanted: np.dtype[Any] | None) -> Iterator[Source]:
    """Yield arrays with rows of one shape and dtype."""
    forms = [_row_form(source) for source in sources]
    try:
        common = wanted if wanted is not None else np.result_type(*(dtype for _, dtype in forms))
        fit = len({shape for shape, _ in forms}) == 1 and all(
            # Floats may be rounded where the rows of a run have fewer digits; whole numbers would wrap around.
            np.can_cast(dtype, common, "same_kind" if common.kind in "fc" else "safe")
            for _, dtype in forms
        )
    except TypeError:  # no dtype holds the values of all
        fit = False
    if not fit:
        named = {
            form: next(files_of(source), "") for source, form in zip(reversed(sources), reversed(forms), strict=True)
        }
        listed = " and ".join(
            sorted(f"{dtype} of shape {shape}{name and f' ({name})'}" for (shape, dtype), name in named.items())
        )
        raise ConfigError(f"arrays with different rows cannot be joined: {listed}")
    for source, (_, dtype) in zip(sources, forms, strict=True):
        yield source if dtype == common else CastSource(source, common)


def _row_form(source: Source) -> tuple[tuple[int, ...], np.dtype[Any]]:
    block = source.read_block(0, 1)
    return block.shape[1:], block.dtype


def rows_of_run(source: Source) -> np.dtype[Any] | None:
    """Return the dtype that rows have that are added to some; None for what is not an array."""
    return _row_form(source)[1] if source.kind == "array" else None


def _refuse_repeats(sources: Sequence[Source]) -> None:
    paths = (path for source in sources for path in files_of(source))
    seen: set[str] = set()
    for path in paths:
        if path in seen:
            raise ConfigError(
                f"input {path!r} is already an item of this run; name new ones only",
                code="duplicate-item",
                context={"input": path},
            )
        seen.add(path)


def files_of(source: Source) -> Iterator[str]:
    """Yield the files that a source reads, by item or whole, as absolute names."""
    if isinstance(source, JoinedSource):
        for part in source.parts:
            yield from files_of(part)
    elif isinstance(source, ArraySource) and not hasattr(source, "paths"):
        yield from [absolute(source.path)] if source.path is not None else []
    elif isinstance(source, FileSource):
        yield from (absolute(path) for _, path in source.files)
    else:
        yield from map(absolute, getattr(source, "paths", ()))


def file_of(source: Source, index: int) -> ListedFile | None:
    """Return the file that an item is, None for one that is none."""
    if isinstance(source, JoinedSource):
        return file_of(*source.within(index))
    file = getattr(source, "file", None)
    return None if file is None else file(index)


def payload_of(source: Source, index: int, *, files: bool) -> Any:
    """Return what a worker gets of an item: where it can read ``files``, a local one, else what ``read`` returns."""
    file = file_of(source, index) if files else None
    found = None if file is None else file.for_workers()
    return source.read(index) if found is None else found


def local_files(source: Source) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the keys and the open files of items that are local files; those that cannot be opened are left out.

    Each file is open until the next one is asked for.
    """
    if source.kind != "files":
        return
    for key, path in _named_files(source):
        if is_url(path):
            continue
        try:
            file = open_regular(path)
        except OSError:
            continue
        with file:
            yield key, file


def without_removed(source: Source, live: NDArray[np.bool_]) -> Source:
    """Return a source of files with stand-ins for items that were removed from a run, which nothing compares.

    Other items are what they are: they lie in memory, or in an array that is read whole.
    """
    if isinstance(source, FileSource):
        return source.without(live)
    if not isinstance(source, JoinedSource) or source.kind != "files":
        return source
    spans = zip(source.parts, source.starts, strict=False)
    first = next((part for part in source.parts if isinstance(part, FileSource)), None)
    parts = [
        part.without(live[start : start + part.n_items], first) if isinstance(part, FileSource) else part
        for part, start in spans
    ]
    return JoinedSource(parts, source.keys)


def _named_files(source: Source) -> Iterator[tuple[str, str]]:
    """Yield key and path of each file of a source of files."""
    if isinstance(source, JoinedSource):
        for part in source.parts:
            yield from _named_files(part)
    elif isinstance(source, FileSource):
        yield from source.files


def _join_keys(sources: Sequence[Source]) -> list[str]:
    taken: dict[str, None] = dict.fromkeys(sources[0].keys)
    for source in sources[1:]:
        paths: Sequence[str] = getattr(source, "paths", ())
        start = len(taken)
        for index, key in enumerate(source.keys):
            # Array-like keys of sequences count on; a file goes by its path; a suffix ends every dispute.
            other = absolute(paths[index]) if paths else str(start + index)
            first = (other,) if isinstance(source.keys, IndexKeys) else (key, other)
            candidates = itertools.chain(first, (f"{other}#{count}" for count in itertools.count(2)))
            taken[next(name for name in candidates if name not in taken)] = None
    return list(taken)


def open_source(
    items: Any,
    *,
    suffixes: tuple[str, ...] = (),
    max_item_bytes: int = DEFAULT_MAX_ITEM_BYTES,
    split: Split | None = None,
    companions: Mapping[str, str] | None = None,
    rows: bool = False,
) -> Source:
    """Open whatever a user gives as items.

    Parameters
    ----------
    items : object
        A path, a glob (``**`` goes through folders), a folder, an fsspec URL, or a list of those: files,
        sorted by name inside each glob and folder. A single ``.npy`` file of two or more dimensions (memory
        mapped), a Zarr array, or fingerprints of molecules (FPS): its rows. An array: its rows. A mapping of
        names to objects, a sequence or an iterable of objects: its elements. A Source is returned as it is.
    suffixes : tuple of str
        Lower-case endings that a folder is searched for (``Application.item_suffixes``).
    max_item_bytes : int
        Larger files fail as items.
    split : callable, optional
        Cuts files that hold several items (``Application.split``).
    companions : mapping of str to str, optional
        Suffixes of files that ``split`` takes with the file beside them (``Application.companions``).
    rows : bool
        Whether items are rows of numbers, so that tables and archives are read as such (``Application.rows``).

    Returns
    -------
    Source
        With at least one item.

    Raises
    ------
    ConfigError
        If there is no item, a named file does not exist, or a file is named twice.

    Examples
    --------
    >>> source = open_source([[1, 2], [3], [4, 5, 6]])
    >>> source.n_items, source.keys[2], source.read(1)
    (3, '2', [3])
    """
    found = _open_rows(items) if rows else None
    source = found or _open(items, suffixes, max_item_bytes, None if split is None else Splitter(split, companions))
    _require_items(source, items)
    return source


def _require_items(source: Source, items: Any) -> None:
    """Refuse inputs without items, and rows without values, by name."""
    if source.n_items and not (isinstance(source, ArraySource) and 0 in source.shape):
        return
    listed = [items] if isinstance(items, str | os.PathLike) else items
    names = (
        [os.fsdecode(one) for one in listed] if isinstance(listed, list | tuple) and source.kind != "sequence" else []
    )
    names = names or list(filter(None, [getattr(source, "path", None)]))
    label, context = name_some(names) or f"the {type(items).__name__}", {"input": names[0]} if names else {}
    if isinstance(source, ArraySource):
        lacks = "no rows" if source.n_items == 0 else "rows without values"
        raise ConfigError(
            f"{label} has {lacks}: its shape is {source.shape}; give rows of at least one value, one an item",
            code="no-input",
            context=context,
        )
    what = f"{label} holds none" if names else f"{type(items).__name__} is empty"
    raise ConfigError(f"no items: {what}; give at least one", code="no-input", context=context)


def _open_rows(items: Any) -> ArraySource | None:
    if hasattr(items, "tocsr"):
        return csr_of(items)
    return open_rows(_names_of_files(items))


def _names_of_files(items: Any) -> list[str]:
    """Return names of files as they are given, none where something else is."""
    listed = [items] if isinstance(items, str | os.PathLike) else items
    if not isinstance(listed, list | tuple) or not all(isinstance(item, str | os.PathLike) for item in listed):
        return []
    return [absolute(without_local_scheme(os.fsdecode(item))) for item in listed]


def _open(items: Any, suffixes: tuple[str, ...], max_item_bytes: int, splitter: Splitter | None) -> Source:
    if isinstance(items, ArraySource | Source):  # the second looks at the names of rows, which may not be read yet
        return items
    if isinstance(items, str | os.PathLike):
        items = [items]
    if isinstance(items, Mapping):
        return SequenceSource(list(items.values()), [str(key) for key in items])
    if hasattr(items, "shape") or hasattr(items, "__array_interface__"):
        return _open_array(items)
    listed = _list(items)
    if not listed or not all(isinstance(item, str | os.PathLike) for item in listed):
        return SequenceSource(listed)
    return _open_paths([os.fsdecode(item) for item in listed], suffixes, max_item_bytes, splitter)


def _list(items: Any) -> Sequence[Any]:
    if isinstance(items, Set | bytes | bytearray | memoryview) or not isinstance(items, Iterable | Sequence):
        raise ConfigError(f"items are a {type(items).__name__}; give paths, an array, or objects in a fixed order")
    return items if isinstance(items, Sequence) else list(items)


def _open_array(array: Any) -> Source:
    if hasattr(array, "tocsr"):
        raise ConfigError("items are a sparse matrix; give a dense array, or a list of rows")
    if not hasattr(array, "dtype"):  # a table: its rows are items
        array = _rows_of(array)
    if np.ma.is_masked(array):
        raise ConfigError("items are a masked array; fill it with array.filled(value), or drop its masked rows")
    if len(array.shape) == 0:
        raise ConfigError("items are an array without dimensions; its first axis must count the items")
    if _numpy_dtype(array) == np.dtype(object):
        return SequenceSource(list(array))
    return ArraySource(array)


def _numpy_dtype(array: Any) -> np.dtype[Any]:
    """Return the dtype of an array, or refuse one that NumPy does not have."""
    try:
        found: np.dtype[Any] = np.dtype(array.dtype)
    except TypeError:
        raise ConfigError(
            f"items are a {type(array).__name__} of {array.dtype}, which NumPy lacks; give numpy.asarray(x), of "
            "a tensor numpy.asarray(x.cpu())"
        ) from None
    return found


def _rows_of(table: Any) -> np.ndarray:
    try:
        return np.asarray(table)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"items are {type(table).__name__}, which is not rows of numbers; give an array of its own, such as X "
            "or obsm['X_pca'] of AnnData, dense, and its names by keys="
        ) from error


def _open_whole(name: str) -> ArraySource | None:
    """Open a path or URL as rows of an array or as fingerprints, or return None where it is neither."""
    source = open_stored_array(name)
    if source is None and not is_url(name) and Path(name).is_file() and holds_fps(Path(name)):
        return open_fps(name)
    return source


def _open_paths(
    patterns: Sequence[str], suffixes: tuple[str, ...], max_item_bytes: int, splitter: Splitter | None
) -> Source:
    patterns = [without_local_scheme(pattern) for pattern in patterns]
    if len(patterns) == 1 and not has_magic(patterns[0]):
        source = _open_whole(absolute(patterns[0]))
        if source is not None:
            return source
    found = expand(patterns, suffixes)
    if len(found) == 1 and found[0].filesystem is None:
        # One file is one item, which has no pairs: where it can be read as rows, that is what was meant.
        source = _open_whole(absolute(found[0].path))
        if source is not None:
            return source
    if splitter is not None:
        found = list(split_files(found, splitter, max_item_bytes))
    return FileSource(found, patterns, max_item_bytes, suffixes)
