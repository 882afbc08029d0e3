"""The reader that the specification of run folders gives, and its answers against those of Tartan."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import tartan

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec"


def _load_reader() -> Any:
    spec = importlib.util.spec_from_file_location("read_run", SPEC / "read_run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


READER = _load_reader()


def refuse_other_answers(run: Any, plain: Any) -> None:
    """Compare keys, failures, kept pairs and scores of one version."""
    triples = isinstance(run, tartan.TripleRun)
    assert plain.keys == list(run.keys)
    assert [tuple(row.get(name) for name in ("i", "j", "k", "stage", "reason")) for row in plain.failures()] == [
        (one.i, one.j, one.k, one.stage, one.reason) for one in run.failures
    ]
    ends = ("i", "j", "k") if triples else ("i", "j")
    found = [tuple(row[name] for name in (*ends, *plain.outputs)) for row in plain.pairs()]
    assert [*map(_plain, found)] == [*map(_plain, _rows_of(run, ends, plain.outputs))]
    if run.manifest.reduce is not None:
        return
    n_left = run.manifest.workload.get("n_left", 0)
    for output in plain.outputs:
        matrix = run.matrix(output, fill=math.nan).tolist()
        expected = dict(zip(((row[0], row[1]) for row in found), found, strict=True))
        for i, line in enumerate(matrix):
            for j, value in enumerate(line, start=n_left):
                if (2 * i + 3 * j) % 11 > 2:  # milliseconds each: some
                    continue
                score = plain.score(i, j, output)
                if (i, j) in expected:
                    assert repr(complex(score)) == repr(complex(value))
                else:
                    assert score is None or (run.manifest.symmetric and (j, i) in expected)


def _rows_of(run: Any, ends: tuple[str, ...], outputs: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of a run that are done, items of B behind those of A."""
    table = (run.triples() if len(ends) == 3 else run.pairs()).read_all()
    names = outputs if len(outputs) > 1 else ["score"]
    columns = [table[end].to_pylist() for end in ends]
    for name in names:
        if f"{name}_real" in table.column_names:  # two columns of a complex output
            parts = (table[f"{name}_{part}"].to_pylist() for part in ("real", "imag"))
            columns.append([None if real is None else complex(real, wave) for real, wave in zip(*parts, strict=True)])
        else:
            columns.append(table[name].to_pylist())
    rows = [*zip(*columns, strict=True)]
    n_left = run.manifest.workload.get("n_left", 0)
    if n_left:
        rows = [(row[0], row[1] + n_left, *row[2:]) for row in rows]
    return sorted((row for row in rows if row[len(ends)] is not None), key=lambda row: row[: len(ends)])


def _plain(row: Any) -> list[Any]:
    return [repr(value) for value in row]
