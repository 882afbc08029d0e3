"""Write a run to a file: its matrix or its pairs. Where the format wants distances, similarities become some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tartan.analytics.matrix import WhatFailed, distance_function, require_some, require_way
from tartan.errors import ConfigError
from tartan.store.export import DISTANCES, GAPLESS, ExportOptions, export, format_of, holds_pairs, refuse_unused
from tartan.store.folder import RunFolder
from tartan.store.view import output_name


def export_matrix(
    folder: RunFolder,
    path: Path,
    kind: str | None,
    options: ExportOptions,
    distance: Any = None,
    failed: str | None = None,
) -> Path:
    """Write the matrix of a run, or its pairs in the order of the chunks; see ``tartan.Run.export``.

    Raises
    ------
    ConfigError
        If the format holds distances, and neither the caller nor the application says how similarities become some; or
        something failed and ``failed`` is "error".
    """
    name = format_of(path, kind)
    if options.output is None and (distance is not None or name in DISTANCES):
        options = replace(options, output=folder.manifest.analysed_by(None))
    found, left_out = what_is_left_out(folder, name, options, failed)
    if len(left_out):
        kept = np.setdiff1d(np.arange(folder.manifest.n_items), left_out)
        require_some(str(folder.path), folder.manifest.n_items, len(kept))
        options = replace(options, items=kept)
        if failed is None:
            found.warn(left_out)
    distances = None if options.pairs and distance is None else _distances(folder, name, options, distance)
    return export(folder, path, name, replace(options, distances=distances))


def what_is_left_out(
    folder: RunFolder, name: str, options: ExportOptions, failed: str | None
) -> tuple[WhatFailed, np.ndarray]:
    """Return what failed, and which items an export leaves out for it.

    What failed keeps its place where a format says which scores are missing, or ``missing`` is a number for them. Else,
    and where ``failed`` is "drop", items that failed are left out; of a format that needs all pairs also the fewest
    items of failed pairs.

    Raises
    ------
    ConfigError
        If something failed and ``failed`` is "error", or the format holds pairs and ``failed`` is "drop".
    """
    require_way(failed)
    found = WhatFailed.of(folder)
    if failed == "error":
        found.refuse()
    complete = name in GAPLESS and options.missing is None
    if holds_pairs(name, pairs=options.pairs):
        if failed == "drop":
            raise ConfigError(
                "tables of pairs have null for failed ones; `failed='drop'` is for matrices, leave it out"
            )
    elif failed == "drop" or (failed is None and complete):
        return found, found.list_left_out(complete=complete)
    return found, np.empty(0, np.int64)


def export_sorted(
    folder: RunFolder, path: Path, kind: str | None, options: ExportOptions, order: dict[str, Any]
) -> Path:
    """Write the pairs of a run in the order of their scores; see ``tartan.Run.export``.

    Parameters
    ----------
    folder : RunFolder
    path : Path
    kind : str or None
        Parquet, CSV or TSV; None where the suffix says so.
    options : ExportOptions
    order : dict
        Keyword arguments of ``pair_order``.

    Raises
    ------
    ConfigError
        If another format, or an option of matrices, is asked for.
    """
    from tartan.result.sorted_pairs import pair_order, write_sorted_pairs

    name = format_of(path, kind)
    holds_pairs(name, pairs=True)
    refuse_unused(name, options, pairs=True)
    write_sorted_pairs(folder, path, pair_order(folder, options.output, **order), name, options)
    return path


def conversion_of(folder: RunFolder, output: str | None, distance: Any = None) -> Any:
    """Return how the scores of a run become distances: as the caller says, else as the application declares.

    None where they are distances already.
    """
    if distance is not None or not folder.manifest.larger_is_nearer:
        return distance
    return folder.manifest.meaning(output_name(folder, output)).get("distance")


def _distances(
    folder: RunFolder, name: str, options: ExportOptions, distance: Any
) -> Callable[[np.ndarray], np.ndarray] | None:
    if distance is None and name not in DISTANCES:
        return None
    chosen = conversion_of(folder, options.output, distance)
    if chosen is not None:
        return distance_function(folder, chosen, options.output, options.items)
    if folder.manifest.larger_is_nearer:
        raise ConfigError(
            f"{folder.path} has similarities, and {name} holds distances; say how they become distances "
            "(such as `distance='max-s'`), or export the scores as they are: npy, CSV, float32",
            code="distance",
        )
    return None
