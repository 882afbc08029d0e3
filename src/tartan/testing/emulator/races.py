"""A kernel with a system thread for each GPU thread, all blocks at once, under ThreadSanitizer."""

from __future__ import annotations

import platform
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tartan.testing.emulator.build import Emulator, KernelError, check_arguments, compile_translated, three, translate

_RUN_SECONDS = 300
_RACE_STATUS = 66
_CROWDED = b"unexpected memory mapping"


def find_races(
    source: str,
    name: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    *,
    options: Sequence[str] = (),
    include: Path | None = None,
) -> str | None:
    """Run one launch under ThreadSanitizer; return its report of the first race, None where there is none.

    Parameters
    ----------
    source : str
        Text of a CUDA file.
    name : str
        Name of a kernel.
    grid, block : int or up to three ints
        Blocks and threads; some hundred threads at most.
    args : sequence
        Arrays and scalars; arrays get what the kernel writes.
    options : sequence of str
        Definitions such as ``-DSIDE=16``.
    include : Path, optional
        Folder of headers that the file names.

    Raises
    ------
    KernelError
        If the kernel fails in another way.
    RuntimeError
        If there is no C++ compiler, or it has no ThreadSanitizer.
    """
    arrays = check_arguments(name, Emulator(source, options=options, include=include).parameters(name), args)
    text = f"#define EMULATOR_THREADS\n#define EMULATOR_PROGRAM\n{translate(source)}\nEMULATED_PROGRAM({name})\n"
    program = compile_translated(
        text, options=["-O1", "-g", "-fsanitize=thread", *options], suffix=".races", include=include
    )
    environment = {"TSAN_OPTIONS": f"exitcode={_RACE_STATUS} halt_on_error=1 report_signal_unsafe=0"}
    request = _request((*three(grid), *three(block)), arrays)
    done = _run([str(program)], request, environment)
    if _CROWDED in done.stderr and (setarch := shutil.which("setarch")):
        # Some systems lay memory out at random where the sanitizer keeps its own.
        done = _run([setarch, platform.machine(), "-R", str(program)], request, environment)
    said = done.stderr.decode(errors="replace")
    if done.returncode == _RACE_STATUS:
        return said
    if done.returncode:
        raise KernelError(f"{name}: ended with {done.returncode}: {said[:2000]}")
    _take(done.stdout, arrays)
    return None


def _run(command: Sequence[str], request: bytes, environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=request, capture_output=True, env=environment, timeout=_RUN_SECONDS)


def _request(sizes: Sequence[int], arrays: Sequence[np.ndarray]) -> bytes:
    parts = [struct.pack("=6I", *sizes), struct.pack("=I", len(arrays))]
    for array in arrays:
        parts += [struct.pack("=iQ", array.ndim > 0, array.nbytes), array.tobytes()]
    return b"".join(parts)


def _take(answer: bytes, arrays: Sequence[np.ndarray]) -> None:
    at = 0
    for array in arrays:
        if array.ndim == 0:
            continue
        found = np.frombuffer(answer, array.dtype, array.size, at).reshape(array.shape)
        at += array.nbytes
        if array.flags.writeable:
            array[...] = found
