"""Write a run to a file: its matrix or its pairs. Where the format wants distances, similarities become some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tartan.errors import ConfigError
from tartan.store.export import DISTANCES, ExportOptions, export, format_of, holds_pairs, refuse_unused
from tartan.store.folder import RunFolder
from tartan.store.view import output_name


def export_matrix(
    folder: RunFolder, path: Path, kind: str | None, options: ExportOptions, similarity: Any = None
) -> Path:
    """Write the matrix of a run, or its pairs in the order of the chunks; see ``tartan.Run.export``.

    Raises
    ------
    ConfigError
        If the format holds distances, and neither the caller nor the application says how similarities become some.
    """
    name = format_of(path, kind)
    distances = None if options.pairs and similarity is None else _distances(folder, name, options.output, similarity)
    return export(folder, path, name, replace(options, distances=distances))


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
    from tartan.run.sorted_pairs import pair_order, write_sorted_pairs

    name = format_of(path, kind)
    holds_pairs(name, pairs=True)
    refuse_unused(name, options, pairs=True)
    write_sorted_pairs(folder, path, pair_order(folder, options.output, **order), name, options)
    return path


def conversion_of(folder: RunFolder, output: str | None, similarity: Any = None) -> Any:
    """Return how the scores of a run become distances: as the caller says, else as the application declares.

    None where they are distances already.
    """
    if similarity is not None or not folder.manifest.larger_is_nearer:
        return similarity
    return folder.manifest.meaning(output_name(folder, output)).get("distance")


def _distances(
    folder: RunFolder, name: str, output: str | None, similarity: Any
) -> Callable[[np.ndarray], np.ndarray] | None:
    from tartan.analytics.matrix import similarity_function

    if similarity is None and name not in DISTANCES:
        return None
    chosen = conversion_of(folder, output, similarity)
    if chosen is not None:
        return similarity_function(folder, chosen, output)
    if folder.manifest.larger_is_nearer:
        raise ConfigError(
            f"{folder.path} has similarities, and {name} holds distances; say how they become distances "
            "(such as `similarity='max-s'`), or export the scores as they are: npy, CSV, float32",
            code="similarity",
        )
    return None
