"""What commands print: JSON objects, tables, summaries of runs and their failures."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tartan.base.format import clip_middle, format_count, format_duration, format_rate, in_one_line, printable
from tartan.base.notices import RunNotice

# By judgement: a screen; --json has all.
MAX_LISTED = 20
# By judgement: some screens; a bound on what a dependency's error can print.
LONGEST_MESSAGE = 20_000

# What ``info --json`` always has, also for a run that was killed before it wrote its statistics.
STATISTICS = (
    "n_failed_items", "n_failed_pairs", "loads", "load_factor", "load_factor_bound", "bytes_per_level",
    "seconds_per_stage", "wall_seconds", "system_efficiency",
)  # fmt: skip


def say(text: object) -> None:
    """Print a message on stderr."""
    print(printable(clip_middle(str(text), LONGEST_MESSAGE)), file=sys.stderr)


@contextlib.contextmanager
def say_notices() -> Iterator[None]:
    """Say notices of runs as messages of the command line; all other warnings stay as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", RunNotice)
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, RunNotice):
                say(f"tartan: warning: {message}")
            else:
                shown(message, category, *place, **more)

        warnings.showwarning = show
        yield


def put(text: object, *, n_dim: int = 0) -> None:
    """Print text on stdout: to a terminal, or to a pipe that may end in one; the first characters of lines dim."""
    shown = printable(str(text))
    if n_dim:
        shown = "\n".join(f"\x1b[2m{line[:n_dim]}\x1b[0m{line[n_dim:]}" for line in shown.split("\n"))
    print(shown)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout; what JSON cannot say (NaN, infinity) becomes null."""
    put(json.dumps(_plain(value), indent=1))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # arrays and their scalars
        value = value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def print_table(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values on stdout, aligned."""
    listed = [(in_one_line(name), in_one_line(value)) for name, value in rows]
    width = max((len(name) for name, _ in listed), default=0)
    lines = (f"{name:{width}}  {value}".rstrip() for name, value in listed)
    put("\n".join(lines), n_dim=width if _has_styles() else 0)


