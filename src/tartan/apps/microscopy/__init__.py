"""How particles of localisation microscopy move onto each other: rigid registration, all against all."""

from __future__ import annotations

from tartan.apps.microscopy.app import Microscopy, transform

__all__ = ["Microscopy", "transform"]
