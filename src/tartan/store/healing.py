"""Take failures back, so that what failed is computed anew: for all items that are healed, or for none.

A decision is written to ``healing.json`` first, as a whole, and carried out then: new fingerprints are recorded,
pairs lose their codes in the ledger, failures that are taken back lose their rows. Every step may be repeated. The
next writer that opens the folder carries out a decision that it finds, so that a kill between two steps only delays
the others. What is left afterwards are pairs that are not computed, as in any unfinished run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.files import FileWriter
from tartan.base.json_input import parse_json, read_json
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, Failure
from tartan.errors import CorruptResultError
from tartan.store.items import ItemTable

FILE_NAME = "healing.json"


@dataclass(frozen=True)
class Fingerprint:
    """What is recorded of an item from now on; None where the run records no such thing."""

    size: int | None = None
    mtime: int | None = None
    content: str | None = None
    ctime: int | None = None
    identity: int | None = None
    checksum: int | None = None
    note: str | None = None


@dataclass(frozen=True)
class Healing:
    """What is decided on the failures of a run.

    Attributes
    ----------
    failures : sequence of Failure
        Those that stay: items that failed again, with their new reasons. All others are taken back, failed pairs
        included.
    anew : sequence of int
        Healed items that are not what they were when some of their pairs were computed: these are computed again too.
    fingerprints : dict of int to Fingerprint
        New fingerprints, by item.
    """

    failures: Sequence[Failure] = ()
    anew: Sequence[int] = ()
    fingerprints: dict[int, Fingerprint] = field(default_factory=dict)

    def write(self, folder: Path, writer: FileWriter) -> None:
        """Make the decision; it holds when this returns."""
        body = {
            "failures": [asdict(failure) for failure in self.failures],
            "anew": [int(item) for item in self.anew],
            "fingerprints": {str(item): asdict(found) for item, found in self.fingerprints.items()},
        }
        text = json.dumps(body)
        writer.replace(folder / FILE_NAME, [json.dumps({"body": text, "checksum": _checksum(text)}).encode()])
        writer.sync()

    @classmethod
    def read(cls, folder: Path, n_items: int) -> Healing | None:
        """Return the decision on a run of ``n_items`` that is to be carried out, or None.

        Raises
        ------
        CorruptResultError
            If it is damaged.
        """
        path = folder / FILE_NAME
        try:
            found = read_json(path)
            if found["checksum"] != _checksum(found["body"]):
                raise ValueError("it does not match its checksum")
            body = parse_json(found["body"])
            if not all(0 <= int(item) < n_items for item in (*body["fingerprints"], *body["anew"])):
                raise ValueError("it names items that the run has not")
            return cls(
                [Failure(**failure) for failure in body["failures"]],
                body["anew"],
                {int(item): Fingerprint(**about) for item, about in body["fingerprints"].items()},
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptResultError(
                f"{path} cannot be read ({error}); remove it, and retry what failed again (--retry-failed)",
                context={"path": str(path)},
            ) from error

    def table(self, before: ItemTable) -> ItemTable:
        """Return the items with their new fingerprints."""
        old = before.sizes, before.mtimes, before.ctimes, before.identities
        columns = [None if column is None else np.array(column, np.int64) for column in old]
        contents = None if before.contents is None else list(before.contents)
        notes = None if before.notes is None else list(before.notes)
        for item, found in self.fingerprints.items():
            for column, value in zip(columns, (found.size, found.mtime, found.ctime, found.identity), strict=True):
                if column is not None and value is not None:
                    column[item] = value
            if contents is not None and found.content is not None:
                contents[item] = found.content
            if notes is not None and found.note is not None:
                notes[item] = found.note
        sizes, mtimes, ctimes, identities = columns
        return ItemTable(before.keys, sizes, mtimes, contents, ctimes, identities, notes)

    def checksums(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the items with new checksums, and these."""
        found = {item: about.checksum for item, about in self.fingerprints.items() if about.checksum is not None}
        return np.array([*found], np.intp), np.array([*found.values()], np.uint64)

    def mark_taken_back(self, status: np.ndarray, rows: range, columns: range) -> np.ndarray:
        """Return which codes of a chunk (rows, columns) are taken back, as a boolean array of its shape."""
        failed = [failure.i for failure in self.failures if failure.j is None]
        back: np.ndarray = (status == FAILED_ITEM) & ~_of_any(failed, rows, columns)
        back |= status == FAILED_PAIR
        back |= (status == DONE) & _of_any(self.anew, rows, columns)
        return back


def _of_any(items: Sequence[int], rows: range, columns: range) -> Any:
    """Return which pairs of a chunk have one of the items, as an array that broadcasts to its shape."""
    return np.isin(np.array(rows), items)[:, None] | np.isin(np.array(columns), items)[None, :]


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
