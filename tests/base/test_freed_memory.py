"""Arrays that leave a cache go back to the system, also from between others that stay."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from tartan.base.freed_memory import MALLOC_VARIABLES

SCRIPT = """
import sys
import numpy as np
from tartan.base.freed_memory import set_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

if sys.argv[1] == "set":
    set_freed_memory(1 << 20)
np.ones(2 << 20)  # after these 16 MiB glibc takes smaller arrays from its heap
before = resident()
kept = [np.ones(1 << 18) for _ in range(100)]  # 2 MiB each
del kept[::2]
print((resident() - before) >> 20)
"""


def megabytes_left(how: str, **variables: str) -> int:
    environment = {name: value for name, value in os.environ.items() if name not in MALLOC_VARIABLES} | variables
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how], env=environment, capture_output=True, text=True, check=True, timeout=100
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that keeps what is freed")
def test_freed_arrays_between_others_go_back() -> None:
    assert megabytes_left("set") < 120
    assert megabytes_left("not") > 180
    # Who has set it in the environment keeps it.
    assert megabytes_left("set", MALLOC_MMAP_THRESHOLD_=str(32 << 20)) > 180
