"""How much sets share: shingles of documents, tags, identifiers, hashes."""

from __future__ import annotations

from tartan.apps.sets.app import Sets

__all__ = ["Sets"]
