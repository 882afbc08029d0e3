"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tartan.errors import ConfigError
from tartan.options import ExecutionOptions, PairOptions, Size, parse_size

_SETTING = re.compile(r"([A-Za-z_][\w-]*)=(.*)", re.DOTALL)
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(s|min|h|d|)", re.ASCII)
_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
# By judgement: nobody waits longer for a queue; beyond it waits of the system overflow. No benchmark.
MOST_WAIT_SECONDS = 365 * 86_400.0
_DEVICE = re.compile(r"cpu|cuda(:\d+)?|sim(:\d+|:\w+=.*)?")
_WORDS = {"true": True, "false": False, "none": None}


def add_execution_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``run``, ``resume`` and ``add`` that change how, never what is computed."""
    add = parser.add_argument
    add(
        "--host-cache",
        type=size,
        metavar="SIZE",
        help="room for items in memory, besides all else: 500MB, 500MiB, 60items",
    )
    add("--device-cache", type=size, metavar="SIZE", help="room for items on a device")
    add("--disk-cache", type=size, metavar="SIZE", help="keep parsed items in the run folder, up to SIZE")
    add(
        "--cache-at",
        metavar="FOLDER",
        help="keep them in FOLDER, on a local disk of each rank, up to --disk-cache or half of what is free",
    )
    add("--workers", type=positive_int, metavar="N", help="threads or processes; default: all cores")
    add("--order", choices=("panel", "quadrant"), help="order in which pairs are visited; default: panel")
    add(
        "--device",
        type=devices,
        action="extend",
        metavar="NAME",
        help="cpu, cuda, cuda:1 or sim; repeat it or separate by commas for several; default: cpu",
    )
    add("--on-error", choices=("skip", "raise"), help="record a failed item or pair and continue (skip), or stop")
    add("--max-failures", type=count, metavar="N", help="stop when more than N items and pairs have failed")
    add(
        "--tile-timeout",
        type=not_negative_float,
        metavar="SECONDS",
        help="longest time one call of compare may take, 0: any; default: any, but on several ranks with worker "
        "processes ten times the longest call that ended, at least 15 minutes",
    )
    add(
        "--verify",
        action="store_true",
        default=None,
        help="where the run exists: read all items again, and check that their bytes are those of its scores",
    )
    add(
        "--keep-all",
        action="store_true",
        default=None,
        help="keep all that is beyond the threshold, although it may fill the disk or take more than the matrix",
    )
    add("--trace", action="store_true", default=None, help="write trace.json for Perfetto or chrome://tracing")
    add("--on", metavar="WHERE", help="compute on several ranks, at local:4 or tls://host:port of a Dask scheduler")
    add("--scheduler-file", metavar="FILE", help="the file that `dask scheduler --scheduler-file` wrote")
    add("--insecure", action="store_true", default=None, help="accept a cluster whose connections are not encrypted")
    add("--rank-timeout", type=positive_float, metavar="SECONDS", help="a rank silent for longer is lost; default: 15")
    add(
        "--wait",
        type=time_span,
        metavar="TIME",
        help="wait so long for the first rank, and for another where all are lost: 90, 30min, 12h; default: 60 s",
    )
    add(
        "--stages",
        metavar="WHERE",
        help="which stages run on workers with the resource storage=1, which read files for the others: "
        "storage:parse,preprocess, compute (none), or auto, the default: what makes the run fastest",
    )
    add(
        "--parse-at",
        choices=("storage", "compute", "auto"),
        help="older words for --stages: all stages beside the data, none, or auto",
    )
    add("-q", "--quiet", action="store_true", help="no progress and no summary")
    add(
        "-v",
        "--verbose",
        action="store_true",
        default=None,
        help="also how often items were loaded (R: loads of an item, F: fills of its slots in memory)",
    )


def add_trust(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--trust``, for commands that do with a run folder what takes the consent of its user."""
    parser.add_argument(
        "--trust", action="store_true", help=f"{what}, although the folder was not made by this user on this machine"
    )


