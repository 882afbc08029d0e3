"""The chunks of a run of triples: cubes, of which is kept what is best, and how many triples ended how.

Each chunk of lines (I, J, K) leaves one file, ``parts/<I>-<J>-<K>.parquet``: the triples that are kept of it, and in
its metadata how all its triples ended. The file is the ledger too: a chunk is committed when it is there. While a chunk
is computed its file may be of some tiles only: it lists them then, and each commit adds to what is there. The merged
result lies in ``result.parquet``, as that of pairs does. A failed item or triple has its reason in the record of
failures, which is written before the part.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.files import arrow_file
from tartan.core.pairs.grid import Tile
from tartan.core.pairs.ledger import FAILED_PAIR, NOT_COMPUTED
from tartan.core.pairs.triples import TripleGrid
from tartan.core.pairs.workload import AllPairs
from tartan.errors import CorruptResultError, InternalError
from tartan.store.bars import ENDS, BarKeeper, BarRule, merge_rows
from tartan.store.claims import File
from tartan.store.columns import to_arrow, to_numpy
from tartan.store.grid_io import make_damaged_error
from tartan.store.keeper import Rows, concatenate
from tartan.store.manifest import Manifest
from tartan.store.reduced import PARTS_NAME

Chunk = tuple[int, int]
_PART = re.compile(r"-".join([r"(0|[1-9][0-9]{0,12})"] * 3) + r"\.parquet", re.ASCII)
COUNTS, TILES = b"tartan.counts", b"tartan.tiles"
N_CODES = FAILED_PAIR + 1


class WantedTriples:
    """All triples i < j < k of a run; its chunks are named as those of a ``TripleGrid``.

    Parameters
    ----------
    manifest : Manifest
    """

    both_ways = counted_twice = False

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    @cached_property
    def grid(self) -> TripleGrid:
        """The cuts of the run."""
        chunk, panel, strip, span = (int(self._manifest.grid[name]) for name in ("chunk", "panel", "strip", "span"))
        return TripleGrid(self._manifest.n_items, chunk, panel, strip, span)

    @property
    def workload(self) -> AllPairs:
        """The pairs that triples are made of: all."""
        return AllPairs(self._manifest.n_items)

    @property
    def n_scores(self) -> int:
        """Number of triples that a finished run has compared."""
        return self.grid.n_triples

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks that hold triples."""
        return self.grid.chunks()

    def has_chunk(self, row: int, column: int) -> bool:
        """Whether ``chunks`` yields a chunk."""
        return self.grid.has_lines(*self.grid.lines_of((row, column)))

    def n_in(self, row: int, column: int) -> int:
        """Return the number of triples of a chunk."""
        return self.grid.chunk_count((row, column))


