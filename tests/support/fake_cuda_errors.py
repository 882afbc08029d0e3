"""Errors of ``FakeCupy``: those that CuPy raises, and one for what would go wrong silently."""

from __future__ import annotations


class MisuseError(AssertionError):
    """Something that would go wrong on a GPU, perhaps silently."""


class FakeOutOfMemoryError(MemoryError):
    """Stands for ``cupy.cuda.memory.OutOfMemoryError``."""


class FakeCudaRuntimeError(RuntimeError):
    """Stands for ``cupy.cuda.runtime.CUDARuntimeError``."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FakeLibraryError(RuntimeError):
    """Stands for the errors of the driver, cuBLAS and cuFFT, each of which is a subclass of its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FakeCompileError(Exception):
    """Stands for ``cupy.cuda.compiler.CompileException``."""
