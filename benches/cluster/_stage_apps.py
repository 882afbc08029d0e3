"""Applications of ``cluster_stages``: the parsing of real ones, and comparisons that cost next to nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

import tartan
from tartan.apps.forensics.app import Forensics
from tartan.apps.phylogeny.app import Phylogeny


class _Cheap(tartan.Application):
    """Compares by the number of items alone."""

    releases_gil = True

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return np.zeros((len(left), len(right)))


class Photos(_Cheap):
    """Photos: their noise is some ten times larger than the file."""

    ragged = False

    def __init__(self) -> None:
        self._app = Forensics()

    def parse(self, key: str, data: bytes) -> Any:
        return self._app.parse(key, data)


class Fingerprints(Photos):
    """Photos of which a tenth of the noise is left after preprocess."""

    def preprocess(self, item: Any, xp: Any) -> Any:
        return np.ascontiguousarray(item.reshape(-1)[::10])


class Kept(_Cheap):
    """A filter of a user: a hundredth of a file is kept."""

    ragged = False

    def parse(self, key: str, data: bytes) -> Any:
        return np.frombuffer(data, np.uint8)[::100].copy()


class Proteomes(_Cheap):
    """Proteomes: their composition vectors are larger than the compressed text."""

    ragged = True

    def __init__(self) -> None:
        self._app = Phylogeny()

    def parse(self, key: str, data: bytes) -> Any:
        return self._app.preprocess(self._app.parse(key, data), np)


class TextVectors(_Cheap):
    """Vectors as text: a number of seven digits becomes four bytes."""

    ragged = False

    def parse(self, key: str, data: bytes) -> Any:
        return np.array(data.split(), dtype=np.float32)