class CubeParts:
    """The part files of a run of triples.

    Parameters
    ----------
    folder : Path
        The run folder.
    manifest : Manifest
    wanted : WantedTriples

    Attributes
    ----------
    rule : BarRule
        What is kept.
    """

    def __init__(self, folder: Path, manifest: Manifest, wanted: WantedTriples) -> None:
        self.rule = BarRule.of(manifest)
        self._folder = folder / PARTS_NAME
        self._manifest = manifest
        self._wanted = wanted

    def new_keeper(self) -> BarKeeper:
        """Return the keeper of a new execution."""
        return BarKeeper(self._manifest)

    def chunk_path(self, row: int, column: int) -> Path:
        """Return the file of a chunk."""
        return self._folder / ("-".join(map(str, self.lines_of((row, column)))) + ".parquet")

    def lines_of(self, chunk: Chunk) -> tuple[int, int, int]:
        """Return the three lines of chunks of a chunk."""
        return self._wanted.grid.lines_of(chunk)

    def list_written(self) -> Iterator[Chunk]:
        """Yield the chunks that have a part, line by line."""
        grid, lines = self._wanted.grid, list[tuple[int, ...]]()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = (_PART.fullmatch(entry.name) for entry in self._folder.iterdir())
            lines = sorted(tuple(map(int, part.groups())) for part in found if part)
        return (grid.chunk_at(*three) for three in lines if grid.has_lines(*three))

    def count(self, row: int, column: int, n_codes: int = N_CODES) -> np.ndarray | None:
        """Return the number of triples of each code of the ledger, int64 (n_codes,); None of a chunk without a part.

        Raises
        ------
        CorruptResultError
            If the part does not say that.
        """
        found = self._read_ends((row, column), n_codes)
        return None if found is None else found[0]

    def finished_tiles(self, chunk: Chunk) -> frozenset[Tile] | None:
        """Return the tiles of a chunk that its part is of: none without a part; None where it is of all.

        Raises
        ------
        CorruptResultError
            If the part does not say that.
        """
        found = self._read_ends(chunk, N_CODES)
        return frozenset() if found is None else found[1]

    def _read_ends(self, chunk: Chunk, n_codes: int) -> tuple[np.ndarray, frozenset[Tile] | None] | None:
        """Return how the triples of a chunk ended, and which tiles its part is of (None: all); None without a part."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.chunk_path(*chunk)
        try:
            with arrow_file(path) as file:
                about = pq.read_metadata(file).metadata or {}
            counts, listed = json.loads(about[COUNTS]), json.loads(about.get(TILES, b"null"))
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise make_damaged_error(path, f"cannot be read ({error})") from error
        whole = isinstance(counts, list) and len(counts) == n_codes and all(isinstance(count, int) for count in counts)
        if not whole or min(counts) < 0 or sum(counts) != self._wanted.n_in(*chunk):
            raise make_damaged_error(path, "does not say how its triples ended")
        tiles = None if listed is None else self._read_tiles(chunk, listed)
        n_left = counts[NOT_COMPUTED] if tiles is None else sum(counts) - sum(map(self._wanted.grid.count, tiles))
        if n_left != (0 if tiles is None else counts[NOT_COMPUTED]):
            raise make_damaged_error(path, "does not say which of its tiles are finished")
        return np.array(counts, np.int64), tiles

    def _read_tiles(self, chunk: Chunk, listed: Any) -> frozenset[Tile]:
        """Return listed tiles, of which each is of the chunk and there once; none where one is not."""
        grid, tiles = self._wanted.grid, set[Tile]()
        for named in listed if isinstance(listed, list) else ():
            if not (isinstance(named, list) and len(named) == len(ENDS) and all(type(at) is int for at in named)):
                return frozenset()
            first, second, span = named
            if not 0 <= first <= second < grid.n_strips or not 0 <= span < grid.n_spans:
                return frozenset()
            tile = grid.tile(first, second, span)
            if second > grid.strip_of(span) or grid.chunk_of(tile) != chunk or tile in tiles:
                return frozenset()
            tiles.add(tile)
        return frozenset(tiles)

    def file(self, chunk: Chunk, rows: Rows, counts: Sequence[int], tiles: Collection[Tile] | None = None) -> File:
        """Return the file of a chunk: what is kept of it, and how its triples ended, those before included.

        Parameters
        ----------
        chunk : (int, int)
        rows : dict of arrays
        counts : sequence of int (4,)
            Of the triples that no earlier commit has.
        tiles : collection of Tile, optional
            Those that they are of; default: all that were left.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        before, grid = self._read_ends(chunk, N_CODES), self._wanted.grid
        ended = np.array(counts, np.int64)
        ended[NOT_COMPUTED] = 0
        if before is not None and before[1] is not None:
            rows = self.rule.best(concatenate([self.rows_of(chunk), rows]))
            ended[NOT_COMPUTED + 1 :] += before[0][NOT_COMPUTED + 1 :]
            tiles = None if tiles is None else before[1].union(tiles)
        ended[NOT_COMPUTED] = self._wanted.n_in(*chunk) - ended.sum()
        if ended[NOT_COMPUTED] < 0 or (tiles is None and ended[NOT_COMPUTED]):
            raise InternalError(f"{-ended[NOT_COMPUTED]} more triples of chunk {chunk} were committed than it has")
        about = {COUNTS: json.dumps(ended.tolist())}
        if ended[NOT_COMPUTED]:
            about[TILES] = json.dumps(sorted((*grid.strips(tile), tile.span) for tile in tiles or ()))
        columns = [to_arrow(values) for values in rows.values()]
        table = pa.Table.from_arrays(columns, names=list(rows)).replace_schema_metadata(about)
        stream = pa.BufferOutputStream()
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)
        return self.chunk_path(*chunk), [stream.getvalue()]

    def rows_of(self, chunk: Chunk) -> Rows:
        """Return the triples that a committed chunk keeps.

        Raises
        ------
        CorruptResultError
            If its part is damaged.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.chunk_path(*chunk)
        try:
            with arrow_file(path) as file, pq.ParquetFile(file, page_checksum_verification=True) as part:
                table = part.read()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise make_damaged_error(path, f"cannot be read ({error})") from error
        if table.column_names != [*ENDS, *self._manifest.outputs]:
            raise make_damaged_error(path, f"has the columns {table.column_names}")
        return {name: to_numpy(table[name]).astype(one.dtype) for name, one in self.rule.empty().items()}

    def verify(self, row: int, column: int) -> bool:
        """Whether the part is there and whole."""
        try:
            self.rows_of((row, column))
            return self._read_ends((row, column), N_CODES) is not None
        except CorruptResultError:
            return False

    def bands(self, chunks: Iterable[Chunk]) -> Iterator[Rows]:
        """Yield what is kept of chunks: one piece, sorted by i, j, k, in top-k runs, else a piece a chunk."""
        if self.rule.k is None:
            yield from map(self.rows_of, chunks)
            return
        pieces = [self.rule.empty()]
        for chunk in chunks:
            pieces = merge_rows(self.rule, pieces, self.rows_of(chunk))
        yield self.rule.best(concatenate(pieces))


def sort_rows(pieces: Iterable[Rows], rule: BarRule, output: str, ascending: bool, limit: int | None) -> Rows:
    """Return rows in the order of an output, equal ones by i, j, k; at most ``limit`` of them."""
    rows: dict[str, Any] = concatenate([rule.empty(), *pieces])
    scores = rows[output] if ascending else -rows[output].astype(np.float64)
    order = np.lexsort((*(rows[end] for end in reversed(ENDS)), scores))[:limit]
    return {name: values[order] for name, values in rows.items()}
