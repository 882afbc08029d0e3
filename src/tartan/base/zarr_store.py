"""A store of Zarr that reads a folder which someone else may have written. Importing this takes the time of Zarr."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterable
from typing import Any

from zarr.abc.store import OffsetByteRequest, RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore

from tartan.base.files import open_regular

# By judgement: consolidated metadata of thousands of arrays; a bound against strangers' files.
MOST_METADATA_BYTES = 64 << 20
_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


class RegularStore(LocalStore):
    """Hand out what regular files hold, and of metadata no more than 64 MiB.

    Zarr itself waits for ever at a named pipe, and takes a path with ``::`` in it for a URL.
    """

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return a file or a part of it as a buffer; None where there is none."""
        try:
            data = _read(f"{self.root}/{key}", byte_range)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        return (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Do as ``get_sync``, in another thread."""
        return await asyncio.to_thread(self.get_sync, key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Do as ``get`` for parts of several files."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]


def _read(path: str, part: Any) -> bytes:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if path.rpartition("/")[2] in _METADATA and size > MOST_METADATA_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MOST_METADATA_BYTES:,} bytes, the most that it may have", path)
        length = -1
        if isinstance(part, RangeByteRequest):
            file.seek(part.start)
            length = part.end - part.start
        elif part is not None:
            file.seek(part.offset if isinstance(part, OffsetByteRequest) else max(0, size - part.suffix))
        return bytes(file.read(length))
