"""Read a run folder by its specification, run-folder.md, with zarr and pyarrow and without Tartan."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import zarr

FORMATS, DONE, OPENED, LISTED, BLOCK_PAIRS = (1, 2), 1, 4, "listed-scores", 1 << 20
KNOWN = {"all", "rectangle", "candidates", "triples", "top-k", "threshold", LISTED, "finished-tiles"}
Row = dict[str, Any]


class PlainRun:
    """One version of a run (default: the newest). Items are numbers from 0; in A x B those of B follow those of A."""

    def __init__(self, path: str | Path, version: int | None = None) -> None:
        self.path = Path(path)
        self.array: Any = cache(lambda name: zarr.open_array(self.path / f"{name}.zarr", mode="r"))
        self.manifest = manifest = json.loads((self.path / "manifest.json").read_text())
        _require(manifest["format"] in FORMATS, f"{path} has format {manifest['format']}, this reads {FORMATS}")
        kinds = {manifest["workload"]["kind"], (manifest["reduce"] or manifest["workload"])["kind"]}
        self.listed, new = LISTED in manifest.get("features", []), (kinds | {*manifest.get("features", [])}) - KNOWN
        _require(not new, f"{path} has what is not known here: {new}")
        body = json.dumps({name: value for name, value in manifest.items() if name != "checksum"}, sort_keys=True)
        check = hashlib.sha256(body.encode()).hexdigest()[:16]
        _require(check == manifest["checksum"], f"{path}/manifest.json does not match its checksum")
        self.outputs, self.kind = list(manifest["application"]["outputs"]), manifest["workload"]["kind"]
        self.rule, self.ends = manifest["reduce"] or {}, "ijk" if self.kind == "triples" else "ij"
        self.symmetric = self.kind != "rectangle" and manifest["application"].get("symmetric", True)
        versions, exact = self._read_versions()
        first = exact if self.kind == "triples" or "k" in self.rule else min(versions)  # what others need is not kept
        self.newest, self.version = max(versions), max(versions) if version is None else version
        _require(first <= self.version <= self.newest, f"{path} has versions {first} to {self.newest}, not {version}")
        self.slots, self.names = versions[self.version]
        self.place = {slot: item for item, slot in enumerate(self.slots)}

    @property
    def keys(self) -> list[str]:
        """The names of the items."""
        table, n_left = self.path / "items.parquet", self.manifest["workload"].get("n_left", 0)
        numbers = [str(slot if slot < n_left else slot - n_left) for slot in range(self.manifest["n_items"])]
        stored = pq.read_table(table, columns=["key"])["key"].to_pylist() if table.exists() else numbers
        return [self.names.get(slot, stored[slot]) for slot in self.slots]

    def score(self, i: int, j: int, output: str | None = None) -> Any:
        """Return a score of a matrix; None where the pair is not done."""
        a, b = self.slots[i], self.slots[j]
        ends = min(a, b), max(a, b)  # their status is that of both ways
        if self.listed:
            return next((row[output or self.outputs[0]] for row in self._rows_of_list() if _ends(row) == ends), None)
        done = self.array("status")[ends] == DONE
        return self.array(output or self.outputs[0])[ends if self.symmetric else (a, b)].item() if done else None

    def pairs(self) -> list[Row]:
        """Return what the run keeps, by i, j (and k); of a matrix all pairs that are done, both ways if they differ."""
        result = self.path / "result.parquet"
        if self.rule and self.version == self.newest and result.exists():
            said = int(((table := pq.read_table(result)).schema.metadata or {}).get(b"tartan.version", 0))
            if said == self.version or not (self.path / "versions.jsonl").exists():  # of items, not of slots
                table = table.drop_columns([f"key_{end}" for end in self.ends])
                return sorted(table.rename_columns([*self.ends, *self.outputs]).to_pylist(), key=_ends)
        stored = self._rows_of_list if self.listed else self._rows_of_parts if self.rule else self._rows_of_matrix
        live = [
            row for row in (self._as_items(row, self.symmetric and "k" not in self.rule) for row in stored()) if row
        ]
        return sorted(self._choose_best(live) if "k" in self.rule else live, key=_ends)

    def failures(self) -> list[Row]:
        """Return failed items (j is None), pairs and triples, with stage and reason."""
        rows = [row for log in self.path.glob("writers*/*/failures.jsonl") for row in _lines(log)]
        rows += [row for table in self.path.glob("failures.parquet") for row in pq.read_table(table).to_pylist()]
        rows += [row for log in self.path.glob("failures.jsonl") for row in _lines(log)]  # the newest
        found = {_ends(row): row for row in (self._as_items(row, self.symmetric) for row in rows) if row}
        return sorted(found.values(), key=lambda row: (row["j"] is not None, _ends(row)))

    def _read_versions(self) -> tuple[dict[int, tuple[list[int], dict[int, str]]], int]:
        generations, path = self.manifest["generations"], self.path / "versions.jsonl"
        if not path.exists():
            _require(self.manifest["format"] == 1, f"{path} is gone")
            return {at: (list(range(n_slots)), {}) for at, n_slots in enumerate(generations, 1)}, len(generations)
        check, entries, exact = "", [], 0
        for line in path.read_text().removesuffix("\n").split("\n"):
            body = check + "\n" + line[len('{"entry": ') : line.rindex(', "check": ')]
            check = hashlib.sha256(body.encode()).hexdigest()[:16]
            entries.append(json.loads(line)["entry"])
            _require(json.loads(line)["check"] == check, f"{path} does not match its checksum")
        head, *records = entries
        _require(head["format"] == 1 and head["records"] == len(records), f"{path} is cut off, or of a later format")
        at, number, slots = head["generations"], head["first"], _slots(head["slots"] or [(0, generations[0])])
        versions = {number: (slots, names := {int(slot): name for slot, name in head["names"].items()})}
        for record in [*(one for one in records if one["generations"] <= len(generations)), None]:
            while at < (len(generations) if record is None else record["generations"] - record["extends"]):
                slots, at = [*slots, *range(generations[at - 1], generations[at])], at + 1
                versions[number := number + 1] = slots, names
            exact = exact or number  # before the first record, or the newest
            if record is not None:
                gone, placed = set(_slots(record["gone"])), {old: new for new, old in record["placed"]}
                slots = [placed.get(slot, slot) for slot in slots if slot not in gone]
                new, at = range(generations[at - 1], generations[at - 1 + record["extends"]]), at + record["extends"]
                slots += [slot for slot in new if slot not in placed.values()]
                names = names | {int(slot): name for slot, name in record["names"].items()}
                versions[number := number + 1] = slots, names
        return versions, exact

    def _as_items(self, row: Row, turns: bool) -> Row | None:
        places = [self.place.get(row[name], -1) for name in "ijk" if row.get(name) is not None]
        return None if -1 in places else row | dict(zip("ijk", sorted(places) if turns else places, strict=False))

    def _rows_of_matrix(self) -> list[Row]:
        arrays = {name: self.array(name)[:] for name in self.outputs}
        done = zip(*(ends.tolist() for ends in (self.array("status")[:] == DONE).nonzero()), strict=True)
        pairs = [(i, j) for i, j in done if i <= j]
        pairs += [(j, i) for i, j in pairs if i < j and not (self.symmetric or self.kind == "rectangle")]
        return [{"i": i, "j": j} | {name: block[i, j].item() for name, block in arrays.items()} for i, j in pairs]

    def _rows_of_list(self) -> list[Row]:
        pairs, rows = np.load(self.path / "candidates.npy"), list[Row]()
        for block in self.path.glob("listed/*"):
            some, data, at = pairs[int(block.name) * BLOCK_PAIRS :][:BLOCK_PAIRS], block.read_bytes(), 0
            columns: dict[str, Any] = {}
            for name, text in [*self.manifest["application"]["outputs"].items(), ("code", "u1")]:
                columns[name] = np.frombuffer(data, np.dtype(text).newbyteorder("<"), len(some), at)
                at += columns[name].nbytes
            done = columns.pop("code") == DONE
            if self.rule and (scores := columns[self.rule.get("output") or self.outputs[0]]) is not None:
                limit = scores.dtype.type(self.rule["threshold"])
                done &= scores >= limit if self.rule.get("largest") else scores <= limit
            both = zip(some[done].tolist(), *(values[done].tolist() for values in columns.values()), strict=True)
            rows += [{"i": i, "j": j} | dict(zip(self.outputs, scores, strict=True)) for (i, j), *scores in both]
        return rows

    def _rows_of_parts(self) -> list[Row]:
        rows = [row for part in self.path.glob("parts/*.parquet") for row in pq.read_table(part).to_pylist()]
        if self.kind == "triples":  # the parts are the ledger
            return rows
        status, pairs = self.array("status")[:], [(row, sorted((row["i"], row["j"]))) for row in rows]
        return [row for row, (low, high) in pairs if high < len(status) and status[low, high] in (DONE, OPENED)]

    def _choose_best(self, rows: list[Row]) -> list[Row]:
        output, sign = self.rule.get("output") or self.outputs[0], -1 if self.rule.get("largest") else 1
        best, counts = list[Row](), Counter[int]()
        for row in sorted(rows, key=lambda row: (sign * row[output], _ends(row))):
            counts.update(items := _ends(row)[: 3 if self.kind == "triples" else 1])
            best += [row] if min(counts[item] for item in items) <= self.rule["k"] else []
        return best


def _lines(log: Path) -> Any:
    for line in log.read_bytes().split(b"\n"):
        with suppress(ValueError):  # torn by a kill
            yield json.loads(line)


def _ends(row: Row) -> tuple[int, ...]:
    return tuple(row[name] for name in "ijk" if row.get(name) is not None)


def _slots(spans: list[list[int]]) -> list[int]:
    return [slot for first, number in spans for slot in range(first, first + number)]


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
