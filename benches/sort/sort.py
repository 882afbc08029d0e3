"""Disk-to-disk sort against a copy of the file, DuckDB and Polars, in one run, each with the same memory.

    tartan bench sort [gigabytes=4] [memory=1GB] [folder=DIR]
                      [parts=integers,parquet,csv,columns,shapes,records,pairs,paths,kill]

- integers: random int64, raw; against copying the file twice (read and write, past the page cache)
- narrow: 32-bit values in int64; packing by itself, bits a value beside the rule
- parquet: the same random values as uncompressed Parquet; against DuckDB and Polars
- csv: 140 MB of rows by two keys, with all and with a quarter of the memory; against DuckDB and Polars
- columns: 100 columns of Parquet with long texts in a quarter of their size; against copying the file twice
- shapes: all equal, two values, sorted, reversed, Zipf, extremes, one and no record; against the random case
- records: 100 bytes with a key of 10, in the manner of gensort; against copying the file twice
- pairs: 10^8 pairs of a run by score, to Parquet; against DuckDB sorting the same pairs from Parquet
- paths: the instruction sets, in memory
- kill: kill -9 at ten random moments, resumed

Every output is verified: order, count, sum, exclusive or. Every contender runs in a process of its own, whose peak
memory the kernel tells. Peers that are not installed are left out, and the table says so.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benches.shared._measure import options_of, print_table
from benches.sort._sort_data import KEY_BYTES, KINDS, RECORD_BYTES, Facts, check, write_integers, write_records
from tartan.errors import ConfigError
from tartan.options import parse_size

PARTS = ("integers", "narrow", "parquet", "csv", "columns", "shapes", "records", "pairs", "paths", "kill")
CONTENDERS = Path(__file__).with_name("_sort_contenders.py")
KILLS = 10


@dataclass
class Measured:
    """One contender's run."""

    seconds: float
    peak_rss: int
    about: dict[str, Any] = field(default_factory=dict)


@dataclass
class Setting:
    """What all parts share."""

    folder: Path
    n_bytes: int
    memory: int

    def run(self, contender: str, source: Path, target: Path, **options: Any) -> Measured:
        """Let a contender sort in a process of its own."""
        target.unlink(missing_ok=True)
        os.sync()
        words = [contender, source, target, self.memory, json.dumps(options)]
        command = [sys.executable, str(CONTENDERS), *map(str, words)]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        about = json.loads(text.splitlines()[-1])
        return Measured(about.pop("seconds"), about.pop("peak_rss"), about)


