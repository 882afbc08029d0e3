"""The floor of a barrier: processes in C++ that count in shared memory and wake each other, and do nothing else."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tartan.testing.emulator.build import find_compiler

#: How often a process offers its processor to others before it sleeps: never, or as often as a rank.
LOOKS = (0, 64)
_SOURCE = Path(__file__).with_suffix(".cpp")
_LIMIT_SECONDS = 60


@contextmanager
def native_barriers(n_processes: int, times: int, rounds: int) -> Iterator[dict[str, Callable[[], list[float]]]]:
    """Compile the barrier; yield how to get the seconds of each of its ways, none where there is no C++ compiler."""
    compiler = find_compiler()
    if compiler is None:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / _SOURCE.stem
        subprocess.run([compiler, "-O2", "-o", str(program), str(_SOURCE)], check=True, capture_output=True)

        def measured(looks: int) -> list[float]:
            words = map(str, (program, n_processes, looks, times, rounds))
            done = subprocess.run([*words], check=True, capture_output=True, text=True, timeout=_LIMIT_SECONDS)
            return [float(line) for line in done.stdout.split()]

        yield {f"C++, {looks} looks": lambda looks=looks: measured(looks) for looks in LOOKS}
