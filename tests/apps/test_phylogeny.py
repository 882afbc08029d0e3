"""Composition vectors: the formulas, the oracle, and every kind of bad FASTA."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.apps.phylogeny.app import Phylogeny, Vector
from tartan.devices.sim import SimDevice
from tartan.errors import ConfigError, ItemError

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
MAP = str.maketrans("BUXZJO", "DCGEAA")


def definition(proteins: list[str], k: int) -> dict[str, float]:
    """Return the composition vector of proteins, by the formulas."""

    def count(m: int) -> Counter[str]:
        windows = (p[i : i + m] for p in proteins for i in range(len(p) - m + 1))
        return Counter(w for w in windows if set(w) <= set(LETTERS))

    f, half, middle = count(k), count(k - 1), count(k - 2)
    scale = f.total() * middle.total() / half.total() ** 2
    vector = {}
    for left in half:
        for right in (left[1:] + letter for letter in LETTERS):
            if half[right]:
                f0 = half[left] * half[right] / middle[left[1:]] * scale
                vector[left + right[-1]] = (f[left + right[-1]] - f0) / f0
    return vector


def expanded(vector: Vector, k: int) -> dict[str, float]:
    """Return all strings of a parsed item with f0 > 0, and their values."""
    middles, masks, codes, values, _ = vector
    entries = iter(zip(codes.tolist(), values.tolist()))
    strings = {}
    for number, (left, right) in zip(middles.tolist(), masks.tolist()):
        middle = "".join(LETTERS[number // 20**place % 20] for place in range(k - 3, -1, -1))
        for a in range(20):
            for b in range(20):
                if left >> a & right >> b & 1:
                    strings[LETTERS[a] + middle + LETTERS[b]] = -1.0
        for _ in range(left >> 20):
            code, value = next(entries)
            strings[LETTERS[code >> 5] + middle + LETTERS[code & 31]] = value
    return strings


def proteins(n: int, length: int, seed: int, letters: str = LETTERS) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list(letters), length)) for _ in range(n)]


def fasta(sequences: list[str], end: str = "\n") -> bytes:
    return "".join(f">p{i} name{end}{s[:7]}{end}{s[7:]}{end}" for i, s in enumerate(sequences)).encode()


def test_a_vector_of_rounding_errors_fails_as_an_item() -> None:
    """No string of k - 2 letters comes twice: all are as frequent as expected, and their cosine would be noise."""
    text = fasta(proteins(1, 4000, 0))
    with pytest.raises(ItemError, match="k=9 occurs as often as its parts suggest"):
        Phylogeny(k=9).parse("a", text)
    assert Phylogeny(k=6).parse("a", text)[4][0] > 1


@pytest.mark.parametrize("k", [3, 4, 6, 7, 8, 14])
def test_vectors_and_distances_follow_the_formulas(k: int) -> None:
    app = Phylogeny(k=k)
    inputs = [proteins(12, 60, seed, "ACDEK" if k < 8 else "DE") for seed in range(3)]
    items = [app.parse(str(i), fasta(p)) for i, p in enumerate(inputs)]
    vectors = [definition(p, k) for p in inputs]
    for item, vector in zip(items, vectors):
        found = expanded(item, k)
        assert found.keys() == vector.keys()
        np.testing.assert_allclose([found[s] for s in vector], list(vector.values()), rtol=1e-6, atol=1e-7)
        assert item[4].tolist()[1:] == [len(vector), sum(len(p) - k + 1 for p in inputs[0])]
    scores = app.compare(items, items[:2], np)
    assert scores.shape == (3, 2)
    assert scores.dtype == np.float64
    norms = [np.sqrt(sum(a * a for a in vector.values())) for vector in vectors]
    for i in range(3):
        for j in range(2):
            product = sum(a * vectors[j].get(s, 0.0) for s, a in vectors[i].items())
            assert scores[i, j] == pytest.approx((1 - product / (norms[i] * norms[j])) / 2, abs=1e-8)


@pytest.mark.parametrize("seed", range(10))
def test_equal_proteomes_are_at_exactly_0_whatever_the_order_of_their_proteins(seed: int) -> None:
    given = proteins(30, 200, seed)
    app = Phylogeny(k=4)
    one, other = app.parse("a", fasta(given)), app.parse("b", fasta(given[::-1], "\r\n"))
    near = app.parse("c", fasta([given[0][:-1], *given[1:]]))
    found = app.compare([one, other, near], [one, other, near], np)
    assert found[:2, :2].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert found[2, 0] == found[0, 2] > 0


@pytest.mark.slow
@pytest.mark.parametrize("k", [5, 6])
def test_bacteria_equal_the_reference(shared_data: Path, k: int) -> None:
    lines = (shared_data / "proteomes" / f"cv_bact8_k{k}.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    app = Phylogeny(k=k)
    paths = [shared_data / "proteomes" / f"{row[0]}.gz" for row in rows]
    items = [app.parse(path.name, path.read_bytes()) for path in paths]
    assert [int(item[4][1]) for item in items] == [int(row[1]) for row in rows]
    reference = np.array([[float(value) for value in row[2:]] for row in rows])
    np.testing.assert_allclose(app.compare(items, items, np), reference, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_the_map_of_letters_moves_distances_little(shared_data: Path) -> None:
    paths = sorted((shared_data / "proteomes").glob("*.faa.gz"))
    scores = []
    for unknown in ("skip", "map"):
        app = Phylogeny(k=5, unknown=unknown)
        items = [app.parse(path.name, path.read_bytes()) for path in paths]
        scores.append(app.compare(items, items, np))
    names = [path.name for path in paths]
    pair = names.index("Exiguobacterium_AT1b_uid59093.faa.gz"), len(names) - 1
    assert scores[0][pair] == pytest.approx(0.437756025218, abs=1e-9)
    assert 0 < np.abs(scores[1] - scores[0]).max() < 1e-5


def test_any_tile_gives_the_same_bits() -> None:
    app = Phylogeny(k=5)
    items = [app.parse(str(i), fasta(proteins(6, 80, i))) for i in range(20)]
    whole = app.compare(items, items, np)
    np.testing.assert_array_equal(whole, whole.T)
    np.testing.assert_array_equal(app.compare(items[3:5], items[7:9], np), whole[3:5, 7:9])
    np.testing.assert_array_equal(app.compare(items[3:17], items[2:], np), whole[3:17, 2:])


def test_items_may_be_read_only_views() -> None:
    app = Phylogeny(k=4)
    item = app.parse("a", fasta(proteins(6, 80, 1)))
    views = []
    for array in item:
        padded = np.frombuffer(bytes(64) + array.tobytes(), np.uint8)[64:]
        views.append(padded.view(array.dtype).reshape(array.shape))
    assert not views[0].flags.writeable
    assert app.compare([tuple(views)], [item], np)[0, 0] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "unknown"),
    [
        (lambda text: text.replace(b"\n", b"\r\n"), "skip"),
        (lambda text: text.replace(b"\n", b"\r"), "skip"),
        (lambda text: text.lower(), "skip"),
        (lambda text: text.replace(b"\n>", b"*\n>") + b"*\n", "skip"),
        (lambda text: text.replace(b"\n>", b"\n\n>"), "skip"),
        (lambda text: text.rstrip(b"\n"), "skip"),
        (lambda text: b"\xef\xbb\xbf\n" + text, "skip"),
        (lambda text: b">empty\n" + text + b">\n>another", "skip"),
        (lambda text: text + b">only unknown\nXXBZJ\n", "skip"),
        (lambda text: gzip.compress(text), "skip"),
        (lambda text: gzip.compress(text[:100]) + gzip.compress(text[100:]), "skip"),
        (lambda text: gzip.compress(text) + bytes(100), "skip"),
        (lambda text: text.replace(b"D", b"B").replace(b"C", b"u"), "map"),
    ],
    ids=[
        "CRLF", "CR", "lower case", "trailing stops", "blank lines", "no last line end", "byte order mark",
        "empty records", "unknown letters", "gzip", "gzip of two members", "gzip padded", "letter map",
    ],
)  # fmt: skip
def test_forms_of_the_same_proteome(change: Callable[[bytes], bytes], unknown: str) -> None:
    app = Phylogeny(k=4, unknown=unknown)
    text = fasta(proteins(4, 40, 3))
    expected, found = app.parse("a", text), app.parse("b", change(text))
    for a, b in zip(expected, found):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("sequence", "unknown", "parts"),
    [
        ("ACDE*FGHKACDE", "skip", ["ACDE", "FGHKACDE"]),
        ("ACDEXFGHKACDE", "skip", ["ACDE", "FGHKACDE"]),
        ("ACDE.FGHKACDE", "map", ["ACDE", "FGHKACDE"]),
        ("ACDEXFGHKACDE", "map", ["ACDEGFGHKACDE"]),
        ("ACDE*XZBJOUHK", "map", ["ACDE", "XZBJOUHK".translate(MAP)]),
        ("ACDEHKA*AC*A", "skip", ["ACDEHKA", "AC", "A"]),
    ],
)
def test_stops_and_unknown_letters_break_windows(sequence: str, unknown: str, parts: list[str]) -> None:
    found = expanded(Phylogeny(k=3, unknown=unknown).parse("a", f">a\n{sequence}".encode()), 3)
    expected = definition(parts, 3)
    assert found.keys() == expected.keys()
    assert [found[s] for s in expected] == pytest.approx(list(expected.values()), rel=1e-6, abs=1e-7)


BAD = {
    "empty": (b"", "the file is empty"),
    "blank": (b"\n \r\n", "the file is empty"),
    "no header": (b"ACDEFGHIKL\nACDEF\n", "begin with a '>' header but with \"ACDEFGHIKL"),
    "text before the header": (b"# proteins\n>a\nACDEFGHIKL", "but with \"# proteins"),
    "records without letters": (b">a\n>b\n\n", "no protein has 6 known letters"),
    "proteins shorter than k": (b">a\nACDEF\n>b\nGHIKL\n", "no protein has 6 known letters"),
    "unknown letters only": (b">a\n" + b"X" * 50, "no protein has 6 known letters"),
    "binary": (b">a\nACD\x00\x01\xff", "byte 0x00 at offset 6"),
    "not ASCII": (">a\nACDÄ".encode(), "byte 0xc3 at offset 6"),
    "gzip of nothing": (gzip.compress(b""), "the file is empty"),
    "gzip with garbage": (gzip.compress(b">a\nACDEFGHIK\n") + b"garbage", "7 bytes that are not gzip follow"),
    "gzip header only": (gzip.compress(b">a\nACDEFGHIK\n")[:9], "end in the middle"),
    "truncated gzip": (gzip.compress(fasta(proteins(9, 99, 0)))[:-20], "end in the middle"),
    "gzip without its checksum": (gzip.compress(fasta(proteins(9, 99, 0)))[:-8], "end in the middle"),
    "zeros behind a gzip magic": (b"\x1f\x8b" + bytes(50), "are damaged"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files_say_what_is_wrong(case: str) -> None:
    data, message = BAD[case]
    with pytest.raises(ItemError) as caught:
        Phylogeny(k=6).parse("bad.faa", data)
    assert str(caught.value).startswith("bad.faa: ")
    assert message in str(caught.value)
    assert caught.value.context == {"key": "bad.faa"}


def test_damaged_gzip_is_named() -> None:
    data = bytearray(gzip.compress(fasta(proteins(9, 99, 0))))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(ItemError, match="are damaged"):
        Phylogeny().parse("bad.faa", bytes(data))


def test_bombs_are_refused() -> None:
    bomb = gzip.compress(b">a\n" + b"A" * (20 << 20), 1)
    with pytest.raises(ItemError, match=r"above the ratio of 50 .* raise max_ratio"):
        Phylogeny(max_ratio=50).parse("bomb.faa.gz", bomb)
    with pytest.raises(ItemError, match=r"larger than the limit of 1000000 bytes; raise max_bytes"):
        Phylogeny(max_bytes=10**6).parse("bomb.faa.gz", bomb)
    with pytest.raises(ItemError, match="raise max_bytes"):
        Phylogeny(max_bytes=10).parse("plain.faa", b">a\nACDEFGHIK\n")


def test_other_containers_of_bytes_are_read() -> None:
    app, text = Phylogeny(k=3), b">a\nACDEACDF"
    for data in (bytearray(text), memoryview(text), np.frombuffer(text, np.uint8), text.decode()):
        np.testing.assert_array_equal(app.parse("a", data)[0], app.parse("a", text)[0])
    with pytest.raises(ItemError, match="int is not a FASTA file"):
        app.parse("a", 3)


@pytest.mark.parametrize(
    "parameters",
    [{"k": 2}, {"k": 15}, {"k": 5.0}, {"k": "6"}, {"unknown": "drop"}, {"max_bytes": 0}, {"max_ratio": -1}],
)
def test_wrong_parameters_are_refused(parameters: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        Phylogeny(**parameters)  # type: ignore[arg-type]


def test_parameters_reach_the_manifest() -> None:
    app = Phylogeny(k=5, unknown="map")
    assert app.parameters() == {"k": 5, "unknown": "map", "max_bytes": 2 << 30, "max_ratio": 200}


def test_vectors_that_do_not_fit_are_refused() -> None:
    app = Phylogeny(k=3)
    item = app.parse("a", b">a\nACDEACDF")
    with pytest.raises(ValueError, match="do not fit each other"):
        app.compare([(*item[:3], item[3][:-1], item[4])], [item], np)
    assert app.compare([], [item], np).shape == (0, 1)


def test_items_in_the_memory_of_a_device_are_fetched() -> None:
    app, device = Phylogeny(k=3), SimDevice()
    items = [app.parse("a", b">a\nACDEACDF"), app.parse("b", b">b\nACDEFGHI")]

    def uploaded(array: np.ndarray) -> object:
        target = device.allocate(array.shape, array.dtype)
        device.upload(array, target)
        return target

    there = [tuple(uploaded(array) for array in item) for item in items]
    scores = device.compute("compare", 4, lambda: app.compare(there, there, device.xp))
    found = np.empty((2, 2))
    device.download(scores, found)
    np.testing.assert_array_equal(found, app.compare(items, items, np))


@pytest.mark.parametrize("k", [3, 5, 6])
def test_a_proteome_and_its_copy_are_not_below_zero(k: int) -> None:
    rng = np.random.default_rng(k)
    app = Phylogeny(k=k)
    letters = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
    texts = [">p\n" + "".join(rng.choice(letters, 5000)) for _ in range(12)]
    vectors = [app.parse("a", text.encode()) for text in texts for _ in range(2)]
    found = app.compare(vectors, vectors, np)
    assert found.min() >= 0
    assert np.abs(found[np.arange(0, 24, 2), np.arange(1, 24, 2)]).max() < 1e-12


PROTEIN = b"MKVLITRRADCEFGHWYNPQS"


@pytest.mark.parametrize("letters", [b"ACGT", b"acgtn", b"ACGU"])
@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_dna_is_no_proteome(letters: bytes, packed: Callable[[bytes], bytes]) -> None:
    sequence = bytes(np.random.default_rng(0).choice(list(letters), 600).astype(np.uint8).tolist())
    with pytest.raises(ItemError, match=r"x: 100% of its first 600 letters are A, C, G, T, U or N: this is DNA or RNA"):
        Phylogeny(k=3).parse("x", packed(b">contig 1-2\n" + sequence))


def test_the_share_of_bases_is_of_many_sequences() -> None:
    bases, rest = b"ACGTCATG" * 90, PROTEIN * 80
    Phylogeny(k=3).parse("x", b">a\n" + bases + b"\n>b\n" + rest)
    with pytest.raises(ItemError, match=r"9[0-9]% of its"):
        Phylogeny(k=3).parse("x", b">a\n" + bases + b"\n>b\n" + PROTEIN * 2)


@pytest.mark.parametrize(("line", "named"), [(b"10 " + PROTEIN, "'1', a digit"), (PROTEIN + b"--KV", "'-', a gap")])
def test_digits_and_gaps_are_named_by_their_line(line: bytes, named: str) -> None:
    with pytest.raises(ItemError, match=f"x: line 3 holds {named}.*, within a sequence; remove"):
        Phylogeny(k=3).parse("x", b">a-1\n" + PROTEIN + b"\n" + line + b"\n>b\n" + PROTEIN)


@pytest.mark.slow
@pytest.mark.parametrize("k", [5, 6])
def test_the_identity_of_simulated_proteomes(k: int) -> None:
    """Letters are replaced at known rates; no vector is looked at."""
    rng = np.random.default_rng(0)
    letters = np.frombuffer(LETTERS.encode(), np.uint8)
    # In percent, of the letters in that order, in bacteria.
    often = np.array(
        [8.3, 1.4, 5.5, 6.7, 3.9, 7.1, 2.3, 5.9, 5.8, 9.7, 2.4, 4.1, 4.7, 3.9, 5.5, 6.6, 5.3, 6.9, 1.1, 2.9]
    )
    often /= often.sum()
    ancestor = rng.choice(20, (1500, 300), p=often)
    app = Phylogeny(k=k, score="identity")

    def write(codes: np.ndarray) -> bytes:
        return fasta([letters[protein].tobytes().decode() for protein in codes])

    whole = app.parse("a", write(ancestor))
    for rate in (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5):
        changed = rng.random(ancestor.shape) < rate
        other = np.where(changed, rng.choice(20, ancestor.shape, p=often), ancestor)
        kept = float((other == ancestor).mean())
        found = float(app.compare([whole], [app.parse("b", write(other))], np)[0, 0])
        assert abs(found - kept) <= 0.02, (rate, kept, found)
    # Genes of one alone lower it.
    other[:450] = rng.integers(0, 20, (450, 300))
    assert app.compare([whole], [app.parse("c", write(other))], np)[0, 0] < found


def test_identities_follow_from_distances_and_are_similarities(tmp_path: Path) -> None:
    parent = proteins(40, 200, 1)
    for name, n_other in (("a", 0), ("b", 4), ("c", 8), ("d", 20)):
        (tmp_path / f"{name}.faa").write_bytes(fasta(proteins(n_other, 200, 9) + parent[n_other:]))
    runs = {
        score: tartan.allpairs(Phylogeny(k=4, score=score), str(tmp_path / "*.faa"), tmp_path / f"{score}.tartan")
        for score in ("distance", "identity")
    }
    upper = np.triu_indices(4, 1)
    distances, identities = (runs[score].matrix()[upper] for score in ("distance", "identity"))
    np.testing.assert_allclose(identities, np.maximum(0, 1 - 2 * distances) ** 0.2, rtol=1e-12)
    assert (runs["distance"].larger_is_nearer, runs["identity"].larger_is_nearer) == (False, True)
    assert "score" not in runs["distance"].manifest.application["parameters"]
    trees = runs["identity"].tree(), runs["distance"].tree(transform="-log(max(0.001,1-2d))")
    assert trees[0].robinson_foulds(trees[1]) == 0
    with pytest.raises(ConfigError, match="neither distance nor identity"):
        Phylogeny(score="aai")
