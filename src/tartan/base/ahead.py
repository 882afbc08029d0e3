"""Values that are made while the ones before them are used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(values: Iterator[T]) -> Iterator[T]:
    """Yield values; while one is used, a thread makes the next. What it raises is raised in its place."""
    end = object()
    with ThreadPoolExecutor(1, "tartan-ahead") as thread:
        coming = thread.submit(next, values, end)
        while (value := coming.result()) is not end:
            coming = thread.submit(next, values, end)
            yield value  # type: ignore[misc]  # not the end
