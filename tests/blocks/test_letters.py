"""Letters of any size between the driver and its ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tartan.blocks import letters


class Posted:
    """Keeps what is posted."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, bytes]] = []

    def post(self, peer: str, do: str, body: bytes = b"") -> None:
        self.posts.append((do, body))


def posted(letter: Any) -> list[tuple[str, bytes]]:
    engine = Posted()
    letters.post(engine, "rank-0", letter)  # type: ignore[arg-type]
    return engine.posts


def test_a_letter_between_the_parts_of_another_spoils_nothing() -> None:
    large = np.random.default_rng(0).bytes(2_000_000)
    first, *parts, last = posted(large)
    ((do, body),) = posted("small")
    assert [do for do, _ in (first, *parts)] == [letters.PART] * 2
    assert do == last[0] == letters.WHOLE
    box = letters.Letters()
    box.part("driver", first[1])
    assert box.whole("driver", body) == "small"
    for _, part in parts:
        box.part("driver", part)
    assert box.whole("driver", last[1]) == large