def _has_styles() -> bool:
    """Whether stdout is a terminal on which text may have a style; NO_COLOR is obeyed (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def describe_run(run: Any) -> dict[str, Any]:
    """Return everything that ``info --json`` says of a run."""
    from tartan.result.statistics import joules_per_million

    failures, unit = run.failures, unit_of(run)
    counted = {
        "n_failed_items": sum(failure.kind == "item" for failure in failures),
        f"n_failed_{unit}": sum(failure.kind != "item" for failure in failures),
    }
    named = (name.replace("pairs", unit) for name in STATISTICS)
    stats = dict(run.stats)
    energy = {
        f"joules_per_million_{unit}": joules_per_million(stats),
        "energy_unknown": (stats.pop("energy", None) or {}).get("unknown"),
    }
    about: dict[str, Any] = dict.fromkeys(named) | counted | stats | energy
    return {
        "path": str(run.path),
        **about,
        "n_items": run.n_items,
        f"n_{unit}": getattr(run, f"n_{unit}"),
        f"n_{unit}_done": getattr(run, f"n_{unit}_done"),
    }


def unit_of(run: Any) -> str:
    """Return what a run compares: "pairs" or "triples"."""
    return "triples" if hasattr(run, "n_triples") else "pairs"


def n_left(run: Any) -> int:
    """Return how many pairs or triples are still to be compared."""
    return int(getattr(run, f"n_{unit_of(run)}_left"))


def describe_version(run: Any) -> str | None:
    """Return which version of a run is read, in words; None where nothing was ever changed and none is asked for."""
    version = run.folder.version
    if version is None:
        return None
    last = run.versions[-1].number
    return f"{version.number:,} of {last:,}" + (f", {version.time}" if version.time else "")


def say_version(run: Any, *, quiet: bool = False) -> None:
    """Say which version is read, where that is not the newest."""
    version = run.folder.version
    if version is not None and not version.newest and not quiet:
        say(f"tartan: version {describe_version(run)}")


def say_notes(run: Any, *, quiet: bool = False) -> None:
    """Say what the application noted of the files of a run."""
    for note in () if quiet else run.manifest.notes:
        say(f"tartan: {note}")


def describe_parts(run: Any) -> list[dict[str, Any]]:
    """Return what JSON objects say of the parts of a run that is computed in parts; empty for others."""
    return [
        {
            "part": each.part,
            "state": each.state,
            "n_pairs": each.n_pairs,
            "n_pairs_left": each.n_pairs_left,
            "host": each.host,
            "pid": each.pid,
        }
        for each in run.parts
    ]


def summary(about: Mapping[str, Any], *, verbose: bool = False) -> str:
    """Write what a run did in one or two lines, on request with how often it loaded items."""
    unit = "triples" if "n_triples" in about else "pairs"
    done = about[f"n_{unit}_done"]
    text = f"{done:,} of {about[f'n_{unit}']:,} {unit} of {about['n_items']:,} items"
    seconds = about.get("wall_seconds")
    if seconds:
        text += f" in {format_duration(seconds)} ({format_rate(done / seconds, unit)})"
    if verbose and about.get("load_factor") is not None:
        loads = f"{format_count(about['loads'])} loads, R"
        if about.get("storage_load_factor") is not None:
            loads = f"R {_factor(about, 'storage_load_factor')}, F"
        text += f"; {loads} {_factor(about, 'load_factor')}"
    if about.get("n_ranks"):
        text += f"; {about['n_ranks']} ranks"
        text += f", {about['ranks_lost']} lost" if about.get("ranks_lost") else ""
    return f"{text}; result in {about['path']}"


def _factor(about: Mapping[str, Any], name: str) -> str:
    """Write a load factor, and its bound where that is known."""
    bound = about.get(f"{name}_bound")
    return f"{about[name]:.2f}" + (f" (bound {bound:.2f})" if bound is not None else "")


def warn_unfinished(run: Any) -> None:
    """Warn where a run is not finished: what is made of it lacks scores."""
    left, unit = n_left(run), unit_of(run)
    if left:
        from tartan.store.lacking import say_way_on

        say(
            f"tartan: warning: {run.path} is not finished: {left:,} of {getattr(run, f'n_{unit}'):,} {unit} are "
            f"missing here; {say_way_on(run.folder)}"
        )


def conclude(run: Any, args: argparse.Namespace, *, finished_before: bool = False, **more: Any) -> int:
    """Print what a run did, list what failed, and return the exit status.

    Parameters
    ----------
    run : Run
        What the Python interface returned.
    args : namespace
        With ``quiet``, ``verbose`` and ``json``.
    finished_before : bool
        Whether there was nothing to do.
    **more
        What the JSON object says besides.
    """
    need = getattr(run, "memory_need", None)
    about = describe_run(run) | {"memory_need": None if need is None else need.as_dict()} | more
    if run.failures:
        say(f"tartan: {len(run.failures):,} failed:")
    for who, why in list_failures(run, MAX_LISTED):
        say(f"  {who} {why}")
    if any(failure.kind == "item" for failure in run.failures) and not args.quiet:
        from tartan.store.lacking import name_command_to_mend

        say(f"tartan: mend failed items in place, and {name_command_to_mend(run.folder)} computes their {unit_of(run)}")
    unread = say_left_out(run)
    if unread and not args.quiet:
        say(f"tartan: left out: {unread}")
    if finished_before:
        say(f"tartan: {about['path']} is finished already; nothing to do")
    if not args.quiet:
        say(summary(about, verbose=bool(args.verbose)))
    if args.json:
        print_json(about)
    return 3 if run.failures else 0


def say_left_out(run: Any) -> str:
    """Say which files the folders that were given to a run have left out."""
    from tartan.sources.left_out import describe_left_out
    from tartan.store.manifest import leaves

    return describe_left_out(leaves(run.manifest.inputs))


class _Names:
    """The keys of items, of A x B with the side where it is the second."""

    def __init__(self, run: Any) -> None:
        self._keys = run.keys
        self._n_left = run.manifest.workload.get("n_left", run.n_items)

    def __getitem__(self, item: int) -> str:
        return str(self._keys[item]) + (" (second set)" if item >= self._n_left else "")


def list_failures(run: Any, most: int) -> list[tuple[str, str]]:
    """Return the first failures of a run, each with stage and reason, and where the others are."""
    listed = run.failures[:most]
    if not listed:
        return []
    keys = _Names(run)
    found = [(in_one_line(_who(failure, keys)), f"[{failure.stage}] {failure.reason}") for failure in listed]
    if len(run.failures) > most:
        found.append((f"and {len(run.failures) - most:,} more", f"in {run.path / _say_kept_in(run)}"))
    return found


def _say_kept_in(run: Any) -> str:
    """Return which file has all failures; while a run lasts, and after a kill, the newest are in the log."""
    from tartan.store.failures import FILE_NAME, LOG_NAME

    there = [name for name in (FILE_NAME, LOG_NAME) if (run.path / name).exists()]
    return " and ".join(there or [FILE_NAME])


def _who(failure: Any, keys: _Names) -> str:
    if failure.j is None:
        return f"item {keys[failure.i]}"
    ends = [keys[end] for end in (failure.i, failure.j, failure.k) if end is not None]
    return f"{failure.kind} {', '.join(ends)}"
