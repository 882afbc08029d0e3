"""Strings of proteomes against sourmash, which keeps a hash of each and how often it occurs."""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from tartan.apps.phylogeny.app import Phylogeny
from tartan.apps.phylogeny.simulate import simulate

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]
sourmash = pytest.importorskip("sourmash", reason="sourmash is not installed", exc_type=ImportError)


def proteins(data: bytes) -> list[str]:
    """Return the sequences of a FASTA file."""
    return ["".join(record.split("\n")[1:]) for record in gzip.decompress(data).decode().split(">")[1:]]


def sketch(data: bytes, k: int) -> Any:
    """Return all strings of k letters and their counts; nothing is left out."""
    found = sourmash.MinHash(n=0, ksize=k, is_protein=True, scaled=1, track_abundance=True)
    for protein in proteins(data):
        found.add_protein(protein)
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("proteomes")
    simulate(folder, 12, 3, n_proteins=60, depth=0.3)
    return [path.read_bytes() for path in sorted(folder.glob("*.faa.gz"))]


@pytest.mark.parametrize("k", [3, 4, 5, 6])
def test_as_many_strings_and_windows_are_found(files: list[bytes], k: int) -> None:
    for number, data in enumerate(files):
        _, masks, codes, _, numbers = Phylogeny(k=k).parse(f"{number}.faa.gz", data)
        found = sketch(data, k)
        assert len(found) == len(codes) == int((masks[:, 0] >> 20).sum())
        assert sum(found.hashes.values()) == int(numbers[2])


def test_distances_order_pairs_as_shared_strings_do(files: list[bytes]) -> None:
    """D weighs strings by how unexpected they are: the order of pairs is alike, not the same."""
    app = Phylogeny(k=5)
    items = [app.parse(f"{number}.faa.gz", data) for number, data in enumerate(files)]
    sketches = [sketch(data, 5) for data in files]
    pairs = np.triu_indices(len(files), 1)
    mine = app.compare(items, items, np)[pairs]
    theirs = [1 - sketches[i].similarity(sketches[j]) for i, j in zip(*pairs, strict=True)]
    assert spearmanr(mine, theirs).statistic > 0.97
