"""The applications of ``examples/pairs`` find what plain loops and NumPy find without Tartan."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_program import Command

import tartan
from tartan.errors import RunFailedError

EXAMPLES = Path(__file__).parents[2] / "examples" / "pairs"


def test_examples_are_short() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 80, path


def voltages(n_antennas: int, n_times: int, kind: str) -> np.ndarray:
    """Return noise of antennas and one source that reaches each of them a little later."""
    rng = np.random.default_rng(5)
    noise, source = (rng.standard_normal((2, n, n_times)) for n in (n_antennas, 1))
    phases = np.exp(0.3j * np.arange(n_antennas))[:, None]
    seen: np.ndarray = noise[0] + 1j * noise[1] + phases * (source[0] + 1j * source[1])
    return seen.astype(kind)


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_64_antennas_are_correlated_as_by_einsum(kind: str, tmp_path: Path, command: Command) -> None:
    given = voltages(64, 600, kind)
    np.save(tmp_path / "voltages.npy", given)
    words = ("--set", f"double={str(kind == 'complex128').lower()}", "-o", tmp_path / "run", "--tile", 20)
    assert command("run", f"{EXAMPLES / 'radio.py'}:Radio", tmp_path / "voltages.npy", *words).status == 0
    assert command("export", tmp_path / "run", tmp_path / "visibilities.npy").status == 0
    found, exact = np.load(tmp_path / "visibilities.npy"), given.astype("complex128")
    assert found.dtype == kind
    expected = np.einsum("it,jt->ij", exact, exact.conj()) / given.shape[1]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 if kind == "complex64" else 1e-13)
    above = np.triu_indices(64, 1)  # powers have imaginary parts by rounding
    np.testing.assert_array_equal(found[above], found.T[above].conj())
    assert abs(expected.imag).max() > 0.5  # it would be seen if that were lost


def iris_codes(n: int, turns: dict[int, tuple[int, int]]) -> np.ndarray:
    """Return random codes and masks; item a of ``{a: (b, by)}`` is b turned by some angles, with a few bits changed."""
    rng = np.random.default_rng(6)
    bits = rng.integers(0, 2, (n, 2, 5, 31), np.uint8)
    bits[:, 1] |= rng.integers(0, 2, (n, 5, 31), np.uint8)
    for a, (b, by) in turns.items():
        bits[a] = np.roll(bits[b], by, axis=2)
        bits[a, 0, 0, :3] ^= 1
    return bits


def iris_distance(a: np.ndarray, b: np.ndarray, turn: int = 8) -> float:
    """Return the least masked Hamming distance of all turns, bit by bit."""
    least, width = np.inf, a.shape[2]
    for by in range(-turn, turn + 1):
        known = differ = 0
        for ring in range(a.shape[1]):
            for angle in range(width):
                there = (angle + by) % width
                if a[1, ring, angle] and b[1, ring, there]:
                    known += 1
                    differ += int(a[0, ring, angle] != b[0, ring, there])
        if known:
            least = min(least, differ / known)
    return least


@pytest.mark.parametrize("as_files", [False, True])
def test_iris_codes_are_compared_as_by_plain_loops(as_files: bool, tmp_path: Path) -> None:
    app = runpy.run_path(str(EXAMPLES / "iris.py"))["Iris"]
    codes = iris_codes(8, {3: (1, 8), 6: (2, -5)})
    items: Any = list(codes)
    if as_files:
        items = tmp_path / "codes"
        items.mkdir()
        for number, bits in enumerate(codes):
            np.save(items / f"{number}.npy", bits)
    run = tartan.allpairs(app(), items, tmp_path / "run", workers=1)
    expected = [[iris_distance(a, b) for b in codes] for a in codes]
    np.testing.assert_allclose(run.matrix(diagonal=0.0), expected, rtol=1e-6, atol=0)
    near = np.argwhere(np.triu(run.matrix(diagonal=0.0) < 0.2, 1)).tolist()
    assert near == [[1, 3], [2, 6]]


def test_a_code_that_is_hidden_is_named(tmp_path: Path) -> None:
    app = runpy.run_path(str(EXAMPLES / "iris.py"))["Iris"]
    codes = iris_codes(4, {})
    codes[2, 1] = 0
    run = tartan.allpairs(app(turn=0), list(codes), tmp_path / "run", workers=1)
    assert {(failure.i, failure.j) for failure in run.failures} == {(0, 2), (1, 2), (2, 3)}
    with pytest.raises(RunFailedError, match=r"a code and its mask are \(2, rings, angles\)"):
        tartan.allpairs(app(), list(codes + 1), tmp_path / "bad", workers=1)


def local_score(a: str, b: str, score_of: Any, first_gap: float, next_gap: float) -> float:
    """Return the score of the best local alignment with affine gaps, by Gotoh's three tables in plain loops."""
    width, least = len(b) + 1, -np.inf
    match, up, best = [0.0] * width, [least] * width, 0.0
    for x in a:
        left, corner, row = least, 0.0, [0.0] * width
        for j, y in enumerate(b, 1):
            up[j] = max(match[j] - first_gap, up[j] - next_gap)
            left = max(row[j - 1] - first_gap, left - next_gap)
            row[j] = max(0.0, corner + score_of[x][y], up[j], left)
            corner = match[j]
            best = max(best, row[j])
        match = row
    return best


@pytest.mark.slow
def test_proteins_of_all_lengths_are_aligned_as_by_plain_loops(tmp_path: Path, command: Command) -> None:
    pytest.importorskip("Bio", reason="Biopython is not installed (pip install biopython)")
    from Bio.Align import substitution_matrices

    rng = np.random.default_rng(7)
    texts = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), size)) for size in (9, 120, 30, 70, 15)]
    texts.append(texts[1][20:50] + texts[1][58:90])  # a part of the second, with a gap
    (tmp_path / "p.fasta").write_text("".join(f">p{k} x\n{t[:60]}\n{t[60:].lower()}\n" for k, t in enumerate(texts)))
    run = tmp_path / "run"
    found = command("run", f"{EXAMPLES / 'align.py'}:Align", tmp_path / "p.fasta", "-o", run, "--workers", 2)
    assert found.status == 0
    table = substitution_matrices.load("BLOSUM62")
    score_of = {x: {y: float(table[x][y]) for y in table.alphabet} for x in table.alphabet}
    scores = np.array([[local_score(a, b, score_of, 11, 1) for b in texts] for a in texts])
    own = np.diag(scores)
    expected = scores / np.minimum(own[:, None], own)
    np.testing.assert_allclose(tartan.open(run).matrix(diagonal=1.0), expected, rtol=1e-6)
    assert 0.8 < expected[1, 5] < 1
