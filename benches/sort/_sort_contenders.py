"""The contenders of ``tartan bench sort``, each in a process of its own: ``_sort_contenders.py NAME SRC DST ..``.

Prints one line of JSON: seconds of the sort alone (imports are not counted), and what the contender says about
itself, and the peak of its memory as the kernel counts it.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCK_BYTES = 4 << 20
COPY_THREADS = 6


def copy_twice(source: Path, target: Path, memory: int) -> dict[str, Any]:
    """Copy a file, and the copy: each byte read twice and written twice, past the page cache, by several threads."""
    between = target.with_name(target.name + ".between")
    start = time.perf_counter()
    _copy(source, between)
    _copy(between, target)
    seconds = time.perf_counter() - start
    between.unlink()
    return {"seconds": seconds}


def _copy(source: Path, target: Path) -> None:
    size = source.stat().st_size
    reader = os.open(source, os.O_RDONLY | os.O_DIRECT)
    writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT, 0o666)
    os.posix_fallocate(writer, 0, -(-size // 4096) * 4096)
    threads = [threading.Thread(target=_copy_blocks, args=(reader, writer, size, k)) for k in range(COPY_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.ftruncate(writer, size)
    os.fsync(writer)
    os.close(reader)
    os.close(writer)


def _copy_blocks(reader: int, writer: int, size: int, first: int) -> None:
    buffer = mmap.mmap(-1, BLOCK_BYTES)
    with memoryview(buffer) as view:
        for start in range(first * BLOCK_BYTES, size, COPY_THREADS * BLOCK_BYTES):
            n_bytes = os.preadv(reader, [view], start)
            os.pwrite(writer, view[: -(-n_bytes // 4096) * 4096], start)


def tartan_file(source: Path, target: Path, memory: int, **options: Any) -> dict[str, Any]:
    """Sort with Tartan, whatever the format."""
    from tartan.sort import sort_file

    start = time.perf_counter()
    result = sort_file(source, target, memory=memory, tmp=target.parent, **options)
    return {"seconds": time.perf_counter() - start, **result.to_dict()}


def tartan_pairs(source: Path, target: Path, memory: int) -> dict[str, Any]:
    """Write the pairs of a run by score, as Parquet."""
    import tartan

    start = time.perf_counter()
    tartan.open(source).export(target, sort=True, memory=memory, tmp=target.parent)
    return {"seconds": time.perf_counter() - start}


def duckdb(source: Path, target: Path, memory: int, columns: str = "value") -> dict[str, Any]:
    """Sort Parquet, or CSV, with DuckDB."""
    import duckdb as peer

    kind = source.suffix.removeprefix(".")
    form = "FORMAT csv" if kind == "csv" else "FORMAT parquet, COMPRESSION uncompressed"

    with peer.connect() as connection:
        connection.execute(f"SET memory_limit='{memory // 10**6}MB'; SET threads=2; SET preserve_insertion_order=false")
        connection.execute(f"SET temp_directory='{target.parent}/duckdb'")
        start = time.perf_counter()
        connection.execute(f"COPY (SELECT * FROM read_{kind}('{source}') ORDER BY {columns}) TO '{target}' ({form})")
        return {"seconds": time.perf_counter() - start}


def polars(source: Path, target: Path, memory: int, columns: str = "value") -> dict[str, Any]:
    """Sort Parquet, or CSV, with the streaming engine of Polars."""
    os.environ["POLARS_OOC_MEMORY_BUDGET_MB"] = str(int(memory * 0.9 / 1e6))
    os.environ["POLARS_OOC_SPILL_DIR"] = str(target.parent)
    os.environ["POLARS_MAX_THREADS"] = "2"
    import polars as peer

    start = time.perf_counter()
    if source.suffix == ".csv":
        peer.scan_csv(source).sort(columns.split(", ")).sink_csv(target, engine="streaming")
    else:
        frame = peer.scan_parquet(source).sort(columns.split(", "))
        frame.sink_parquet(target, compression="uncompressed", engine="streaming")
    return {"seconds": time.perf_counter() - start}


CONTENDERS: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__: function for function in (copy_twice, tartan_file, tartan_pairs, duckdb, polars)
}


def main() -> None:
    """Run one contender."""
    name, source, target, memory, options = sys.argv[1:]
    result = CONTENDERS[name](Path(source), Path(target), int(memory), **json.loads(options))
    print(json.dumps({**result, "peak_rss": _peak_rss()}, default=str))


def _peak_rss() -> int:
    """Return the most memory that this process has held, in bytes; what wait4 tells includes the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


if __name__ == "__main__":
    main()
