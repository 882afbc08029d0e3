"""Kits that every implementation of a protocol must pass, an emulator of GPUs, applications that fail on command.

The kits need pytest; the rest does not.
"""
