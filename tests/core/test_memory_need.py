"""What is promised of memory: sums of parts, rounded upwards, and never above what a user allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tartan.base.format import format_memory
from tartan.core.memory import (
    CELL_BYTES,
    LATE_BYTES,
    MemoryNeed,
    RunMemory,
    need_of_analysis,
    need_of_blocks,
    need_of_list,
    need_of_nearest,
    need_of_pairs,
    need_of_sort,
    round_up,
)

MB = 10**6


@pytest.mark.parametrize(("n_bytes", "said"), [(0, 0), (7, 7), (100, 100), (101, 110), (999_000_001, 10**9)])
def test_two_digits_count_and_nothing_is_rounded_down(n_bytes: int, said: int) -> None:
    assert round_up(n_bytes) == said


def test_a_sort_never_promises_more_than_its_limit() -> None:
    assert need_of_sort(40 * MB, 0, 80 * MB, 128 * MB).total_bytes == 128 * MB
    assert need_of_sort(40 * MB, 0, 20 * MB, 128 * MB).total_bytes < 80 * MB


def test_parts_of_no_bytes_are_not_named() -> None:
    assert MemoryNeed.of(items=5, files_read_ahead=0).parts == (("items", 5),)


def test_a_run_needs_what_each_of_its_parts_needs() -> None:
    run = RunMemory(50 * MB, 2, arena_bytes=100 * MB)
    least = run.need().total_bytes
    assert least == round_up(150 * MB + LATE_BYTES)
    more = replace(run, chunk_bytes=MB, n_chunks=7, tile_cells=10**6, item_bytes=MB)
    assert more.need().total_bytes >= least + 10 * MB + 2 * 10**6 * CELL_BYTES


def test_items_that_differ_in_size_take_no_more_than_their_room_and_what_is_loaded() -> None:
    run = RunMemory(0, 2, items_bytes=10**9, room_bytes=50 * MB, item_bytes=MB)
    assert dict(run.need().parts)["items"] == 52 * MB


@pytest.mark.parametrize("method", ["outliers", "neighbors"])
def test_what_reads_a_matrix_by_blocks_needs_no_more_of_a_larger_one(method: str) -> None:
    assert need_of_analysis(0, method, 10**4, 0) == need_of_analysis(0, method, 10**5, 0)
    assert need_of_analysis(0, method, 10**4, 0, n_near=10**6).total_bytes > 88 * MB


def test_neighbour_joining_needs_a_matrix_of_the_width_that_it_works_in() -> None:
    assert dict(need_of_analysis(0, "nj", 1000, 0).parts) == {"interpreter and libraries": 20 * MB, "nj": 4_500_000}
    assert dict(need_of_analysis(0, "nj in float64", 1000, 0).parts)["nj in float64"] == 8_500_000
    assert dict(need_of_analysis(0, "nj", 10**4, 0, is_made=True).parts)["nj"] > 450 * MB


def test_kept_pairs_are_counted_and_so_is_what_is_found() -> None:
    few, many = need_of_pairs(0, "neighbors", 1000).total_bytes, need_of_pairs(0, "neighbors", 10**6).total_bytes
    assert many - few > 100 * MB
    assert need_of_pairs(0, "clusters", 0, n_found=10**6).total_bytes > few + 80 * MB


def test_nearest_items_of_a_run_need_chunks_or_a_table() -> None:
    matrix = dict(need_of_nearest(0, 0, 4 * MB, 0, in_table=False).parts)
    table = dict(need_of_nearest(0, 0, 0, 10**6, in_table=True).parts)
    assert matrix["results"] == 16 * MB
    assert table["results"] == 48 * MB
    assert table["interpreter and libraries"] > matrix["interpreter and libraries"]


def test_a_list_of_pairs_needs_its_rows_and_its_pairs() -> None:
    parts = dict(need_of_list(0, 10**6, 4, 7 * MB).parts)
    assert (parts["items"], parts["results"]) == (7 * MB, 48 * MB)


def test_worker_processes_are_counted_each() -> None:
    parts = dict(RunMemory(0, 4, in_processes=True).need().parts)
    assert parts["worker processes"] == 2 * dict(RunMemory(0, 2, in_processes=True).need().parts)["worker processes"]


def test_block_tasks_take_no_more_for_arrays_than_their_room() -> None:
    said = {"mapped_bytes": 8 * MB, "block_bytes": MB, "n_workers": 2}
    parts = dict(need_of_blocks(0, "matmul", 8 * MB, 4 * MB, room_bytes=100 * MB, **said).parts)
    assert (parts["arrays"], parts["mapped files"], parts["calls"]) == (12 * MB, 8 * MB, 2 * MB)
    assert dict(need_of_blocks(0, "lu", 8 * MB, 4 * MB, room_bytes=5 * MB, **said).parts)["arrays"] == 5 * MB


def test_what_little_is_for_is_left_out_of_the_line() -> None:
    assert format_memory(500 * MB, [("items", 4 * MB), ("sorting", 400 * MB)]) == (
        "needs at most 500 MB of memory: 400 MB sorting"
    )


def test_what_is_free_is_said_where_it_is_less() -> None:
    assert (
        format_memory(26e9, [("parsing", 24e9)], 17.3e9)
        == "needs at most 26 GB of memory: 24 GB parsing; 17 GB are free"
    )
    assert format_memory(26e9, [("parsing", 24e9)], 26e9) == "needs at most 26 GB of memory: 24 GB parsing"


def test_the_number_of_clusters_is_sought_in_memory_that_counts() -> None:
    given = need_of_analysis(0, "pwc", 1000, 4 * 10**6)
    sought = need_of_analysis(0, "pwc", 1000, 4 * 10**6, n_drawn=1000)
    assert sought.total_bytes - given.total_bytes == 14 * MB  # 22 bytes a pair in place of 8 of pwc
    assert need_of_analysis(0, "hdbscan", 9000, 0, n_drawn=1000).parts == need_of_analysis(0, "hdbscan", 9000, 0).parts
