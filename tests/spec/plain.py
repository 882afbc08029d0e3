"""The reader that the specification of run folders gives, and its answers against those of Tartan."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

ENDS = ("i", "j", "k")
SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec"


def _load_reader() -> Any:
    spec = importlib.util.spec_from_file_location("read_run", SPEC / "read_run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


READER = _load_reader()


def answers_of(run: Any) -> dict[str, Any]:
    """Return what Tartan says of one version, as JSON has it: names, failures and kept pairs, B behind A."""
    rows = _rows_of(run, ENDS[: run.manifest.arity], [*run.manifest.outputs])
    failures = [[one.i, one.j, one.k, one.stage, one.reason] for one in run.failures]
    return {"keys": list(run.keys), "failures": failures, "rows": [_as_json(row) for row in rows]}


def answers_of_plain(plain: Any) -> dict[str, Any]:
    """Return what the plain reader says, in the same form."""
    failures = [[row.get(name) for name in (*ENDS, "stage", "reason")] for row in plain.failures()]
    rows = [[row[name] for name in (*plain.ends, *plain.outputs)] for row in plain.pairs()]
    return {"keys": plain.keys, "failures": failures, "rows": [_as_json(row) for row in rows]}


def refuse_other_answers(run: Any, plain: Any) -> None:
    """Compare keys, failures, kept pairs and some scores of one version."""
    assert answers_of_plain(plain) == answers_of(run)
    if run.manifest.reduce is not None:
        return
    n_left, kept = run.manifest.workload.get("n_left", 0), {(row["i"], row["j"]) for row in plain.pairs()}
    for output in plain.outputs:
        for i, line in enumerate(run.matrix(output, fill=math.nan).tolist()):
            for j, value in enumerate(line, start=n_left):
                if (2 * i + 3 * j) % 11 > 2:  # milliseconds each: some
                    continue
                score = plain.score(i, j, output)
                if (i, j) in kept or (plain.symmetric and (j, i) in kept):
                    assert repr(complex(score)) == repr(complex(value))
                else:
                    assert score is None


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


def _as_json(row: Any) -> list[Any]:
    return [[value.real, value.imag] if isinstance(value, complex) else value for value in row]
