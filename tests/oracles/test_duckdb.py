"""Tables of DuckDB, of every type that it can write, sorted by it and by us."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pytest

from tartan.sort import sort_file

pytestmark = pytest.mark.exhaustive
duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")

MEMORY, N = "8GB", 4000
#: Values of row i, drawn so that many are equal; every seventh is missing.
COLUMNS = {
    "bool": "h % 2 = 0",
    "tinyint": "((h % 200)::int - 100)::tinyint",
    "utinyint": "(h % 250)::utinyint",
    "smallint": "((h % 999)::int - 500)::smallint",
    "usmallint": "(h % 65535)::usmallint",
    "integer": "(h % 5000)::integer - 2500",
    "uinteger": "(h % 4294967295)::uinteger",
    "bigint": "(h >> 1)::bigint - 4000000000000000000",
    "ubigint": "h::ubigint",
    "real": "((h % 1000)::real - 500) * power(10, (h % 60)::int - 30)::real",
    "double": "case h % 50 when 0 then 'nan'::double when 1 then 'inf'::double when 2 then '-inf'::double"
    " when 3 then -0.0 when 4 then 0.0 else ((h % 1000)::double - 500) * power(10, (h % 600)::int - 300) end",
    "decimal(4, 2)": "((h % 1999)::int / 20 - 50)::decimal(4, 2)",
    "decimal(9, 4)": "((h % 1999999)::int / 20 - 50000)::decimal(9, 4)",
    "decimal(18, 6)": "((h >> 30)::decimal(18, 0) / 1000 - 5000000)::decimal(18, 6)",
    "decimal(38, 10)": "(h::decimal(28, 0) * 1000000 - 9000000000000000000000000)::decimal(38, 10)",
    "varchar": "case h % 9 when 0 then '' when 1 then ' ' when 2 then 'é' when 3 then 'e' || chr(769)"
    " when 4 then 'Z' || h % 90 when 5 then '日本' || h % 7 when 6 then chr(128512) else 'text ' || h % 800 end",
    "blob": "('\\x' || substr(md5(h::varchar), 1, 2))::blob",
    "date": "date '1500-01-01' + (h % 400000)::int",
    "time": "time '00:00:00' + to_microseconds((h % 86400000000)::bigint)",
    "timestamp": "timestamp '1600-01-01' + to_microseconds((h % 20000000000000000)::bigint)",
    "timestamp_s": "(timestamp '1600-01-01' + to_seconds((h % 20000000000)::bigint))::timestamp_s",
    "timestamp_ms": "(timestamp '1600-01-01' + to_milliseconds((h % 20000000000000)::bigint))::timestamp_ms",
    "timestamp_ns": "make_timestamp_ns((h >> 2)::bigint - 2000000000000000000)",
    "timestamptz": "timestamptz '1990-01-01 00:00:00+00' + to_seconds((h % 900000000)::bigint)",
}


def table_of(folder: Path, name: str) -> str:
    """Write row, key and another column to Parquet and CSV; return the query that made them."""
    query = (
        f"select i as row, case when i % 7 = 0 then null else {COLUMNS[name]} end as x, 'note, ' || i as note"
        f" from (select i, hash(i // 3 % 1000) as h from range({N}) r(i))"
    )
    duckdb.sql(f"copy ({query}) to '{folder / 'in.parquet'}' (row_group_size 2048)")
    return query


def order(path: Path, name: str, way: str, nulls: str) -> list[int]:
    """Return the rows as DuckDB orders them; its own NaN is the largest, ours is last in both directions."""
    last = "isnan(x)," if name in ("real", "double") and way == "desc" else ""
    rows = duckdb.sql(
        f"select row from '{path}' order by x is null {'desc' if nulls == 'first' else ''}, {last} x {way}, row"
    )
    return [row for (row,) in rows.fetchall()]


@pytest.mark.parametrize("nulls", ["first", "last"])
@pytest.mark.parametrize("way", ["asc", "desc"])
@pytest.mark.parametrize("name", COLUMNS)
def test_parquet_is_ordered_as_duckdb_orders_it(name: str, way: str, nulls: str, tmp_path: Path) -> None:
    table_of(tmp_path, name)
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    sort_file(source, target, key=f"x:{way}", nulls=nulls, memory=MEMORY, quiet=True)
    found = duckdb.sql(f"select row, x, note from '{target}'")
    assert [str(kind) for kind in found.types] == [str(kind) for kind in duckdb.sql(f"from '{source}'").types]
    assert [row for row, _, _ in found.fetchall()] == order(source, name, way, nulls)
    lost = duckdb.sql(f"(from '{source}' except all from '{target}')").fetchall()
    assert lost == []


#: Types that are carried beside a key.
CARRIED = {
    "uuid": "md5(i::varchar)::uuid",
    "enum": "(['lo', 'mid', 'hi'])[i % 3 + 1]::enum('lo', 'mid', 'hi')",
    "json": "('{\"a\": ' || i || '}')::json",
    "null": "null",
    "hugeint": "i::hugeint",
}


@pytest.mark.parametrize("name", CARRIED)
def test_what_is_carried_comes_back(name: str, tmp_path: Path) -> None:
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    query = f"select i as row, hash(i) % 90 as k, {CARRIED[name]} as v from range({N}) r(i)"
    duckdb.sql(f"copy ({query}) to '{source}'")
    sort_file(source, target, key="k", memory=MEMORY, quiet=True)
    assert duckdb.sql(f"from '{target}'").fetchall() == duckdb.sql(f"from '{source}' order by k, row").fetchall()


@pytest.mark.parametrize("way", ["asc", "desc"])
@pytest.mark.parametrize(
    "name", ["tinyint", "bigint", "ubigint", "double", "decimal(18, 6)", "decimal(38, 10)", "varchar"]
)
def test_csv_is_ordered_as_duckdb_orders_it(name: str, way: str, tmp_path: Path) -> None:
    """Read everything as text, so that what is carried is compared by its letters."""
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    words = "case i % 5 when 0 then 'a \"b\"' when 1 then 'a,b' when 2 then 'a' || chr(10) || 'b' else '' || i end"
    values = f"select i as row, hash(i // 3 % 1000) as h, {words} as note from range({N}) r(i)"
    query = (
        f"select row, x, note from (select row, {COLUMNS[name]} as x, note from ({values})) where x::varchar <> 'nan'"
    )
    duckdb.sql(f"copy ({query}) to '{source}' (header)")
    sort_file(source, target, key=f"x:{'text' if name == 'varchar' else 'number'}:{way}", memory=MEMORY, quiet=True)
    read = "read_csv('{}', header=true, all_varchar=true, new_line='\\n', nullstr='never', quote='\"', escape='\"')"
    wanted = f"select row, x, note from {read.format(source)} order by x::{name} {way}, row::int"
    assert duckdb.sql(f"from {read.format(target)}").fetchall() == duckdb.sql(wanted).fetchall()


@pytest.mark.parametrize("seed", range(20))
def test_decimals_of_thirty_digits_are_ordered_as_duckdb_orders_them(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    values = [f"{rng.choice(['', '-'])}{rng.randrange(10**20)}.{rng.randrange(10**10):010}" for _ in range(2000)]
    (tmp_path / "a.csv").write_text("x\n" + "".join(f"{value}\n" for value in values))
    found = sort_file(tmp_path / "a.csv", tmp_path / "b.csv", key="x", memory=MEMORY).path.read_text().split()[1:]
    query = f"select x from read_csv('{tmp_path / 'a.csv'}', all_varchar=true) order by x::decimal(38, 10)"
    assert [Decimal(value) for value in found] == [Decimal(row[0]) for row in duckdb.sql(query).fetchall()]
