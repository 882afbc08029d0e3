"""CUDA files of the package, and where their kernels come from: the array namespace of a GPU compiles them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class CudaFile:
    """A CUDA C++ file, whose kernels an application launches where its arrays are those of a GPU.

    Parameters
    ----------
    path : Path
        Its kernels are ``extern "C" __global__ void``; it includes nothing.

    Examples
    --------
    >>> import array_api_compat.numpy as xp
    >>> CudaFile(Path("kernels.cu")).runs_on(xp)
    False
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def runs_on(self, xp: Any) -> bool:
        """Whether the arrays of a namespace are those of a GPU."""
        return hasattr(xp, "RawModule")

    def load(self, xp: Any) -> None:
        """Compile the file for the current GPU, unless that is done; raises what CuPy raises."""
        _module(self.path, xp).compile()

    def launch(self, xp: Any, name: str, grid: Sequence[int], block: Sequence[int], args: Sequence[Any]) -> None:
        """Launch a kernel on the current stream.

        Parameters
        ----------
        xp : namespace
            For which ``runs_on`` is true.
        name : str
        grid, block : ints
            Blocks, and threads of a block.
        args : sequence
            Arrays of the GPU, and NumPy scalars of exactly the declared types. A grid without blocks does nothing.
        """
        if all(grid):
            _module(self.path, xp).get_function(name)(tuple(grid), tuple(block), tuple(args))


@functools.lru_cache(maxsize=32)
def _module(path: Path, xp: Any) -> Any:
    """Return the module of a file; CuPy loads it once for each GPU, and keeps machine code on disk."""
    return xp.RawModule(code=path.read_text(), options=("-std=c++17",))
