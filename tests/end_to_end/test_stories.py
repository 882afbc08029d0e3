"""The how-tos of the documents from end to end: every command that they show, on real input."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from whole_program import start_process

import tartan

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(1800)]
DOCS = Path(__file__).parents[2] / "docs"


def follow(document: str, folder: Path) -> str:
    """Run the commands of a document in order, in a folder; return what they wrote on stdout."""
    text = (DOCS / document).read_text()
    written = []
    for line in re.findall(r"^ {4}(tartan .*)$", text, re.MULTILINE):
        done = start_process(*shlex.split(line)[1:], cwd=folder).finish(1500)
        assert done.status == 0, (line, done.err)
        written.append(done.out)
    return "\n".join(written)


def groups(folder: Path, run: str, *words: str) -> dict[str, int]:
    """Return the cluster of each item of a run."""
    done = start_process("cluster", run, "--json", *words, cwd=folder).finish(300)
    return dict(zip(tartan.open(folder / run).keys, json.loads(done.out)["labels"], strict=True))


def same(labels: dict[str, int], name_of: str) -> bool:
    """Tell whether items are together exactly where a part of their names is equal."""
    names = {key: re.search(name_of, key).group() for key in labels}  # type: ignore[union-attr]
    return (
        len(set(names.values()))
        == len(set(labels.values()))
        == len(set(zip(names.values(), labels.values(), strict=True)))
    )


def test_nikon_photos_to_a_report(shared_data: Path, tmp_path: Path) -> None:
    photos = sorted((shared_data / "photos/nikon").iterdir())
    for folder, some in (("photos", [photo for photo in photos if photo != photos[-1]]), ("new", photos[-1:])):
        (tmp_path / folder).mkdir()
        for photo in some:
            (tmp_path / folder / photo.name).symlink_to(photo)
    # The transcripts of the tutorial run on simulated photos (tests/cases); here are real ones, and its other commands.
    begun = start_process("run", "forensics", "photos/*", "-o", "photos.tartan", cwd=tmp_path).finish(1500)
    assert begun.status == 0, begun.err
    follow("tutorial.md", tmp_path)
    grown = start_process("add", "photos.tartan", "new/*", cwd=tmp_path).finish(1500)
    assert grown.status == 0, grown.err
    assert (tmp_path / "photos.html").stat().st_size > 10_000
    labels = groups(tmp_path, "photos.tartan")
    assert len(labels) == 24
    assert same(labels, r"Nikon_\w+?_\d")


def test_pentax_photos(shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").symlink_to(shared_data / "photos/pentax")
    done = start_process("run", "forensics", "photos/*", "-o", "r.tartan", cwd=tmp_path).finish(600)
    assert done.status == 0, done.err
    # Two of the four are 5.9 standard deviations alike, less than the cut of 7.7: it does not claim that they are of
    # one camera, and never that two cameras are one.
    labels = groups(tmp_path, "r.tartan")
    assert list(labels.values()) == [0, 0, 1, 2]
    assert same(groups(tmp_path, "r.tartan", "-k", "2"), r"Pentax_\w+?_\d")


def test_proteomes_to_a_tree(shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "proteomes").mkdir()
    for proteome in (shared_data / "proteomes").glob("*.faa.gz"):
        (tmp_path / "proteomes" / proteome.name).symlink_to(proteome)
    follow("howto-genomes.md", tmp_path)
    tree = (tmp_path / "genomes.nwk").read_text()
    assert tree.count(",") == 7
    assert (tmp_path / "genomes.phy").read_text().split()[0] == "8"


def test_assemblies_to_species(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    for species in range(4):
        ancestor = random.integers(0, 4, 200_000)
        for strain in range(5):
            changed = random.random(ancestor.size) < 0.01 * strain
            letters = np.where(changed, random.integers(0, 4, ancestor.size), ancestor)
            folder = tmp_path / ("new" if strain == 4 else "assemblies")
            folder.mkdir(exist_ok=True)
            text = np.frombuffer(b"ACGT", np.uint8)[letters].tobytes()
            (folder / f"species{species}_{strain}.fna").write_bytes(b">1\n" + text[70_000:] + b"\n>2\n" + text[:70_000])
    follow("howto-species.md", tmp_path)
    assert same(groups(tmp_path, "genomes.tartan"), r"species\d")
    assert (tmp_path / "genomes.nwk").read_text().count("species") == 16


def test_twenty_thousand_embeddings(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    rows = random.standard_normal((20_000, 384), dtype=np.float32)
    rows[10_000:10_005] = rows[:5] + 0.01 * random.standard_normal((5, 384), dtype=np.float32)
    np.save(tmp_path / "embeddings.npy", rows)
    names = [f"text {row}" for row in range(len(rows))]
    (tmp_path / "names.txt").write_text("\n".join(names))
    (tmp_path / "table.csv").write_text("\n".join(["row,sample", *(f"{row},{name}" for row, name in enumerate(names))]))
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows[:2000].ravel()), 384)
    pq.write_table(pa.table({"url": names[:2000], "embedding": column}), tmp_path / "rows.parquet")
    follow("howto-vectors.md", tmp_path)
    assert (
        tartan.open(tmp_path / "by-sample.tartan").keys[7]
        == tartan.open(tmp_path / "by-url.tartan").keys[7]
        == "text 7"
    )
    neighbor, _ = tartan.open(tmp_path / "nearest.tartan").neighbors(10)
    np.testing.assert_array_equal(neighbor[:5, 0], np.arange(10_000, 10_005))
    close = tartan.open(tmp_path / "close.tartan").pairs().read_all()
    assert {(i, j) for i, j in zip(close["i"].to_pylist(), close["j"].to_pylist(), strict=True)} == {
        (row, 10_000 + row) for row in range(5)
    }


def test_duplicates_in_a_folder_of_texts(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    random = np.random.default_rng(5)
    for text in range(40):
        words = [f"word{number}" for number in random.integers(0, 500, 60)]
        (tmp_path / f"texts/{text:02}.txt").write_text(" ".join(words))
        if text % 10 == 0:
            (tmp_path / f"texts/{text:02}-copy.txt").write_text(" ".join([*words, "more"]))
    follow("howto-duplicates.md", tmp_path)
    labels = groups(tmp_path, "duplicates.tartan")
    assert same(labels, r"\d\d")
