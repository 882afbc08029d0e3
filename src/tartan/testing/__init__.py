"""Kits that every implementation of a protocol must pass, fakes, and applications that fail on command.

The kits, ``tartan.testing.gpu`` and ``tartan.testing.compiler`` need pytest; the rest does not.
"""
