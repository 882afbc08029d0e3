"""Which camera took a photo: sensor noise patterns and how they compare."""

from __future__ import annotations

from tartan.apps.forensics.app import PCE_THRESHOLD, Forensics, cameras, ncc_threshold

__all__ = ["PCE_THRESHOLD", "Forensics", "cameras", "ncc_threshold"]
