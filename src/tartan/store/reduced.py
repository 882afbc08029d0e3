"""Keep less than the matrix: the k best of each item, or the pairs beyond a threshold.

Each chunk leaves one file, ``parts/<I>-<J>.parquet``, committed like a dense chunk: the part, then its status.
A part has columns i, j and one for each output. Top-k parts have two row groups: rows that count for the items
of chunk row I, then rows that count for the items of chunk column J (empty where I = J, or where the score of
(j, i) is not that of (i, j) and comes mirrored). ``merge_parts`` folds all parts into ``result.parquet`` and
holds the parts of one chunk row at a time, itself cut to k rows an item.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.base.files import FileWriter, arrow_file
from tartan.errors import CorruptResultError
from tartan.store.grid_io import damaged
from tartan.store.manifest import Manifest
from tartan.store.topk import Bars, first_of_groups, select, sort_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULT_NAME = "result.parquet"
BARS_BYTES = 256 * 2**20
FEW_CANDIDATES = 4
Rows = dict[str, np.ndarray]  # columns i, j (int64) and one for each output, all (m,)


class Parts:
    """The part files of one run.

    Parameters
    ----------
    folder : Path
        The run folder.
    manifest : Manifest
        One whose ``reduce`` is not None.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        assert manifest.reduce is not None
        self._folder = folder / "parts"
        self._manifest = manifest
        self._rule: Mapping[str, Any] = manifest.reduce
        self._largest = bool(manifest.reduce.get("largest", False))
        self.output = str(manifest.reduce.get("output") or next(iter(manifest.outputs)))
        self._bars: Bars | None = None
        self._bars_lock = threading.Lock()

    def path(self, row: int, column: int) -> Path:
        """Return the file of one chunk's part."""
        return self._folder / f"{row}-{column}.parquet"

    def write(
        self,
        writer: FileWriter,
        chunk: tuple[int, int],
        outputs: Mapping[str, np.ndarray],
        done: np.ndarray | None,
        mirrored: Mapping[str, np.ndarray] | None,
        older: np.ndarray | None = None,
    ) -> None:
        """Reduce a chunk and write its part.

        Parameters
        ----------
        outputs : dict of array (rows, columns)
        done : bool array (rows, columns) or None
            Which scores are new and valid; None for all.
        mirrored : dict of array (columns, rows) or None
            Scores of (j, i), in runs that are not symmetric.
        older : bool array (rows, columns), optional
            Pairs that an earlier commit of this chunk did and that this one does not touch.
        """
        if done is None:
            done = np.ones(outputs[self.output].shape, bool)
        first, second = self._reduce(chunk, outputs, done, mirrored)
        if older is not None:
            before = self._read_groups(*chunk)
            first, second = (
                self._cut(_concatenate([self._untouched(rows, chunk, older), new]))
                for rows, new in zip(before, (first, second), strict=True)
            )
        self._write_groups(writer, self.path(*chunk), (first, second))

    def n_rows(self, row: int, column: int) -> int:
        """Return the number of pairs that a part keeps."""
        import pyarrow.parquet as pq

        with arrow_file(self.path(row, column)) as file:
            return int(pq.read_metadata(file).num_rows)

    def verify(self, row: int, column: int) -> bool:
        """Whether the part is there and whole."""
        try:
            self._read_groups(row, column)
        except CorruptResultError:
            return False
        return True

    def bands(self, chunks: Iterator[tuple[int, int]]) -> Iterator[Rows]:
        """Yield the merged result from the parts of the given chunks, in bounded pieces sorted by i."""
        listed = sorted(chunks)
        if self._rule["kind"] != "top-k":
            for chunk in listed:
                yield self._read_groups(*chunk)[0]
            return
        sources: dict[int, list[tuple[tuple[int, int], int]]] = {}
        for chunk in listed:
            sources.setdefault(chunk[0], []).append((chunk, 0))
            if chunk[0] != chunk[1]:
                sources.setdefault(chunk[1], []).append((chunk, 1))
        for band in sorted(sources):
            rows = self._empty()
            for chunk, group in sources[band]:
                rows = self._cut(_concatenate([rows, self._read_groups(*chunk)[group]]))
            yield rows

    def _reduce(
        self,
        chunk: tuple[int, int],
        outputs: Mapping[str, np.ndarray],
        done: np.ndarray,
        mirrored: Mapping[str, np.ndarray] | None,
    ) -> tuple[Rows, Rows]:
        row, column = (index * self._manifest.chunk for index in chunk)
        kind = self._manifest.workload["kind"]
        both = self._manifest.symmetric and self._rule["kind"] == "top-k"
        if self._rule["kind"] == "top-k" and chunk[0] == chunk[1]:
            done = done.copy()
            np.fill_diagonal(done, False)  # no item is its own neighbour
        if both and chunk[0] == chunk[1]:
            outputs = {name: np.where(done, block, block.T) for name, block in outputs.items()}
            done = done | done.T
        first = self._pick(outputs, done, row, column)
        if chunk[0] == chunk[1] or kind == "rectangle" or not (both or mirrored):
            return first, self._empty()
        if mirrored is None:
            second = self._pick(outputs, done, row, column, turned=True)
        else:
            second = self._pick(mirrored, done.T, column, row)
        if self._rule["kind"] == "top-k":
            return first, second
        return _concatenate([first, second]), self._empty()

    def _pick(
        self, outputs: Mapping[str, np.ndarray], done: np.ndarray, row: int, column: int, turned: bool = False
    ) -> Rows:
        """Choose from one block; ``row`` and ``column`` are the indices of its first score.

        ``turned`` chooses for the columns of the block instead; the result names them first.
        """
        scores = outputs[self.output]
        if self._rule["kind"] == "top-k":
            i, j = self._pick_best(scores, done, (row, column), turned)
        else:
            limit = float(self._rule["threshold"])
            beyond = scores >= limit if self._largest else scores <= limit
            i, j = np.nonzero(beyond & done)
        dtypes = self._manifest.outputs
        values = {name: outputs[name][i, j].astype(dtypes[name], copy=False) for name in dtypes}
        first, second = i.astype(np.int64) + row, j.astype(np.int64) + column
        return {"i": second, "j": first, **values} if turned else {"i": first, "j": second, **values}

    def _pick_best(
        self, scores: np.ndarray, done: np.ndarray, corner: tuple[int, int], turned: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Choose the k best of each row (or column), less what cannot be among the best of the whole matrix's row."""
        k, bars, axis = int(self._rule["k"]), self._row_bars(), int(turned)
        possible = done if bars is None else bars.candidates(scores, corner[axis], axis) & done
        if np.count_nonzero(possible) > FEW_CANDIDATES * k * scores.shape[axis]:
            block, valid = (scores.T, done.T) if turned else (scores, done)
            chosen = select(block, valid, k, largest=self._largest)
            own, rank = np.nonzero(chosen >= 0)
            found = [own, chosen[own, rank]]
        else:
            # Twice as fast as nonzero in two dimensions.
            places = np.divmod(np.flatnonzero(possible), scores.shape[1])
            keys = sort_keys(scores[places], np.ones(len(places[0]), bool), self._largest)
            own, other = places[axis], places[1 - axis]
            order = first_of_groups(own, other, keys, k)
            order = order[keys[order] < np.inf]
            found = [own[order], other[order]]
        i, j = found[::-1] if turned else found
        if bars is not None:
            bars.offer(found[0] + corner[axis], found[1] + corner[1 - axis], scores[i, j])
        return i, j

    def _row_bars(self) -> Bars | None:
        """Return the best scores known so far; None if that would take too much memory."""
        n, k = self._manifest.n_items, int(self._rule["k"])
        if n * k * 16 > BARS_BYTES:
            return None
        with self._bars_lock:
            if self._bars is None:
                self._bars = Bars(n, k, largest=self._largest)
            return self._bars

    def _untouched(self, rows: Rows, chunk: tuple[int, int], older: np.ndarray) -> Rows:
        """Keep the rows of an earlier part whose pairs this commit does not replace."""
        row, column = (index * self._manifest.chunk for index in chunk)
        low, high = rows["i"], rows["j"]
        if chunk[0] != chunk[1]:
            inside = (low >= row) & (low < row + older.shape[0])
            low, high = np.where(inside, low, high), np.where(inside, high, low)
        elif self._manifest.symmetric:
            low, high = np.minimum(low, high), np.maximum(low, high)
        keep = older[low - row, high - column]
        return {name: values[keep] for name, values in rows.items()}

    def _cut(self, rows: Rows) -> Rows:
        if self._rule["kind"] != "top-k":
            order = np.lexsort((rows["j"], rows["i"]))
        else:
            valid = np.ones(len(rows["i"]), bool)
            keys = sort_keys(rows[self.output], valid, self._largest)
            order = first_of_groups(rows["i"], rows["j"], keys, int(self._rule["k"]))
        return {name: values[order] for name, values in rows.items()}

    def _empty(self) -> Rows:
        columns = {"i": np.dtype(np.int64), "j": np.dtype(np.int64), **self._manifest.outputs}
        return {name: np.empty(0, dtype) for name, dtype in columns.items()}

    def _write_groups(self, writer: FileWriter, path: Path, groups: Sequence[Rows]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        stream = pa.BufferOutputStream()
        schema = pa.table(self._empty()).schema
        with pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True) as parquet:
            for rows in groups:
                parquet.write_table(pa.table(rows), row_group_size=max(1, len(rows["i"])))
        writer.replace(path, [stream.getvalue()])

    def _read_groups(self, row: int, column: int) -> tuple[Rows, Rows]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.path(row, column)
        try:
            with arrow_file(path) as file, pq.ParquetFile(file, page_checksum_verification=True) as part:
                first, second = (part.read_row_group(group) for group in range(2))
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise damaged(path, f"cannot be read ({error})") from error
        return _columns(first), _columns(second)


def _columns(table: Any) -> Rows:
    return {name: table[name].to_numpy() for name in table.column_names}


def _concatenate(pieces: Sequence[Rows]) -> Rows:
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
