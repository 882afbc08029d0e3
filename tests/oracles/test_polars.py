"""Tables of Polars, of every type that it can write, sorted by it and by us."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.sort import sort_file

pytestmark = pytest.mark.exhaustive
pl = pytest.importorskip("polars", reason="Polars is not installed")

MEMORY, N = "8GB", 3000
FLOATS = [0.0, -0.0, np.inf, -np.inf, 5e-324, 1.5, -1.5, 1e300, -1e300, 1e-300, 0.1, 1 / 3, 2.0**53, -(2.0**-40)]
TEXTS = ["", " ", "é", "e\u0301", "日本", "\U0001f600", "Z", "z", "a\0", "a", "a" * 300, "ß", '"', ",", "\n"]


def series(name: str) -> Any:
    """Return a column with many equal values, each seventh of them missing."""
    rng = np.random.default_rng(len(name))
    whole = rng.integers(-(2**62), 2**62, N) // rng.choice([1, 2**40, 2**57], N)
    kinds = {
        **{kind: (whole % 100, getattr(pl, kind)) for kind in ("Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32")},
        "Int64": (whole, pl.Int64),
        "UInt64": ([int(value) + 2**63 for value in whole], pl.UInt64),
        "Float32": (np.float32(np.clip(rng.choice(FLOATS, N), -3e38, 3e38)), pl.Float32),
        "Float64": (rng.choice(FLOATS, N), pl.Float64),
        "Boolean": (whole % 2 == 0, pl.Boolean),
        "String": (rng.choice(TEXTS, N), pl.String),
        "Binary": ([text.encode() + b"\xff" for text in rng.choice(TEXTS, N)], pl.Binary),
        "Date": ([datetime.date(1, 1, 1) + datetime.timedelta(int(day)) for day in whole % 3000000], pl.Date),
        "Time": ([datetime.time(int(second) % 24, int(second) % 60) for second in whole % 997], pl.Time),
        "Duration": ([datetime.timedelta(microseconds=int(value)) for value in whole // 64], pl.Duration("us")),
        "Decimal": ([Decimal(int(value)) / 1000 for value in whole], pl.Decimal(38, 3)),
        **{f"Datetime {unit}": (whole // 4, pl.Datetime(unit)) for unit in ("ms", "us", "ns")},
        "Datetime of a zone": (whole // 4, pl.Datetime("us", "Asia/Tokyo")),
    }
    values, kind = kinds[name]
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    return pl.Series("x", [None if i % 7 == 0 else value for i, value in enumerate(listed)], dtype=kind, strict=False)


NAMES = (
    "Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64", "Float32", "Float64", "Boolean", "String",
    "Binary", "Date", "Time", "Duration", "Decimal", "Datetime ms", "Datetime us", "Datetime ns", "Datetime of a zone",
)  # fmt: skip


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_tables_are_ordered_as_polars_orders_them(name: str, descending: bool, suffix: str, tmp_path: Path) -> None:
    """Both keep the order of equal rows, and of -0.0 beside 0.0."""
    frame = pl.DataFrame([series(name), pl.Series("row", range(N))])
    source, target = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    write, read = (frame.write_parquet, pl.read_parquet) if suffix == ".parquet" else (frame.write_ipc, pl.read_ipc)
    write(source)
    sort_file(source, target, key=f"x:{'desc' if descending else 'asc'}", memory=MEMORY, quiet=True)
    expected = frame.sort("x", descending=descending, nulls_last=True, maintain_order=True)
    found = read(target)
    assert found.schema == frame.schema
    assert found["row"].to_list() == expected["row"].to_list()
    assert found.equals(expected, null_equal=True)


@pytest.mark.parametrize("descending", [False, True])
def test_several_columns_are_ordered_as_polars_orders_them(descending: bool, tmp_path: Path) -> None:
    columns = [series(name).alias(name) for name in ("Int8", "String", "Float64")]
    frame = pl.DataFrame([*columns, pl.Series("row", range(N))])
    frame.write_parquet(tmp_path / "in.parquet", row_group_size=500)
    way = ":desc" if descending else ""
    keys = [f"Int8{way}", "String", f"Float64{way}"]
    sort_file(tmp_path / "in.parquet", tmp_path / "out.parquet", key=keys, memory=MEMORY, quiet=True)
    ways = [descending, False, descending]
    expected = frame.sort(["Int8", "String", "Float64"], descending=ways, nulls_last=True, maintain_order=True)
    assert pl.read_parquet(tmp_path / "out.parquet")["row"].to_list() == expected["row"].to_list()
