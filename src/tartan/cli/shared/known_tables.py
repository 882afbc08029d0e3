"""Tables of clusters as other programs of genomes write them, for scripts that read those."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.base.files import whole_file
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics import Clustering

# By format: what dRep calls its tables of clusters, and of the genome that stands for each.
_CLUSTERS, _WINNERS = "Cdb.csv", "Wdb.csv"


def drep_tables(folder: Path, *, winners: bool) -> list[Path]:
    """Make the folder, and return the files that ``write_drep`` writes.

    Raises
    ------
    ConfigError
        If the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--drep {folder}: {error.strerror}; name a folder") from error
    return [folder / _CLUSTERS, *([folder / _WINNERS] if winners else [])]


def write_drep(folder: Path, keys: Sequence[str], found: Clustering, application: str, *, winners: bool) -> None:
    """Write the clusters as dRep does: ``Cdb.csv``, and ``Wdb.csv`` of the representatives.

    Parameters
    ----------
    folder : Path
    keys : sequence of str
    found : Clustering
        Items in no cluster are left out.
    application : str
        What compared them.
    winners : bool
        Whether representatives were chosen.
    """
    sizes = np.bincount(found.labels[found.labels >= 0], minlength=found.n_clusters)
    # dRep numbers clusters from 1, and calls those of one genome _0.
    names = [f"{label + 1}_{int(size > 1)}" for label, size in enumerate(sizes.tolist())]
    threshold = "" if found.threshold is None else f"{found.threshold:.9g}"
    _write(
        folder / _CLUSTERS,
        ("genome", "secondary_cluster", "threshold", "cluster_method", "comparison_algorithm", "primary_cluster"),
        (
            (key, names[label], threshold, found.method, f"tartan {application}", label + 1)
            for key, label in zip(keys, found.labels.tolist())
            if label >= 0
        ),
    )
    if winners and found.representatives is not None:
        chosen = found.representatives.tolist()
        rows = ((keys[item], names[label], "") for label, item in enumerate(chosen))
        _write(folder / _WINNERS, ("genome", "cluster", "score"), rows)


def write_sourmash(path: Path, keys: Sequence[str], found: Clustering) -> None:
    """Write the clusters as ``sourmash scripts cluster`` does: a line a cluster, its members parted by semicolons.

    Raises
    ------
    ConfigError
        If the name of an item has a semicolon.
    """
    odd = next((key for key in keys if ";" in key), None)
    if odd is not None:
        raise ConfigError(f"--sourmash {path}: {odd!r} has a semicolon, which parts names there; use --names")
    members: list[list[str]] = [[] for _ in range(found.n_clusters)]
    for key, label in zip(keys, found.labels.tolist()):
        if label >= 0:
            members[label].append(key)
    rows = ((f"Component_{number}", ";".join(names)) for number, names in enumerate(members, 1))
    _write(path, ("cluster", "nodes"), rows)


def _write(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with whole_file(path) as unfinished, open(unfinished, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(names)
        table.writerows(rows)
