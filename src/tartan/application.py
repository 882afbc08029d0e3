"""What a user writes: an application. Everything has a default, so a compare alone is complete.

An item travels ``read -> parse -> preprocess`` once per load, and a *tile* of items is compared at a time.
``xp`` is the array namespace of the device (array-api-compat): NumPy on the CPU, CuPy on a GPU. Write device
code once against it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What the scores of an application mean: how they become distances, and where alike items end.

    Attributes
    ----------
    distance : str or None
        A formula of s, such as "1-s" or "max-s" (max: the largest score of a run; see ``docs/analytics.md``). None:
        distances are the scores themselves.
    why : str
        Why this is the distance, in one sentence.
    cut : float or None
        Items belong together from this score on: up to it where scores are distances. None: no score says so.
    cut_why : str
        Why this is the cut, in one sentence.
    together, apart : str
        What the cut says of two items on its one side and on the other, such as "same camera"; default: that they
        belong together, or do not.
    linkage : {"single", "average", "complete", "weighted"}
        How clusters are joined up to the cut.
    tree : bool
        Whether items descend from each other, so that a tree is the answer: reports then draw one.
    groups : tartan.GroupEvidence or None
        How the clusters of the cut are joined further by what they have in common. None: they stay as they are.
    unknown : float or None
        The score given to pairs of which only this is known: they are farther apart than was measured. Methods that
        add up distances, such as neighbour joining, warn of them. None: every score is measured.
    unit : str
        What a score is, with its unit if it has one, as the scale of a picture says it, such as "Mash distance" or
        "shared hashes"; default: the name of the output.
    """

    distance: str | None = None
    why: str = ""
    cut: float | None = None
    cut_why: str = ""
    together: str = ""
    apart: str = ""
    linkage: str = "average"
    tree: bool = False
    groups: Any = None
    unknown: float | None = None
    unit: str = ""


