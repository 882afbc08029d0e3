"""Keep less than the matrix: the k best of each item, or the pairs beyond a threshold.

Each chunk leaves one file, ``parts/<I>-<J>.parquet``, committed like a dense chunk: the part, then its status.
A part has columns i, j and one for each output. Top-k parts have two row groups: rows that count for the items
of chunk row I, then rows that count for the items of chunk column J (empty where I = J, or where the score of
(j, i) is not that of (i, j) and comes mirrored). ``merge_parts`` folds all parts into ``result.parquet`` and
holds the parts of one chunk row at a time, itself cut to k rows an item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.base.files import arrow_file
from tartan.core.pairs.ledger import DONE
from tartan.errors import CorruptResultError
from tartan.store.claims import File
from tartan.store.columns import to_arrow, to_numpy
from tartan.store.grid_io import make_damaged_error
from tartan.store.keeper import BEST_BYTES, ENTRY_BYTES, CommittedBest, Keeper, Rows, concatenate
from tartan.store.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

RESULT_NAME = "result.parquet"
#: Entry of the schema of ``result.parquet`` that says of which version it is; absent where there is no log.
RESULT_VERSION = b"tartan.version"
PARTS_NAME = "parts"
# By judgement: what was merged is read again at each merge, so at twice the result each row is sorted again most often,
# and at ten much memory is held. No benchmark.
MERGED_TIMES = 3


class Parts:
    """The part files of one run.

    Parameters
    ----------
    folder : Path
        The run folder.
    manifest : Manifest
        One whose ``reduce`` is not None.
    codes_of : callable, optional
        Returns the codes of a chunk (row, column), uint8 (rows, columns), or None where nothing is known of it. A part
        may have rows of pairs that are not done: a kill came before its status, or they were taken back. Default: all
        rows count.
    all_done : callable, optional
        Returns whether all pairs of a whole chunk (row, column) are done, without a look at each.

    Attributes
    ----------
    keeper : Keeper
        What has been chosen from tiles and is not written yet.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        codes_of: Callable[[int, int], np.ndarray | None] | None = None,
        all_done: Callable[[int, int], bool] | None = None,
    ) -> None:
        self._codes_of, self._all_done = codes_of, all_done
        assert manifest.reduce is not None
        self._folder = folder / PARTS_NAME
        self._manifest = manifest
        self._rule: Mapping[str, Any] = manifest.reduce
        self.keeper = Keeper(manifest)
        self._best: CommittedBest | None = None
        self._lifetimes: np.ndarray | None = None
        self._ranks: np.ndarray | None = None
        self._unpublished: dict[tuple[int, int], tuple[Rows, Rows]] = {}
        self._whole: set[tuple[int, int]] = set()  # chunks of which the keeper has seen all that their parts hold

    def keep_for(self, lifetimes: np.ndarray, ranks: np.ndarray | None) -> None:
        """Keep what any version of a top-k run needs: the best among the items of each lifetime, not among all.

        Parameters
        ----------
        lifetimes : int64 array (n,)
            Equal for items that the same versions have.
        ranks : int64 array (n,) or None
            As of ``Keeper``.
        """
        if self._rule["kind"] == "top-k":
            self._lifetimes, self._ranks = lifetimes, ranks
            self.keeper = Keeper(self._manifest, ranks=ranks)

    def path(self, row: int, column: int) -> Path:
        """Return the file of one chunk's part."""
        return self._folder / f"{row}-{column}.parquet"

    def new_keeper(self, *, chunk_by_chunk: bool = False) -> Keeper:
        """Forget what was chosen and not written, and return the keeper of a new execution.

        Parameters
        ----------
        chunk_by_chunk : bool
            Choose in each chunk by itself, and drop only what is displaced by committed pairs. Of several writers one
            may lose a chunk to another that could not load an item: scores that are then no part of the result must
            not have displaced others.
        """
        ways = {"best_bytes": 0} if chunk_by_chunk else {}
        self.keeper = Keeper(self._manifest, ranks=self._ranks, **ways)
        self._best, self._unpublished, self._whole = None, {}, set()
        k = int(self._rule.get("k", 0))
        if chunk_by_chunk and 0 < k * self._manifest.n_items * ENTRY_BYTES <= BEST_BYTES:
            self._best = CommittedBest(self._manifest, self.keeper.output)
        return self.keeper

    def choose(
        self,
        chunk: tuple[int, int],
        outputs: Mapping[str, np.ndarray],
        done: np.ndarray | None,
        mirrored: Mapping[str, np.ndarray] | None,
    ) -> None:
        """Choose from the scores of a chunk, those of ``done``; where the keeper was not given the tiles themselves."""
        corner = chunk[0] * self._manifest.chunk, chunk[1] * self._manifest.chunk
        self.keeper.choose(corner, outputs, None if done is None else done.view(np.uint8), mirrored)

    def on_published(self, chunk: tuple[int, int], *, counts: bool, last: bool = True) -> None:
        """Take note whether the version of a chunk that ``files`` made counts, where there are several writers.

        ``last``: nothing more of the chunk follows.
        """
        for rows in self._unpublished.pop(chunk, ()):
            if self._best is not None and counts:
                self._best.add(rows)
        if last:
            self.keeper.forget(chunk)

    def targets(self, chunk: tuple[int, int], *, mirrored: bool = False) -> list[Path]:
        """Return the paths of the files of a chunk, in the order of ``files``; it has one, mirrored or not."""
        return [self.path(*chunk)]

    def files(
        self,
        chunk: tuple[int, int],
        outputs: Mapping[str, np.ndarray] | None,
        done: np.ndarray | None,
        mirrored: Mapping[str, np.ndarray] | None,
        older: np.ndarray | None = None,
    ) -> Iterator[File]:
        """Yield the file of the part of a chunk, with what was chosen from it.

        Parameters
        ----------
        outputs : dict of array (rows, columns), or None
            Not looked at: ``choose`` has been given them, or the keeper every tile.
        done : bool array (rows, columns) or None
            Which scores are new and valid; None for all.
        mirrored : dict of array (columns, rows) or None
            Scores of (j, i), in runs that are not symmetric.
        older : bool array (rows, columns), optional
            Pairs that an earlier commit of this chunk did and that this one does not touch.
        """
        first, second = self.keeper.chosen(chunk)
        if done is not None:  # the keeper also has what was saved of the chunk before, and tiles that end meanwhile
            first, second = (self._of_pairs(rows, chunk, done) for rows in (first, second))
        if self._best is not None:
            first, second = self._best.not_displaced(first), self._best.not_displaced(second)
            self._unpublished[chunk] = first, second
        if older is None:
            self._whole.add(chunk)
        else:
            self._whole.discard(chunk)
            before = self._read_groups(*chunk)
            first, second = (
                self._cut(_join(self._of_pairs(rows, chunk, older), new))
                for rows, new in zip(before, (first, second), strict=True)
            )
        yield self.path(*chunk), [self._encode((first, second))]

    def _cut(self, rows: Rows) -> Rows:
        """Drop what no version needs: in one that has items of several lifetimes the best may be any of these."""
        if self._lifetimes is None or not len(rows["i"]):
            return self.keeper.cut(rows)
        of = self._lifetimes[rows["j"]]
        each = [{name: values[of == one] for name, values in rows.items()} for one in np.unique(of)]
        return concatenate([self.keeper.cut(some) for some in each])

    def without(self, chunk: tuple[int, int], keep: np.ndarray) -> Iterator[tuple[Path, list[Any]]]:
        """Yield the file of the part of a chunk with the rows of some of its pairs, bool (rows, columns)."""
        groups = self._read_groups(*chunk)
        yield self.path(*chunk), [self._encode([self._of_pairs(rows, chunk, keep) for rows in groups])]

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
        """Yield the merged result from the parts of the given chunks, in bounded pieces sorted by i.

        Parts that all come from one execution are not read: its keeper holds the best of them.
        """
        listed = sorted(chunks)
        if self._rule["kind"] != "top-k":
            for chunk in listed:
                yield self._of_items(self.read_done(chunk, 0))
            return
        if self._whole.issuperset(listed) and (held := self.keeper.bands()) is not None:
            yield from held
            return
        sources: dict[int, list[tuple[tuple[int, int], int]]] = {}
        for chunk in listed:
            sources.setdefault(chunk[0], []).append((chunk, 0))
            if chunk[0] != chunk[1]:
                sources.setdefault(chunk[1], []).append((chunk, 1))
        for band in sorted(sources):
            yield self._merge(sources[band])

    def _of_items(self, rows: Rows) -> Rows:
        """Keep the rows of the items that there are: a part has more once items were added to a run that is read."""
        keep = (rows["i"] < self._manifest.n_items) & (rows["j"] < self._manifest.n_items)
        return rows if keep.all() else {name: values[keep] for name, values in rows.items()}

    def read_done(self, chunk: tuple[int, int], group: int) -> Rows:
        """Return the rows of a group of a part whose pairs are done: 0 of its chunk row, 1 of its chunk column."""
        rows = self._read_group(chunk, group)
        if self._codes_of is None or not len(rows["i"]) or (self._all_done is not None and self._all_done(*chunk)):
            return rows
        codes, side = self._codes_of(*chunk), self._manifest.chunk
        if codes is not None and codes.shape == (side, side) and bool((codes == DONE).all()):
            return rows
        low, high = np.minimum(rows["i"], rows["j"]), np.maximum(rows["i"], rows["j"])
        if codes is None:
            keep = np.zeros(len(low), bool)
        else:
            corner, ends = np.array(chunk) * side, codes.shape
            low, high = low - corner[0], high - corner[1]
            keep = (low < ends[0]) & (high < ends[1])  # a part has more once items were added to a run that is read
            keep[keep] = codes[low[keep], high[keep]] == DONE
        return rows if keep.all() else {name: values[keep] for name, values in rows.items()}

    def _merge(self, sources: Sequence[tuple[tuple[int, int], int]]) -> Rows:
        """Return the best of some groups of parts, cut whenever they have grown to a few times the result."""
        most = MERGED_TIMES * self._manifest.chunk * int(self._rule["k"])
        pieces, n_rows = [self.keeper.empty()], 0
        for chunk, group in sources:
            pieces.append(self._of_items(self.read_done(chunk, group)))
            n_rows += len(pieces[-1]["i"])
            if n_rows > most:
                pieces = [self.keeper.cut(concatenate(pieces))]
                n_rows = len(pieces[0]["i"])
        return self.keeper.cut(concatenate(pieces))

    def _of_pairs(self, rows: Rows, chunk: tuple[int, int], which: np.ndarray) -> Rows:
        """Keep the rows of some pairs of a chunk, bool (rows, columns)."""
        row, column = (index * self._manifest.chunk for index in chunk)
        low, high = rows["i"], rows["j"]
        if chunk[0] != chunk[1]:
            inside = (low >= row) & (low < row + which.shape[0])
            low, high = np.where(inside, low, high), np.where(inside, high, low)
        elif self._manifest.symmetric:
            low, high = np.minimum(low, high), np.maximum(low, high)
        keep = which[low - row, high - column]
        return {name: values[keep] for name, values in rows.items()}

    def _encode(self, groups: Sequence[Rows]) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        stream = pa.BufferOutputStream()
        schema = _table(self.keeper.empty()).schema
        ways = {"compression": "zstd", "write_page_checksum": True, "use_dictionary": False}
        with pq.ParquetWriter(stream, schema, **ways) as parquet:
            for rows in groups:
                parquet.write_table(_table(rows), row_group_size=max(1, len(rows["i"])))
        return stream.getvalue()

    def read_groups(self, chunk: tuple[int, int]) -> tuple[Rows, Rows]:
        """Return the rows of a part that count for the items of its chunk row, and for those of its chunk column."""
        return self._read_groups(*chunk)

    def _read_groups(self, row: int, column: int) -> tuple[Rows, Rows]:
        return self._read_group((row, column), 0), self._read_group((row, column), 1)

    def take_in(self, chunk: tuple[int, int], part: bytes) -> None:
        """Let the keeper hold what the part of a chunk, from another process, has of it."""
        import pyarrow as pa

        first, second = (self._group_of(chunk, pa.BufferReader(part), group) for group in range(2))
        self.keeper.add(chunk, (first, second))

    def _read_group(self, chunk: tuple[int, int], group: int) -> Rows:
        try:
            with arrow_file(self.path(*chunk)) as file:
                return self._group_of(chunk, file, group)
        except OSError as error:
            raise make_damaged_error(self.path(*chunk), f"cannot be read ({error})") from error

    def _group_of(self, chunk: tuple[int, int], file: pa.NativeFile, group: int) -> Rows:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(file, page_checksum_verification=True) as part:
                table = part.read_row_group(group)
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise make_damaged_error(self.path(*chunk), f"cannot be read ({error})") from error
        return {name: to_numpy(table[name]) for name in table.column_names}


def _join(before: Rows, new: Rows) -> Rows:
    """Join rows; pairs that were compared again once."""
    if not len(before["i"]) or not len(new["i"]):
        return concatenate([before, new])
    pairs = {one: rows["i"] * (1 << 31) + rows["j"] for one, rows in (("before", before), ("new", new))}
    stays = ~np.isin(pairs["before"], pairs["new"])
    return concatenate([{name: values[stays] for name, values in before.items()}, new])


def version_of_result(path: Path) -> int | None:
    """Return of which version a merged result is; None where it does not say."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with arrow_file(path) as file:
            said = (pq.read_schema(file).metadata or {}).get(RESULT_VERSION)
    except (pa.ArrowInvalid, OSError, ValueError):
        return None
    return int(said) if said is not None and said.isdigit() else None


def _table(rows: Rows) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_arrays([to_arrow(values) for values in rows.values()], names=list(rows))
