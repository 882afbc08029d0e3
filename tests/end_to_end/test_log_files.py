"""``--log-file`` of a run on several processes: a file each, what an operator must know in it, and no secret."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from cluster_program import check_same, lay_out, send, several

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING) \S+ tartan\.\w+: .+")
SECRET = re.compile(r"BEGIN|PRIVATE|[0-9a-fA-F]{32}|[A-Za-z0-9+/]{40}")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_each_rank_writes_its_own_log_and_the_loss_of_one_is_in_that_of_the_driver(tmp_path: Path) -> None:
    inputs = lay_out(tmp_path)
    with several(inputs, "--log-file", "log", "--log-level", "debug") as run:
        killed = run.both_compute()[0]
        send(killed, signal.SIGKILL)
        status, errors = run.end()
    assert status == 0, errors
    assert "tartan.cluster" not in errors  # all of it is in the files
    driver, *ranks = [path.read_text() for path in sorted(inputs.glob("log*"))]
    assert len(ranks) >= 2  # Dask starts another worker in place of one that was killed, not of a rank
    names = dict(re.findall(r"rank (\S+) has come: host \S+, process (\d+)", driver))
    (lost,) = re.findall(
        r" WARNING driver tartan\.cluster: rank (\S+) is lost: its process ended: killed by SIGKILL", driver
    )
    assert int(names[lost]) == killed
    own = (inputs / f"log.rank-{lost}").read_text()
    assert f"INFO {lost}/relay tartan.cluster: the rank is started: process {killed}, " in own
    assert f"WARNING {lost}/relay tartan.cluster: the rank has ended: killed by SIGKILL" in own
    assert f"INFO {lost} tartan.cluster: this rank has number " in own
    for text in (driver, *ranks):
        assert all(map(LINE.fullmatch, text.splitlines()))
        assert not SECRET.search(text.replace(str(inputs), "")), SECRET.search(text)
    check_same(inputs)