def main(arguments: Sequence[str]) -> int:
    """Run the parts that are asked for; 1 if an output is wrong or a bar is missed."""
    options = options_of(arguments, parts=",".join(PARTS), memory="1GB", folder="", gigabytes=4.0)
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        raise ConfigError(f"parts: there is no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="tartan-bench-", dir=options.folder or None) as folder:
        setting = Setting(Path(folder), int(options.gigabytes * 10**9), parse_size(options.memory).amount)
        missed = [line for part in parts for line in _PART[part](setting)]
    for line in missed:
        print(f"  missed: {line}")
    return 1 if missed else 0


def integers(setting: Setting, kind: str = "random") -> Iterator[str]:
    """Raw int64 against two copies."""
    source, target = setting.folder / f"{kind}.bin", setting.folder / "sorted.bin"
    truth = write_integers(source, kind, setting.n_bytes // 8)
    copy = setting.run("copy_twice", source, target)
    ours = setting.run("tartan_file", source, target, dtype="int64")
    yield from _verified(target, truth)
    ratio = ours.seconds / copy.seconds
    rows = [
        ["copied twice", 1.0, "", _megabytes(copy.peak_rss), "", ""],
        ["Tartan, raw", ratio, _moved(ours), _megabytes(ours.peak_rss), *_packing(ours)],
    ]
    head = ["contender", "time of two copies", "bytes moved", "peak RSS", "packed, bits a value", "rule"]
    print_table(f"{kind} int64, {setting.n_bytes / 1e9:g} GB, memory {_megabytes(setting.memory)}", rows, head)
    source.unlink()
    if ratio > 1.35 and kind == "random":
        yield f"{ratio:.2f} times the time of two copies; the bar is 1.35"
    if ours.peak_rss > setting.memory:
        yield f"peak RSS of {_megabytes(ours.peak_rss)} with a memory of {_megabytes(setting.memory)}"
    if kind == "narrow" and not ours.about["packed"]:
        yield "narrow values were not packed"


def narrow(setting: Setting) -> Iterator[str]:
    """32-bit values in int64."""
    yield from integers(setting, "narrow")


def parquet(setting: Setting) -> Iterator[str]:
    """Uncompressed Parquet against DuckDB and Polars, our raw file beside."""
    raw, source, target = (setting.folder / name for name in ("random.bin", "random.parquet", "sorted.parquet"))
    truth = write_integers(raw, "random", setting.n_bytes // 8)
    _to_parquet(raw, source)
    measured = {"Tartan, raw": setting.run("tartan_file", raw, setting.folder / "sorted.bin", dtype="int64")}
    (setting.folder / "sorted.bin").unlink()
    raw.unlink()
    measured["Tartan, Parquet"] = setting.run("tartan_file", source, target, key="value")
    yield from _verified_parquet(target, truth)
    for name, contender in (("DuckDB", "duckdb"), ("Polars", "polars")):
        if importlib.util.find_spec(contender) is None:
            print(f"  {name} is not installed and left out: pip install {contender}")
            continue
        measured[name] = setting.run(contender, source, target)
        yield from (f"{name}: {line}" for line in _verified_parquet(target, truth))
    ours = measured["Tartan, raw"].seconds
    tables = measured["Tartan, Parquet"].seconds
    rows = [
        [name, one.seconds / ours, one.seconds / tables, _megabytes(one.peak_rss)] for name, one in measured.items()
    ]
    head = ["contender", "time of Tartan raw", "time of Tartan Parquet", "peak RSS"]
    print_table(f"random int64, {setting.n_bytes / 1e9:g} GB, memory {_megabytes(setting.memory)}", rows, head)
    source.unlink()
    for name in ("DuckDB", "Polars"):
        if name in measured and measured[name].seconds < 4 * ours:
            yield f"{name} takes only {measured[name].seconds / ours:.1f} times our time; the bar is 4"


def csv(setting: Setting, n_rows: int = 1_900_000) -> Iterator[str]:
    """Rows of text by two keys, each contender in turns, the first one twice."""
    source, target = setting.folder / "rows.csv", setting.folder / "sorted.csv"
    _write_rows(source, n_rows)
    for share in (1, 4):
        memory = max(setting.memory // share, 300 * 10**6)
        one = Setting(setting.folder, setting.n_bytes, memory)
        peers = [name for name in ("duckdb", "polars") if importlib.util.find_spec(name) is not None]
        measured: dict[str, list[Measured]] = {name: [] for name in ("tartan_file", *peers)}
        for _ in range(3):
            for name, found in measured.items():
                key = {"key": "city,score"} if name == "tartan_file" else {"columns": "city, score"}
                found.append(one.run(name, source, target, **key))
        best = {name: min(found, key=lambda run: run.seconds) for name, found in measured.items()}
        ours = best["tartan_file"].seconds
        rows = [[name, run.seconds / ours, _megabytes(run.peak_rss)] for name, run in best.items()]
        title = f"{source.stat().st_size / 1e6:.0f} MB of CSV by two keys, memory {_megabytes(memory)}"
        print_table(title, rows, ["contender", "time of Tartan", "peak RSS"])
        bar = 1.0 if share == 1 else 0.5
        if "duckdb" in best and ours > bar * best["duckdb"].seconds:
            yield f"CSV takes {ours / best['duckdb'].seconds:.2f} times DuckDB's time; the bar is {bar}"
        if best["tartan_file"].peak_rss > memory:
            yield f"CSV: peak RSS of {_megabytes(best['tartan_file'].peak_rss)} with a memory of {_megabytes(memory)}"
    source.unlink()


def _write_rows(path: Path, n_rows: int) -> None:
    rng = np.random.default_rng(0)
    names = [f"name{word:x}" for word in rng.integers(0, 2**32, 50_000).tolist()]
    with path.open("w") as file:
        file.write("id,name,score,day,city,amount,note\n")
        for start in range(0, n_rows, 100_000):
            n = min(100_000, n_rows - start)
            numbers = rng.integers(0, 10**9, (n, 4)).tolist()
            scores = rng.normal(0, 100, n).round(3).tolist()
            file.writelines(
                f"{a},{names[b % 50_000]},{score},2024-{1 + c % 12:02d}-{1 + c % 28:02d},city{d % 500},{b / 100:.2f},"
                f"{names[c % 50_000]} said\n"
                for (a, b, c, d), score in zip(numbers, scores, strict=True)
            )


def columns(setting: Setting, n_rows: int = 900_000, group_rows: int = 50_000) -> Iterator[str]:
    """100 columns with long texts, in a quarter of their size."""
    source, target = setting.folder / "wide.parquet", setting.folder / "sorted.parquet"
    _write_columns(source, n_rows, group_rows)
    memory = max(source.stat().st_size // 4, 300 * 10**6)
    one = Setting(setting.folder, setting.n_bytes, memory)
    copy = one.run("copy_twice", source, target)
    ours = one.run("tartan_file", source, target, key="group,key")
    ratio = ours.seconds / copy.seconds
    rows = [["copied twice", 1.0, _megabytes(copy.peak_rss)], ["Tartan", ratio, _megabytes(ours.peak_rss)]]
    title = f"100 columns of Parquet, {source.stat().st_size / 1e9:.2f} GB, memory {_megabytes(memory)}"
    print_table(title, rows, ["contender", "time of two copies", "peak RSS"])
    source.unlink()
    if ratio > 1.6:
        yield f"100 columns take {ratio:.2f} times the time of two copies; the bar is 1.6"
    if ours.peak_rss > memory:
        yield f"100 columns: peak RSS of {_megabytes(ours.peak_rss)} with a memory of {_megabytes(memory)}"


def _write_columns(path: Path, n_rows: int, group_rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    text = rng.integers(97, 123, 1 << 20, np.uint8).tobytes().decode()

    def texts(most: int, n: int) -> list[str]:
        begins, lengths = rng.integers(0, len(text) - most, n).tolist(), rng.integers(5, most, n).tolist()
        return [text[begin : begin + length] for begin, length in zip(begins, lengths, strict=True)]

    writer = None
    for start in range(0, n_rows, group_rows):
        n = min(group_rows, n_rows - start)
        found: dict[str, Any] = {"key": rng.integers(0, 2**62, n), "group": rng.integers(0, 1000, n)}
        found |= {f"f{number}": rng.random(n) for number in range(58)}
        found |= {f"i{number}": rng.integers(0, 10**6, n) for number in range(20)}
        found |= {f"t{number}": texts(40, n) for number in range(19)} | {"long": texts(600, n)}
        table = pa.table(found)
        writer = writer or pq.ParquetWriter(path, table.schema, use_dictionary=False)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def shapes(setting: Setting) -> Iterator[str]:
    """Inputs that are not random, against the random case."""
    n = setting.n_bytes // 8
    source, target = setting.folder / "shape.bin", setting.folder / "sorted.bin"
    rows, random = [], None
    for kind, count in [
        ("random", n),
        *((kind, n) for kind in KINDS if kind != "random"),
        ("random", 1),
        ("random", 0),
    ]:
        truth = write_integers(source, kind, count)
        ours = setting.run("tartan_file", source, target, dtype="int64")
        yield from (f"{kind}, {count:,} values: {line}" for line in _verified(target, truth))
        random = random or ours.seconds
        rows.append([kind if count == n else f"{count} values", ours.seconds / random, *_packing(ours)[:1]])
        if ours.seconds > 1.5 * random:
            yield f"{kind} takes {ours.seconds / random:.2f} times the random case; the bar is 1.5"
    source.unlink()
    print_table("shapes of input, int64", rows, ["input", "time of the random case", "packed, bits a value"])


def records(setting: Setting) -> Iterator[str]:
    """Records of 100 bytes against two copies."""
    source, target = setting.folder / "records.bin", setting.folder / "sorted.bin"
    truth = write_records(source, setting.n_bytes // RECORD_BYTES)
    copy = setting.run("copy_twice", source, target)
    ours = setting.run("tartan_file", source, target, dtype=f"record:{RECORD_BYTES}", key=f"0:{KEY_BYTES}")
    yield from _verified(target, truth, records=True)
    ratio = ours.seconds / copy.seconds
    rows = [["copied twice", 1.0, _megabytes(copy.peak_rss)], ["Tartan", ratio, _megabytes(ours.peak_rss)]]
    title = f"records of {RECORD_BYTES} bytes, keys of {KEY_BYTES}, {setting.n_bytes / 1e9:g} GB"
    print_table(title, rows, ["contender", "time of two copies", "peak RSS"])
    source.unlink()
    if ratio > 1.6:
        yield f"{ratio:.2f} times the time of two copies; the bar is 1.6"


def pairs(setting: Setting, n_items: int = 14143) -> Iterator[str]:
    """Pairs of a run by score, against DuckDB."""
    import pyarrow.parquet as pq

    import tartan
    from tartan.apps.vectors.app import Vectors

    rows = np.random.default_rng(5).standard_normal((n_items, 16), np.float32)
    run = tartan.allpairs(Vectors(metric="euclidean"), rows, setting.folder / "run.tartan", quiet=True)
    unsorted, target = setting.folder / "pairs.parquet", setting.folder / "sorted.parquet"
    with run.pairs() as reader, pq.ParquetWriter(unsorted, reader.schema, compression="none") as writer:
        for batch in reader:
            writer.write_batch(batch)
    ours = setting.run("tartan_pairs", run.path, target)
    last, count = -np.inf, 0
    for batch in pq.ParquetFile(target).iter_batches(1 << 20, columns=["score"]):
        scores = batch.column(0).to_numpy()
        if scores[0] < last or np.any(np.diff(scores) < 0):
            yield "the pairs are not in order"
        last, count = scores[-1], count + len(scores)
    if count != run.n_pairs:
        yield f"{count:,} pairs came out of {run.n_pairs:,}"
    measured = {"Tartan": ours}
    if importlib.util.find_spec("duckdb") is not None:
        measured["DuckDB"] = setting.run("duckdb", unsorted, target, columns="score")
    table = [[name, one.seconds / ours.seconds, _megabytes(one.peak_rss)] for name, one in measured.items()]
    print_table(f"{run.n_pairs:,} pairs by score, to Parquet", table, ["contender", "time of Tartan", "peak RSS"])
    unsorted.unlink()
    shutil.rmtree(run.path)
    if "DuckDB" in measured and measured["DuckDB"].seconds < 3 * ours.seconds:
        yield f"DuckDB takes only {measured['DuckDB'].seconds / ours.seconds:.1f} times our time; the bar is 3"
    if ours.peak_rss > setting.memory:
        yield f"pairs: peak RSS of {_megabytes(ours.peak_rss)} with a memory of {_megabytes(setting.memory)}"


def paths(setting: Setting, n: int = 10**8) -> Iterator[str]:
    """The sort in memory with each instruction set, and NumPy."""
    from benches.shared._measure import seconds_of
    from tartan._native import sort_keys

    rows = []
    for dtype in (np.uint64, np.uint32):
        values = np.random.default_rng(1).integers(0, np.iinfo(dtype).max, n, dtype, endpoint=True)
        times: dict[str, float] = {}
        truth = values.copy()
        times["NumPy, 1 thread"] = seconds_of(truth.sort)
        for path in ("auto", "avx512", "avx2", "radix"):
            copy = values.copy()
            try:
                times[f"Tartan, {path}, 2 threads"] = seconds_of(lambda: sort_keys(copy, path, 2))  # noqa: B023
            except ValueError:
                continue  # this processor has no such instructions
            if not np.array_equal(copy, truth):
                yield f"{path} does not sort {np.dtype(dtype)}"
        best = times["Tartan, auto, 2 threads"]
        rows += [[str(np.dtype(dtype)), name, seconds / best] for name, seconds in times.items()]
        radix = times["Tartan, radix, 2 threads"] / best
        if radix > 2.5:
            yield f"the radix path takes {radix:.1f} times the best one on {np.dtype(dtype)}; the bar is 2.5"
    print_table(f"{n:,} random values in memory", rows, ["dtype", "sort", "time of Tartan, auto"])


def kill(setting: Setting) -> Iterator[str]:
    """kill -9 at random moments, and again until it is sorted."""
    source, target = setting.folder / "random.bin", setting.folder / "sorted.bin"
    n_bytes = min(setting.n_bytes, 10**9)
    truth = write_integers(source, "random", n_bytes // 8)
    small = Setting(setting.folder, n_bytes, 200 * 10**6)
    whole = small.run("tartan_file", source, target, dtype="int64")
    generator, rows = np.random.default_rng(), []
    for number in range(KILLS):
        target.unlink(missing_ok=True)
        words = ["tartan_file", source, target, small.memory, json.dumps({"dtype": "int64"})]
        moment = float(generator.uniform(0.1, 1.0)) * whole.seconds
        process = subprocess.Popen([sys.executable, CONTENDERS, *map(str, words)], stdout=subprocess.DEVNULL)
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        kept = {path.name for path in setting.folder.rglob("run-*.trun")}
        resumed = small.run("tartan_file", source, target, dtype="int64")
        adopted = resumed.about["run_files_adopted"]
        yield from (f"after kill {number}: {line}" for line in _verified(target, truth))
        if adopted < len(kept):
            yield f"kill {number}: {len(kept)} whole run files, only {adopted} used"
        rows.append([number, moment / whole.seconds, len(kept), adopted, resumed.about["run_files"]])
    head = ["kill", "moment, of a whole sort", "run files whole", "adopted", "run files in all"]
    print_table("kill -9 and resume", rows, head)
    source.unlink()


_PART = {
    function.__name__: function
    for function in (integers, narrow, parquet, csv, columns, shapes, records, pairs, paths, kill)
}


def _verified(target: Path, truth: Facts, *, records: bool = False) -> Iterator[str]:
    found = check(target, records=records)
    if not found.ordered:
        yield "the output is not in order"
    if not found.same_contents(truth):
        yield "the output does not hold what the input held"


def _verified_parquet(target: Path, truth: Facts) -> Iterator[str]:
    import pyarrow.parquet as pq

    count, total, xor, last = 0, 0, 0, None
    for batch in pq.ParquetFile(target).iter_batches(1 << 20):
        values = batch.column(0).to_numpy()
        if np.any(values[1:] < values[:-1]) or (last is not None and values[0] < last):
            yield "the output is not in order"
            return
        words = values.view(np.uint64)
        count, last = count + len(values), values[-1]
        total, xor = (total + int(words.sum(dtype=np.uint64))) % 2**64, xor ^ int(np.bitwise_xor.reduce(words))
    if not Facts(count, total, xor).same_contents(truth):
        yield "the output does not hold what the input held"


def _to_parquet(raw: Path, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = np.memmap(raw, np.int64, "r")
    schema = pa.schema([pa.field("value", pa.int64(), nullable=False)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, len(values), 1 << 20):
            writer.write_batch(pa.record_batch([pa.array(values[start : start + (1 << 20)])], schema=schema))


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.0f} MB"


def _moved(measured: Measured) -> str:
    return f"{sum(edge['n_bytes'] for edge in measured.about['edges'].values()) / 1e9:.2f} GB"


def _packing(measured: Measured) -> list[str]:
    about = measured.about
    if not about["packed"]:
        return ["no", ""]
    expected = about["expected_bits_per_value"]
    return [f"{about['bits_per_value']:.1f}", "" if expected is None else f"{expected:.1f}"]