def add_at(parser: argparse.ArgumentParser) -> None:
    """Add ``--at``, for commands that read a run."""
    parser.add_argument(
        "--at", type=positive_int, metavar="N", help="read version N of the run (tartan log); default: the newest"
    )


def add_previous(parser: argparse.ArgumentParser) -> None:
    """Add ``--inputs``, for commands that load the items of a run again."""
    parser.add_argument(
        "--inputs",
        dest="previous",
        metavar="INPUT",
        nargs="+",
        help="where the items of the run are now, if they were moved: files, folders, globs, @FILE; they are found by "
        "their names, and must be what they were",
    )


def execution_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments for the Python interface: only what was given, and whether to be quiet."""
    given = {name: value for name in PairOptions.__annotations__ if (value := getattr(args, name)) is not None}
    if args.scheduler_file is not None:
        from tartan.cluster.launch import parse_cluster

        given["on"] = parse_cluster(args.on, scheduler_file=args.scheduler_file, insecure=bool(args.insecure))
    return given


def options_of_pairs() -> list[str]:
    """Return the names of the options of execution that runs of triples do not have."""
    return [name for name in PairOptions.__annotations__ if name not in ExecutionOptions.__annotations__]


def add_settings(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--set name=value ...``."""
    parser.add_argument(
        "--set",
        dest="settings",
        type=_read_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"{what}; several may follow, or repeat it",
    )


def read_setting_texts(args: argparse.Namespace) -> dict[str, str]:
    """Return the settings of ``--set`` as text, by name; the last one counts."""
    return dict(args.settings)


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of ``--set``: numbers, true, false and none as such, everything else as text."""
    return {name: _value(text) for name, text in args.settings}


def separate_settings(words: Sequence[str]) -> list[str]:
    """Write ``--set a=1 b=2`` as ``--set a=1 --set b=2``: argparse would take what follows, whatever it is."""
    separated: list[str] = []
    inside = False
    for position, word in enumerate(words):
        if word == "--":
            return separated + list(words[position:])
        follows = inside and _SETTING.fullmatch(word) is not None and words[position - 1] != "--set"
        separated += ["--set", word] if follows else [word]
        inside = word == "--set" or (inside and _SETTING.fullmatch(word) is not None)
    return separated


def _read_setting(text: str) -> tuple[str, str]:
    match = _SETTING.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    return match.group(1).replace("-", "_"), match.group(2)


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def size(text: str) -> Size:
    """Read a size for argparse."""
    try:
        return parse_size(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("size: ")) from error


def time_span(text: str) -> float:
    """Read a length of time for argparse; return seconds."""
    match = _TIME.fullmatch(text.strip().lower())
    if match is None or not 0 < float(match[1]) * _UNITS[match[2]] <= MOST_WAIT_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0, up to 365 days; write 90, 90s, 30min or 12h")
    return float(match[1]) * _UNITS[match[2]]


def devices(text: str) -> list[str]:
    """Read the names of devices, for argparse."""
    # The options of a simulated device are separated by commas too: it is given alone.
    names = [text.strip()] if "=" in text else [name.strip() for name in text.split(",")]
    for name in names:
        if _DEVICE.fullmatch(name) is None:
            raise argparse.ArgumentTypeError(f"{name!r} is not a device; write cpu, cuda, cuda:1 or sim")
    return names


def _number(convert: Callable[[str], Any], least: float, what: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            value = convert(text)
        except ValueError:
            value = None
        if value is None or not value >= least:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value

    return read


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


positive_int = _number(int, 1, "a whole number above zero")
count = _number(int, 0, "a whole number, zero or more")
positive_float = _number(float, 1e-9, "a number above zero")
not_negative_float = _number(_finite, 0, "a number, zero or more")
finite_float = _number(_finite, -sys.float_info.max, "a finite number")
