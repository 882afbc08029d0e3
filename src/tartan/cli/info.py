"""``tartan info``: what a run is, how far it is, and what it cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from tartan.base.format import format_bytes, format_duration
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
    about = describe_run(run) | {"map": None if found is None else about_map(run, found)}
    if args.json:
        print_json(about)
    else:
        print_table(rows(about))
    return 0


def rows(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and values for people, nested ones indented; what is not known is left out."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            yield _title(name), ""
            for part, amount in value.items():
                yield f"  {_title(part)}", _value(name, amount)
        elif value is not None:
            yield _title(name), _value(name, value)


def _title(name: str) -> str:
    words = str(name).removeprefix("n_").replace("_", " ")
    return words.removesuffix(" seconds")


def _value(name: str, value: Any) -> str:
    if isinstance(value, bool | str) or not isinstance(value, int | float):
        return str(value)
    if "seconds" in name:
        return format_duration(value)
    if "bytes" in name:
        return format_bytes(value)
    if name.endswith("efficiency"):
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
