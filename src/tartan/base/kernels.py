"""CUDA files of the package, whose kernels the array namespace of a GPU compiles, and what stays on a GPU for them."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_selected = threading.local()
_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+(?:__launch_bounds__\([^)]*\)\s*)?void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)'
)


def kernel_names(source: str) -> list[str]:
    """Return the names of the kernels of a CUDA file: the functions that are ``extern "C" __global__ void``."""
    return _KERNEL.findall(source)


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


class Workspace:
    """What applications keep on one device between calls, such as plans of transforms: found by keys, freed together.

    Examples
    --------
    >>> workspace = Workspace()
    >>> with workspace.selected():
    ...     first, second = (kept("table", lambda: [1, 2]) for _ in range(2))
    >>> first is second
    True
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}

    @contextmanager
    def select(self) -> Iterator[None]:
        """Let ``kept`` of the calling thread use this workspace."""
        before = getattr(_selected, "workspace", None)
        _selected.workspace = self
        try:
            yield
        finally:
            _selected.workspace = before

    def clear(self) -> None:
        """Free everything; it is made anew when it is asked for."""
        self._kept.clear()

    def find(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is kept by a key, made if it is not there."""
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found


def kept(key: Hashable, make: Callable[[], T]) -> T:
    """Return what the current device keeps by a key; made by ``make`` where there is none, or no device is selected."""
    workspace = getattr(_selected, "workspace", None)
    return make() if workspace is None else workspace.find(key, make)
