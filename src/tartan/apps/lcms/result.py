"""Results of clusters of peaks: numbers, comparisons, and the tables that are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics import DAVS
from tartan.apps.lcms.clustering import SETTINGS, LcmsClusters, labels_of
from tartan.apps.lcms.comparison import compare
from tartan.apps.lcms.files import Peaks, read_clusters, write_clusters, write_table

Ints = NDArray[np.int64]


def parameters() -> list[str]:
    """Return the names of the parameters of the clustering."""
    # The other two change nothing of the result.
    return [name for name in DAVS().get_params() if name not in ("checkpoint", "verbose")]


def references_of(peaks: Peaks, paths: Iterable[Path]) -> dict[str, Ints]:
    """Return the clusterings to compare with by name, -1 for peaks that they do not have.

    Parameters
    ----------
    peaks : Peaks
        With the clusterings of its file.
    paths : iterable of Path
        Of results, for :func:`tartan.apps.lcms.read_clusters`.
    """
    # Golden clusters begin with 0, those of the other two programs with 1.
    columns = {name: np.where(labels >= (name != "golden"), labels, -1) for name, labels in peaks.references.items()}
    return columns | {str(path): labels_of(peaks, read_clusters(path)) for path in paths}


def describe(peaks: Peaks, found: LcmsClusters, references: Mapping[str, Ints]) -> dict[str, Any]:
    """Return the numbers of a clustering by name; "compared" has those of each reference that has any of the peaks."""
    widths, sizes = found.widths(peaks.points), found.sizes
    usual = np.nanmedian(widths[sizes > 1], axis=0) if (sizes > 1).any() else [float("nan")] * 2
    known = {name: reference for name, reference in references.items() if (reference >= 0).any()}
    return {
        "peaks": len(found.labels),
        "clusters": len(found.centers),
        "noise": int((found.labels < 0).sum()),
        "median_width_mz": float(usual[0]),
        "median_width_rt": float(usual[1]),
        "occupation": found.occupation(),
        "compared": {name: compare(found.labels, one).summary() for name, one in known.items()},
    }


def write_result(out: Path, peaks: Peaks, found: LcmsClusters, options: Mapping[str, Any]) -> None:
    """Write the tables of peaks and clusters, and the texts of the original program, into a folder.

    Parameters
    ----------
    out : Path
        A folder that is there.
    peaks : Peaks
    found : LcmsClusters
    options : mapping
        The parameters that were given.
    """
    most = options.get("max_clusters") or len(peaks.points)
    write_clusters(out, "clusters", peaks, found.labels, found.centers, most)
    sigma = np.array(options.get("sigma", SETTINGS["sigma"]))
    scaled, centers = (np.column_stack([np.log(x[:, 0]), x[:, 1]]) / sigma for x in (peaks.points, found.centers))
    write_clusters(out, "clustersScaled", replace(peaks, points=scaled), found.labels, centers, most)
    columns = {"index": peaks.index, "mz": peaks.points[:, 0], "rt": peaks.points[:, 1], "cluster": found.labels}
    write_table(out / "peaks.tsv", columns | {"peptide": peaks.peptides, "experiment": peaks.experiment})
    widths = found.widths(peaks.points)
    of_clusters = {"cluster": np.arange(len(found.centers)), "mz": found.centers[:, 0], "rt": found.centers[:, 1]}
    of_clusters |= {"peaks": found.sizes, "width_mz": widths[:, 0], "width_rt": widths[:, 1]}
    write_table(out / "clusters.tsv", of_clusters)
