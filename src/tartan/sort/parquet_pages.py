"""How much memory a Parquet file takes while it is read in slices: its pages, and not its row groups.

Rows are read some thousands at a time. Of each column that holds a page as it is stored, and as it is decoded, whatever
the size of the row group. How large pages are stands in front of each, in the Compact Protocol of Thrift.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

# By format: the header of a page has a few numbers and statistics, of which each text is up to some kilobytes.
_HEADER_BYTES = 1 << 14
# By format: types of the Compact Protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
# By judgement: more pages than this in one chunk are of one size. No benchmark.
_MOST_PAGES = 256


def measure_reading(descriptor: int, about: pq.FileMetaData, names: Sequence[str], buffer_bytes: int) -> dict[str, int]:
    """Return the memory that each column takes while it is read in slices, besides the rows themselves.

    Parameters
    ----------
    descriptor : int
        Of the file.
    about : pyarrow.parquet.FileMetaData
    names : sequence of str
        Of columns.
    buffer_bytes : int
        How much of each column is read at once.
    """
    found = dict.fromkeys(names, 0)
    for place in range(about.num_columns):
        chunks = [about.row_group(group).column(place) for group in range(about.num_row_groups)]
        name = about.schema.column(place).path.split(".")[0]
        if chunks and name in found:
            largest = max(chunks, key=lambda chunk: int(chunk.total_uncompressed_size))
            found[name] += _measure_chunk(descriptor, largest, buffer_bytes)
    return found


def _measure_chunk(descriptor: int, chunk: Any, buffer_bytes: int) -> int:
    """Return the memory that one column takes: what is read at once, the dictionary, and the largest page twice."""
    stored, whole = int(chunk.total_compressed_size), int(chunk.total_uncompressed_size)
    at = int(chunk.data_page_offset)
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        at = min(at, int(chunk.dictionary_page_offset))
    end, dictionary, page = at + stored, 0, 0
    for _ in range(_MOST_PAGES):
        if at >= end:
            break
        head = os.pread(descriptor, _HEADER_BYTES, at)
        try:
            kind, decoded, length, behind = _read_header(head)
        except (IndexError, ValueError):
            return stored + whole
        if kind == _DICTIONARY_PAGE:
            dictionary = decoded
        else:
            page = max(page, decoded + (length if length > buffer_bytes else 0))
        at += behind + length
    return min(buffer_bytes, stored) + dictionary + page


# By format: PageType of Parquet.
_DICTIONARY_PAGE = 2


def _read_header(head: bytes) -> tuple[int, int, int, int]:
    """Return type, decoded and stored size of a page, and the length of its header."""
    values: dict[int, int] = {}
    at, field = 0, 0
    while head[at]:
        kind, step = head[at] & 15, head[at] >> 4
        at += 1
        if step:
            field += step
        else:
            number, at = _read_number(head, at)
            field = number >> 1 ^ -(number & 1)
        if kind in (4, 5, 6):
            number, at = _read_number(head, at)
            values[field] = number >> 1 ^ -(number & 1)
        else:
            at = _skip(head, at, kind)
    if not {1, 2, 3} <= values.keys() or values[2] < 0 or values[3] < 0:
        raise ValueError("no header of a page")
    return values[1], values[2], values[3], at + 1


def _read_number(head: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (head[at] & 127) << shift
        shift += 7
        at += 1
        if head[at - 1] < 128:
            return value, at


def _skip(head: bytes, at: int, kind: int) -> int:
    """Return where a value ends."""
    if kind in (_TRUE, _FALSE):
        return at
    if kind == _BYTE:
        return at + 1
    if kind in (4, 5, 6):
        return _read_number(head, at)[1]
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        length, at = _read_number(head, at)
        return at + length
    if kind in (_LIST, _SET):
        count, inner = head[at] >> 4, head[at] & 15
        at += 1
        if count == 15:
            count, at = _read_number(head, at)
        for _ in range(count):
            at = at + 1 if inner in (_TRUE, _FALSE) else _skip(head, at, inner)
        return at
    if kind == _STRUCT:
        while head[at]:
            inner, step = head[at] & 15, head[at] >> 4
            at += 1
            if not step:
                at = _read_number(head, at)[1]
            at = _skip(head, at, inner)
        return at + 1
    raise ValueError(f"type {kind} does not stand in the header of a page")
