"""Kits that every implementation of a protocol must pass, fakes, and applications that fail on command.

``tartan.testing.device_kit`` and ``tartan.testing.gpu`` need pytest; the rest does not.
"""
