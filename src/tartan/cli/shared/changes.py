"""What commands say of a version of a run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tartan.base.format import name_some, pluralize
from tartan.cli.shared.output import print_json, say

if TYPE_CHECKING:
    from tartan.result.run import AnyRun, Run
    from tartan.store.versions import RunVersion


def conclude_change(run: Run, args: argparse.Namespace) -> int:
    """Say which version a change has made; return the exit status."""
    versions = run.versions
    version = versions[-1]
    if not args.quiet:
        left = pluralize(len(version.slots), "item")
        say(f"{run.path}: version {version.number:,}, {left}; `tartan log {run.path}` lists all versions")
        if run.folder.opens and run.n_pairs_left:
            say(f"{run.n_pairs_left:,} pairs are lacking now; `tartan resume {run.path}` compares them")
    if args.json:
        before = versions[-2] if len(versions) > 1 else None
        print_json({"path": str(run.path), **describe_version(run, version, before)})
    return 0


def describe_version(run: AnyRun, version: RunVersion, before: RunVersion | None = None) -> dict[str, Any]:
    """Return what JSON objects say of a version, and of the one before."""
    return {
        "version": version.number,
        "change": version.change,
        "time": version.time or None,
        "n_items": len(version.slots),
        "n_gone": len(version.gone),
        "n_new": version.n_new,
        "items": [run.folder.name_of(slot, before or version) for slot in version.touched],
        "names": [run.folder.name_of(slot, version) for slot in version.renamed],
    }


def say_change(about: dict[str, Any]) -> str:
    """Return in words what made a version."""
    if not about["change"]:
        return "(what came before has expired)"
    if about["change"] == "add":
        return f"add {pluralize(about['n_new'], 'item')}"
    shown = {part: [name if name.isprintable() else ascii(name) for name in about[part]] for part in ("items", "names")}
    if about["change"] == "replace":
        return f"replace {name_some(shown['items'])}"
    named = [name_some(shown[part]) for part in ("items", "names") if shown[part]]
    return " ".join([about["change"], " as ".join(named)]).rstrip()
