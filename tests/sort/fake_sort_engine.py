"""An engine that sorts in memory, one record at a time, and fails on command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sort_oracle import sort_rows

from tartan._native import SortFailure
from tartan.sort.keys import KeyPart

EDGES = ("source_read", "sort", "pack", "run_write", "run_read", "unpack", "merge", "output_write")


def failure(kind: str, *, path: str | None = None, offset: int | None = None, errno: int | None = None) -> SortFailure:
    """Make what the engine raises."""
    made = SortFailure(f"engine says {kind}")
    made.kind, made.path, made.offset, made.errno = kind, path, offset, errno
    return made


class FakeSortJob:
    """Has the face of the engine; ``script`` is called at each wait with the phase and may raise.

    Attributes
    ----------
    made : list
        Every engine that was made, with the options it got.
    """

    made: ClassVar[list[FakeSortJob]]
    script: ClassVar[Callable[[FakeSortJob, str], None]]

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.adopted: list[str] = []
        self.closed: bool | None = None
        self.cancelled = False
        self.waits = 0
        self._phase = "idle"
        self._rows: Any = None
        self.made.append(self)

    def sort_files(self, sources: list[tuple[str, int, int]], runs: list[str]) -> None:
        self.adopted = runs
        width = self.options["record_bytes"]
        data = [np.fromfile(path, np.uint8, length, offset=offset) for path, offset, length in sources]
        parts = [KeyPart(*part) for part in self.options["key"]]
        self._rows = sort_rows(np.concatenate(data).reshape(-1, width), parts)
        self._phase, self.waits = "sort", 0

    def write_file(self, path: str, offset: int) -> None:
        with Path(path).open("r+b") as stream:
            stream.seek(offset)
            stream.write(self._rows.tobytes())
        self._phase, self.waits = "write", 0

    def wait(self, timeout_seconds: float) -> bool:
        assert timeout_seconds <= 0.2
        self.waits += 1
        if self.cancelled:
            raise failure("cancelled")
        self.script(self, self._phase)
        return self.waits == 3

    def cancel(self) -> None:
        self.cancelled = True

    def progress(self) -> dict[str, Any]:
        return {"phase": self._phase, "bytes_done": self.waits, "bytes_total": 3, "runs_done": 0, "ranges_done": 0}

    def statistics(self) -> dict[str, Any]:
        edge = {"bytes": self._rows.nbytes, "busy_seconds": 0.5, "wait_seconds": 0.25}
        return {
            "records": len(self._rows), "runs": 4, "runs_adopted": len(self.adopted), "levels": 1, "ranges": 4,
            "packed_runs": 4, "pack_reason": "asked for", "bits_per_value": 9.5, "io": "threads",
            "direct_read": True, "direct_runs": True, "direct_write": False, "edges": dict.fromkeys(EDGES, edge),
        }  # fmt: skip

    def close(self, keep_runs: bool) -> None:
        self.closed = keep_runs

    def __enter__(self) -> FakeSortJob:
        return self

    def __exit__(self, *_: object) -> None:
        if self.closed is None:
            self.close(keep_runs=True)
