"""Metrics of vectors."""

from __future__ import annotations

from tartan.apps.vectors.app import Vectors

__all__ = ["Vectors"]
