"""Hostile input: FASTA, gzip, .npy, PHYLIP and tables, damaged or made up. An error that names it, or a result."""

from __future__ import annotations

import gzip
import io
import random
import warnings
from pathlib import Path

import numpy as np

from tartan.analytics import read_matrix
from tartan.apps.phylogeny.app import Phylogeny
from tartan.errors import InternalError, TartanError
from tartan.sources.items import open_source

LETTERS = b"ACDEFGHIKLMNPQRSTVWYacgtXBZ*-> \n\r\t\x00\xc3"
INPUTS_A_ROUND = 40


def attack(rng: random.Random, folder: Path) -> None:
    """Read files that nobody wrote."""
    for _ in range(INPUTS_A_ROUND):
        name, data = rng.choice([fasta, npy, phylip, table])(rng)
        if rng.random() < 0.5:
            data = damaged(rng, data)
        path = folder / name
        path.write_bytes(data)
        try:
            read(path, data)
        except TartanError as error:
            if isinstance(error, InternalError):
                raise
        except Exception as error:
            error.add_note(f"{name}: {data[:300]!r}")
            raise


def read(path: Path, data: bytes) -> None:
    """Read a file in every way that its name allows."""
    if ".faa" in path.name:
        middles, masks, codes, values, numbers = Phylogeny(k=3).parse(path.name, data)
        assert len(masks) == len(middles)
        assert len(codes) == len(values) == (masks[:, 0] >> 20).sum()
        assert np.isfinite(values).all()
        assert np.isfinite(numbers).all()
        return
    if path.suffix == ".npy":
        source = open_source(path)
        assert 0 < source.n_items < 1000
        source.read(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matrix = read_matrix(path)
        assert matrix.n > 0


def fasta(rng: random.Random) -> tuple[str, bytes]:
    """Make a proteome of odd letters, plain or gzip."""
    text = b"".join(
        b">%d\n" % i + bytes(rng.choices(LETTERS[: rng.choice([20, 20, len(LETTERS)])], k=rng.randrange(60))) + b"\n"
        for i in range(rng.randrange(6))
    )
    return ("x.faa", text) if rng.random() < 0.5 else ("x.faa.gz", gzip.compress(text, mtime=0))


def npy(rng: random.Random) -> tuple[str, bytes]:
    """Make an array."""
    n = rng.randrange(1, 6)
    array = np.array([rng.random() for _ in range(n * n)]).reshape(n, n)
    file = io.BytesIO()
    np.save(file, array.astype(rng.choice(["<f8", "<f4", "<i2", ">f8", "?"])))
    return "x.npy", file.getvalue()


def phylip(rng: random.Random) -> tuple[str, bytes]:
    """Make a distance matrix with names."""
    n = rng.randrange(1, 6)
    rows = [f"name{i} " + " ".join(f"{rng.random():.3g}" for _ in range(n)) for i in range(n)]
    return "x.phy", "\n".join([str(n + (rng.random() < 0.2)), *rows, ""]).encode()


def table(rng: random.Random) -> tuple[str, bytes]:
    """Make a table of numbers, names and holes."""
    words = ["1", "0.5", "nan", "", "a", "-1e999", "0x1", '"']
    n, mark = rng.randrange(1, 5), rng.choice("\t,")
    rows = [mark.join(rng.choice(words) for _ in range(n)) for _ in range(n)]
    return ("x.tsv" if mark == "\t" else "x.csv"), "\n".join(rows).encode()


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Turn bits, cut, or repeat a part."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        if changed:
            at = rng.randrange(len(changed))
            how = rng.randrange(3)
            if how == 0:
                changed[at] = rng.randrange(256)
            elif how == 1:
                del changed[at : at + rng.randrange(1, 20)]
            else:
                changed[at:at] = changed[: rng.randrange(40)]
    return bytes(changed)
