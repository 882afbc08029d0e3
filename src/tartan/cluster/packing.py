"""Compress buffers for a link where a sample says that the link is slower than the codec."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from tartan.store.grid_io import compress, decompress

# By judgement: a sample costs 0.25 ms (measured at level 1), a thousandth of what a link of 100 MB/s takes for an item
# of 25 MB. `tartan bench cluster_stages` holds what compression gains.
SAMPLE_BYTES = 256 << 10
# By arithmetic: 64 KiB take 0.6 ms at 100 MB/s, as long as a round trip (0.5 ms): their time says more of that than of
# the link.
LEAST_BYTES = 64 << 10
"""Smaller buffers say nothing of a link, and gain nothing."""
# By judgement: Zstandard's own figures have decompression two to five times as fast as level 1; half is the safe side.
# No benchmark.
DECODE_SHARE = 0.5
"""Time to decompress, over that to compress; at most."""
# By judgement: three transfers make a speed forgotten by two thirds, so one that met a busy moment counts little.
# `tartan bench cluster_stages` holds the outcome.
FADING = 0.7
"""How much of what was measured of a link is left when a transfer is added."""


class _FadingSpeed:
    """Bytes over seconds of late, each summed.

    What a receiver finds in its buffers when it wakes seems to take no time: a mean of speeds would follow it.
    """

    def __init__(self) -> None:
        self._n_bytes = self._seconds = 0.0

    @property
    def bytes_per_second(self) -> float:
        """0 where it is not known."""
        return self._n_bytes / max(self._seconds, 1e-9)

    def note(self, n_bytes: int, seconds: float) -> None:
        """Take note of a transfer."""
        self._n_bytes = FADING * self._n_bytes + n_bytes
        self._seconds = FADING * self._seconds + seconds


class LinkSpeeds:
    """Bytes a second that came from each address, of late; for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._speeds: defaultdict[str, _FadingSpeed] = defaultdict(_FadingSpeed)

    def note(self, address: str, n_bytes: int, seconds: float) -> None:
        """Take note of a transfer."""
        if n_bytes < LEAST_BYTES:
            return
        with self._lock:
            self._speeds[address].note(n_bytes, seconds)

    def of(self, address: str) -> float:
        """Return the speed of a link; 0 where it is not known."""
        with self._lock:
            return self._speeds[address].bytes_per_second


class TotalSpeed:
    """Bytes a second of all transfers to a rank together, while there is one; for threads.

    Transfers at a time share a link, so that the speed of each says little of what it carries.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = self._n_bytes = 0
        self._since = self._busy_seconds = 0.0
        self._measured = _FadingSpeed()

    @property
    def bytes_per_second(self) -> float:
        """0 where it is not known."""
        with self._lock:
            return self._measured.bytes_per_second

    def begin(self, now: float) -> None:
        """Take note of a transfer that begins."""
        with self._lock:
            if not self._open:
                self._since = now
            self._open += 1

    def end(self, n_bytes: int, now: float) -> None:
        """Take note of one that ends."""
        with self._lock:
            self._open -= 1
            self._n_bytes += n_bytes
            self._busy_seconds += now - self._since
            self._since = now
            if self._n_bytes < LEAST_BYTES:
                return
            self._measured.note(self._n_bytes, self._busy_seconds)
            self._n_bytes, self._busy_seconds = 0, 0.0


def pack_if_faster(buffer: memoryview | np.ndarray, link_bytes_per_second: float) -> memoryview | None:
    """Return a buffer compressed, or None where that would take longer than it saves on this link.

    Parameters
    ----------
    buffer : memoryview or uint8 array
    link_bytes_per_second : float
        As measured by the receiver; 0 where it is not known, which compresses nothing.
    """
    plain = np.frombuffer(buffer, np.uint8)
    if len(plain) < LEAST_BYTES or link_bytes_per_second <= 0:
        return None
    if not CodecSample.of(plain).pays(link_bytes_per_second):
        return None
    return memoryview(compress(plain))


@dataclass(frozen=True)
class CodecSample:
    """What a sample says of compressing bytes of its kind.

    Attributes
    ----------
    share : float
        Compressed bytes over plain ones.
    seconds_a_byte : float
        To compress and to decompress.
    """

    share: float = 1.0
    seconds_a_byte: float = 0.0

    @classmethod
    def of(cls, plain: np.ndarray) -> CodecSample:
        """Compress the middle of some bytes."""
        middle = max(0, (len(plain) - SAMPLE_BYTES) // 2)
        sample = plain[middle : middle + SAMPLE_BYTES]
        if not len(sample):
            return cls()
        begin = time.thread_time()  # what other threads do meanwhile says nothing of the codec
        left = len(compress(sample))
        seconds = (time.thread_time() - begin) * (1 + DECODE_SHARE)
        return cls(left / len(sample), seconds / len(sample))

    def pays(self, link_bytes_per_second: float) -> bool:
        """Whether compressing takes less time than it saves on a link."""
        return self.seconds_a_byte * link_bytes_per_second < 1 - self.share

    def link_bytes(self, n_bytes: float, link_bytes_per_second: float) -> float:
        """Return about how many bytes go over a link of which the speed is known, or (0) is not."""
        pays = link_bytes_per_second > 0 and n_bytes >= LEAST_BYTES and self.pays(link_bytes_per_second)
        return n_bytes * (self.share if pays else 1.0)


def unpack(data: np.ndarray, target: memoryview | np.ndarray) -> None:
    """Decompress what ``pack_if_faster`` returned.

    Raises
    ------
    ValueError, RuntimeError
        If it is not that, or does not fit.
    """
    decompress(data, np.frombuffer(target, np.uint8))
