"""What the scores of a run mean, as its application declares it: written into the manifest when a run is created."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.application import Application, Meaning
from tartan.base.checks import FINITE, NOT_NEGATIVE, POSITIVE, number
from tartan.base.group_evidence import GroupEvidence
from tartan.errors import ConfigError, TartanError
from tartan.result.run import Run
from tartan.result.triple_result import TripleRun, open_result
from tartan.run.inspection import closer_look
from tartan.store.manifest import Manifest

if TYPE_CHECKING:
    from tartan.workers.shipping import Registry

# By judgement: who joins half of what is unlike need not look at it.
_MOST_FALSE_ALARM = 0.5


def declare_meaning(app: Application, manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Return what an application says of each of its outputs, checked.

    Raises
    ------
    ConfigError
        If it says something else than a ``Meaning``, or something in it cannot be read.
    """
    item = manifest.application.get("item")
    shape = None if item is None else tuple(item["shape"])
    said = {output: _ask(app, output, shape) for output in manifest.outputs}
    return {output: asdict(_check(app, meaning, said)) for output, meaning in said.items() if meaning is not None}


def open_run(path: str | Path, registry: Registry, version: int | None = None) -> Run | TripleRun:
    """Open a run of pairs or of triples; one of a built-in application is told what its scores mean, in memory.

    That is for folders that an older version wrote.
    """
    run = open_result(path, version)
    if isinstance(run, TripleRun):
        return run
    found = _declared(run, registry)
    found.look_closely = closer_look(found.folder, registry)
    return found


def _declared(run: Run, registry: Registry) -> Run:
    about = run.manifest.application
    from tartan.workers.shipping import load_application, names_builtin

    if "meaning" in about or not names_builtin(str(about.get("source"))):  # opening a run runs no code that it names
        return run

    try:
        app, _ = load_application(about["source"], about["parameters"], registry)
        about["meaning"] = declare_meaning(app, run.manifest)
    except TartanError:  # parameters of another version: a run is readable without
        about["meaning"] = {}
    return run


def _ask(app: Application, output: str, shape: tuple[int, ...] | None) -> Any:
    try:
        return app.meaning(output, shape)
    except Exception as error:  # whatever the code of a user raises
        message = f"{type(app).__name__}.meaning({output!r}, {shape}) raised {type(error).__name__}: {error}"
        raise ConfigError(message) from error


def _check(app: Application, meaning: Any, outputs: Collection[str]) -> Meaning:
    from tartan.analytics.matrix import Formula
    from tartan.analytics.trees import LINKAGES

    where = f"{type(app).__name__}.meaning"
    if not isinstance(meaning, Meaning):
        raise ConfigError(f"{where} returned {meaning!r}; it returns a tartan.Meaning or None")
    if meaning.distance is not None:
        try:
            Formula(meaning.distance, "s")
        except ConfigError as error:
            raise ConfigError(f"{where}: distance: {error}") from error
    if meaning.cut is not None:
        number(f"{where}: cut", meaning.cut, FINITE)
    if meaning.unknown is not None:
        number(f"{where}: unknown", meaning.unknown, FINITE)
    if meaning.linkage not in LINKAGES:
        raise ConfigError(f"{where}: linkage is {meaning.linkage!r}; it must be one of {', '.join(LINKAGES)}")
    if not isinstance(meaning.unit, str):
        raise ConfigError(f"{where}: unit is {meaning.unit!r}; it must be a text, such as 'Mash distance'")
    if not isinstance(meaning.tree, bool):
        raise ConfigError(f"{where}: tree is {meaning.tree!r}; it must be True or False")
    if meaning.groups is not None:
        _check_groups(where, meaning.groups, outputs)
    return meaning


def _check_groups(where: str, groups: Any, outputs: Collection[str]) -> None:
    if not isinstance(groups, GroupEvidence):
        raise ConfigError(f"{where}: groups is {groups!r}; it must be a tartan.GroupEvidence or None")
    if groups.correlation not in outputs:
        raise ConfigError(
            f"{where}: groups.correlation is {groups.correlation!r}; the outputs are {', '.join(outputs)}"
        )
    for name in ("deviation", "spread", "false_alarm"):
        number(f"{where}: groups.{name}", getattr(groups, name), POSITIVE)
    for name in ("common", "scatter", "share"):
        number(f"{where}: groups.{name}", getattr(groups, name), NOT_NEGATIVE)
    if groups.false_alarm >= _MOST_FALSE_ALARM:
        raise ConfigError(f"{where}: groups.false_alarm is {groups.false_alarm:g}; a chance below {_MOST_FALSE_ALARM}")
