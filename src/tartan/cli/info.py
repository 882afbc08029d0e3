"""``tartan info``: what a run is, how far it is, and what it cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tartan.base.format import clip_middle, format_duration, format_rate, pluralize
from tartan.base.lock import is_held, list_living_writers
from tartan.base.progress import Snapshot
from tartan.cli.shared.matrix import add_names
from tartan.cli.shared.options import add_at
from tartan.cli.shared.output import (
    MAX_LISTED,
    describe_parts,
    describe_run,
    describe_version,
    list_failures,
    n_left,
    print_json,
    print_table,
    say_left_out,
    unit_of,
)

if TYPE_CHECKING:
    from tartan.store.maps import StoredMap

# _MOST_FAILURES and _LONGEST_REASON, by judgement: what fits a screen.
_MOST_FAILURES = 5
# By judgement: a line or two.
_LONGEST_REASON = 300


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="all that is known: loads and their factors, bytes, seconds, sizes"
    )
    add_names(parser)
    add_at(parser)
    parser.add_argument(
        "--why-slow",
        action="store_true",
        help="ten lines: where the time of what compares went",
    )


def execute(args: argparse.Namespace) -> int:
    """Show it; return the exit status."""
    import tartan
    from tartan.cli.shared.maps import about_map, read_kept_map
    from tartan.result.shown_run import show_run
    from tartan.result.statistics import RANK_TIMES

    run = show_run(tartan.open(args.run, args.at), args.names)
    if args.why_slow:
        return _say_why_slow(run, as_json=args.json)
    about, parts = describe_standing(run) | describe_run(run), []
    if not args.json:
        about.pop(RANK_TIMES, None)
    if (version := describe_version(run)) is not None:
        about = {"version": version} | about
    about["call_shape"] = _call_shape(run.manifest)
    if unit_of(run) == "triples":
        about["keeps"] = run.folder.kept
    else:
        found = read_kept_map(run)
        if args.json or args.verbose:  # how well it fits takes the analytics, which take a while to import
            about["map"] = None if found is None else about_map(run, found)
        elif found is not None:
            about["map"] = _name_map(found)
        parts = describe_parts(run)
    if args.json:
        print_json(about | {"failures": _failures(run)} | ({"parts": parts} if parts else {}))
    else:
        named = {each["part"]: _part(each) for each in parts}
        shown = rows(about | ({"parts": named} if parts else {})) if args.verbose else _summarize(run, about, named)
        failed = ((f"  {who}", clip_middle(why, _LONGEST_REASON)) for who, why in list_failures(run, _MOST_FAILURES))
        print_table([*shown, *([("failures", ""), *failed] if run.failures else [])])
    return 0


def _say_why_slow(run: Any, *, as_json: bool) -> int:
    """Say where the time of the run went."""
    from tartan.result.why_slow import explain_slowness

    unit, changed = unit_of(run), run.folder.version is not None
    counted = {name.replace(unit, "pairs"): value for name, value in run.stats.items()}
    found = explain_slowness(counted, None if changed else getattr(run, f"n_{unit}_done"), str(run.path))
    if as_json:
        print_json(found.as_dict())
    else:
        print_table(found.lines())
    return 0


def _summarize(run: Any, about: Mapping[str, Any], parts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what is asked for first: how far it is, of what, at what price; ten lines, and one for each part."""
    from tartan.result.statistics import describe_stages

    unit, keeps = unit_of(run), about.get("keeps") or run.manifest.reduce
    done, total = about[f"n_{unit}_done"], about[f"n_{unit}"]
    yield f"{unit} done", f"{done:,} of {total:,} ({Snapshot(done, total).percent})"
    yield "state", _say_state(run, about)
    yield from ((f"  part {part}", said) for part, said in parts.items())
    given = ", ".join(f"{name}={value}" for name, value in about["parameters"].items() if value is not None)
    yield "application", f"{about['application']}: {given}" if given else str(about["application"])
    yield "items", f"{run.n_items:,}" + (f"; left out: {about['left_out']}" if about["left_out"] else "")
    n_items, n_failed = about["n_failed_items"], about[f"n_failed_{unit}"]
    yield "failed", f"{pluralize(n_items, 'item')}, {pluralize(n_failed, unit[:-1])}" if n_items or n_failed else "none"
    if about["wall_seconds"]:
        computed = about.get(f"{unit}_computed") or done
        ranks = f" on {about['n_ranks']} ranks" if about.get("n_ranks") else ""
        speed = format_rate(computed / about["wall_seconds"], unit)
        yield "time", f"{format_duration(about['wall_seconds'])}{ranks}, {speed}"
    if (stages := describe_stages(about)) is not None:
        yield "stages", stages
    if run.manifest.notes:
        yield "notes", "; ".join(run.manifest.notes)
    if keeps:
        rule = {} if isinstance(keeps, str) else dict(keeps)  # of triples it is said in words
        yield "keeps", ", ".join(f"{name}={value}" for name, value in rule.items() if value is not None) or str(keeps)
    if about.get("map") is not None:
        yield "map", about["map"]
    version = f"; version {about['version']}" if about.get("version") else ""
    yield "created", f"{about['created']}{version}"
    yield "folder", about["path"]


