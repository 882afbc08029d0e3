"""Fingerprints in FPS files: what is read, under which names, and what is said of lines that do not fit."""

from __future__ import annotations

import bz2
import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.apps.vectors import Vectors
from tartan.errors import ConfigError, TartanError
from tartan.sources.fps import FpsSource, open_fps, read_fps
from tartan.sources.items import open_source

# As in the specification: two MACCS keys of RDKit, 166 bits.
MACCS = (
    b"#FPS1\n#num_bits=166\n#type=RDKit-MACCS166/2\n#software=RDKit/2018.03.1 chemfp/3.2.1\n#date=2018-05-15T15:18:48\n"
    b"000000003000000001d414d91323915380f138ea1f\t58-08-2\n"
    b"00000000000000000002000000000404001410d61e\t15687-27-1\n"
)


def write(tmp_path: Path, text: bytes, name: str = "some.fps") -> Path:
    path = tmp_path / name
    path.write_bytes(text)
    return path


def test_bits_are_counted_from_the_lowest_of_the_first_byte() -> None:
    packed, n_bits, ids = read_fps(MACCS)
    rows = np.unpackbits(packed, axis=1, count=n_bits, bitorder="little")
    assert (n_bits, ids) == (166, ["58-08-2", "15687-27-1"])
    assert np.flatnonzero(rows[0])[:4].tolist() == [36, 37, 64, 74]
    assert rows.sum(axis=1).tolist() == [46, 15]  # as RDKit counts them


def test_rows_are_booleans_with_the_ids_for_names(tmp_path: Path) -> None:
    source = open_source(str(write(tmp_path, MACCS)))
    assert isinstance(source, FpsSource)
    assert (source.shape, source.dtype, list(source.keys)) == ((2, 166), np.bool_, ["58-08-2", "15687-27-1"])
    block = source.read_block(1, 2)
    assert (block.shape, block.dtype, int(block.sum())) == ((1, 166), np.bool_, 15)
    copy = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(copy.read_block(0, 2), source.read_block(0, 2))
    assert list(copy.keys) == list(source.keys)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
def test_a_file_is_known_by_its_name(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    suffix = {gzip.compress: ".gz", bz2.compress: ".bz2"}.get(pack, "")
    path = write(tmp_path, pack(MACCS.partition(b"\n")[2]), f"some.fps{suffix}")  # without its first line
    assert open_source([path]).n_items == 2


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("start", [0, len("#FPS1\n")])
def test_a_file_is_known_by_how_it_begins(tmp_path: Path, pack: Callable[[bytes], bytes], start: int) -> None:
    assert open_source([write(tmp_path, pack(MACCS[start:]), "noname")]).n_items == 2


@pytest.mark.parametrize(
    "text",
    [
        b"0108\ta\n0000\tb\n",
        b"#FPS1\r\n#num_bits=16\r\n0108\ta\r\n0000\tb\r\n",
        b"#FPS1\n# num_bits = 16 \n#source=a=b\n0108\ta\tmore\tfields\n0000\tb\n\n\n",
        b"#FPS1\n0108\ta\n0000\tb",
    ],
)
def test_what_programs_write_in_other_ways(text: bytes) -> None:
    packed, n_bits, ids = read_fps(text)
    assert (packed.tolist(), n_bits, ids) == ([[1, 8], [0, 0]], 16, ["a", "b"])


def test_ids_may_have_spaces_and_letters_of_any_language() -> None:
    assert read_fps("00\tβ-pinene (1R)\n".encode())[2] == ["β-pinene (1R)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "it holds no fingerprint"),
        (b"#FPS1\n#num_bits=8\n", "it holds no fingerprint"),
        (b"#num_bits=eight\n00\ta\n", "line 1: num_bits is 'eight', no number"),
        (b"#num_bits=0\n00\ta\n", "line 1: num_bits is '0', no number"),
        (b"#num_bits=8\n#num_bits=9\n00\ta\n", "line 2: num_bits is 9, and num_bits in line 1 is 8; leave one"),
        (
            b"#num_bits=16\n00\ta\n",
            "line 2 has 2 hexadecimal digits, 8 bits, and num_bits in line 1 is 16, .* 4 digits",
        ),
        (b"00\ta\n0000\tb\n", "line 2 has 4 hexadecimal digits, 16 bits, and line 1 has 8 bits"),
        (b"#num_bits=6\n40\ta\n", "line 2 sets bits behind the last one, and num_bits in line 1 is 6"),
        (b"00\ta\n000\tb\n", "line 2 has 3 hexadecimal digits, an odd number"),
        (b"00\ta\n0g\tb\n", "line 2 has '0g', which are not hexadecimal digits"),
        (b"00\ta\n00\tb\n01\ta\n", "line 3: the id 'a' is that of line 1; give each its own"),
        (b"00\ta\n01\n", "line 2 has no id: it is '01' without a tab"),
        (b"00 a\n", "line 1 has no id: it is '00 a' without a tab"),
        (b"00\ta\n01\t\n", "line 2 has an empty id"),
        (b"00\ta\n\n01\tb\n", "line 2 is empty; remove it"),
        (b"00\t\xff\n", "line 1: the id is not UTF-8"),
        (b"00\ta\n#num_bits=8\n", "line 2 has no id"),
    ],
)
def test_lines_that_do_not_fit_are_named(tmp_path: Path, text: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=r"fingerprints '.*some.fps': " + message):
        open_fps(str(write(tmp_path, text)))


def test_a_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(MACCS * 1)
    with pytest.raises(ConfigError, match="damaged or end early"):
        open_source([write(tmp_path, whole[:-12], "some.fps.gz")])


def test_the_number_of_bits_counts_for_hamming(tmp_path: Path) -> None:
    """166 positions, not the 168 of 21 bytes; padding is not part of Jaccard."""
    a, b = (np.unpackbits(row, count=166, bitorder="little") for row in read_fps(MACCS)[0])
    path = write(tmp_path, MACCS)
    for metric, expected in (("hamming", (a != b).mean()), ("jaccard", (a != b).sum() / (a | b).sum())):
        run = tartan.allpairs(Vectors(metric=metric), str(path), workers=1, quiet=True)
        assert run.matrix()[0, 1] == pytest.approx(expected, abs=1e-7)
        assert list(run.keys) == ["58-08-2", "15687-27-1"]


def test_a_run_is_added_to(tmp_path: Path) -> None:
    path, more = write(tmp_path, MACCS), write(tmp_path, MACCS.replace(b"-2\n", b"-3\n"), "more.fps")
    app = Vectors(metric="jaccard")
    tartan.allpairs(app, str(path), tmp_path / "run", quiet=True)
    more.write_bytes(more.read_bytes().replace(b"15687", b"15688"))
    grown = tartan.add(tmp_path / "run", str(more))
    assert list(grown.keys) == ["58-08-2", "15687-27-1", "58-08-3", "15688-27-1"]
    assert grown.matrix()[0, 2] == 0
    wide = write(tmp_path, b"#num_bits=8\n01\tc\n", "wide.fps")
    with pytest.raises(ConfigError, match="arrays with different rows"):
        tartan.add(tmp_path / "run", str(wide))


def test_several_files_are_told_how_to_become_one_run(tmp_path: Path) -> None:
    paths = [str(write(tmp_path, MACCS, name)) for name in ("a.fps", "b.fps")]
    with pytest.raises(TartanError, match="from one FPS file; run one, and `tartan add RUN FILE` adds"):
        tartan.allpairs(Vectors(metric="jaccard"), paths, quiet=True)
