"""Sketches and signatures against sourmash, and strings of proteomes, of which it keeps a hash of each and a count."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from tartan.apps.genomes import Genomes
from tartan.apps.genomes.signatures import SUFFIXES, save_signatures
from tartan.apps.phylogeny.app import Phylogeny
from tartan.apps.phylogeny.simulate import simulate

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]
sourmash = pytest.importorskip("sourmash", reason="sourmash is not installed", exc_type=ImportError)
SaveSignaturesToLocation = pytest.importorskip("sourmash.sourmash_args", exc_type=ImportError).SaveSignaturesToLocation


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


LETTERS = np.frombuffer(b"ACGT", np.uint8)


def contigs(seed: int) -> list[str]:
    """Return contigs with lower case, letters that are not known, and parts shared by all seeds."""
    drawn, shared = np.random.default_rng(seed), np.random.default_rng(99)
    texts = [LETTERS[rng.integers(0, 4, 20_000)].tobytes().decode() for rng in (drawn, shared)]
    return [texts[0].lower(), texts[1][:9000] + "NNRY" + texts[1][9000:], "ACGT" * 40]


@pytest.mark.parametrize(("k", "scaled"), [(21, 1), (21, 100), (31, 100), (31, 7), (51, 13), (10, 2), (70, 3)])
def test_sketches_and_signatures_go_both_ways(tmp_path: Path, k: int, scaled: int) -> None:
    app = Genomes(k=k, scaled=scaled)
    theirs = []
    for seed in range(3):
        found = sourmash.MinHash(n=0, ksize=k, scaled=scaled)
        for contig in contigs(seed):
            found.add_sequence(contig.upper(), force=True)
        theirs.append(sourmash.SourmashSignature(found, name=f"genome {seed}"))
    ours = [
        app.parse(str(seed), "".join(f">{i}\n{contig}\n" for i, contig in enumerate(contigs(seed))))
        for seed in range(3)
    ]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, np.array(sorted(b.minhash.hashes), np.uint64))
    for suffix in SUFFIXES:
        path = tmp_path / f"ours{suffix}"
        save_signatures(path, ((one.name, hashes) for one, hashes in zip(theirs, ours, strict=True)), k, scaled)
        read = sorted(sourmash.load_file_as_signatures(str(path)), key=lambda one: one.name)
        assert [one.name for one in read] == ["genome 0", "genome 1", "genome 2"]
        assert [one.md5sum() for one in read] == [one.md5sum() for one in theirs]
        back = tmp_path / f"theirs{suffix}"
        with SaveSignaturesToLocation(str(back)) as file:
            for one in theirs:
                file.add(one)
        items = app.split(back.name, back.read_bytes())
        assert items is not None
        for number, hashes in enumerate(ours):
            np.testing.assert_array_equal(app.parse("x", items[f"genome {number}"]), hashes)
    scores = app.compare(ours, ours, np)
    for i, a in enumerate(theirs):
        for j, b in enumerate(theirs):
            assert scores["jaccard"][i, j] == pytest.approx(a.minhash.jaccard(b.minhash), rel=1e-6)
            assert scores["containment"][i, j] == pytest.approx(a.minhash.max_containment(b.minhash), rel=1e-6)
            if k == 31 and scaled == 7:
                ani = a.minhash.max_containment_ani(b.minhash).ani
                assert scores["ani"][i, j] == pytest.approx(ani, rel=1e-6)
