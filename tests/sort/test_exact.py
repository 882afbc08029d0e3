"""Numbers as text: the order of exact fractions, whatever they look like."""

from __future__ import annotations

import math
import os
import random
import subprocess
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tartan.sort import sort_file
from tartan.sort.exact import NumberFacts, facts_of, first_text, keys_of

MEMORY = "4GB"


def texts(*values: str) -> pa.Array:
    return pa.array([value.encode() for value in values], pa.large_binary())


def keys(values: list[str], kind: pa.DataType | None = None, *, total_order: bool = False) -> list[tuple[Any, ...]]:
    """Return what rows are compared by, of the kind that the values ask for or of a wider one."""
    facts = facts_of(texts(*values))
    assert facts is not None
    columns = keys_of(texts(*values), kind or facts.kind, total_order=total_order)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


NUMBERS = {
    "7": 7, "007": 7, "-7": -7, "+7": 7, " 7\t": 7, "7.": 7, ".5": Fraction(1, 2), "-.5e1": -5, "1e3": 1000,
    "1E-2": Fraction(1, 100), "5.e+3": 5000, "0e5": 0, "-0": 0, "+0.00": 0, "1e00000000000000000007": 10**7,
    "9" * 42: int("9" * 42),
}  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS, ids=range(len(NUMBERS)))
def test_what_a_number_is(text: str) -> None:
    value = Fraction(NUMBERS[text])
    wide = pa.binary(40)
    for other in (value - Fraction(1, 10**6), value, value + Fraction(1, 10**6)):
        mine, theirs = keys([text, f"{other.numerator / other.denominator:.12f}"], wide)
        if len(text) < 20:
            assert (mine < theirs, mine > theirs) == (value < other, value > other), text


@pytest.mark.parametrize(
    "text",
    [
        *("0x10", "0X1f", "1_0", "1,000", "e5", ".", "+", "-", "1e", "1e+", "1e-+5", "--1", "1\t2", "٣"),
        *("1e9999999999999999", "nano", "in", "1f", "true", "\x00"),
    ],
)
def test_what_no_number_is(text: str) -> None:
    assert facts_of(texts(text)) is None
    assert facts_of(texts("5", text, "7")) is None, "one in a column is enough"
    assert first_text(texts("5", "", text, "x")) == (2, text)
    assert facts_of(pa.array([b"\xff"], pa.large_binary())) is None


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["5", "", "-9223372036854775808"], pa.int64()),
        (["9223372036854775807"], pa.int64()),
        (["9223372036854775808"], pa.binary(10)),
        (["1.5", "nan", "inf", "1e200"], pa.float64()),
        (["123456789012345", "0.5"], pa.float64()),
        (["123456789012345", "0.1234567890123456"], pa.binary(8)),
        (["1e400", "1"], pa.binary(1)),
        (["-0", "5"], pa.float64()),
        (["", ""], pa.int64()),
        ([], pa.int64()),
    ],
)
def test_how_a_column_is_compared(values: list[str], kind: pa.DataType) -> None:
    facts = facts_of(texts(*values))
    assert facts is not None
    assert facts.kind == kind


def test_facts_of_blocks_are_those_of_the_column() -> None:
    whole, decimals = facts_of(texts("9007199254740993")), facts_of(texts("0.5"))
    assert whole is not None
    assert decimals is not None
    assert (whole.kind, decimals.kind, (whole | decimals).kind) == (pa.int64(), pa.float64(), pa.binary(8))
    assert (NumberFacts() | whole) == whole


def test_special_values_and_zeros() -> None:
    values = ["-inf", "-1e5", "-1", "-0.0", "0", "1", "1e5", "Infinity"]
    assert keys(values) == sorted(keys(values))
    assert keys(["-0"]) == keys(["0.0"])
    assert keys(["-0", "0.5"], total_order=True)[0] == (-0.0,)
    assert math.copysign(1, keys(["-0", "0.5"], total_order=True)[0][0]) == -1
    exact = keys(["-0", "0", "-nan", "NaN"], pa.binary(4), total_order=True)
    assert [math.copysign(1, key[0]) for key in exact[:2]] == [-1, 1]
    assert exact[0][1] == exact[1][1] == exact[2][1] == exact[3][1]
    assert keys([""], pa.binary(4))[0][0] is None


def drawn(rng: random.Random, exponents: bool) -> str:
    digits = "".join(rng.choice("0019") for _ in range(rng.choice([1, 2, 5, 15, 16, 17, 20, 40, 80])))
    if rng.random() < 0.5:
        point = rng.randrange(len(digits) + 1)
        digits = f"{digits[:point]}.{digits[point:]}"
    return rng.choice(["", "-"]) + digits + (rng.choice(["", "e5", "E-3", "e+400", "e-400"]) if exponents else "")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_order_is_that_of_fractions(seed: int) -> None:
    rng = random.Random(seed)
    values = [drawn(rng, exponents=True) for _ in range(1500)]
    found = keys(values, pa.binary(40))
    fractions = [Fraction(Decimal(value)) for value in values]
    by_key = sorted(range(len(values)), key=lambda number: found[number])
    assert by_key == sorted(range(len(values)), key=lambda number: fractions[number])
    short = [value for value in values if len(value) <= 16 and "400" not in value]
    assert sorted(short, key=lambda value: keys([value], pa.float64())) == sorted(
        short, key=lambda value: Fraction(Decimal(value))
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("down", [False, True])
def test_columns_as_gnu_sort_orders_them(tmp_path: Path, seed: int, down: bool) -> None:
    rng = random.Random(seed)
    lines = [drawn(rng, exponents=False) for _ in range(rng.choice([1, 10, 5000]))]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    words = ["sort", "-s", "-n", *(["-r"] if down else []), str(tmp_path / "a.txt")]
    told = subprocess.run(words, env={**os.environ, "LC_ALL": "C"}, capture_output=True, check=True).stdout
    key = f"line:number{':desc' if down else ''}"
    found = sort_file(tmp_path / "a.txt", tmp_path / "b.txt", key=key, memory=MEMORY).path
    assert found.read_bytes() == told


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(30))
def test_floats_as_gnu_sort_orders_them(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    lines = [repr(rng.choice([-1, 1]) * rng.random() * 10 ** rng.randrange(-300, 300)) for _ in range(3000)]
    lines += [f"{rng.randrange(10**17)}e{rng.randrange(-2000, 2000)}" for _ in range(500)] + ["inf", "-inf", "0", "-0"]
    rng.shuffle(lines)
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    words = ["sort", "-s", "-g", str(tmp_path / "a.txt")]
    told = subprocess.run(words, env={**os.environ, "LC_ALL": "C"}, capture_output=True, check=True).stdout
    found = sort_file(tmp_path / "a.txt", tmp_path / "b.txt", key="line:number", memory=MEMORY).path
    assert found.read_bytes() == told
