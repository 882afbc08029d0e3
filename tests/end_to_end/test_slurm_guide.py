"""The scripts of docs/howto-slurm.md, as they stand there, under a Slurm of two nodes on this machine.

Names, sizes and times are replaced by small ones; the scripts are not changed otherwise. Pairs are slow while a file
says so, which makes a job meet its limit, or a signal, in the middle.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from slurm_cluster import Slurm, find_daemons, running_slurm

import tartan

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "howto-slurm.md"
JOB, PARTS, LAST = range(3)
N, N_PARTS = 60, 4
SMALL = {
    "phylogeny 'proteomes/*'": "slow.py:Slow 'items/*'",
    "--cpus-per-task=16": "--cpus-per-task=2",
    "--mem=64G": "--mem=500M",
    "--host-cache 48GB": "--host-cache 200MB",
    "--time=04:00:00": "--time=00:01:00",
    "USR1@120": "USR1@10",
    "--array=1-16": f"--array=1-{N_PARTS}",
    "--tile 200": "--tile 4",
    'wait "$run"; scontrol': 'wait "$run"; echo "status $?"; scontrol',
}
APPLICATION = """
import os, time
from pathlib import Path
import numpy as np
import tartan

TASK, TURN = (os.environ.get(name, "0") for name in ("SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT"))

class Slow(tartan.Application):
    def parse(self, key, data):
        return np.array([float(data)])

    def compare(self, left, right, xp):
        if TASK in Path("slow").read_text().split():
            time.sleep(0.3 * len(left) * len(right))
        lines = [f"{TASK} {TURN} {a:.0f} {b:.0f}\\n" for a in left[:, 0] for b in right[:, 0]]
        with open("log", "a") as log:
            log.write("".join(lines))
        return xp.abs(left - right.T)
"""

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    daemons = find_daemons()
    if daemons is None:
        pytest.skip("slurmctld, slurmd and munged are not installed")
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, running_slurm(Path(folder), daemons) as found:
        yield found


class Site:
    """A folder of items, the application beside it, and the scripts of the guide."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        (folder / "slow.py").write_text(APPLICATION)
        (folder / "log").touch()
        self.slow()
        self.scripts = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for written in SMALL:
            assert any(written in script for script in self.scripts), f"the guide has no {written} any more"

    def slow(self, *tasks: int) -> None:
        """Say which tasks of an array have slow pairs; 0 is the job that is not an array."""
        (self.folder / "slow").write_text(" ".join(map(str, tasks)))

    def script(self, which: int) -> str:
        text = self.scripts[which]
        for written, small in SMALL.items():
            text = text.replace(written, small)
        return text

    def submit(self, which: int) -> str:
        """Put a script into the queue."""
        (self.folder / "parts.sh").write_text(self.script(which))
        return self.slurm.call("sbatch", "--parsable", "parts.sh", folder=self.folder)

    def submit_parts(self) -> tuple[str, str]:
        """Put the array and the job after it into the queue, by the commands of the guide."""
        (self.folder / "parts.sh").write_text(self.script(PARTS))
        commands = self.script(LAST) + '\necho "parts $parts"'
        said = self.slurm.call("bash", "-ec", commands, folder=self.folder)
        parts, last = re.search(r"parts (\d+)", said), re.search(r"batch job (\d+)", said)
        assert parts is not None, said
        assert last is not None, said
        return parts.group(1), last.group(1)

    def output(self, job: str) -> str:
        return (self.folder / f"slurm-{job}.out").read_text()

    def compared(self, task: int | None = None, turn: int | None = None) -> set[tuple[int, int]]:
        """Return the pairs whose comparison has ended.

        Those that are tried beforehand are left out: of an item with itself, and both ways.
        """
        lines = [tuple(map(int, line.split())) for line in (self.folder / "log").read_text().splitlines()]
        wanted = {(a, b) for t, u, a, b in lines if task in (None, t) and turn in (None, u)}
        return {(min(pair), max(pair)) for pair in wanted if pair[::-1] not in wanted}

    def wait_for_pairs(self, job: str, task: int, n: int) -> None:
        self.slurm.wait(job, lambda known: len(self.compared(task)) >= n or known["JobState"] == "FAILED")
        assert len(self.compared(task)) >= n, self.output(job)

    def committed(self) -> set[tuple[int, int]]:
        found = tartan.open(self.folder / "genomes.tartan").matrix()
        return {(int(a), int(b)) for a, b in zip(*np.nonzero(~np.isnan(found)), strict=True) if a < b}

    def check_matrix(self) -> None:
        run = tartan.open(self.folder / "genomes.tartan")
        truth = np.abs(np.subtract.outer(np.arange(N), np.arange(N))).astype(float)
        np.fill_diagonal(truth, np.nan)  # items are not compared with themselves
        np.testing.assert_array_equal(run.matrix(), truth)


