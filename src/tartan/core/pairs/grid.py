"""How the pair matrix is cut: chunks, panels, strips, spans, and the tiles they make.

All cuts are lines over the item indices 0..n. Lines at multiples of ``chunk`` and of ``panel``, at the borders of
generations, and at ``n`` bound *intervals*; an interval is cut into equal *strips* of at most ``strip`` items, a strip
into equal *spans* of at most ``span`` items. A tile is the rectangle (strip, span) of the upper triangle.

Invariants: a strip is a whole number of spans; a tile lies in one chunk; the lines below an old n do not move when
items are added. So the shapes in which compare is called are a function of the grid alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tartan.errors import ConfigError

# By format: numbers of items are 32 bits wide, with a sign, on disk and in kernels.
MAX_ITEMS = 2**31


class Tile(NamedTuple):
    """One compare call: the items of a strip against the items of a span."""

    strip: int
    span: int


class _Lists(NamedTuple):
    """The lines as plain lists: single look-ups in NumPy arrays cost ten times as much."""

    strips: list[int]
    spans: list[int]
    strip_spans: list[int]
    strip_of: list[int]

    @classmethod
    def of(cls, strips: np.ndarray, spans: np.ndarray, strip_spans: np.ndarray) -> _Lists:
        owner = np.repeat(np.arange(len(strips) - 1), np.diff(strip_spans))
        return cls(strips.tolist(), spans.tolist(), strip_spans.tolist(), owner.tolist())


class Rect(NamedTuple):
    """A half-open rectangle of the pair matrix, in item indices."""

    r0: int
    r1: int
    c0: int
    c1: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.r1 - self.r0, self.c1 - self.c0


@dataclass(frozen=True)
class Grid:
    """The cuts of a run; all sizes in items.

    Parameters
    ----------
    n_items : int
        Number of items, at most 2**31.
    chunk : int
        Side of a chunk.
    panel : int
        Height of the panels that the run was planned for; 0 for none.
    strip, span : int
        Largest height and width of a tile.
    borders : tuple of int
        Further lines: the number of items before each ``add``, the left side of A x B.
    diagonal : bool
        Whether an item may be compared with itself. Otherwise the last item of a span is not a row of its tiles.
    """

    n_items: int
    chunk: int
    panel: int
    strip: int
    span: int
    borders: tuple[int, ...] = ()
    diagonal: bool = True
    strip_lines: np.ndarray = field(init=False, repr=False, compare=False)
    span_lines: np.ndarray = field(init=False, repr=False, compare=False)
    strip_spans: np.ndarray = field(init=False, repr=False, compare=False)
    _lists: _Lists = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.n_items <= MAX_ITEMS:
            raise ConfigError(f"n_items is {self.n_items}; it must be 1 to {MAX_ITEMS}")
        if min(self.chunk, self.strip, self.span) < 1 or self.panel < 0:
            raise ConfigError(f"chunk, strip and span must be positive, not {self.parameters()}")
        strips = _subdivide(self._interval_lines(), self.strip)
        spans = _subdivide(strips, self.span)
        object.__setattr__(self, "strip_lines", strips)
        object.__setattr__(self, "span_lines", spans)
        object.__setattr__(self, "strip_spans", np.searchsorted(spans, strips))
        object.__setattr__(self, "_lists", _Lists.of(strips, spans, self.strip_spans))

    def _interval_lines(self) -> np.ndarray:
        n = self.n_items
        lines = [np.arange(0, n, self.chunk), np.array([n])]
        if self.panel:
            lines.append(np.arange(0, n, self.panel))
        lines.append(np.array([b for b in self.borders if 0 < b < n], dtype=np.int64))
        return np.unique(np.concatenate(lines)).astype(np.int64)

    def parameters(self) -> dict[str, int]:
        """Return what a manifest must record to cut the same tiles again."""
        return {"chunk": self.chunk, "panel": self.panel, "strip": self.strip, "span": self.span}

    @property
    def n_strips(self) -> int:
        return len(self.strip_lines) - 1

    @property
    def n_spans(self) -> int:
        return len(self.span_lines) - 1

    @property
    def most_spans(self) -> int:
        """Largest number of spans in a strip."""
        return int(np.diff(self.strip_spans).max())

    @property
    def longest_strip(self) -> int:
        return int(np.diff(self.strip_lines).max())

    @property
    def longest_span(self) -> int:
        return int(np.diff(self.span_lines).max())

    @property
    def most_items(self) -> int:
        """Largest number of items that a tile needs."""
        return min(self.longest_strip + self.longest_span, self.n_items)

    @property
    def n_chunks(self) -> int:
        """Number of chunks along one side."""
        return -(-self.n_items // self.chunk)

    def span_items(self, span: int) -> range:
        return range(self._lists.spans[span], self._lists.spans[span + 1])

    def span_length(self, span: int) -> int:
        return self._lists.spans[span + 1] - self._lists.spans[span]

    def strip_of(self, span: int) -> int:
        """Return the strip that a span is part of."""
        return self._lists.strip_of[span]

    def strip_items(self, strip: int) -> range:
        return range(self._lists.strips[strip], self._lists.strips[strip + 1])

    def spans_of(self, strip: int) -> range:
        """Return the spans of a whole strip."""
        return range(self._lists.strip_spans[strip], self._lists.strip_spans[strip + 1])

    def rect(self, tile: Tile) -> Rect:
        """Return the pairs of a tile: its rows end where its columns end, so little lies below the diagonal."""
        strip, span = tile
        spans, strips = self._lists.spans, self._lists.strips
        c1 = spans[span + 1]
        end = c1 if self.diagonal else c1 - 1
        return Rect(strips[strip], max(strips[strip], min(strips[strip + 1], end)), spans[span], c1)

    def groups(self, tile: Tile) -> tuple[range, ...]:
        """Return the items of each group of a tile: its cells are their product."""
        r0, r1, c0, c1 = self.rect(tile)
        return range(r0, r1), range(c0, c1)

    def group_spans(self, tile: Tile) -> tuple[range, ...]:
        """Return the spans that hold the items of each group of a tile."""
        return self.row_spans(tile), range(tile.span, tile.span + 1)

    def row_spans(self, tile: Tile) -> range:
        """Return the spans that hold the rows of a tile."""
        strip, span = tile
        last = span + 1 if self.diagonal or self.span_length(span) > 1 else span
        return range(self._lists.strip_spans[strip], min(self._lists.strip_spans[strip + 1], last))

    def tile_spans(self, tile: Tile) -> tuple[int, ...]:
        """Return all spans that a tile needs, each once."""
        rows = self.row_spans(tile)
        return (*rows,) if rows.stop > tile.span else (*rows, tile.span)

    def chunk_of(self, tile: Tile) -> tuple[int, int]:
        return self._lists.strips[tile.strip] // self.chunk, self._lists.spans[tile.span] // self.chunk

    def chunk_rect(self, chunk: tuple[int, int]) -> Rect:
        """Return the extent of a chunk, clipped to the items."""
        (i, j), side, n = chunk, self.chunk, self.n_items
        return Rect(i * side, min((i + 1) * side, n), j * side, min((j + 1) * side, n))

    def chunk_tiles(self, chunk: tuple[int, int]) -> Iterator[Tile]:
        """Iterate over the tiles of a chunk that reach above the diagonal or onto it."""
        rect = self.chunk_rect(chunk)
        strips = range(*np.searchsorted(self.strip_lines, [rect.r0, rect.r1]).tolist())
        spans = range(*np.searchsorted(self.span_lines, [rect.c0, rect.c1]).tolist())
        for strip in strips:
            top = self._lists.strip_spans[strip]
            for span in range(max(spans.start, top), spans.stop):
                yield Tile(strip, span)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Iterate over the chunks of the upper triangle, row by row."""
        return ((i, j) for i in range(self.n_chunks) for j in range(i, self.n_chunks))


def _subdivide(lines: np.ndarray, longest: int) -> np.ndarray:
    """Cut each interval between two lines into the fewest equal parts of at most ``longest``."""
    lengths = np.diff(lines)
    parts = -(-lengths // longest)
    first = np.repeat(np.cumsum(parts) - parts, parts)
    index = np.arange(int(parts.sum())) - first
    starts = np.repeat(lines[:-1], parts) + np.repeat(lengths, parts) * index // np.repeat(parts, parts)
    return np.append(starts, lines[-1]).astype(np.int64)