def _name_map(found: StoredMap) -> str:
    n_placed = int((found.points == found.points).all(axis=1).sum())  # others are NaN
    return f"{found.method} in {found.points.shape[1]} dimensions, of {n_placed:,} items"


def _say_state(run: Any, about: Mapping[str, Any]) -> str:
    """Say whether a run is finished, and what there is to do where it is not."""
    if about["state"] == "running":
        left = about["seconds_left"]
        return "running" if left is None else f"running, {format_duration(left)} left"
    if about["state"] == "finished":
        return "finished"
    why = f" ({clip_middle(about['stopped'], _LONGEST_REASON)})" if about["stopped"] else ""
    from tartan.store.lacking import say_way_on

    return f"unfinished{why}; {say_way_on(run.folder, 'the rest')}"


def _failures(run: Any) -> list[dict[str, Any]]:
    """Return the first failures, as many as commands list."""
    return [
        {
            "kind": failure.kind,
            "items": [run.keys[end] for end in (failure.i, failure.j, failure.k) if end is not None],
            "stage": failure.stage,
            "reason": failure.reason,
        }
        for failure in run.failures[:MAX_LISTED]
    ]


def _call_shape(manifest: Any) -> str:
    """Name the largest call of compare: items of each side."""
    most = [min(int(manifest.grid[name]), manifest.chunk, manifest.n_items) for name in ("strip", "span")]
    return " x ".join(f"{side:,}" for side in [most[0]] * (manifest.arity - 1) + most[1:])


def _part(about: Mapping[str, Any]) -> str:
    """Say in words how far a part is."""
    done = about["n_pairs"] - about["n_pairs_left"]
    where = f" (process {about['pid']} on {about['host']})" if about["pid"] is not None else ""
    return f"{about['state']}: {done:,} of {about['n_pairs']:,} pairs{where}"


def describe_standing(run: Any) -> dict[str, Any]:
    """Return how a run stands: state, application, parameters, date, and the seconds left while it is computed.

    Returns
    -------
    dict
        ``state`` is "finished", "running" or "unfinished"; ``stopped`` is why the last execution ended before the run
        did, None where it did not; ``seconds_left`` is an estimate by the speed so far, None
        unless the run is running and has computed something.
    """
    application, left = run.manifest.application, n_left(run)
    running = left > 0 and is_held(run.path)
    return {
        "state": "running" if running else "unfinished" if left else "finished",
        "stopped": run.stats.get("stopped"),
        "application": application.get("name"),
        "parameters": application.get("parameters") or {},
        "created": run.manifest.created,
        "notes": run.manifest.notes or None,
        "left_out": say_left_out(run) or None,
        "seconds_left": _seconds_left(run, left) if running else None,
    }


def _seconds_left(run: Any, left: int) -> float | None:
    """Estimate the time that a run takes to its end, from its speed so far and the processes that compute it."""
    stats = run.stats
    computed, n_writers = stats.get(f"{unit_of(run)}_computed", 0), max(1, len(list_living_writers(run.path)))
    return left * stats["wall_seconds"] / computed / n_writers if computed else None


def rows(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and values for people, nested ones indented; what is not known is left out."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            yield _title(name), ""
            for part, amount in value.items():
                if isinstance(amount, Mapping):
                    yield f"  {_title(part)}", ""
                    yield from ((f"    {_title(one)}", _cost(one, of_it)) for one, of_it in amount.items())
                elif amount is not None:
                    yield f"  {_title(part)}", _value(name, amount)
        elif value is not None and value != "":
            yield _title(name), _value(name, value)


def _cost(name: str, value: Any) -> str:
    """Write what one step costs, which may be far below a second."""
    return f"{value:.3g} s" if name.endswith("_seconds") else _value(name, value)


def _title(name: str) -> str:
    if name == "seconds_left":
        return "time left (h:mm:ss)"
    words = str(name).removeprefix("n_").replace("_", " ")
    return words.removesuffix(" seconds")


def _value(name: str, value: Any) -> str:
    """Write a value in the one unit that its kind always has, so that two runs can be compared line by line."""
    if isinstance(value, list | tuple):
        return ("; " if name == "notes" else ", ").join("none" if one is None else _value(name, one) for one in value)
    if isinstance(value, bool | str) or not isinstance(value, int | float):
        return str(value)
    if name == "seconds_left":
        return f"{value // 3600:.0f}:{value // 60 % 60:02.0f}:{value % 60:02.0f}"
    if "seconds" in name:
        return f"{value:,.3f} s"
    if "bytes" in name:
        return f"{value / 1e6:,.1f} MB"
    if name.endswith("efficiency"):
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
