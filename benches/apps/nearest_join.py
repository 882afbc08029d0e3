"""``nearest_join`` beside DuckDB's best form of the same query: seconds a pair, and the peak of the process.

Words: ``left=``, ``right=``, ``width=``, ``k=``, ``memory=``, ``duckdb=`` (pairs that DuckDB is given; 0: none). The
tables are Parquet files of rows with the spectrum of embeddings. DuckDB computes a part of the left, since a pair costs
it the same; its forms are a window, ``min_by`` with a number, and a lateral join, and the fastest counts.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benches.shared._measure import not_held, options_of, print_table, with_peak_memory

#: Times the pairs a second of DuckDB.
BAR = 50.0
FORMS = {
    "window": "SELECT id, rid, d FROM (SELECT l.id, r.id AS rid, array_cosine_distance(l.e, r.e) AS d FROM l, r) "
    "QUALIFY row_number() OVER (PARTITION BY id ORDER BY d) <= {k}",
    "min_by": "SELECT id, unnest(m) FROM (SELECT l.id, min_by({{'id': r.id}}, array_cosine_distance(l.e, r.e), {k}) "
    "AS m FROM l, r GROUP BY l.id)",
    "lateral": "SELECT l.id, x.id, x.d FROM l, LATERAL (SELECT r.id, array_cosine_distance(l.e, r.e) AS d FROM r "
    "ORDER BY d LIMIT {k}) AS x",
}
# By judgement: a few MB of rows at once.
_PART = 20_000


def write_rows(path: Path, n: int, width: int, seed: int) -> None:
    """Write n rows with the spectrum of embeddings, and text ids."""
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((width, width)))[0].astype(np.float32)
    spread = (np.arange(1, width + 1) ** -0.5).astype(np.float32)
    rng = np.random.default_rng(seed)
    schema = pa.schema([("id", pa.string()), ("embedding", pa.list_(pa.float32(), width))])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, n, _PART):
            m = min(_PART, n - start)
            rows = (rng.standard_normal((m, width), np.float32) * spread) @ basis
            ids = pa.array([f"row {start + at}" for at in range(m)])
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), width)
            writer.write_table(pa.table([ids, vectors], schema=schema))


def run_tartan(left: str, right: str, k: str, memory: str) -> dict[str, Any]:
    """Join in this process; return seconds."""
    import tartan

    start = time.perf_counter()
    rows = sum(batch.num_rows for batch in tartan.nearest_join(left, right, k=int(k), memory=memory))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "rows": rows}


def time_duckdb(left: Path, right: Path, width: int, k: int, n_pairs: int, n_right: int) -> dict[str, float]:
    """Return the pairs a second of each form."""
    import duckdb

    few = max(1, n_pairs // n_right)
    found = {}
    con = duckdb.connect()
    con.execute("SET enable_progress_bar = false")
    con.execute(f"CREATE TABLE l AS SELECT id, embedding::FLOAT[{width}] AS e FROM '{left}' LIMIT {few}")
    con.execute(f"CREATE TABLE r AS SELECT id, embedding::FLOAT[{width}] AS e FROM '{right}'")
    for name, query in FORMS.items():
        start = time.perf_counter()
        con.execute(query.format(k=k)).fetchall()
        found[name] = few * n_right / (time.perf_counter() - start)
    return found


def main(words: Sequence[str] = ()) -> int:
    """Print both; return 1 where the bar is not held."""
    asked = options_of(words, left=20_000, right=100_000, width=128, k=10, memory="500MB", duckdb=10_000_000)
    with tempfile.TemporaryDirectory() as folder:
        left, right = Path(folder) / "left.parquet", Path(folder) / "right.parquet"
        write_rows(left, asked.left, asked.width, 1)
        write_rows(right, asked.right, asked.width, 2)
        ours, peak = with_peak_memory(__file__, left, right, asked.k, asked.memory)
        rate = asked.left * asked.right / ours["seconds"]
        rows: list[Sequence[object]] = [("tartan, whole call", f"{rate / 1e6:,.1f}", f"{peak / 1e6:,.0f}", "")]
        failed: list[str] = []
        if asked.duckdb:
            try:
                theirs = time_duckdb(left, right, asked.width, asked.k, asked.duckdb, asked.right)
            except ImportError:
                print("duckdb is not installed: pip install duckdb")
                theirs = {}
            best = max(theirs.values(), default=0.0)
            rows += [(f"duckdb, {name}", f"{one / 1e6:,.1f}", "", f"{rate / one:,.0f}") for name, one in theirs.items()]
            if theirs and rate < BAR * best:
                failed.append(f"nearest_join is {rate / best:.1f} x DuckDB a pair; the bar is {BAR:g}")
    title = f"nearest_join: {asked.left:,} x {asked.right:,} x {asked.width}, k = {asked.k}, memory = {asked.memory}"
    print_table(title, rows, ("", "million pairs/s", "peak, MB", "tartan is, times"))
    return not_held(failed)


if __name__ == "__main__":
    import json

    print(json.dumps(run_tartan(*sys.argv[1:5])))
