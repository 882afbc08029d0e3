"""Kits that every implementation of a protocol must pass, fakes, and applications that fail on command.

The kits and ``tartan.testing.gpu`` need pytest; the rest does not.
"""