class Application:
    """Base class of everything that Tartan can compare.

    Attributes
    ----------
    releases_gil : bool
        True says that ``parse``, ``preprocess`` and ``compare`` spend their time outside the interpreter lock
        and never crash: they then run in threads of this process, without worker processes.
    symmetric : bool
        compare(a, b) equals compare(b, a): only pairs i < j are computed. A few pairs of a new run tell first.
    directed : tuple of str
        Outputs of a symmetric application that have a direction, such as the motion of a onto b. Pairs i < j are
        computed; those of (j, i) come from ``reverse``. Such a run stores every score both ways.
    diagonal : bool
        Whether pairs (i, i) are computed too.
    similarity : bool or None
        True: a large score means alike. False: a small one does, and an item has distance 0 to itself. None: not
        said; neighbours are then those with small scores.
    analysed : str or None
        The output that clusters, trees, maps, neighbours, outliers and reports take, and that decides which pairs a run
        keeps, where none is named. None: the first.
    ragged : bool or None
        True: items differ in size, a tile gets lists of items. False: all items have the dtype and shape of
        the first, a tile gets arrays with the items along axis 0. None: decided by looking at a few items.
    outputs : mapping of str to dtype
        Named results of one pair and their dtypes. One output may be returned as a bare array; several are
        returned as a dict. A list of names means float32 for each.
    tile_side : int
        Width from which ``compare`` is efficient. Wider tiles compute more below the diagonal in vain, so 1 is best for
        slow comparisons, some dozens for matrix products.
    parse_memory : float, or mapping of str to float
        Bytes that ``parse`` and ``preprocess`` take at most, for each byte of the file or of the item, whichever is
        larger. A mapping tells it by the end of the name of the file (lower case); 4 for what it does not name. It
        counts in what a run says that it needs, and changes nothing else.
    item_suffixes : tuple of str
        File suffixes (lower case, such as ".jpg") that a folder given as input is searched for.
    companions : mapping of str to str
        Suffixes of files to those of files beside them that say more of them, such as ``{".hdf5": ".yaml"}``; lower
        case, with the dot. ``split`` gets the bytes of that file as a third argument, None where there is none or the
        file is not local. A change of it is one of the file.
    rows : bool
        True: items are rows of numbers. Files of tables, archives and shards that are given are then read as rows.
    sparse_rows : bool
        True: rows of a sparse matrix, where few of their values are not 0, come as these: arrays of
        ``tartan.base.entries.ENTRY`` in place of numbers.
    writable_items : bool
        True: all methods get copies, made for each call, to which they may write. False: arrays may be read-only.
    compare_into : bool
        True: ``compare(left, right, xp, out=None)`` may write the scores into ``out``, an (m, k) array of the output's
        dtype, and return it; that saves one copy of every score. Of several outputs ``out`` is a dict of arrays, of
        those that are wanted, and is returned. It is None on devices with memory of their own.
    unit_rows : bool
        True: items become rows of length 1 (float32 or float64), and the only score of a pair is their cosine distance
        in the same precision, ``1 - a.b`` clipped to 0 to 2. A run that keeps little of the matrix then computes it
        while it chooses, without ``compare``.
    inner_rows : bool
        True: items become rows, and the only score of a pair is their inner product in the same precision. As
        ``unit_rows``.
    norm_rows : str
        "euclidean" or "sqeuclidean": items of more than 32 values become rows that end in their squared norm, and the
        only score of a pair is that distance in the same precision. As ``unit_rows``, where rows are float32. "": no.
    bit_rows : str
        "jaccard" or "hamming": items may become rows of bits in words (uint64) that end in one more word, the number of
        positions for hamming, and the only score of a pair is that distance, computed in float64. Runs that keep little
        of the matrix then rule pairs out by numbers of bits, without ``compare``. "": no.
    compacts_all : bool
        True: ``compact`` also writes items in the form of the CPU, where ``out`` has that one. Devices for which
        ``compact_form`` returns something then never call ``preprocess``, and ask nothing of the device between items.

    Notes
    -----
    ``self.__init__`` takes the parameters of the application as keyword arguments and stores each under its
    own name; ``parameters`` then finds them, the manifest records them, and ``--set name=value`` sets them.
    """

    name: ClassVar[str | None] = None
    releases_gil: bool = False
    symmetric: bool = True
    directed: tuple[str, ...] = ()
    diagonal: bool = False
    similarity: bool | None = None
    analysed: str | None = None
    ragged: bool | None = None
    outputs: Mapping[str, Any] = {"scores": np.float32}
    tile_side: int = 1
    parse_memory: float | Mapping[str, float] = 4.0
    item_suffixes: tuple[str, ...] = ()
    companions: ClassVar[Mapping[str, str]] = {}
    rows: bool = False
    sparse_rows: bool = False
    writable_items: bool = False
    compare_into: bool = False
    unit_rows: bool = False
    inner_rows: bool = False
    norm_rows: str = ""
    bit_rows: str = ""
    compacts_all: bool = False

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that influence scores, by name; recorded in the manifest."""
        names = [p for p in inspect.signature(type(self).__init__).parameters if p != "self"]
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def parse(self, key: str, data: Any) -> Any:
        """Turn the bytes of one item into an array, a tuple of arrays, or any picklable object (CPU).

        Parameters
        ----------
        key : str
            The stable key of the item (its file name, or its index as text).
        data : bytes or object
            Contents of the file, or the element of the sequence that was given as items.
        """
        return data

    def group(self, key: str, files: Sequence[tuple[str, bytes]]) -> Any:
        """Turn the files of one group into an item, of the kind that ``parse`` returns (CPU).

        Used where items are made of several files (``group=`` of ``tartan.allpairs``), such as the photos of a camera
        or the contigs of a genome. A file that cannot be read fails its group.

        Parameters
        ----------
        key : str
            The name of the group.
        files : sequence of (str, bytes)
            At least one: names and contents, sorted by name. The name is that of the file, or the end of its path
            where several of a group have one name.

        Raises
        ------
        ItemError
            Naming the file, if one cannot be used.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no group")

    def split(self, key: str, data: bytes) -> Sequence[bytes] | Mapping[str, bytes] | None:
        """Split a file that may hold several items; None, the default, says that it is one item.

        Called when the inputs are opened and when items are read; the same file gives the same items. They are called
        ``file#0``, ``file#1`` and so on, or by their names, ``file#name`` (``tartan.base.keys.distinguish`` makes names
        fit). A file for which it raises fails as one item.

        Parameters
        ----------
        key : str
            The name of the file.
        data : bytes
            What is in it.

        Returns
        -------
        sequence of bytes, mapping of str to bytes, or None
            One of each item, as ``parse`` takes it; an empty one for a file without items.
        """
        return None

    def preprocess(self, item: Any, xp: Any) -> Any:
        """Prepare one parsed item for comparison, on the device of ``xp``; by default it stays as it is."""
        return item

    def preprocess_block(self, items: Any, xp: Any) -> Any:
        """Prepare a block of items of equal size, along axis 0; where defined, it takes the place of ``preprocess``.

        Rows that contain NaN are items that cannot be compared.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no preprocess_block")

    def check_block(self, items: np.ndarray) -> Sequence[str | None] | None:
        """Return why each of m raw rows cannot be compared, None for one that can; None, the default: all can.

        Called with many rows where items are the rows of an array, and with a block of one for an array that comes
        alone, if the application does not define ``parse``. It is faster than ``describe_failure``, which gets
        preprocessed items one by one.
        """
        return None

    def check_files(self, files: Iterable[tuple[str, BinaryIO]]) -> list[str] | None:
        """Refuse files that cannot be compared with one another, by their first bytes; by default none is refused.

        Called before a new run loads anything, and before items are added, where items are local files. A file that is
        damaged is better left to ``parse``: it then fails alone.

        Parameters
        ----------
        files : iterable of (str, file)
            Keys and open binary files, in order, each open until the next is asked for. Files that cannot be opened are
            left out.

        Returns
        -------
        list of str, optional
            What people should know of the files: said now, and by ``tartan info`` and the analyses of the run.

        Raises
        ------
        ConfigError
            With the way out; nothing is started or added.

        Notes
        -----
        The application may set ``ragged``, ``outputs`` and parameters that were left open by what the files are. Where
        items are added to a run, ``ragged`` says what that run is.
        """

    def device_form(self, item: Any, xp: Any) -> Any:
        """Return what of a preprocessed item of any size is copied to a device; by default the whole item.

        Called on the CPU where items have no common form (``ragged``), for devices with memory of their own. Arrays of
        what it returns, also those in tuples and lists, are copied to the device; all else stays on the host and
        reaches ``compare`` as it is.
        """
        return item

    def compact_form(self, dtype: np.dtype[Any], shape: tuple[int, ...], xp: Any) -> tuple[Any, tuple[int, ...]] | None:
        """Return the dtype and shape in which a device may keep items of one form; None, the default: as on the CPU.

        Parameters
        ----------
        dtype, shape : dtype, tuple of int
            Of preprocessed items on the CPU.
        xp : namespace
            Of a device with memory of its own.

        Notes
        -----
        Used in runs of one rank if all devices have the same compact form and parsed items are no larger. ``compact``
        then takes the place of ``preprocess``, and ``compare`` gets arrays of this form.
        """
        return None

    def compact(self, item: Any, out: Any, xp: Any) -> Any:
        """Write one parsed item to ``out``, in its compact form; return an array (1,), zero where there is no item.

        Nothing may be asked of the device here. An item that cannot be compared is written as zeros;
        ``describe_failure`` then says why, of an array of zeros on the host.
        """
        raise NotImplementedError(f"{type(self).__name__} has a compact form and defines no compact")

    def warm_up(self, xp: Any) -> None:
        """Get ready for comparisons on a device with memory of its own, for instance by compiling kernels.

        Called on the device once for each run, before its first item arrives.
        """

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Score a tile: ``left`` holds m items, ``right`` k items; return an (m, k) array or a dict of them."""
        raise NotImplementedError(f"{type(self).__name__} defines neither compare nor compare_pair")

    def compare_listed(self, left: Any, right: Any, rows: np.ndarray, columns: np.ndarray) -> Any:
        """Score listed pairs of a tile (CPU), where a list asks for few; may be defined beside `compare`.

        Parameters
        ----------
        left, right : as in ``compare``
        rows, columns : int64 arrays (n,)
            Pair p is ``left[rows[p]]`` with ``right[columns[p]]``.

        Returns
        -------
        array (n,), dict of them, or None
            Bit for bit what ``compare`` says of these pairs; None: let ``compare`` do it.
        """
        return None

    def compare_pair(self, a: Any, b: Any) -> Any:
        """Score one pair; may be defined instead of ``compare``, with any Python callable.

        Returns a number, or a dict of numbers.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither compare nor compare_pair")

    def compare_triples(self, a: Any, b: Any, c: Any, xp: Any) -> Any:
        """Score all triples of three groups of m, k and l items (``tartan.alltuples``).

        Returns an (m, k, l) array, or a dict of them. Scores must not depend on the order of the three; only triples
        i < j < k count. An application that compares nothing but triples may call this ``compare``.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither compare_triples nor compare_triple")

    def compare_triple(self, a: Any, b: Any, c: Any) -> Any:
        """Score one triple; may be defined instead of ``compare_triples``. Returns a number, or a dict of numbers."""
        raise NotImplementedError(f"{type(self).__name__} defines neither compare_triples nor compare_triple")

    def reverse(self, scores: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the scores of (b, a) from those of (a, b), element by element: every output that is ``directed``.

        Parameters
        ----------
        scores : mapping of str to array (m, k)
            All outputs of a tile, finished. Pairs that failed or are not wanted may hold anything.
        """
        raise NotImplementedError(f"{type(self).__name__} has directed outputs and defines no reverse")

    def postprocess(self, scores: np.ndarray) -> np.ndarray:
        """Transform a block of finished scores on the CPU, element by element; by default they stay as they are."""
        return scores

    def resampled(self, seed: int) -> Application | None:
        """Return an application that compares resampled items, for the support of trees; by default None: it cannot.

        It parses each item from a random sample of the item's parts, drawn with replacement, such as its proteins. The
        sample depends on ``seed`` and on the key alone.
        """
        return None

    def describe_failure(self, item: Any) -> str | None:
        """Say why a preprocessed item cannot be compared, or None when it can."""
        return None

    def meaning(self, output: str, shape: tuple[int, ...] | None) -> Meaning | None:
        """Return what the scores of an output mean to clusters, trees and maps; None, the default: nothing is known.

        Called once, when a run is created; the run folder keeps the answer.

        Parameters
        ----------
        output : str
        shape : tuple of int or None
            Shape of a preprocessed item; None where items differ in size or are not arrays.
        """
        return None

    def look_closely(self, item: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """Return patterns by which a parsed item is tested against groups; None, the default: there are none.

        They may take longer and be clearer than what ``preprocess`` makes, since few items are looked at so: where
        ``Meaning.groups`` says so (``GroupEvidence.closely``), those that are alone, and members of large clusters.
        Called in several threads if ``releases_gil``.

        Returns
        -------
        tested, added : float32 arrays of one size
            The pattern of the item as it is tested against a sum of others, and as it is added to such a sum. Of
            unlike items the correlation of ``tested`` with such a sum, times the root of its size, has a spread of
            about 1, and a mean that grows with the length of ``tested`` at most. ``added`` has a length of 1.
        """
        return None

    def recall_item(self, key: str) -> str | None:
        """Return what scores of an item depend on besides its bytes and the parameters, as text; None: on nothing.

        Such as its line of a table that the application reads. A run keeps it: where it is another one later, the run
        is not gone on with.
        """
        return None

    def describe_alone(self, key: str, data: bytes) -> str:
        """Say how the only file of a run, which is one item, would be several; "", the default, says nothing.

        It becomes a part of the message that pairs need two items.
        """
        return ""

    def describe_item(self, key: str, data: Any) -> Mapping[str, Any]:
        """Describe one item for people who look at it (``tartan view``, ``tartan show``).

        Parameters
        ----------
        key : str
            Its name.
        data : bytes or object
            As ``parse`` gets it.

        Returns
        -------
        mapping of str to number, text or array
            Facts by name, and arrays to draw: (m,) as a line, (h, w) in grey, (h, w, 3) uint8 in colours. Only
            drawings and facts are shown, so a text should say what the item is rather than hold it. Default: type
            and shape of an array, and its values as a line or picture; of anything else its type and length.
        """
        array = data if isinstance(data, np.ndarray) else None
        if array is None:
            length = {"length": len(data)} if hasattr(data, "__len__") else {}
            return {} if isinstance(data, bytes) else {"type": type(data).__name__, **length}
        about: dict[str, Any] = {"type": str(array.dtype), "shape": " x ".join(map(str, array.shape)) or "a number"}
        if array.dtype.kind in "biuf" and array.size:
            finite = array[np.isfinite(array)]
            if finite.size:
                about |= {"least": finite.min(), "greatest": finite.max(), "mean": float(finite.mean(dtype=np.float64))}
            if array.ndim in (1, 2):
                about["values"] = array
        return about

    def describe_pair(self, a: Any, b: Any) -> Mapping[str, str]:
        """Say more of two parsed items than their scores do, for ``tartan show``: facts by name; by default none."""
        return {}


class _FunctionApplication(Application):
    """A plain function of two items, as an application."""

    def __init__(self, function: Callable[[Any, Any], float]) -> None:
        self._function = function

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare_pair(self, a: Any, b: Any) -> float:
        return self._function(a, b)


class _TripleFunctionApplication(_FunctionApplication):
    """A plain function of three items, as an application."""

    def compare_triple(self, a: Any, b: Any, c: Any) -> float:
        return self._function(a, b, c)  # type: ignore[call-arg]


def as_application(app: Any, arity: int = 2) -> Application:
    """Accept an Application, a subclass of it, or a plain function of as many items as are compared.

    Parameters
    ----------
    app : object
    arity : {2, 3}
        Whether pairs or triples are compared.

    Raises
    ------
    ConfigError
        If it is not one of the three, or defines no comparison of so many items.
    """
    from tartan.errors import ConfigError

    if inspect.isclass(app) and issubclass(app, Application):
        try:
            inspect.signature(app).bind()
        except TypeError as error:
            raise ConfigError(f"{app.__name__}: {error}; give an instance, as {app.__name__}(...)") from None
        app = app()
    if not isinstance(app, Application) and not callable(app):
        items = "two items" if arity == 2 else "three items"
        raise ConfigError(f"{app!r} is neither a tartan.Application nor a function of {items}")
    if arity == 3:
        return _as_triple_application(app)
    application = app if isinstance(app, Application) else _FunctionApplication(app)
    if not compares_pairs(application) and type(application).compare is Application.compare:
        raise ConfigError(f"{type(application).__name__} defines neither compare nor compare_pair")
    return application


def _as_triple_application(app: Any) -> Application:
    from tartan.errors import ConfigError

    if not isinstance(app, Application):
        if not _takes(app, 3):
            raise ConfigError(f"{app!r} cannot be called with three items; triples need a function of three items")
        return _TripleFunctionApplication(app)
    if not _compares_triple_blocks(app) and not defines(app, "compare_triple"):
        raise ConfigError(
            f"{type(app).__name__} compares no triples: it defines neither compare_triples(a, b, c, xp) nor "
            "compare_triple(a, b, c); leave out `arity=` to compare pairs"
        )
    return app


def compares_singly(app: Application, arity: int) -> bool:
    """Whether the application compares one pair at a time, or one triple."""
    return compares_pairs(app) if arity == 2 else not _compares_triple_blocks(app)


def block_comparison(app: Application, arity: int) -> Callable[..., Any]:
    """Return what compares two or three groups of items; the application does not compare singly."""
    return app.compare_triples if arity == 3 and defines(app, "compare_triples") else app.compare


def single_hook(arity: int) -> str:
    """Return the name of the method that compares two or three items."""
    return "compare_pair" if arity == 2 else "compare_triple"


def _compares_triple_blocks(app: Application) -> bool:
    if defines(app, "compare_triples"):
        return True
    return defines(app, "compare") and _takes(app.compare, 4) and not _takes(app.compare, 3)


def _takes(function: Callable[..., Any], n_arguments: int) -> bool:
    """Whether a function can be called with so many arguments, as far as it says."""
    try:
        inspect.signature(function).bind(*range(n_arguments))
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        return True
    return True


def splitter(app: Application) -> Callable[[str, bytes], Sequence[bytes] | Mapping[str, bytes] | None] | None:
    """Return how an application splits files into items; None where a file is an item."""
    return app.split if defines(app, "split") else None


def stored_once(app: Application) -> bool:
    """Whether the scores of (i, j) are all those of (j, i), so that one of the two is stored."""
    return app.symmetric and not app.directed


def directed_outputs(app: Application) -> list[str]:
    """Return the directed outputs of an application.

    Raises
    ------
    ConfigError
        If one is not an output, or the application is not symmetric anyway.
    """
    from tartan.errors import ConfigError

    unknown = [name for name in app.directed if name not in output_dtypes(app)]
    if unknown:
        raise ConfigError(f"{type(app).__name__}.directed names {unknown[0]!r}, which is not an output of it")
    if app.directed and not app.symmetric:
        raise ConfigError(f"{type(app).__name__} is not symmetric: all its outputs are directed; leave directed out")
    return list(app.directed)


def analysed_output(app: Application) -> str | None:
    """Return the output that analyses of an application take where none is named; None: the first.

    Raises
    ------
    ConfigError
        If it is not an output, or has a direction.
    """
    from tartan.errors import ConfigError

    name = app.analysed
    if name is not None and (name not in output_dtypes(app) or name in app.directed):
        kind = "which has a direction" if name in app.directed else "which is not an output of it"
        raise ConfigError(f"{type(app).__name__}.analysed names {name!r}, {kind}")
    return name


def wraps_function(app: Application) -> bool:
    """Whether the application is a plain function."""
    return isinstance(app, _FunctionApplication)


def compares_pairs(app: Application) -> bool:
    """Whether the application compares one pair at a time."""
    return defines(app, "compare_pair")


def prepares_blocks(app: Application) -> bool:
    """Whether the application prepares a block of items at once."""
    return defines(app, "preprocess_block")


def preprocesses(app: Application) -> bool:
    """Whether the application has anything to preprocess."""
    return type(app).preprocess is not Application.preprocess or prepares_blocks(app)


def defines(app: Application, hook: str) -> bool:
    """Whether an application has an optional method of its own."""
    found = getattr(app, hook, None)
    return callable(found) and getattr(found, "__func__", found) is not getattr(Application, hook)


def _read_outputs(given: Any, example: str) -> Mapping[str, Any]:
    """Read a mapping, one name, or names in an order, alone or with their dtypes; float32 where none is named."""
    from tartan.errors import ConfigError

    if isinstance(given, Mapping):
        return given
    listed = [given] if isinstance(given, str) else list(given) if isinstance(given, Sequence) else None
    if listed is None:
        raise ConfigError(f"outputs in a {type(given).__name__} have no order: {example}")
    pairs = [(one, np.float32) if isinstance(one, str) else one for one in listed]
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise ConfigError(f"outputs {listed!r} are not understood: {example}")
    names = [str(name) for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ConfigError(f"an output is named twice in {names}: {example}")
    return dict(pairs)


def output_dtypes(app: Application) -> dict[str, np.dtype[Any]]:
    """Return the named outputs of an application with their dtypes, in order.

    Raises
    ------
    ConfigError
        If there is none, or one is not a number.
    """
    from tartan.errors import ConfigError

    example = f"{type(app).__name__}.outputs names each score with its dtype, such as {{'scores': 'float32'}}"
    outputs = _read_outputs(app.outputs, example)
    if not outputs:
        raise ConfigError(f"there is no output: {example}")
    dtypes = {}
    for name, dtype in outputs.items():
        try:
            dtypes[str(name)] = np.dtype(dtype).newbyteorder("=")  # how it is stored is not the application's business
        except TypeError as error:
            raise ConfigError(f"output {name!r}: {error}; {example}") from None
        if dtypes[str(name)].kind not in "biufc":
            raise ConfigError(f"output {name!r} of dtype {dtypes[str(name)]} is not a number; {example}")
        if dtypes[str(name)].char in "gG":
            raise ConfigError(
                f"output {name!r} of dtype {dtypes[str(name)]} differs from machine to machine; {example}"
            )
    return dtypes
