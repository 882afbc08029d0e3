"""Kernels in CUDA C++ on the CPU: each thread a fibre, each mistake that a GPU would hide an error.

``Emulator`` compiles a CUDA file with the C++ compiler of the machine and the header ``emulator.h``, and launches its
kernels on NumPy arrays. ``find_races`` runs a kernel with system threads under ThreadSanitizer.
"""

from __future__ import annotations

from tartan.testing.emulator.build import Emulator, KernelError, find_compiler
from tartan.testing.emulator.races import find_races

__all__ = ["Emulator", "KernelError", "find_compiler", "find_races"]
