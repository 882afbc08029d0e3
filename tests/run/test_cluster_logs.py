"""What an operator learns of a run on several ranks, which are threads of this process, and what nobody learns."""

from __future__ import annotations

import base64
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster_world import Bomb, Sums, asked, check, ranks

from tartan import apps
from tartan.errors import ClusterError
from tartan.options import run_options
from tartan.run.execute import resume, start
from tartan.run.reopen import reopen_request

pytestmark = pytest.mark.slow


def of(caplog: pytest.LogCaptureFixture, name: str, level: int = logging.INFO) -> list[str]:
    """Return what a package has said at a level."""
    return [one.getMessage() for one in caplog.records if one.name == name and one.levelno == level]


def test_a_lost_rank_is_named_with_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="tartan")
    ways = ranks(3)
    check(start(asked(Sums(happens=Bomb(ways.hubs, 12, ("rank-1",)))), tmp_path / "run", ranks=ways))
    lost = [line for line in of(caplog, "tartan.cluster", logging.WARNING) if " is lost" in line]
    assert lost == ["rank rank-1 is lost: it was killed"]
    told = of(caplog, "tartan.cluster")
    for number in range(3):
        pattern = rf"rank rank-{number} has come: host .+, process \d+, 1 workers, devices cpu, listens on 127.*:\d+"
        assert [line for line in told if re.fullmatch(pattern, line)]
    assert "rank rank-0 has ended" in told
    assert "rank rank-1 has ended" not in told
    driver = of(caplog, "tartan.run")
    assert [line for line in driver if re.match("computes .*run: 45 items, 0 of 990 scores are there", line)]
    assert [line for line in driver if re.match("the ranks have worked for .*: 3 came, 1 lost; steals: ", line)]
    assert not [one for one in caplog.records if one.levelno < logging.INFO]


def test_a_resumed_run_says_from_where(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ways = ranks(1, patience_seconds=0.2)
    with pytest.raises(ClusterError):
        start(asked(Sums(happens=Bomb(ways.hubs, 30, ("rank-0",)))), tmp_path / "run", ranks=ways)
    caplog.set_level("INFO", logger="tartan")
    options = run_options({"quiet": True, "workers": 1})
    reopen = partial(reopen_request, options=options, registry=apps, app=Sums(), items=list(range(45)))
    resume(tmp_path / "run", reopen, apps)
    (line,) = [line for line in of(caplog, "tartan.run") if line.startswith("resumes ")]
    found = re.fullmatch(r"resumes .*run: 45 items, (\d+) of 990 scores are there", line)
    assert found is not None
    assert 0 < int(found[1]) < 990
    (line,) = [line for line in of(caplog, "tartan.run") if " pairs computed in " in line]
    assert line.startswith(f"{990 - int(found[1])} pairs computed")


def test_messages_are_logged_without_what_is_in_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="tartan")
    ways = ranks(2)
    check(start(asked(), tmp_path / "run", ranks=ways))
    told = of(caplog, "tartan.cluster", logging.DEBUG)
    for message in ("hello", "want", "done", "report", "job"):
        assert [line for line in told if re.fullmatch(rf"{message} from rank-\d to driver: \d+ bytes", line)], message
    for message in ("welcome", "grant", "view", "stop"):
        assert [line for line in told if re.fullmatch(rf"{message} to rank-\d from driver: \d+ bytes", line)], message
    token = ways.hubs[-1].credentials.token
    secrets: list[Any] = [token.hex(), base64.b64encode(token).decode(), repr(token)[2:-1], "PRIVATE", "CERTIFICATE"]
    assert not [secret for secret in secrets if secret in caplog.text]


def test_nothing_is_said_of_each_tile_or_chunk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="tartan")
    check(start(asked(tile=2), tmp_path / "run"))
    assert len([one for one in caplog.records if one.name.startswith("tartan")]) == 2  # it begins, and has ended
