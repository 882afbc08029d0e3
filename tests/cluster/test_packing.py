"""What is compressed for a link, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

from tartan.cluster.packing import LinkSpeeds, TotalSpeed, pack_if_faster, unpack

TEXT = np.frombuffer(b"0.125 0.250 " * 40_000, np.uint8)
NOISE = np.random.default_rng(0).integers(0, 256, len(TEXT), dtype=np.uint8)


@pytest.mark.parametrize(
    ("buffer", "link", "pays"),
    [(TEXT, 1e3, True), (TEXT, 1e15, False), (TEXT, 0.0, False), (NOISE, 1e3, False), (TEXT[:1000], 1e3, False)],
)
def test_a_buffer_is_compressed_where_the_link_is_slower_than_the_codec(
    buffer: np.ndarray, link: float, pays: bool
) -> None:
    small = pack_if_faster(buffer, link)
    assert (small is not None) == pays
    if small is not None:
        assert small.nbytes < len(buffer) / 2
        back = np.empty_like(buffer)
        unpack(np.frombuffer(small, np.uint8), back)
        np.testing.assert_array_equal(back, buffer)


def test_what_was_damaged_on_its_way_is_refused() -> None:
    small = pack_if_faster(TEXT, 1e3)
    assert small is not None
    with pytest.raises((ValueError, RuntimeError)):
        unpack(np.frombuffer(small, np.uint8)[:-9], np.empty_like(TEXT))


def test_the_speed_of_a_link_follows_what_is_measured() -> None:
    speeds = LinkSpeeds()
    assert speeds.of("a:1") == 0
    speeds.note("a:1", 1 << 20, 1.0)
    assert speeds.of("a:1") == 1 << 20
    speeds.note("a:1", 10, 1.0)
    assert speeds.of("a:1") == 1 << 20, "too little to say anything"
    for _ in range(50):
        speeds.note("a:1", 1 << 20, 0.5)
    assert speeds.of("a:1") == pytest.approx(1 << 21, rel=0.01)


def test_what_lay_in_the_buffers_of_a_receiver_hardly_counts() -> None:
    speeds, total, now = LinkSpeeds(), TotalSpeed(), 0.0
    for seconds in [1.0, 1e-5] * 10:
        speeds.note("a:1", 1 << 20, seconds)
        total.begin(now)
        now += seconds
        total.end(1 << 20, now)
    assert 1 << 20 < speeds.of("a:1") < 3 << 20
    assert total.bytes_per_second == pytest.approx(speeds.of("a:1"))
