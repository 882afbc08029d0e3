"""Rows of numbers in files that other programs write: tables, archives, raw memory; one file or many shards."""
