"""What a tile needs of a level: which spans, and in which block each must lie.

Two ways, decided by the room of the level. Streaming: the rows of a tile lie in the block of their strip; its columns
lie alone, unless they are rows of the same panel. Where columns stay, their strips lie in the panel, and the strip of
the rows streams, whole. Whole: everything fits, each span lies in its strip, for ever.
"""

from __future__ import annotations

from tartan.core.cache import Need, Room
from tartan.core.grid import Grid, Tile
from tartan.errors import ConfigError

NO_ROWS = range(0)
STREAMS = -1


class Needs:
    """The needs of tiles in one level; those of a strip are remembered, because every tile asks.

    Parameters
    ----------
    grid : Grid
    room : Room
        Of the level; without columns, everything fits.
    """

    def __init__(self, grid: Grid, room: Room) -> None:
        self._grid = grid
        self._whole = not room.columns
        self._strips: dict[tuple[int, int], list[Need]] = {}

    def of(self, tile: Tile, resident: range = NO_ROWS) -> list[Need]:
        """Return what a tile needs; ``resident`` are the spans that stay, if any do."""
        rows = self._grid.row_spans(tile)
        start = self._grid.span_items(resident.start).start if resident else 0
        span = tile.span
        streams = bool(resident) and span in resident and self._grid.spans_of(tile.strip).start not in resident
        needs = self._strip(tile.strip, STREAMS if streams and not self._whole else start)[: len(rows)]
        if rows.stop > span:
            return needs
        if self._whole or span in resident:
            strip = self._grid.strip_of(span)
            needs.append(self._strip(strip, start)[span - self._grid.spans_of(strip).start])
        else:
            needs.append(Need(span, self._grid.span_length(span), -1, 0, 0))
        return needs

    def _strip(self, strip: int, panel_start: int) -> list[Need]:
        """Return the needs of a whole strip in the panel that starts at an item, or of one that streams."""
        needs = self._strips.get((strip, panel_start))
        if needs is None:
            items = self._grid.strip_items(strip)
            streams = panel_start == STREAMS
            anchor = 0 if streams else items.start - (0 if self._whole else panel_start)
            needs = []
            for span in self._grid.spans_of(strip):
                offset = self._grid.span_items(span).start - items.start
                needs.append(Need(span, self._grid.span_length(span), strip, offset, len(items), anchor, streams))
            self._strips[strip, panel_start] = needs
        return needs


def check_room(grid: Grid, room: Room, option: str) -> None:
    """Refuse a level that cannot hold one tile of a grid.

    Raises
    ------
    ConfigError
        Naming the option and the least value.
    """
    if not room.addressed or not room.columns:
        return
    if room.rows:
        least = grid.longest_strip + grid.longest_span
        fits = room.rows >= grid.longest_strip and room.columns >= grid.longest_span
    else:
        # Spans lie where there is room, those of a strip too.
        n_spans = grid.most_spans + 1
        least, fits = n_spans * grid.span, room.columns // room.column_frame >= n_spans
    if not fits:
        raise ConfigError(
            f"{option} has room for {room.total} items; a tile of this run needs {least}: "
            f"give {option} {least}items or more",
            context={"option": option, "least_items": least},
        )
