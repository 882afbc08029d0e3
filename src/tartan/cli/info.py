"""``tartan info``: what a run is, how far it is, and what it cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from tartan.base.lock import is_held
from tartan.cli.shared.output import describe_run, print_json, print_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")


def execute(args: argparse.Namespace) -> int:
    """Show it; return the exit status."""
    import tartan
    from tartan.cli.shared.maps import about_map, kept

    run = tartan.open(args.run)
    found = kept(run)
    about = standing(run) | describe_run(run) | {"map": None if found is None else about_map(run, found)}
    if args.json:
        print_json(about)
    else:
        print_table(rows(about))
    return 0


def standing(run: Any) -> dict[str, Any]:
    """Return how a run stands: state, application, parameters, date, and the seconds left while it is computed.

    Returns
    -------
    dict
        ``state`` is "finished", "running" or "unfinished"; ``seconds_left`` is an estimate by the speed so far, None
        unless the run is running and has computed something.
    """
    application, left = run.manifest.application, run.n_pairs_left
    running = left > 0 and is_held(run.path)
    stats = run.stats if running else {}
    computed = stats.get("pairs_computed", 0)
    return {
        "state": "running" if running else "unfinished" if left else "finished",
        "application": application.get("name"),
        "parameters": application.get("parameters") or {},
        "created": run.manifest.created,
        "seconds_left": left * stats["wall_seconds"] / computed if computed else None,
    }


def rows(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and values for people, nested ones indented; what is not known is left out."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            yield _title(name), ""
            for part, amount in value.items():
                yield f"  {_title(part)}", _value(name, amount)
        elif value is not None and value != "":
            yield _title(name), _value(name, value)


def _title(name: str) -> str:
    if name == "seconds_left":
        return "time left (h:mm:ss)"
    words = str(name).removeprefix("n_").replace("_", " ")
    return words.removesuffix(" seconds")


def _value(name: str, value: Any) -> str:
    """Write a value in the one unit that its kind always has, so that two runs can be compared line by line."""
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
