"""The order of memory in ``tartan_comm.h`` by ThreadSanitizer: clean as it is, a race where one order is weakened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.compiler import require_compiler
from tartan.comm.slots import HEADERS
from tartan.testing.emulator import find_races

pytestmark = pytest.mark.exhaustive

SOURCE = (Path(__file__).parent / "slots_proof.cu").read_text()
N_RANKS, N_BYTES = 3, 128 * 4096
TALK, REUSE = 0, 1


def races(what: int, *, blocks: int = 1, weakened: str = "NOWHERE") -> str | None:
    """Return the first race among three slots and their proxy, with one order weakened."""
    require_compiler()
    args = (np.zeros(N_BYTES, np.uint8), np.int32(blocks), np.int32(what))
    options = [f"-DTARTAN_COMM_WEAKENED={weakened}"]
    return find_races(SOURCE, "proof", N_RANKS * blocks + 1, 2, args, options=options, include=HEADERS)


@pytest.mark.parametrize(("what", "blocks"), [(TALK, 1), (TALK, 2), (REUSE, 1)])
def test_the_header_has_no_race(what, blocks) -> None:
    assert races(what, blocks=blocks) is None


@pytest.mark.parametrize(
    ("weakened", "what", "blocks"),
    [
        ("R1", TALK, 1),
        ("R4", TALK, 1),
        ("R5", TALK, 1),
        ("R5_ARRIVE", TALK, 2),
        ("R5_PASS", TALK, 2),
        ("R8", TALK, 1),
        ("HEAP_GIVE", REUSE, 1),
        ("HEAP_TAKE", REUSE, 1),
    ],
)
def test_each_order_is_needed(weakened, what, blocks) -> None:
    assert "data race" in (races(what, blocks=blocks, weakened=weakened) or "")
