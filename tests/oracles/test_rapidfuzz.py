"""Functions of rapidfuzz in runs of our own, on difficult strings, against its own ``cdist``."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tartan

pytestmark = pytest.mark.exhaustive
rapidfuzz = pytest.importorskip("rapidfuzz", reason="rapidfuzz is not installed")

FUNCTIONS = (
    "fuzz.ratio", "fuzz.token_sort_ratio", "fuzz.WRatio", "distance.Levenshtein.distance",
    "distance.Levenshtein.normalized_distance", "distance.JaroWinkler.similarity", "distance.Indel.distance",
    "distance.OSA.distance",
)  # fmt: skip


def scorer_of(name: str) -> Callable[[str, str], float]:
    module, _, attribute = f"rapidfuzz.{name}".rpartition(".")
    return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]


def texts(seed: int, n: int = 80) -> list[str]:
    """Return strings with ties, duplicates, none at all, blanks, other scripts, long ones and broken halves."""
    rng = random.Random(seed)
    words = [
        "",
        " ",
        "  \t",
        "é",
        "e\u0301",
        "日本語",
        "\U0001f600",
        "\x00",
        "a" * 3000,
        "naïve Café",
        "\u202eabc",
        "\ud800x",
    ]
    while len(words) < n:
        base = rng.choice(words) if rng.random() < 0.4 else "".join(rng.choices("abc ABCé", k=rng.randrange(30)))
        at = rng.randrange(len(base) + 1)
        words.append(base[:at] + rng.choice(["", "x", " ", "ß"]) + base[at:])
    rng.shuffle(words)
    return words


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_two_strings_give_what_cdist_gives(name: str) -> None:
    from rapidfuzz.process import cdist

    scorer, words = scorer_of(name), texts(len(name))
    found = tartan.allpairs(scorer, words, workers=1, quiet=True).matrix()
    expected = cdist(words, words, scorer=scorer, dtype=np.float32)
    outside = ~np.eye(len(words), dtype=bool)
    np.testing.assert_array_equal(found[outside], expected[outside])


@pytest.mark.parametrize("name", ["fuzz.ratio", "distance.Levenshtein.distance"])
def test_two_sides_give_what_cdist_gives(name: str) -> None:
    from rapidfuzz.process import cdist

    scorer, left, right = scorer_of(name), texts(1, 40), texts(2, 70)
    found = tartan.allpairs(scorer, left, against=right, workers=1, quiet=True).matrix()
    np.testing.assert_array_equal(found, cdist(left, right, scorer=scorer, dtype=np.float32))


@pytest.mark.parametrize("cutoff", [60.0, 80.0, 100.0])
def test_pairs_over_a_cutoff_are_those_of_cdist(cutoff: float, tmp_path: Path) -> None:
    from rapidfuzz.fuzz import ratio
    from rapidfuzz.process import cdist

    words = texts(3)
    kept = {"kind": "threshold", "threshold": cutoff, "largest": True}
    run = tartan.allpairs(ratio, words, tmp_path / "run.tartan", reduce=kept, workers=1, quiet=True)
    expected = np.argwhere(np.triu(cdist(words, words, scorer=ratio, dtype=np.float64) >= cutoff, 1))
    table = run.pairs().read_all()
    found = sorted(zip(table["i"].to_pylist(), table["j"].to_pylist(), strict=True))
    assert found == sorted(map(tuple, expected.tolist()))
