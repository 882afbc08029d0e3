"""Ranges of pieces from rank to rank, over bulk transfer: packed where they lie scattered, else in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tartan.blocks.work import PartOrigin
from tartan.cluster import wire
from tartan.cluster.bulk import BulkClient, BulkServer, Parcel
from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.engine import Credentials
from tartan.core.blocks.pieces import PieceKey
from tartan.core.blocks.space import Box

# By contract: as ANSWER_SECONDS of cluster/fetching.
ANSWER_SECONDS = 60.0
"""Longest wait for an answer, and for any pause in it."""
# By arithmetic: 500 parts of some 100 bytes stay below REQUEST_LIMIT of cluster/bulk (64 KiB).
_MOST_PARTS = 500
"""Of one request, so that it stays small."""

Provide = Callable[[PieceKey, Box], tuple[np.ndarray, Callable[[], None]]]
"""Returns a contiguous array of a part of a piece, and what releases it."""

_Question = list[tuple[tuple[int, int, int], tuple[tuple[int, int], ...]]]


class RangeClient:
    """Asks ranks for parts of pieces.

    Parameters
    ----------
    credentials : Credentials
    """

    def __init__(self, credentials: Credentials) -> None:
        self._client = BulkClient(credentials)

    def fetch(self, address: tuple[str, int], origins: Sequence[PartOrigin], targets: Sequence[np.ndarray]) -> int:
        """Receive parts of pieces from the rank at an address; return how many bytes came.

        Raises
        ------
        TransportError
            If it does not answer, or does not have them.
        """
        for begin in range(0, len(origins), _MOST_PARTS):
            some = slice(begin, begin + _MOST_PARTS)
            self._fetch(address, origins[some], targets[some])
        return sum(target.nbytes for target in targets)

    def _fetch(self, address: tuple[str, int], origins: Sequence[PartOrigin], targets: Sequence[np.ndarray]) -> None:
        request = wire.encode([(tuple(origin.key), origin.box) for origin in origins])
        landing = [target if target.flags.c_contiguous else np.empty(target.shape, target.dtype) for target in targets]
        views = [_bytes_of(array).data for array in landing]
        self._client.fetch(address, request, lambda head, sizes: views, timeout_seconds=ANSWER_SECONDS)
        for array, target in zip(landing, targets, strict=True):
            if array is not target:
                target[...] = array

    def drop(self, address: tuple[str, int]) -> None:
        """Break the connections to a rank that is lost."""
        self._client.drop(address)

    def close(self) -> None:
        """Ask nothing more."""
        self._client.close()


class RangeServer:
    """Answers what others ask of a rank.

    Parameters
    ----------
    credentials : Credentials
    host : str
        Interface on which to be asked.
    provide : callable
        Gives what others ask for.
    log : callable
        Receives one line for every connection that does not keep to the protocol.
    throttle : Throttle, optional
        Bounds the speed of answers, for benchmarks.

    Attributes
    ----------
    address : tuple of (str, int)
        Where others ask.
    """

    def __init__(
        self,
        credentials: Credentials,
        host: str,
        provide: Provide,
        log: Callable[[str], None],
        throttle: Throttle | None = None,
    ) -> None:
        self._provide = provide
        self._server = BulkServer(self._answer, credentials, host=host, log=log, throttle=throttle)
        self.address = self._server.address

    def close(self) -> None:
        """Answer nothing more."""
        self._server.close()

    def _answer(self, request: bytes) -> Parcel:
        asked = wire.decode(request, _Question)
        found: list[tuple[np.ndarray, Callable[[], None]]] = []

        def release() -> None:
            for _, let_go in found:
                let_go()

        try:
            for key, box in asked:
                found.append(self._provide(PieceKey(*key), box))
        except BaseException:
            release()
            raise
        return Parcel(b"", [_bytes_of(array).data for array, _ in found], release)


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
