"""Hostile input, drawn by Hypothesis: an error that names it, or a result that a plain reader confirms.

What fails is reduced to the smallest value that does.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import random
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import hypothesis
import numpy as np
from hypothesis import strategies as st

import tartan
from fuzz.metadata import changed_metadata, metadata_is_read_or_refused
from tartan.analytics import read_matrix, read_newick
from tartan.analytics.trees.tree import parse, quote_name
from tartan.apps.phylogeny.app import Phylogeny
from tartan.base.keys import stems
from tartan.errors import ConfigError, InternalError, TartanError
from tartan.sort import sort_file
from tartan.sort.text_form import BEGINNING_BYTES, refuse_beginning
from tartan.sources.items import open_source

MEMORY = "4GB"  # of a sort: more than this process holds already
T = TypeVar("T")


def tolerated(read: Callable[[], T]) -> T | None:
    """Return what is read, or None where an error refuses it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read()
    except InternalError:
        raise
    except TartanError:
        return None


def _edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    changed = bytearray(data)
    for place, length, new in edits:
        at = place % (len(changed) + 1)
        changed[at : at + length] = new
    return bytes(changed)


EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 20), st.binary(max_size=20)), max_size=3)


def damaged(whole: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Draw what is whole, half of the time with bytes cut out and put in."""
    return whole | st.builds(_edited, whole, EDITS)


LETTERS = "ACDEFGHIKLMNPQRSTVWYacgtXBZ*-> \t\r\x00é"
FASTA = st.lists(st.sampled_from([">a", ">", ""]) | st.text(LETTERS, max_size=60) | st.text("ACGT", max_size=60))
CELLS = st.sampled_from(["1", "0.5", "nan", "", "a", "-1e999", "0x1", '"', "1_0", "é", "\x00"]) | st.floats().map(repr)
SIDES = st.integers(1, 6)


def fasta(folder: Path, text: bytes) -> None:
    """Read a proteome, plain and compressed: the same counts, all of them finite."""
    plain = tolerated(lambda: Phylogeny(k=3).parse("x.faa", text))
    packed = tolerated(lambda: Phylogeny(k=3).parse("x.faa.gz", gzip.compress(text, mtime=0)))
    assert (plain is None) == (packed is None) or text.startswith(b"\x1f\x8b")
    for found in (plain, packed):
        if found is not None:
            middles, masks, codes, values, numbers = found
            assert len(masks) == len(middles)
            assert len(codes) == len(values) == (masks[:, 0] >> 20).sum()
            assert np.isfinite(values).all()
            assert np.isfinite(numbers).all()
    if plain is not None and packed is not None:
        for left, right in zip(plain, packed, strict=True):
            np.testing.assert_array_equal(left, right)


def _npy(header: dict[str, Any], data: bytes) -> bytes:
    text = repr(header).ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def _saved(n: int, dtype: str, seed: int) -> bytes:
    file = io.BytesIO()
    np.save(file, np.random.default_rng(seed).uniform(0, 100, (n, n)).astype(dtype))
    return file.getvalue()


SHAPES = st.lists(st.integers(-3, 9) | st.integers(), max_size=3).map(tuple)
DTYPES = st.sampled_from(["<f8", "<f4", "<i2", ">f8", "|b1"])
ODD_DTYPES = st.sampled_from(["|O", "<U3", "V8", "<f99", "<c16", "<M8[s]", [("a", "<f8")], 3, "", "<f8,<f8"])
HEADERS = st.fixed_dictionaries(
    {"descr": DTYPES | ODD_DTYPES, "fortran_order": st.booleans(), "shape": SHAPES},
    optional={"more": st.just(1)},
)
NPY = st.builds(_saved, SIDES, DTYPES, st.integers(0, 9)) | st.builds(_npy, HEADERS, st.binary(max_size=200))


def npy(folder: Path, data: bytes) -> None:
    """Read an array as items and as a matrix: the numbers that NumPy finds."""
    path = folder / "x.npy"
    path.write_bytes(data)
    source, matrix = tolerated(lambda: open_source(path)), tolerated(lambda: read_matrix(path))
    if source is not None and source.kind == "array":
        assert source.n_items > 0
        np.testing.assert_array_equal(source.read(0), np.load(path)[0])
    if matrix is not None and np.load(path).ndim == 2:
        np.testing.assert_array_equal(matrix.block(0, matrix.n), np.load(path))


def _phylip(n: int, more: int, names: list[str], numbers: list[str]) -> bytes:
    rows = [f"{names[i]}  " + " ".join(numbers[i * n : (i + 1) * n]) for i in range(n)]
    return "\n".join([str(n + more), *rows, ""]).encode()


PHYLIP = st.builds(
    _phylip, SIDES, st.sampled_from([0, 0, 0, 1, 10**12]),
    st.lists(st.text(max_size=12), min_size=6, max_size=6), st.lists(CELLS, min_size=36, max_size=36),
)  # fmt: skip
TABLES = st.tuples(st.sampled_from(",\t; "), st.lists(st.lists(CELLS, max_size=6), max_size=6)).map(
    lambda drawn: "\n".join(drawn[0].join(row) for row in drawn[1]).encode()
)


def matrix(name: str, folder: Path, data: bytes) -> None:
    """Read a matrix of text: square, with as many names as items."""
    path = folder / name
    path.write_bytes(data)
    found = tolerated(lambda: read_matrix(path))
    if found is not None:
        assert found.block(0, found.n).shape == (found.n, found.n)
        assert found.names is None or len(found.names) == found.n


WORDS = st.text(max_size=12) | st.sampled_from(["pear", "Apple", "", '"quoted"', "fig, dried", "two\nlines", "é" * 40])
LINES = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))
ROWS = st.lists(st.tuples(st.integers(-(2**70), 2**70).map(str), WORDS), max_size=20)


def sorted_table(mark: str, folder: Path, rows: list[tuple[str, str]]) -> None:
    """Sort a table by a column of numbers and one of text: as Python sorts its rows."""
    source, target = folder / "in", folder / "out"
    kind = "csv" if mark == "," else "tsv"
    with open(source, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=mark, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerows([("number", "word"), *rows])
    target.unlink(missing_ok=True)
    key = "word:text,number:number"
    sort_file(source, target, key=key, format=kind, quote="double", memory=MEMORY, quiet=True)
    with open(target, newline="", encoding="utf-8") as stream:
        found = [tuple(row) for row in csv.reader(stream, delimiter=mark)]
    expected = sorted(rows, key=lambda row: (row[1].encode(), int(row[0])))
    assert found == [("number", "word"), *expected]


def sorted_lines(folder: Path, lines: list[bytes]) -> None:
    """Sort lines of any bytes: as Python sorts them, or refused where they begin as a file of another kind does."""
    source, target = folder / "in.txt", folder / "out.txt"
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    target.unlink(missing_ok=True)
    try:
        refuse_beginning(source, source.read_bytes()[:BEGINNING_BYTES])
    except ConfigError:
        assert tolerated(lambda: sort_file(source, target, memory=MEMORY, quiet=True)) is None
        assert not target.exists()
        return
    sort_file(source, target, memory=MEMORY, quiet=True)
    assert target.read_bytes() == b"".join(line + b"\n" for line in sorted(lines))


def sorted_rubbish(folder: Path, data: bytes) -> None:
    """Sort a table of any bytes: it is refused, or as many rows come out as went in."""
    source, target = folder / "in.csv", folder / "out.csv"
    source.write_bytes(b"a,b\n" + data)
    target.unlink(missing_ok=True)
    result = tolerated(lambda: sort_file(source, target, key="a:text", memory=MEMORY, quiet=True))
    assert (result is None) != target.exists()
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith("out.csv.")) == []


class Lengths(tartan.Application):
    """Files and the difference of their lengths."""

    releases_gil = True
    similarity = False

    def parse(self, name: str, data: bytes) -> Any:
        """Return the length."""
        return np.array([float(len(data))])

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Return |a - b|."""
        return np.abs(np.subtract.outer(np.ravel(left), np.ravel(right)))


def _is_file_name(name: bytes) -> bool:
    return 0 < len(name) < 200 and name not in (b".", b"..") and not set(name) & {0, 47}


FILE_NAMES = (st.text(max_size=20).map(lambda text: text.encode("utf-8", "ignore")) | st.binary(max_size=20)).filter(
    _is_file_name
)


def names(folder: Path, given: list[bytes]) -> None:
    """Compare files of any name: every export keeps the items apart, and what has names gives them back."""
    inputs, run = folder / "inputs", folder / "run.tartan"
    _fresh(inputs, run)
    for number, name in enumerate(given):
        (inputs / os.fsdecode(name)).write_bytes(b"x" * number)
    paths = [str(inputs / os.fsdecode(name)) for name in given]
    found = tolerated(lambda: tartan.allpairs(Lengths(), paths, run, workers=1, quiet=True))
    if found is None:
        return
    scores = found.matrix(diagonal=0.0)
    assert len(set(stems(found.keys))) == len(given)
    broken = any(len(key.splitlines()) > 1 or key != key.strip() for key in found.keys)  # no line of a matrix each
    for name in ("out.phy",) if broken else ("out.csv", "out.tsv", "out.phy"):
        found.export(folder / name, overwrite=True)
        back = read_matrix(folder / name)
        np.testing.assert_array_equal(back.block(0, back.n), scores)
        assert len(set(back.names)) == len(given), name
        assert name == "out.phy" or list(back.names) == [key.strip() for key in found.keys]


def _fresh(inputs: Path, run: Path) -> None:
    for path in (inputs, run):
        shutil.rmtree(path, ignore_errors=True)
    inputs.mkdir()


def newick(folder: Path, labels: list[str]) -> None:
    """Write names into a tree and read them: the same ones."""
    text = f"({','.join(quote_name(label) for label in labels)});"
    assert parse(text)[2][1:] == labels


def rubbish_newick(folder: Path, text: str) -> None:
    """Read any text as a tree."""
    tolerated(lambda: read_newick(text))


class Property(NamedTuple):
    """What must hold of drawn values, in a folder of its own, and how many are drawn in each attack."""

    drawn: st.SearchStrategy[Any]
    check: Callable[[Path, Any], None]
    examples: int = 30


PROPERTIES = {
    "fasta": Property(damaged(FASTA.map(lambda lines: "\n".join(lines).encode())), fasta),
    "npy": Property(damaged(NPY), npy),
    "phylip": Property(damaged(PHYLIP), partial(matrix, "x.phy")),
    "csv": Property(damaged(TABLES), partial(matrix, "x.csv")),
    "sorted csv": Property(ROWS, partial(sorted_table, ","), 10),
    "sorted tsv": Property(ROWS, partial(sorted_table, "\t"), 10),
    "sorted lines": Property(st.lists(LINES, max_size=30), sorted_lines, 10),
    "sorted rubbish": Property(st.binary(max_size=200) | damaged(TABLES), sorted_rubbish, 10),
    "names": Property(st.lists(FILE_NAMES, min_size=2, max_size=5, unique=True), names, 5),
    "newick": Property(st.lists(st.text(min_size=1, max_size=20), min_size=2, max_size=5), newick),
    "rubbish newick": Property(st.text("(),:;'[]ab_1.e-\x00 ", max_size=40), rubbish_newick),
    "metadata": Property(changed_metadata(), metadata_is_read_or_refused, 15),
}


def attack(rng: random.Random, folder: Path) -> None:
    """Check every property with drawn values."""
    for name, (drawn, check, examples) in PROPERTIES.items():
        own = folder / name.replace(" ", "-")
        own.mkdir()
        limits = hypothesis.settings(
            max_examples=examples, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        hypothesis.seed(rng.randrange(2**32))(limits(_with(drawn, partial(check, own))))()


def _with(drawn: st.SearchStrategy[Any], check: Callable[[Any], None]) -> Callable[[], None]:
    @hypothesis.given(drawn)
    def test(value: Any) -> None:
        check(value)

    return test
