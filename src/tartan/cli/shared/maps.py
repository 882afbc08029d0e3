"""What commands print of the map that a run keeps."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tartan.base.format import name_some
from tartan.cli.shared.output import say
from tartan.errors import TartanError

if TYPE_CHECKING:
    from tartan.result.map_growth import MapGrowth
    from tartan.store.maps import StoredMap


def read_kept_map(run: Any) -> StoredMap | None:
    """Return the map of a run; a file that cannot be read is named on stderr and counts as none."""
    try:
        found: StoredMap | None = run.map
    except TartanError as error:
        say(f"tartan: warning: {error}")
        return None
    return found


def print_growth(run: Any, growth: MapGrowth, *, quiet: bool) -> dict[str, Any] | None:
    """Print what became of the map of a run that has grown; return what the JSON object says of it, if there is one."""
    again = f"`tartan embed {shlex.quote(str(run.path))} --extend --overwrite`"
    if growth.problem is not None:
        say(f"tartan: warning: the map was not extended, all scores are there: {growth.problem}")
        say(f"tartan: when that is mended, {again} places the new items")
        return {"error": growth.problem}
    if growth.map is None:
        return None
    print_map(run, growth.map, growth.n_new, quiet=quiet)
    if not quiet and growth.n_new:
        say(f"{again} writes coordinates and pictures")
    return about_map(run, growth.map)


def print_map(run: Any, made: StoredMap, n_new: int, *, quiet: bool) -> None:
    """Print how many items were placed and how well they fit; quiet: only what needs attention."""
    from tartan.analytics.maps import fit_of

    fit, keys = fit_of(made), run.keys
    if not quiet:
        say(
            f"map: {n_new:,} new placed, {fit.n_placed:,} in all, on the map of {fit.n_fitted:,} items; median "
            f"stress {fit.stress_placed:.3g} of those placed, {fit.stress_fitted:.3g} of those it was made from"
            if fit.n_placed
            else f"map: made from all {fit.n_fitted:,} items"
        )
    if fit.without_place:
        say(f"tartan: no place on the map, without any score: {name_some([keys[item] for item in fit.without_place])}")
    if fit.poor:
        worst = "" if fit.worst is None else f", worst {keys[fit.worst]} with {made.stress[fit.worst]:.3g}"
        why = f"{fit.n_placed:,} items placed on {fit.n_fitted:,}; median stress {fit.stress_placed:.3g} against "
        say(
            f"tartan: warning: new items fit the map badly ({why}{fit.stress_fitted:.3g}{worst}); "
            f"`{_make_embed_command(run, made)}` makes it again"
        )


def about_map(run: Any, made: StoredMap) -> dict[str, Any]:
    """Return what JSON objects say of a map."""
    from tartan.analytics.maps import fit_of

    fit, keys = fit_of(made), run.keys
    return {
        "method": made.method,
        "dimension": made.points.shape[1],
        "n_fitted": fit.n_fitted,
        "n_placed": fit.n_placed,
        "n_missing": run.n_items - len(made) + len(made.waiting),
        "stress_fitted": fit.stress_fitted,
        "stress_placed": fit.stress_placed,
        "worst_placed": None if fit.worst is None else keys[fit.worst],
        "without_place": [keys[item] for item in fit.without_place],
        "embed_afresh": fit.poor,
    }


def print_hint(run: Any) -> None:
    """Print a hint where a map lacks items of its finished run."""
    found = read_kept_map(run)
    n_missing = 0 if found is None else run.n_items - len(found) + len(found.waiting)
    if n_missing:
        say(
            f"map: {n_missing:,} of {run.n_items:,} items are not on it yet; "
            f"`tartan embed {shlex.quote(str(run.path))} --extend --overwrite` places them"
        )


def _make_embed_command(run: Any, made: StoredMap) -> str:
    """Return the command that makes such a map of all items."""
    words = ["tartan", "embed", str(run.path), "--method", made.method, "--dim", str(made.points.shape[1])]
    words += [f"--{name}={value}" for name, value in made.recipe["matrix"].items()]
    return shlex.join(words)