@pytest.fixture
def site(slurm: Slurm, tmp_path: Path, numbers: Callable[..., Path]) -> Iterator[Site]:
    numbers(N)
    yield Site(slurm, tmp_path)
    slurm.call("scancel", "--user", slurm.call("id", "-un"))


def is_back_in_the_queue(known: dict[str, str]) -> bool:
    return known["JobState"] == "PENDING" and known["Restarts"] == "1"


def test_a_job_at_its_limit_is_put_back_into_the_queue_and_resumes(site: Site) -> None:
    site.slow(0)
    job = site.submit(JOB)
    site.slurm.wait(job, is_back_in_the_queue)
    assert "status 143" in site.output(job)
    site.slow()
    first = site.compared(turn=0)
    assert 0 < len(first) < N * (N - 1) // 2
    assert first <= site.committed()  # nothing of its one chunk is lost, although that was not finished
    assert site.slurm.wait_for_end(job) == "COMPLETED"
    again = first & site.compared(turn=1)
    assert len(again) <= 64, len(again)  # tried to learn what a pair costs
    site.check_matrix()


def test_parts_at_their_limit_are_put_back_and_the_last_job_waits_for_them(site: Site) -> None:
    site.slow(3)
    parts, last = site.submit_parts()
    site.slurm.wait(f"{parts}_3", is_back_in_the_queue)
    assert "status 143" in site.output(f"{parts}_3")
    assert site.slurm.show(last)["JobState"] == "PENDING"
    site.slow()
    assert site.slurm.wait_for_end(last) == "COMPLETED"
    for task in range(1, N_PARTS + 1):
        assert site.slurm.show(f"{parts}_{task}")["JobState"] == "COMPLETED", site.output(f"{parts}_{task}")
    assert not site.compared(task=0) - site.compared(task=3)  # the last job found nothing to compare
    site.check_matrix()


def test_the_last_job_computes_what_a_killed_part_has_left(site: Site) -> None:
    site.slow(2)
    parts, last = site.submit_parts()
    task = f"{parts}_2"
    site.wait_for_pairs(task, 2, 10)
    site.slurm.call("scancel", "--signal=KILL", "--full", task)
    assert site.slurm.wait_for_end(task) in ("FAILED", "CANCELLED")  # by what Slurm hears of first
    assert site.slurm.wait_for_end(last) == "COMPLETED", site.output(last)
    assert site.compared(task=0)
    site.check_matrix()


@pytest.mark.parametrize("which", [JOB, PARTS], ids=["job", "parts"])
def test_a_cancelled_job_keeps_what_is_compared_and_stays_cancelled(site: Site, which: int) -> None:
    tasks = range(1, N_PARTS + 1) if which == PARTS else (0,)
    site.slow(*tasks)
    job = site.submit(which)
    jobs = [f"{job}_{task}" if task else job for task in tasks]
    for one, task in zip(jobs, tasks, strict=True):
        site.wait_for_pairs(one, task, 5)
    site.slurm.call("scancel", job)
    assert [site.slurm.wait_for_end(one) for one in jobs] == ["CANCELLED"] * len(jobs)
    assert [site.slurm.show(one)["Restarts"] for one in jobs] == ["0"] * len(jobs)
    assert site.compared() <= site.committed()
    site.slow()
    resume = shlex.split(re.findall(r"tartan resume \S+", site.script(LAST))[0])
    site.slurm.call(*resume, folder=site.folder)
    site.check_matrix()


def test_a_cancelled_last_job_keeps_what_is_compared(site: Site) -> None:
    site.slow(1)
    parts, last = site.submit_parts()
    site.wait_for_pairs(f"{parts}_1", 1, 5)
    site.slow(0)
    site.slurm.call("scancel", "--signal=KILL", "--full", f"{parts}_1")
    site.wait_for_pairs(last, 0, 5)
    site.slurm.call("scancel", last)
    assert site.slurm.wait_for_end(last) == "CANCELLED"
    assert site.compared(task=0) <= site.committed()
