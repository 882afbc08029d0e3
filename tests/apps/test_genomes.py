"""Genomes: sketches as sourmash makes them, scores of few lines, every form of input, every kind of bad one."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tartan
from tartan.apps.genomes.app import Genomes, compare_sketches, estimate_shares, n50
from tartan.apps.genomes.signatures import (
    SUFFIXES,
    digest,
    max_hash,
    open_signatures,
    read_signature,
    write_signatures,
)
from tartan.cli.main import main
from tartan.errors import ConfigError, ItemError

LETTERS = np.frombuffer(b"ACGT", np.uint8)
TURN = bytes.maketrans(b"ACGTacgt", b"TGCAtgca")


def genome(n_letters: int, seed: int = 1) -> bytes:
    """Return random letters that are the same in every version of NumPy."""
    state, letters = seed, bytearray()
    for _ in range(n_letters):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        letters.append(b"ACGT"[state >> 62])
    return bytes(letters)


def mutate(letters: bytes, rate: float, seed: int) -> bytes:
    """Return letters of which a share is replaced by others."""
    rng = np.random.default_rng(seed)
    codes = np.searchsorted(LETTERS, np.frombuffer(letters, np.uint8))
    changed = rng.random(codes.size) < rate
    codes[changed] = (codes[changed] + rng.integers(1, 4, int(changed.sum()))) % 4
    return LETTERS[codes].tobytes()


def fasta(*contigs: bytes, width: int = 70, end: bytes = b"\n") -> bytes:
    lines = []
    for number, contig in enumerate(contigs):
        lines += [b">contig%d of a genome" % number]
        lines += [contig[at : at + width] for at in range(0, len(contig), width)]
    return end.join(lines) + end


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def zipped(name: str, data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, data)
    return packed.getvalue()


# Of sourmash 4.9.4: MinHash(0, k, scaled=scaled), add_sequence(genome(40_000)), md5sum().
MD5 = {
    (21, 10): "bca7d47af43a78932f971b50a3c19cc2",
    (31, 10): "fd1886dfc944e3f04fe6042195e1547f",
    (31, 1000): "d0b5a8c0a402285e25849ac9e832d4a3",
    (51, 7): "d19b5870e5e42bc4c560dd5c2a5f8b28",
    (10, 1): "c9f42983544e64f6b7c96876478393d4",
}


@pytest.mark.parametrize(("k", "scaled"), MD5)
def test_sketches_are_those_of_sourmash(k: int, scaled: int) -> None:
    hashes = Genomes(k=k, scaled=scaled).parse("a", fasta(genome(40_000)))
    assert digest(hashes.tolist(), k) == MD5[k, scaled]


def test_limits_of_hashes_are_those_of_sourmash() -> None:
    # MinHash(0, 31, scaled=scaled)._max_hash of sourmash 4.9.4
    assert [max_hash(scaled) for scaled in (1, 2, 7, 1000, 10**6, 12345678)] == [
        18446744073709551615, 9223372036854775808, 2635249153387078656, 18446744073709552, 18446744073709,
        1494186392493,
    ]  # fmt: skip


FORMS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "wide lines": lambda a, b: fasta(a, b, width=10**6),
    "lines of one letter": lambda a, b: fasta(a, b, width=1),
    "Windows": lambda a, b: fasta(a, b, end=b"\r\n"),
    "old Mac": lambda a, b: fasta(a, b, end=b"\r"),
    "lower case": lambda a, b: fasta(a.lower(), b),
    "other order": lambda a, b: fasta(b, a),
    "other strand": lambda a, b: fasta(a.translate(TURN)[::-1], b.lower().translate(TURN)[::-1]),
    "byte order mark": lambda a, b: b"\xef\xbb\xbf" + fasta(a, b),
    "blank lines": lambda a, b: b"\n\n" + fasta(a, b).replace(b"\n", b"\n\n"),
    "blanks in lines": lambda a, b: fasta(a, b, width=10).replace(b"\n", b" \t\n"),
    "empty contigs": lambda a, b: b">none\n" + fasta(a, b"", b) + b">none\n",
    "contig of N": lambda a, b: fasta(a, b"N" * 500, b),
    "no last line end": lambda a, b: fasta(a, b).rstrip(),
    "gzip": lambda a, b: gzip.compress(fasta(a, b)),
    "gzip of two members": lambda a, b: gzip.compress(fasta(a)) + gzip.compress(fasta(b)),
    "gzip with padding": lambda a, b: gzip.compress(fasta(a, b)) + bytes(512),
    "bzip2": lambda a, b: bz2.compress(fasta(a, b)),
    "bzip2 of two streams": lambda a, b: bz2.compress(fasta(a)) + bz2.compress(fasta(b)),
    "xz with padding": lambda a, b: lzma.compress(fasta(a)) + bytes(512) + lzma.compress(fasta(b)) + bytes(4),
    "masked by X": lambda a, b: fasta(a, b"X" * 500, b),
    "xz": lambda a, b: lzma.compress(fasta(a, b)),
    "zstd": lambda a, b: zstd(fasta(a, b)),
    "RNA": lambda a, b: fasta(a.replace(b"T", b"U"), b),
    "reads": lambda a, b: b"@1\n%s\n+\n%s\n@2 x\n%s\n+2 x\n%s\n" % (a, b"@" * len(a), b, b">" * len(b)),
    "reads in lines": lambda a, b: b"@1\n%s\n%s\n+\n%s\n%s\n@2\n%s\n+\n%s" % (
        a[:99], a[99:], b"+" * 99, b"@" * (len(a) - 99), b, b"I" * len(b)
    ),
    "signature": lambda a, b: write_signatures([("a", Genomes(scaled=5).parse("a", fasta(a, b)))], 31, 5),
    "coarser signature": lambda a, b: gzip.compress(
        write_signatures([("a", Genomes(scaled=1).parse("a", fasta(a, b)))], 31, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_file_changes_no_bit(form: str) -> None:
    a, b = genome(3000), genome(2000, 2)
    app = Genomes(scaled=5)
    expected = app.parse("a", fasta(a, b))
    assert len(expected) > 800
    np.testing.assert_array_equal(app.parse("a", FORMS[form](a, b)), expected)


def test_scores_follow_their_definitions() -> None:
    app = Genomes(scaled=2)
    texts = [genome(4000), mutate(genome(4000), 0.02, 1), genome(4000)[:1500], genome(900, 7)]
    items = [app.parse(str(i), fasta(text)) for i, text in enumerate(texts)]
    found = app.compare(items, items, np)
    for i, a in enumerate(map(set, map(np.ndarray.tolist, items))):
        for j, b in enumerate(map(set, map(np.ndarray.tolist, items))):
            shared, least = len(a & b), min(len(a), len(b))
            assert found["shared"][i, j] == shared
            assert found["containment"][i, j] == np.float32(shared / least)
            assert found["jaccard"][i, j] == np.float32(shared / len(a | b))
            assert found["ani"][i, j] == pytest.approx((shared / least) ** (1 / 31), rel=1e-6)
    assert found["ani"][0].tolist() == pytest.approx([1, 0.98, 1, 0], abs=0.005)
    assert (np.diag(found["ani"]) == 1).all()
    assert found["ani_error"][0, 3] == pytest.approx(min(len(items[0]), len(items[3])) ** (-1 / 31), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "scaled"), [*((rate, 100) for rate in (0.001, 0.01, 0.05, 0.1)), (0.01, 1), (0.05, 1), (0.05, 10)]
)
def test_ani_lies_within_its_error(rate: float, scaled: int) -> None:
    """Of complete genomes, and of one that is half of itself, turned round and in parts; also where all is kept."""
    app = Genomes(scaled=scaled)
    ancestor = genome(200_000)
    errors, stated = [], []
    for seed in range(30):
        other = mutate(ancestor, rate, seed)
        contigs = [other[at : at + 25_000] for at in range(0, 200_000, 25_000)][seed % 2 * 4 :]
        turned = [one.translate(TURN)[::-1] if place % 2 else one for place, one in enumerate(contigs)]
        items = [app.parse("a", fasta(ancestor)), app.parse("b", fasta(*reversed(turned)))]
        found = app.compare(items[:1], items[1:], np)
        errors.append(float(found["ani"][0, 0]) - (1 - rate))
        stated.append(float(found["ani_error"][0, 0]))
    # 30 differences lie within two standard errors but for two in a hundred runs of four or more.
    assert sum(abs(error) > 2 * own for error, own in zip(errors, stated, strict=True)) <= 4
    assert 0.6 < np.mean(stated) / np.sqrt(np.mean(np.square(errors))) < 1.6


def test_errors_grow_where_little_is_shared() -> None:
    shared = np.array([[5000, 4999, 500, 30, 1, 0]], np.int32)
    extents = np.tile([5000.0, 5000.0, 1.0], (6, 1))
    found = compare_sketches(shared, extents[:1], extents, 31, 1000)["ani_error"][0]
    assert (np.diff(found) > 0).all()
    assert found[0] < 1e-5
    # The root of 30 hashes, through the slope of the root of order 31.
    assert found[3] == pytest.approx((30 / 5000) ** (1 / 31) / 31 / 30**0.5, rel=0.03)


def keep(letters: bytes, share: float, seed: int) -> bytes:
    """Return the contigs of 5,000 letters that were found, as a file."""
    rng = np.random.default_rng(seed)
    contigs = [letters[at : at + 5000] for at in range(0, len(letters), 5000)]
    return fasta(*(contig for contig in contigs if rng.random() < share))


@pytest.mark.slow
def test_what_a_table_says_is_missing_or_foreign_is_taken_into_account(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    plain, table = Genomes(scaled=50), tmp_path / "quality.tsv"
    table.write_text("Name\tCompleteness\tContamination\na\t70\t0\nb.fna\t60\t20\nwhole\t100\t0\n\n")
    told = Genomes(scaled=50, completeness=table)
    beyond, too_low = 0, []
    for seed, rate in enumerate([0.003, 0.01, 0.02, 0.03, 0.05] * 4):
        ancestor = LETTERS[rng.integers(0, 4, 600_000)].tobytes()
        stranger = LETTERS[rng.integers(0, 4, 90_000)].tobytes()  # a fifth of what is found of b
        files = {
            "in/a.fna.gz": keep(ancestor, 0.7, 100 + seed),
            "b.fna": keep(mutate(ancestor, rate, seed), 0.6, 200 + seed) + fasta(stranger),
        }
        items = [told.parse(key, data) for key, data in files.items()]
        bare = [plain.parse(key, data) for key, data in files.items()]
        found, known = told.compare(items[:1], items[1:], np), plain.compare(bare[:1], bare[1:], np)
        beyond += abs(found["ani"][0, 0] - (1 - rate)) > 2 * found["ani_error"][0, 0] + 0.005
        too_low.append(1 - rate - known["ani"][0, 0])
        assert all(found[name] == known[name] for name in ("shared", "containment", "jaccard"))
    assert beyond <= 1
    assert 0.008 < np.mean(too_low) < 0.025
    whole = told.parse("whole.fa", files["b.fna"])
    assert told.compare([whole], [whole], np)["ani"] == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no column Completeness; it has none"),
        ("name,size\na,5\n", "has no column Completeness; it has name, size"),
        ("name,Completeness\n", "names no genomes"),
        ("name,Completeness\na,0\n", "line 2: a completeness of 0 % is not within 0..100"),
        ("name,Completeness\na,120\n", "line 2: a completeness of 120 %"),
        ("name,Completeness\na,most\n", "line 2: 'most' in the column Completeness is not a percentage"),
        ("name,Completeness,Contamination\na,90\n", "line 2: '' in the column Contamination is not a percentage"),
        ("name,Completeness,Contamination\na,90,nan\n", "line 2: 'nan' in the column Contamination"),
    ],
)
def test_tables_of_completeness_that_are_none(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "q.csv").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        Genomes(completeness=tmp_path / "q.csv")
    with pytest.raises(ConfigError, match="No such file"):
        Genomes(completeness=tmp_path / "none.csv")
    with pytest.raises(ConfigError, match="is not a file; a run reads it again"):
        Genomes(completeness=tmp_path)


def test_runs_with_a_table_are_resumed_grown_and_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ancestor = genome(60_000)
    for name in ("a", "b", "c", "d"):
        Path(f"{name}.fna").write_bytes(keep(mutate(ancestor, 0.01, ord(name)), 0.8, ord(name)))
    Path("q.csv").write_text("genome,completeness,contamination\na.fna,80,0\nb,80,0\nd.fna,80,0\n")
    given = ["--set", "scaled=20", "completeness=q.csv", "-q"]
    assert main(["run", "genomes", "a.fna", "b.fna", "c.fna", "-o", "r.tartan", *given]) == 3
    run = tartan.open("r.tartan")
    assert "q.csv has no line for it; add one, with 100" in run.failures[0].reason
    assert abs(run.matrix("ani")[0, 1] - 0.98) < 0.004
    monkeypatch.chdir("/")
    assert main(["add", f"{tmp_path}/r.tartan", f"{tmp_path}/d.fna", "-q"]) == 3
    assert abs(tartan.open(tmp_path / "r.tartan").matrix("ani")[0, 3] - 0.98) < 0.004
    assert main(["export", f"{tmp_path}/r.tartan", f"{tmp_path}/r.sig"]) == 0


@pytest.mark.slow
def test_a_table_whose_lines_have_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ancestor, table = genome(60_000), Path("q.csv")
    for name in ("a", "b", "c", "d"):
        Path(f"{name}.fna").write_bytes(keep(mutate(ancestor, 0.01, ord(name)), 0.8, ord(name)))
    head = "genome,completeness,contamination\n"
    table.write_text(f"{head}a.fna,80,0\nb,80,0\n")
    settings = ["--set", "scaled=20", "completeness=q.csv", "-q"]
    given = ["genomes", "a.fna", "b.fna", "c.fna", "-o", "r.tartan", *settings, "--cache-at", str(tmp_path / "cache")]
    assert main(["run", *given]) == 3  # c has no line
    before = tartan.open("r.tartan").matrix("ani")[0, 1]
    # Lines in another order, and lines of other genomes, change nothing; a line that is new heals what lacked it.
    table.write_text(f"{head}b,80.0,0\nx,3,4\na,80,0\nc,80,0\nd,80,0\n")
    assert main(["run", *given]) == 3
    assert main(["resume", "r.tartan", "-q"]) == 3
    assert main(["resume", "r.tartan", "--retry-failed", "-q"]) == 0
    assert main(["resume", "r.tartan", "--verify", "-q"]) == 0
    part = ["run", "genomes", "a.fna", "b.fna", "c.fna", "-o", "half.tartan", *settings]
    assert main([*part, "--part", "1/2", "--tile", "1"]) == 0
    assert tartan.open("half.tartan").n_pairs_left
    capsys.readouterr()
    for line in ("b,90,0", "b,80,5", ""):
        table.write_text(f"{head}a,80,0\n{line}\nc,80,0\nd,80,0\n")
        for command in (["resume", "half.tartan", "-q"], ["add", "r.tartan", "d.fna", "-q"], ["run", *given]):
            assert main(command) != 0
            said = capsys.readouterr().err
            assert "what a table says of items has changed: b.fna (completeness 0.8, contamination 0.0, now " in said
    assert tartan.open("r.tartan").n_items == 3
    # What the table says now counts in a run of its own, also where sketches are taken from the disk.
    table.write_text(f"{head}a,90,0\nb,90,0\nc,80,0\n")
    assert main(["run", *given, "--overwrite"]) == 0
    after = tartan.open("r.tartan").matrix("ani")[0, 1]
    plain = Genomes(scaled=20)
    counts = [len(plain.parse(name, Path(name).read_bytes())) for name in ("a.fna", "b.fna")]
    shared = int(tartan.open("r.tartan").matrix("shared")[0, 1])

    def corrected(*complete: float) -> float:
        """Of the smaller genome, how much of its hashes the other one would have, were both whole."""
        whole = [count / share for count, share in zip(counts, complete)]
        return float((shared / complete[0] / complete[1] / min(whole)) ** (1 / 31))

    assert before == pytest.approx(corrected(0.8, 0.8), abs=2e-4)
    assert after == pytest.approx(corrected(0.9, 0.9), abs=2e-4)
    assert abs(after - before) > 1e-3


def test_a_fragment_joins_no_species_where_a_share_of_both_is_asked_for(tmp_path: Path) -> None:
    """Incomplete genomes of one species, whose shares are known from the contigs that were kept."""
    ancestor = genome(300_000)
    cut = {share: int(3e5 * share) for share in (1.0, 0.8, 0.6, 0.25, 0.1)}
    texts = {str(share): mutate(ancestor, 0.01, end)[:end] for share, end in cut.items()}
    table = tmp_path / "q.csv"
    table.write_text("name,completeness\n" + "".join(f"{name},{float(name) * 100}\n" for name in texts))
    shares = np.array([float(name) for name in texts])
    known = np.minimum(shares[:, None], shares) / np.maximum(shares[:, None], shares)
    anis = {}
    for least, given in ((0.0, None), (0.5, None), (0.5, table)):
        app = Genomes(scaled=50, min_share=least, completeness=given)
        items = [app.parse(name, fasta(text)) for name, text in texts.items()]
        anis[least, given] = app.compare(items, items, np)["ani"]
    assert (anis[0.0, None] > 0.95).all()
    assert np.array_equal(anis[0.5, None] > 0, known >= 0.5)
    assert np.array_equal(anis[0.5, None][known >= 0.5], anis[0.0, None][known >= 0.5])
    assert (anis[0.5, table] > 0).all()  # by the table all are of one size
    sizes = np.array([len(Genomes(scaled=50).parse(name, fasta(text))) for name, text in texts.items()])
    extents = np.column_stack([sizes, sizes, np.ones(len(sizes))])
    estimate = estimate_shares(extents, extents)
    error = known * np.sqrt(1 / sizes[:, None] + 1 / sizes)
    assert (np.abs(estimate - known) <= 3 * error + 1e-12).all()


def test_what_a_smaller_genome_does_not_align_lowers_its_ani() -> None:
    app, ancestor = Genomes(scaled=20), genome(200_000)
    half = app.parse("half", fasta(ancestor[:50_000] + genome(50_000, 7)))
    whole = app.parse("whole", fasta(ancestor))
    assert app.compare([half], [whole], np)["ani"][0, 0] == pytest.approx(0.5 ** (1 / 31), abs=0.002)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), "half", True])
def test_shares_that_are_none_are_refused(share: Any) -> None:
    with pytest.raises(ConfigError, match="is not a share from 0 to 1"):
        Genomes(min_share=share)


@pytest.mark.parametrize(
    "mins", ["1,2,3", " 3 ,\n1,\t2 ", "", "[1]", "1,-1", "1,2.0", "1,18446744073709551616", "01", '"x"', "1,,2"]
)
@pytest.mark.parametrize("name", ["plain", '"mins":[7]', "[1,2]", 'a "mins" : [4, 5] b'])
@pytest.mark.parametrize("after", ["", ', "other": [9], "x": {"mins": 5, "y": [8]}'])
def test_hashes_are_those_that_json_has(mins: str, name: str, after: str) -> None:
    """The list of hashes is read past the JSON; what it says is what the JSON of Python says."""
    text = (
        f'[{{"name": {json.dumps(name)}, "signatures": [{{"ksize": 31, "molecule": "DNA", "max_hash": {2**64 - 1}, '
        f'"mins" : [{mins}]}}]{after}}}]'
    ).encode()
    try:
        wanted = json.loads(text)[0]["signatures"][0]["mins"]
        wanted = sorted(wanted) if all(type(one) is int and 0 <= one < 2**64 for one in wanted) else None
    except ValueError:
        wanted = None
    app = Genomes(scaled=1)
    if not wanted:
        with pytest.raises(ItemError, match=r"is not JSON|are not a list of whole numbers|has a hash that is kept"):
            app.parse("a.sig", text)
        return
    assert app.parse("a.sig", text).tolist() == wanted
    items = app.split("a.sig", text[:-1] + b"," + text[1:])
    assert items is not None
    assert [app.parse(f"a.sig#{key}", one).tolist() for key, one in items.items()] == [wanted] * 2
    assert [json.loads(one)["name"] for one in items.values()] == [name] * 2


def test_scores_that_are_written_in_place_are_those_that_are_returned() -> None:
    rng = np.random.default_rng(2)
    app = Genomes(scaled=1, min_share=0.4)
    items = [np.unique(rng.integers(0, 3000, int(size)).astype(np.uint64)) for size in rng.integers(50, 2000, 300)]
    returned = app.compare(items, items[:70], np)
    for names in (app.outputs, ("ani",), ("shared", "jaccard")):
        padded = {name: np.full((300, 80), -1, app.outputs[name]) for name in names}
        out = {name: array[:, :70] for name, array in padded.items()}
        assert app.compare(items, items[:70], np, out) is out
        for name in names:
            np.testing.assert_array_equal(out[name], returned[name])
            assert (padded[name][:, 70:] == -1).all()


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty; a genome needs"),
    "blank": (b"\n \n", "the file is empty"),
    "no header": (genome(100), "begins neither with '>'"),
    "protein": (b">p\n" + b"MKVLAAGIVGLPNVGKSTLFNALTKAGIE" * 9, "this is protein, and genomes compares DNA"),
    "a byte": (b">a\nACGT\x00ACGT\n", "line 2 holds the byte 0x00"),
    "only N": (fasta(b"N" * 300), "no string of k=31 letters"),
    "short contigs": (fasta(*[genome(30, seed) for seed in range(9)]), "smaller k where contigs are short"),
    "short gzip": (gzip.compress(fasta(genome(3000)))[:-30], "the gzip data end in the middle of a member"),
    "damaged bzip2": (bz2.compress(fasta(genome(3000)))[:-30], "the bzip2 data are damaged or end early"),
    "damaged zstd": (zstd(fasta(genome(3000)))[:60], "the zstd data are damaged or end early"),
    "qualities": (b"@a\nACGTAC\n+\nIII\n", "the read that ends at line 4 has not one quality for each letter"),
    "JSON": (b'{"a": 1}', "holds no signatures of sourmash"),
    "half of JSON": (b'[{"signatures": [', "is not JSON"),
    "zip": (b"PK\x03\x04 and nothing more", "the zip file is damaged"),
    "zip of sequences": (zipped("a.fna", b">a\nACGT"), "holds no signature of sourmash; unpack files of sequences"),
    "empty list": (b"[]", "holds no signature of sourmash"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_says_what_is_wrong(name: str) -> None:
    data, reason = BAD[name]
    with pytest.raises(ItemError, match=r"^bad: ") as raised:
        Genomes().parse("bad", data)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ksize": 21}, "it has k=21, dna"),
        ({"molecule": "protein"}, "it has k=31, protein"),
        ({"max_hash": max_hash(2000)}, "k=31, dna, scaled=2000"),
        ({"max_hash": 0, "num": 500}, "k=31, dna, num"),
        ({"seed": 43}, "another hash function or seed"),
        ({"mins": ["a"]}, "not a list of whole numbers of 64 bits"),
        ({"mins": [2**64]}, "not a list of whole numbers of 64 bits"),
        ({"mins": None}, "not a list of whole numbers of 64 bits"),
        ({"mins": [5.0, 9]}, "not a list of whole numbers of 64 bits"),
        ({"mins": [True, 9]}, "not a list of whole numbers of 64 bits"),
        ({"mins": ["5", 9]}, "not a list of whole numbers of 64 bits"),
        ({"mins": [5]}, "the hashes of its sketch do not match its md5sum"),
    ],
)
def test_sketches_that_cannot_be_compared_are_named(change: dict[str, Any], reason: str) -> None:
    whole = json.loads(write_signatures([("a", np.array([5, 9], np.uint64))], 31, 1000))
    whole[0]["signatures"][0] |= change
    with pytest.raises(ItemError, match=reason):
        Genomes().parse("a", json.dumps(whole).encode())


@pytest.mark.parametrize("version", [0.1, 0.5, "0.4", None])
def test_another_version_of_signatures_is_named(version: Any) -> None:
    whole = json.loads(write_signatures([("a", np.array([5, 9], np.uint64))], 31, 1000))
    whole[0]["version"] = version
    with pytest.raises(ItemError, match=f"k=31, dna, version {version} of the format in place of 0.4"):
        Genomes().parse("a", json.dumps(whole).encode())
    del whole[0]["version"]
    assert Genomes().parse("a", json.dumps(whole).encode()).tolist() == [5, 9]


def test_of_several_sketches_the_one_that_fits_is_read() -> None:
    sketches = [json.loads(write_signatures([("a", np.array([k], np.uint64))], k, 10))[0] for k in (21, 31, 51)]
    sketches[0]["signatures"] += sketches[1]["signatures"] + sketches[2]["signatures"]
    assert read_signature(sketches[0], 31, 1000).tolist() == [31]


def test_entries_of_one_name_are_one_genome() -> None:
    """As sourmash writes sketches with several k: of a genome without this one, all are named."""

    def entries(name: str, *sketches: tuple[int, int]) -> list[Any]:
        return [json.loads(write_signatures([(name, np.array([h], np.uint64))], k, 10))[0] for k, h in sketches]

    whole = [*entries("a", (21, 1), (31, 2), (51, 3)), *entries("b", (21, 4), (51, 5)), *entries("c", (31, 6), (31, 7))]
    data = json.dumps(whole).encode()
    app = Genomes()
    found = app.split("x.sig", data)
    assert found is not None
    assert list(found) == ["a", "b", "c", "c_2"]
    assert [app.parse(name, found[name]).tolist() for name in ("a", "c", "c_2")] == [[2], [6], [7]]
    with pytest.raises(ItemError, match="it has k=21, dna; k=51, dna"):
        app.parse("b", found["b"])


def test_a_file_of_several_signatures_is_several_items(tmp_path: Path) -> None:
    app = Genomes(scaled=5)
    hashes = [app.parse(str(seed), fasta(genome(2000, seed))) for seed in (1, 2, 3)]
    names = ["one", "two", "three"]
    plain = write_signatures(list(zip(names, hashes, strict=True)), 31, 5)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("SOURMASH-MANIFEST.csv", "# none")
        for name, one in zip(names, hashes, strict=True):
            archive.writestr(f"signatures/{name}.sig.gz", gzip.compress(write_signatures([(name, one)], 31, 5)))
    (tmp_path / "all.sig").write_bytes(plain)
    (tmp_path / "all.sig.gz").write_bytes(gzip.compress(plain))
    (tmp_path / "all.zip").write_bytes(packed.getvalue())
    for file in ("all.sig", "all.sig.gz", "all.zip"):
        run = tartan.allpairs(app, str(tmp_path / file))
        assert list(run.keys) == [f"{file}#{name}" for name in names]
        assert run.matrix("shared")[0, 1] == np.intersect1d(hashes[0], hashes[1]).size
    assert len(open_signatures(packed.getvalue(), 31, 5, 2**30, 200)) == 3
    with pytest.raises(ValueError, match="more than the limit of 10 bytes"):
        open_signatures(packed.getvalue(), 31, 5, 10, 200)


def test_hashes_may_come_as_arrays() -> None:
    app = Genomes(scaled=2)
    hashes = np.array([7, 3, 7, 2**64 - 1], np.uint64)
    assert app.parse("a", hashes).tolist() == [3, 7]
    with pytest.raises(ItemError, match="hashes are uint64"):
        app.parse("a", hashes.astype(np.int64))


@pytest.mark.parametrize(
    "wrong", [{"k": 6}, {"k": 256}, {"k": 31.5}, {"scaled": 0}, {"scaled": 1.5}, {"max_bytes": 0}, {"max_ratio": True}]
)
def test_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Genomes(**wrong)


def test_genomes_are_described() -> None:
    text = fasta(genome(1000), genome(400, 2) + b"NNNN", genome(300, 3))
    about = Genomes(scaled=3).describe_item("a", text)
    assert about == {
        "letters": 1704, "contigs": 3, "N50": 1000, "G and C": about["G and C"], "other than A, C, G, T": 4,
        "hashes kept": len(Genomes(scaled=3).parse("a", text)),
    }  # fmt: skip
    assert Genomes(scaled=1).describe_item("a", b"@a\n%s\n+\n%s\n" % (genome(50), b"I" * 50))["reads"] == 1
    signature = write_signatures([("a", np.array([5, 9], np.uint64))], 31, 1000)
    assert Genomes().describe_item("a", signature) == {"hashes kept": 2, "read from": "a signature"}
    assert n50(np.array([], np.uint64)) == 0


def test_species_are_the_clusters(tmp_path: Path) -> None:
    for species in range(3):
        ancestor = genome(30_000, species + 1)
        for strain in range(4):
            contigs = mutate(ancestor, 0.02, strain)
            (tmp_path / f"{species}-{strain}.fna").write_bytes(fasta(contigs[9000:], contigs[:9000]))
    (tmp_path / "bad.fna").write_bytes(b">p\n" + b"MKVLAAGIVGLPNVGKSTLFNALTKAGIE" * 9)
    run = tartan.allpairs(Genomes(scaled=20), str(tmp_path))
    assert [run.keys[failure.i] for failure in run.failures] == ["bad.fna"]
    labels = run.cluster(failed="drop")
    assert len({*labels[:4]}) == len({*labels[4:8]}) == len({*labels[8:12]}) == 1
    assert len({*labels[:12].tolist()}) == 3


def test_a_zip_file_that_grows_too_much_is_refused() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("signatures/a.sig", b" " * (40 << 20) + b"[]")
    with pytest.raises(ItemError, match="above the ratio of 200 that is allowed"):
        Genomes().parse("a", packed.getvalue())


def test_reads_are_no_records(tmp_path: Path) -> None:
    (tmp_path / "a.fq").write_bytes(b"@a\n%s\n+\n%s\n" % (genome(50), b"I" * 50))
    (tmp_path / "b.fna").write_bytes(fasta(genome(500), genome(400, 2)))
    run = tartan.allpairs(Genomes(scaled=1, each="record"), str(tmp_path / "*"))
    assert [run.keys[failure.i] for failure in run.failures] == ["a.fq"]
    assert "only FASTA has records that are items" in run.failures[0].reason


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_signatures_of_a_run_come_back(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2):
        (tmp_path / f"{seed}.fna").write_bytes(fasta(genome(3000, seed)))
    (tmp_path / "copy.fna").write_bytes(fasta(genome(3000, 1)))
    (tmp_path / "none.fna").write_bytes(fasta(b"N" * 99))
    words = ["--set", "scaled=5", "-q", "-o"]
    assert main(["run", "genomes", str(tmp_path / "*.fna"), *words, str(tmp_path / "a.tartan")]) == 3
    file = str(tmp_path / f"out{suffix}")
    assert main(["export", str(tmp_path / "a.tartan"), file, "--names", "stem"]) == 0
    assert main(["run", "genomes", file, *words, str(tmp_path / "b.tartan")]) == 0
    again = tartan.open(tmp_path / "b.tartan")
    assert list(again.keys) == [f"out{suffix}#{name}" for name in ("1", "2", "copy")]
    for output in ("ani", "shared"):
        whole = tartan.open(tmp_path / "a.tartan").matrix(output)
        np.testing.assert_array_equal(again.matrix(output), whole[:3, :3])
    assert main(["export", str(tmp_path / "a.tartan"), file]) == 2
    assert main(["export", str(tmp_path / "a.tartan"), file, "--overwrite", "--diagonal", "1"]) == 2
    assert "have no use for diagonal" in capsys.readouterr().err


def test_signatures_are_of_genomes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "rows.npy", np.eye(3))
    assert main(["run", "vectors", str(tmp_path / "rows.npy"), "-q", "-o", str(tmp_path / "r")]) == 0
    assert main(["export", str(tmp_path / "r"), str(tmp_path / "a.sig")]) == 2
    assert "signatures are of genomes, and" in capsys.readouterr().err


def test_a_genome_of_several_files_is_sketched_as_one() -> None:
    rng = np.random.default_rng(5)
    contigs = ["".join(rng.choice(list("ACGT"), 4000)) for _ in range(3)]
    app = Genomes(scaled=10)
    files = [(f"{at}.fa.gz", gzip.compress(f">c{at}\n{contig}\n".encode())) for at, contig in enumerate(contigs)]
    whole = app.parse("g.fa", "".join(f">c{at}\n{contig}\n" for at, contig in enumerate(contigs)).encode())
    assert np.array_equal(app.group("g", files), whole)
    with pytest.raises(ItemError, match="g: bad: "):
        app.group("g", [*files, ("bad", b"no sequences")])


def test_trees_say_which_pairs_are_too_far_apart_to_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for family in range(3):
        first = genome(20_000, seed=family)
        for member in range(2):
            letters = mutate(first, 0.02 * member, seed=family)
            (tmp_path / f"{family}-{member}.fa").write_bytes(fasta(letters))
    out, newick = tmp_path / "r", tmp_path / "t.nwk"
    assert main(["run", "genomes", *map(str, sorted(tmp_path.glob("*.fa"))), "-o", str(out), "--set", "scaled=10"]) == 0
    capsys.readouterr()
    assert main(["tree", str(out), "-o", str(newick)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "12 of 15 pairs are too far apart to be measured" in said
    assert "tree of 6 items" in said
    assert main(["tree", str(out), "--method", "upgma", "-o", str(tmp_path / "u.nwk")]) == 0
    assert "too far apart" not in capsys.readouterr().err
    with pytest.warns(RuntimeWarning, match="12 of 15"):
        tartan.open(out).tree()
    assert main(["report", str(out), "-o", str(tmp_path / "r.html")]) == 0
    assert "UPGMA, since 12 of 15 pairs are too far apart" in (tmp_path / "r.html").read_text()
