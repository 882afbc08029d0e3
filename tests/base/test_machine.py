"""What a machine has, read from files that we write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tartan.base.machine import (
    Limits,
    cgroup_limits,
    cpu_features,
    disk_space,
    memory,
    open_file_limits,
    package_version,
    usable_cores,
)


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tree(
        tmp_path / "proc", {"meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\nHugePages: 0\n"}
    )


class TestMemory:
    def test_without_limits(self, proc: Path) -> None:
        found = memory(proc, Limits())
        assert (found.total_bytes, found.available_bytes) == (1000 * 1024, 600 * 1024)

    def test_container_that_allows_less(self, proc: Path) -> None:
        found = memory(proc, Limits(memory_bytes=500_000, memory_used_bytes=100_000))
        assert (found.total_bytes, found.available_bytes) == (500_000, 400_000)

    def test_container_that_is_full(self, proc: Path) -> None:
        assert memory(proc, Limits(memory_bytes=5000, memory_used_bytes=9000)).available_bytes == 0

    def test_hidden_proc(self, tmp_path: Path) -> None:
        found = memory(tmp_path / "none", Limits())
        assert found.total_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def test_this_machine(self) -> None:
        found = memory()
        assert 0 < found.available_bytes <= found.total_bytes


class TestControlGroups:
    def test_version_2_takes_the_tightest_of_the_parents(self, tmp_path: Path) -> None:
        proc = tree(tmp_path / "proc", {"self/cgroup": "0::/a/b\n"})
        sys = tree(
            tmp_path / "sys",
            {
                "a/memory.max": "3000\n", "a/memory.current": "1000\n", "a/cpu.max": "150000 100000\n",
                "a/b/memory.max": "max\n", "a/b/cpu.max": "max 100000\n", "cpu.max": "800000 100000\n",
            },
        )  # fmt: skip
        assert cgroup_limits(proc, sys) == Limits(3000, 1000, 1.5)

    def test_what_files_leave_in_memory_is_free(self, tmp_path: Path) -> None:
        proc = tree(tmp_path / "proc", {"self/cgroup": "0::/a\n"})
        stat = "anon 300\nfile 900\ninactive_file 400\nactive_file 200\n"
        files = {"a/memory.max": "3000\n", "a/memory.current": "1000\n", "a/memory.stat": stat}
        assert cgroup_limits(proc, tree(tmp_path / "sys", files)) == Limits(3000, 400)

    def test_version_1(self, tmp_path: Path) -> None:
        proc = tree(tmp_path / "proc", {"self/cgroup": "4:memory:/x\n1:cpu,cpuacct:/x\n0::/\n"})
        sys = tree(
            tmp_path / "sys",
            {
                "memory/x/memory.limit_in_bytes": "4096\n", "memory/x/memory.usage_in_bytes": "96\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n", "cpu,cpuacct/x/cpu.cfs_quota_us": "50000\n",
                "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n", "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            },
        )  # fmt: skip
        assert cgroup_limits(proc, sys) == Limits(4096, 96, 0.5)

    def test_none(self, tmp_path: Path) -> None:
        assert cgroup_limits(tmp_path, tmp_path) == Limits()


def test_cores_follow_the_container() -> None:
    assert usable_cores(Limits(cores=0.3)) == 1
    assert usable_cores(Limits()) == len(os.sched_getaffinity(0))


def test_cpu_features(tmp_path: Path) -> None:
    proc = tree(tmp_path, {"cpuinfo": "processor : 0\nflags\t\t: fpu avx2 avx512f sse4_2\n"})
    assert cpu_features(proc) == ["sse4_2", "avx2", "avx512f"]
    assert cpu_features(tmp_path / "none") == []


def test_disk_and_files(tmp_path: Path) -> None:
    total, free = disk_space(tmp_path) or pytest.fail("this disk exists")
    assert 0 <= free <= total
    assert disk_space(tmp_path / "none") is None
    soft, hard = open_file_limits()
    assert soft != 0
    assert hard != 0


def test_versions() -> None:
    assert package_version("numpy")
    assert package_version("surely-not-installed") is None
