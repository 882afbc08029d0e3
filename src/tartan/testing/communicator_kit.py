"""What every communicator must pass: a pytest base class. Subclass it and say how to run some ranks.

    class TestMyCommunicator(CommunicatorKit):
        sizes = (1, 2, 3, 7)

        def run(self, size, function):
            return [...]          # what function(communicator) returned on each rank

``function`` is a closure; a communicator of several processes must ship it. Nothing here sleeps or measures time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tartan.comm.communicator import Communicator, partition
from tartan.errors import ConfigError

__all__ = ["CommunicatorKit"]


class CommunicatorKit:
    """The suite. See the module for how to use it."""

    sizes: tuple[int, ...] = (1,)

    def run(self, size: int, function: Callable[[Communicator], Any]) -> list[Any]:
        """Run a function on so many ranks; return what each returned."""
        raise NotImplementedError

    def test_ranks_are_numbered(self) -> None:
        for size in self.sizes:
            assert self.run(size, lambda ranks: (ranks.rank, ranks.size)) == [(rank, size) for rank in range(size)]

    @pytest.mark.parametrize("n", [7, 2, 0])
    @pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
    def test_gathered_rows_lie_in_the_order_of_the_ranks(self, n: int, dtype: str) -> None:
        whole = np.arange(n * 3).reshape(n, 3).astype(dtype)

        def gather(ranks: Communicator) -> Any:
            start, stop = partition(n, ranks.size)[ranks.rank]
            return ranks.all_gather(whole[start:stop])

        for size in self.sizes:
            for found in self.run(size, gather):
                np.testing.assert_array_equal(found, whole, strict=True)

    def test_gathered_rows_may_be_of_one_dimension(self) -> None:
        for size in self.sizes:
            for found in self.run(size, lambda ranks: ranks.all_gather(np.full(ranks.rank, ranks.rank))):
                assert found.tolist() == [rank for rank in range(size) for _ in range(rank)]

    def test_sums_are_taken_in_the_order_of_the_ranks(self) -> None:
        values = np.random.default_rng(5).standard_normal((max(self.sizes), 50)) * 10.0 ** np.arange(-25, 25)
        for size in self.sizes:
            expected = values[0].copy()
            for row in values[1:size]:
                expected += row
            for found in self.run(size, lambda ranks: ranks.all_reduce(values[ranks.rank])):
                np.testing.assert_array_equal(found, expected, strict=True)

    @pytest.mark.parametrize(("op", "fold"), [("max", np.max), ("min", np.min), ("prod", np.prod)])
    def test_the_largest_the_smallest_and_products(self, op: str, fold: Callable[..., Any]) -> None:
        values = np.random.default_rng(6).integers(-5, 5, (max(self.sizes), 4, 5)).astype(float)
        for size in self.sizes:
            for found in self.run(size, lambda ranks: ranks.all_reduce(values[ranks.rank], op)):
                np.testing.assert_array_equal(found, fold(values[:size], axis=0), strict=True)

    def test_a_function_of_two_arrays(self) -> None:
        values = np.arange(4 * max(self.sizes)).reshape(-1, 2, 2) % 3
        for size in self.sizes:
            expected = values[0]
            for matrix in values[1:size]:
                expected = expected @ matrix
            for found in self.run(size, lambda ranks: ranks.all_reduce(values[ranks.rank], np.matmul)):
                np.testing.assert_array_equal(found, expected, strict=True)

    def test_one_rank_tells_all(self) -> None:
        def call(ranks: Communicator) -> list[Any]:
            mine = np.full((2, 2), ranks.rank + 0.5)
            return [ranks.broadcast(mine, root) for root in range(ranks.size)]

        for size in self.sizes:
            for found in self.run(size, call):
                for root, array in enumerate(found):
                    np.testing.assert_array_equal(array, np.full((2, 2), root + 0.5), strict=True)

    def test_what_is_given_is_kept_and_what_is_returned_is_ones_own(self) -> None:
        def call(ranks: Communicator) -> bool:
            given = np.full(4, float(ranks.rank))
            results = [ranks.all_reduce(given), ranks.all_gather(given), ranks.broadcast(given, 0)]
            for result in results:
                result[:] = -1.0
            ranks.barrier()
            return bool((given == ranks.rank).all())

        for size in self.sizes:
            assert all(self.run(size, call))

    def test_many_calls_one_after_the_other(self) -> None:
        def call(ranks: Communicator) -> float:
            total = 0.0
            for step in range(50):
                total += float(ranks.all_reduce(np.array([step * (ranks.rank + 1.0)]))[0])
                ranks.barrier()
            return total

        for size in self.sizes:
            expected = sum(range(50)) * size * (size + 1) / 2
            assert self.run(size, call) == [expected] * size

    def test_operations_and_roots_that_there_are_not(self) -> None:
        for size in self.sizes:
            with pytest.raises(ConfigError, match="'max' or a function of two arrays, not 'mean'"):
                self.run(size, lambda ranks: ranks.all_reduce(np.ones(1), "mean"))
            with pytest.raises(ConfigError, match=f"rank {size} does not exist"):
                self.run(size, lambda ranks: ranks.broadcast(np.ones(1), ranks.size))
