"""What the driver of a sort and its ranks say to each other; plain records, as ``tartan.cluster.wire`` carries them."""

from __future__ import annotations

from dataclasses import dataclass, field

# By arithmetic: keys of at most 65,536 bytes and their numbers, in msgpack, stay below LIMIT_BYTES of cluster/engine.
MOST_KEY_BYTES = 800_000
"""Of the keys in one message."""


@dataclass(frozen=True)
class SortJobText:
    """What a rank must know to begin, as it fetches it from the driver.

    Attributes
    ----------
    sources : tuple of (str, int, int, int, int)
        Path, offset of the records, their bytes, size of the file, time of its last change in nanoseconds.
    part : str
        The file that becomes the destination.
    token : bytes
        What stands behind its end.
    end : int
        Where that is.
    offset : int
        Of the first record in it.
    name : str
        Of the folders of run files.
    folders : tuple of str
        Temporary folders as the user named them; none: the temporary folder of the rank.
    dtype_bytes : int
        Width of a record.
    key : tuple of (int, str, bool)
        As the engine takes it.
    job : str
        What the sort is of, as JSON: the manifest of the folders.
    memory_bytes, threads : int
        Of one rank; 0: half of what it has available, its cores.
    n_sharing : int
        Ranks on this machine.
    pack, direct : str
    fresh : bool
        Whether run files of an earlier attempt are of no use.
    rows : bytes
        How rows become records (``RowsRecipe``); empty where the sources hold records.
    """

    sources: tuple[tuple[str, int, int, int, int], ...]
    part: str
    token: bytes
    end: int
    offset: int
    name: str
    folders: tuple[str, ...]
    dtype_bytes: int
    key: tuple[tuple[int, str, bool], ...]
    job: str
    memory_bytes: int
    threads: int
    n_sharing: int
    pack: str
    direct: str
    fresh: bool = False
    rows: bytes = b""


@dataclass(frozen=True)
class SortHello:
    """A rank has come.

    Attributes
    ----------
    address : str
        Where others fetch pieces of its runs.
    host : str
    pid : int
    memory_bytes : int
        Most memory of the process.
    held_bytes : int
        Memory that it holds before it begins.
    threads : int
    blind : str
        Why it cannot read the sources; empty where it can.
    walled : str
        Why it cannot write the destination; empty where it can.
    storage : bool
    chunk_records : int
        Of the chunks of an earlier attempt, whose run files are there; 0 without any.
    tmp : str
        Where its run files go.
    network : str
        The network file system that this is; empty on a disk of its own.
    """

    address: str
    host: str
    pid: int
    memory_bytes: int
    held_bytes: int
    threads: int
    blind: str = ""
    walled: str = ""
    storage: bool = False
    chunk_records: int = 0
    tmp: str = ""
    network: str = ""


@dataclass(frozen=True)
class SortBegin:
    """How the memory of every rank is divided, and which chunks there are.

    Attributes
    ----------
    n_records, chunk_records : int
    layout : dict of str to int
        Of the engine.
    range_bytes : int
        Of the buffer of a part.
    threads, mergers : int
        Threads of the engine, and parts that a rank merges at a time.
    sample_step : int
    n_parts : int
    """

    n_records: int
    chunk_records: int
    layout: dict[str, int]
    range_bytes: int
    threads: int
    mergers: int
    sample_step: int
    n_parts: int


@dataclass(frozen=True)
class SortHeld:
    """What a rank has found in its folders.

    Attributes
    ----------
    chunks : tuple of int
        Whose runs are there.
    notes : tuple of str
        What is there and is not used.
    free_bytes : int
        Of its disks.
    disk : str
        Tells disks apart: ranks with the same one share it.
    """

    chunks: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    free_bytes: int = 0
    disk: str = ""


@dataclass(frozen=True)
class ChunkList:
    """Chunks to be sorted, sampled or cut."""

    chunks: tuple[int, ...]


@dataclass(frozen=True)
class ChunkDone:
    """A rank keeps the run of a chunk."""

    chunk: int
    stored_bytes: int = 0


@dataclass(frozen=True)
class SampleText:
    """Some keys of a run; the last message about a chunk says so."""

    chunk: int
    step: int
    keys: tuple[bytes, ...]
    last: bool


@dataclass(frozen=True)
class SplitterText:
    """Some splitters; the last message says so."""

    keys: tuple[bytes, ...] = ()
    chunks: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    last: bool = False


@dataclass(frozen=True)
class CutText:
    """Where the run of a chunk is cut by the splitters."""

    chunk: int
    cuts: tuple[int, ...]


@dataclass(frozen=True)
class PartText:
    """A part to be merged.

    Attributes
    ----------
    part, begin : int
    pieces : tuple of (int, str, int, int)
        Chunk, address of the rank that keeps its run, first record, and the one behind the last.
    """

    part: int
    begin: int
    pieces: tuple[tuple[int, str, int, int], ...]


@dataclass(frozen=True)
class PartDone:
    """A part is in its place.

    Attributes
    ----------
    part : int
    records : int
    link_bytes : int
        Bytes of blocks that came from other ranks.
    plain_bytes : int
        Bytes of the records that came from other ranks, as they are in the source.
    """

    part: int
    records: int
    link_bytes: int = 0
    plain_bytes: int = 0


@dataclass(frozen=True)
class PartBack:
    """A part could not be merged.

    Attributes
    ----------
    part : int
        -1: a run turned out to be damaged before that.
    why : str
    damaged : int
        The chunk whose run is damaged; -1: a run could not be fetched.
    """

    part: int
    why: str
    damaged: int = -1


@dataclass(frozen=True)
class GoneText:
    """Ranks that are lost, by their addresses: nothing more comes from them."""

    addresses: tuple[str, ...]


@dataclass(frozen=True)
class SortStop:
    """The sort is over; ``whole``: nothing of it is needed any more."""

    whole: bool
    reason: str = ""


@dataclass(frozen=True)
class SortEnd:
    """The last message of a rank.

    Attributes
    ----------
    error, code : str
        Empty where all went well.
    peak_bytes : int
        Most memory that it has held.
    counts : dict of str to float
        What its engine counted.
    context : dict of str to str
        Of the error.
    """

    error: str = ""
    code: str = ""
    peak_bytes: int = 0
    counts: dict[str, float] = field(default_factory=dict)
    context: dict[str, str] = field(default_factory=dict)
