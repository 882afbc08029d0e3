"""What the built-in applications say of an item to people who look at it."""

from __future__ import annotations

import gzip
import io

import numpy as np
import pytest
from PIL import Image

import tartan
from tartan.apps.forensics.app import Forensics
from tartan.apps.phylogeny.app import Phylogeny
from tartan.errors import ItemError

FASTA = b">WP_1 first [Some species 12]\nACDE\nFG*\n>WP_2 second\r\nAC\r\n"


@pytest.mark.parametrize(
    "data",
    [FASTA, gzip.compress(FASTA), gzip.compress(FASTA[:20]) + gzip.compress(FASTA[20:])],
    ids=["plain", "gzip", "gzip of two members"],
)
def test_a_proteome(data: bytes) -> None:
    assert Phylogeny().describe_item("a.faa", data) == {
        "organism": "Some species 12", "proteins": 2, "amino acids": 8, "median length": 4.0, "longest": 6,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"root:x:0:0", "no FASTA file"),
        (b"", "no FASTA file"),
        (gzip.compress(FASTA)[:-12], "truncated gzip"),
        (b"\x1f\x8b\x08" + b"\xff" * 40, "damaged gzip"),
    ],
    ids=["text", "nothing", "truncated gzip", "damaged gzip"],
)
def test_what_is_no_proteome_says_nothing_of_itself(data: bytes, said: str) -> None:
    with pytest.raises(ItemError, match=rf"^a\.faa: {said}"):
        Phylogeny().describe_item("a.faa", data)


def photo(side: tuple[int, int] = (90, 60), format: str = "JPEG") -> bytes:  # noqa: A002
    written = io.BytesIO()
    exif = Image.Exif()
    exif[271], exif[272], exif[306] = "NIKON CORPORATION", "NIKON D70", "2009:01:12 21:14:28"
    Image.new("RGB", side, (90, 60, 30)).save(written, format=format, exif=exif)
    return written.getvalue()


def test_a_photo() -> None:
    found = Forensics().describe_item("a.jpg", photo())
    assert found.pop("photo").shape == (60, 90, 3)
    assert found == {"pixels": "90 x 60", "format": "JPEG", "camera": "NIKON D70", "taken": "2009:01:12 21:14:28"}
    assert Forensics().describe_item("a.jpg", photo((3000, 1500)))["photo"].shape == (320, 640, 3)


@pytest.mark.parametrize(
    "data", [b"root:x:0:0", b"", photo()[:300], photo(format="GIF")], ids=["text", "nothing", "half", "GIF"]
)
def test_what_is_no_photo_says_nothing_of_itself(data: bytes) -> None:
    with pytest.raises(ItemError, match=r"^a\.jpg: no photo, or a damaged one"):
        Forensics().describe_item("a.jpg", data)


def test_a_photo_beyond_the_limit_is_not_decoded() -> None:
    with pytest.raises(ItemError, match=r"^a\.jpg: more than 0\.005 megapixels$"):
        Forensics(max_megapixels=0.005).describe_item("a.jpg", photo())


def test_other_applications_show_arrays_and_no_bytes() -> None:
    app = tartan.Application()
    assert app.describe_item("a", b"a private text") == {}
    assert app.describe_item("a", "a private text") == {"type": "str", "length": 14}
    found = app.describe_item("a", np.array([1.0, np.nan, 4.0]))
    assert (found["type"], found["shape"], found["least"], found["greatest"], found["mean"]) == (
        "float64", "3", 1.0, 4.0, 2.5,
    )  # fmt: skip
    assert "values" not in app.describe_item("a", np.zeros((2, 2, 2)))
