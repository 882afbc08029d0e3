"""The dense result: one Zarr array for each output."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.files import FileWriter
from tartan.base.format import format_bytes
from tartan.errors import DiskFullError
from tartan.store.claims import File
from tartan.store.grid_io import ChunkArray, make_damaged_error, pays_to_compress
from tartan.store.manifest import Manifest


class Dense:
    """The result arrays of one run, by output name.

    Parameters
    ----------
    arrays : dict of str to ChunkArray
    """

    def __init__(self, arrays: Mapping[str, ChunkArray]) -> None:
        self.arrays = dict(arrays)

    @classmethod
    def create(cls, folder: Path, manifest: Manifest, writer: FileWriter, samples: Mapping[str, np.ndarray]) -> Dense:
        """Create the arrays; a sample of an output decides whether it is compressed.

        Without a sample floats stay plain, because finished scores rarely shrink, and integers are compressed. Of a
        list of pairs all are: most of a chunk is not a score.
        """
        sparse = manifest.workload["kind"] == "candidates"
        arrays = {}
        for name, dtype in manifest.outputs.items():
            sample = samples.get(name)
            shrinks = dtype.kind not in "fc" if sample is None else pays_to_compress(sample.astype(dtype))
            compressed = sparse or shrinks
            arrays[name] = ChunkArray(folder / f"{name}.zarr", dtype, manifest.chunk, compressed=compressed)
            arrays[name].describe(writer, manifest.n_items)
        return cls(arrays)

    @classmethod
    def open(cls, folder: Path, manifest: Manifest) -> Dense:
        """Open the arrays that the manifest names."""
        outputs = manifest.outputs.items()
        return cls({name: ChunkArray.open(folder / f"{name}.zarr", dtype, manifest.chunk) for name, dtype in outputs})

    def files(
        self,
        chunk: tuple[int, int],
        outputs: Mapping[str, np.ndarray] | None,
        done: np.ndarray | None,
        mirrored: Mapping[str, np.ndarray] | None,
        older: np.ndarray | None = None,
    ) -> Iterator[File]:
        """Yield the files of the outputs of a chunk, and of its mirror image; parameters as in ``Parts.files``."""
        assert outputs is not None, "a matrix needs its scores"
        for name, array in self.arrays.items():
            yield self._file(array, chunk, outputs[name], done, older)
            if mirrored is not None:
                ends = (None if mask is None else mask.T for mask in (done, older))
                yield self._file(array, chunk[::-1], mirrored[name], *ends)

    def targets(self, chunk: tuple[int, int], *, mirrored: bool) -> list[Path]:
        """Return the paths of the outputs of a chunk, in the order of ``files``."""
        ends = [chunk, chunk[::-1]] if mirrored else [chunk]
        return [array.chunk_path(*end) for array in self.arrays.values() for end in ends]

    def decode(
        self, chunk: tuple[int, int], files: Sequence[bytes], shape: tuple[int, int], *, mirrored: bool
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray] | None]:
        """Return the outputs of a chunk, and those of its mirror image, from the bytes of its files."""
        (m, k), left = shape, iter(files)
        own, back = {}, {}
        for name, array in self.arrays.items():
            own[name] = array.decode(next(left), *chunk)[:m, :k]
            if mirrored:
                back[name] = array.decode(next(left), *chunk[::-1])[:k, :m]
        return own, back if mirrored else None

    def verify(self, row: int, column: int) -> bool:
        """Whether every output of a chunk is there and matches its checksum."""
        return all(array.verify(row, column) for array in self.arrays.values())

    def _file(
        self,
        array: ChunkArray,
        chunk: tuple[int, int],
        block: np.ndarray,
        done: np.ndarray | None,
        older: np.ndarray | None,
    ) -> File:
        if older is not None and done is not None:
            before = array.read(*chunk)
            if before is None:
                raise make_damaged_error(array.chunk_path(*chunk), "is gone")
            rows, columns = done.shape
            block = np.where(older, before[:rows, :columns], block)
            done = done | older
        return array.file(*chunk, block, done)


def plain_bytes(manifest: Manifest, n_items: int, *, whole_numbers: bool = False) -> int:
    """Return what the outputs that are not compressed take on disk when a run of ``n_items`` is finished.

    Chunks at the edge are as large as all others. Of reduced runs and lists of pairs nothing is known: 0. With
    ``whole_numbers`` all outputs count, as if none were compressed: no run takes more.
    """
    if manifest.reduce is not None or manifest.workload["kind"] == "candidates":
        return 0
    side, rows = manifest.chunk, -(-n_items // manifest.chunk)
    chunks = rows * (rows + 1) // 2 if manifest.symmetric else rows * rows
    if manifest.workload["kind"] == "rectangle":
        n_left = int(manifest.workload["n_left"])
        chunks = -(-n_left // side) * (rows - n_left // side)
    plain = [dtype for dtype in manifest.outputs.values() if whole_numbers or dtype.kind in "fc"]
    pair_bytes = sum(dtype.itemsize for dtype in plain)
    return chunks * side * side * pair_bytes


def free_bytes(path: Path) -> int:
    """Return what is free on the file system of a path."""
    return shutil.disk_usage(path).free


def refuse_too_large(path: Path, needed_bytes: int, free: int | None = None) -> None:
    """Refuse a result that cannot fit on the disk, before anything is computed for it.

    Raises
    ------
    DiskFullError
        With both sizes and the ways out.
    """
    free = free_bytes(path) if free is None else free
    if needed_bytes > free:
        raise DiskFullError(
            f"the matrix of this run takes {format_bytes(needed_bytes)}, and {format_bytes(free)} are free on the file "
            f"system of {path}; keep the best pairs (--top-k, --threshold), choose another place or free some space",
            context={"path": str(path), "needed_bytes": needed_bytes, "free_bytes": free},
        )


def describe_all(arrays: Mapping[str, Any], writer: FileWriter, n_items: int) -> None:
    """Give every array the shape (n_items, n_items)."""
    for array in arrays.values():
        array.describe(writer, n_items)
