"""Define the options of a run, each once: how it is called and described, what it may be, and its default."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_type_hints

from tartan.base.checks import NOT_NEGATIVE, check_one_of, number, whole
from tartan.base.signatures import Checked
from tartan.errors import ConfigError

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


@dataclass(frozen=True)
class Size:
    """Room in a cache level: a number of bytes, or of slots for items if ``in_items``."""

    amount: int
    in_items: bool = False

    def __str__(self) -> str:
        return f"{self.amount}items" if self.in_items else f"{self.amount}B"


def parse_size(text: str | int | Size, *, option: str = "size") -> Size:
    """Read a size such as ``500MB`` (10^6), ``500MiB`` (2^20) or ``60items``.

    Parameters
    ----------
    text : str, int or Size
        A plain number counts bytes.
    option : str
        Name of the option, for the error message.

    Raises
    ------
    ConfigError
        If the text is not a size, or the size is not positive.
    """
    if isinstance(text, Size):
        return text
    match = _SIZE.fullmatch(str(text))
    unit = match.group(2).lower() if match else ""
    if match is None or (unit not in _UNITS and unit not in ("item", "items")):
        raise ConfigError(
            f"{option}: {text!r} is not a size; write 500MB, 500MiB, 2GB or 60items",
            context={"option": option, "value": str(text)},
        )
    in_items = unit.startswith("item")
    amount = int(float(match.group(1)) * (1 if in_items else _UNITS[unit]))
    if amount <= 0:
        raise ConfigError(f"{option}: {text!r} must be more than zero", context={"option": option})
    return Size(amount, in_items)


def parse_bytes(text: str | int | Size, *, option: str = "size") -> int:
    """Read a size that must not count items.

    Raises
    ------
    ConfigError
        If the text is not a size, or counts items.
    """
    size = parse_size(text, option=option)
    if size.in_items:
        raise ConfigError(f"{option}: {text} counts items; write bytes, such as 2GB", context={"option": option})
    return size.amount


Order = Literal["panel", "quadrant"]
OnError = Literal["skip", "raise"]


class ExecutionOptions(TypedDict, total=False):
    """How a run is executed, of pairs or of triples; None stands for the default. No option changes a score.

    Attributes
    ----------
    host_cache : str or int, optional
        Room for items in memory: "500MB", "500MiB", "60items", or bytes; default: a share of what is free.
    disk_cache : str or int, optional
        Room for parsed items in the run folder; default: none are kept.
    cache_at : path, optional
        Keep them in this folder instead, which should be on a local disk of each process that computes; up to
        ``disk_cache``, default: half of what is free there.
    workers : int, optional
        Threads or processes; default: all cores.
    device : str or sequence of str, optional
        "cpu" (default), "cuda", "cuda:1", "sim"; triples are compared on the CPU.
    on_error : {"skip", "raise"}, optional
        Record failed items and pairs and continue (default), or stop at the first.
    max_failures : int, optional
        Failed items and pairs after which the run stops.
    tile_timeout : float, optional
        Seconds that one compare call may take; 0: any number. Default: any number, but on several ranks whose workers
        are processes ten times what the longest call that ended has taken, and at least 15 minutes.
    verify : bool, optional
        Where the run exists, compare the bytes of all items with those that it has scores of, also where size, times
        and inode of files say that they are the same.
    keep_all : bool, optional
        Keep all pairs beyond a threshold, also where they would take more than the free disk or the whole matrix.
    trace : bool, optional
        Write ``trace.json`` for Perfetto.
    quiet : bool, optional
        Without progress on stderr. Default: progress where stderr is a terminal or belongs to a notebook.
    verbose : bool, optional
        With the loads of an item (R) and, on several ranks, the fills of its slots (F) in the progress.
    """

    host_cache: str | int | Size | None
    disk_cache: str | int | Size | None
    cache_at: str | Path | None
    workers: int | None
    device: str | Sequence[str] | None
    on_error: str | None
    max_failures: int | None
    tile_timeout: float | None
    verify: bool | None
    keep_all: bool | None
    trace: bool | None
    quiet: bool | None
    verbose: bool | None


class PairOptions(ExecutionOptions, total=False):
    """How a run of pairs is executed.

    Attributes
    ----------
    device_cache : str or int, optional
        Room for items on a device, as ``host_cache``.
    order : {"panel", "quadrant"}, optional
        Order in which pairs are visited; default: "panel".
    on : str or distributed.Client, optional
        Compute on several processes that work together: "local:4" starts four on this machine, "tls://host:port" is
        the address of a Dask scheduler, a ``distributed.Client`` is connected to one. Needs the extra cluster. With
        ``host_cache`` and ``workers`` as given, or a share of the machine, for each of them.
    insecure : bool, optional
        Accept a cluster whose connections beyond this machine are not encrypted.
    rank_timeout : float, optional
        Seconds after which a silent process of a cluster counts as lost; default: 15.
    wait : float, optional
        Seconds to wait for the first process of a cluster, and for another where all are lost; default: 60.
    stages : str, optional
        Which stages run on Dask workers with the resource "storage", which read files for the others:
        "storage:parse,preprocess" names them, "compute" leaves all with the ranks that compute. Default: "auto",
        whichever makes the run fastest by what items and stages take.
    parse_at : {"storage", "compute", "auto"}, optional
        The same in older words: all stages there, none, or "auto".
    """

    device_cache: str | int | Size | None
    order: str | None
    on: Any
    insecure: bool | None
    rank_timeout: float | None
    wait: float | None
    stages: str | None
    parse_at: str | None


def _size(name: str, value: Any, *, option: str) -> Size:
    return parse_size(value, option=option)


def _folder(name: str, value: Any, *, option: str) -> str:
    if not os.fspath(value):
        raise ConfigError(f"{name} is empty; name a folder on a local disk", context={"option": option})
    return str(Path(value).absolute())


def _devices(name: str, value: Any, *, option: str) -> tuple[str, ...]:
    devices = (value,) if isinstance(value, str) else tuple(value)
    if not devices:
        raise ConfigError(f"{name}: no device is named; choose cpu, cuda or sim", context={"option": option})
    return devices


def _is_unwatched() -> bool:
    from tartan.base.progress import is_watched

    return not is_watched()


@dataclass(frozen=True)
class RunOptions:
    """Options of a call as they are understood, with their defaults; ``tile`` is fixed by the manifest.

    The others are described by ``ExecutionOptions`` and ``PairOptions``. None leaves the choice to the plan.
    """

    host_cache: Annotated[Size | None, Checked(_size)] = None
    device_cache: Annotated[Size | None, Checked(_size)] = None
    tile: Annotated[int | None, Checked(whole, 1)] = None
    workers: Annotated[int | None, Checked(whole, 1)] = None
    order: Annotated[Order, Checked(check_one_of, ("panel", "quadrant"))] = "panel"
    device: Annotated[tuple[str, ...], Checked(_devices)] = ("cpu",)
    on_error: Annotated[OnError, Checked(check_one_of, ("skip", "raise"))] = "skip"
    max_failures: Annotated[int | None, Checked(whole, 0)] = None
    tile_timeout: Annotated[float | None, Checked(number, NOT_NEGATIVE)] = None
    verify: bool = False
    trace: bool = False
    quiet: bool = field(default_factory=_is_unwatched)
    disk_cache: Annotated[Size | None, Checked(_size)] = None
    cache_at: Annotated[str | None, Checked(_folder)] = None
    keep_all: bool = False
    verbose: bool = False


def run_options(given: Mapping[str, Any]) -> RunOptions:
    """Check the options among the arguments of a call; None stands for the default.

    Raises
    ------
    ConfigError
        If one is not understood; the message says what is.
    """
    hints = get_type_hints(RunOptions, include_extras=True)
    asked = {name: given[name] for name in hints if given.get(name) is not None}
    return RunOptions(**{name: _understood(name, hints[name], value) for name, value in asked.items()})


def _understood(name: str, hint: Any, value: Any) -> Any:
    for checked in getattr(hint, "__metadata__", ()):
        value = checked.check(name, value, *checked.limits, option="--" + name.replace("_", "-"))
    return value
