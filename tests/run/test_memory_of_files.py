"""What files of a run hold while they are read and parsed."""

from __future__ import annotations

import numpy as np

from tartan.application import Application
from tartan.apps.genomes import Genomes
from tartan.run.memory import need_of_files, parse_memory_of

GB = 10**9


def test_a_large_genome_beside_a_small_one_counts_once() -> None:
    times = np.array([parse_memory_of(Genomes(), name) for name in ("large.fa.gz", "SMALL.FNA")])
    assert times.tolist() == [1, 1]
    assert need_of_files(np.array([7 * GB, 10**7]), times, 8, in_processes=False) == (7 * GB + 10**7, 0)


def test_the_end_of_a_name_says_what_parsing_takes() -> None:
    unpacked, signature, streamed = (parse_memory_of(Genomes(), f"a.{end}") for end in ("fa.xz", "sig", "fa.gz"))
    assert unpacked > signature > streamed


def test_of_files_that_a_mapping_does_not_name_parsing_takes_the_rule() -> None:
    class Packed(Application):
        parse_memory = {".gz": 9.0}  # noqa: RUF012

    assert parse_memory_of(Packed(), "a.GZ") == 9
    assert parse_memory_of(Packed(), "a.txt") == parse_memory_of(Packed(), "") == 4


def test_one_large_file_is_parsed_at_a_time_by_threads_and_one_a_worker_by_processes() -> None:
    sizes, times = np.array([GB, GB, GB]), np.full(3, 4.0)
    assert need_of_files(sizes, times, 2, in_processes=False) == (3 * GB, 3 * GB)
    assert need_of_files(sizes, times, 2, in_processes=True) == (0, 8 * GB)
    assert need_of_files(sizes[:0], times[:0], 2, in_processes=False) == (0, 0)
