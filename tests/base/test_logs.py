"""What operators can follow: lines that break nothing and tell no secret, and files that a run does not depend on."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.base.logs import (
    LogHandler,
    LogSettings,
    active_settings,
    close_private,
    logger_of,
    logging_to,
    private_logger,
    rank_settings,
)
from tartan.errors import ConfigError

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z ([A-Z]+) (\S+) (tartan\.\w+): (.*)")


@pytest.fixture
def log() -> logging.Logger:
    return logger_of("tartan.cluster.driver")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "log"
    assert not any(isinstance(one, LogHandler) for one in logging.getLogger("tartan").handlers)


def lines(path: Path) -> list[tuple[str, ...]]:
    found = [LINE.fullmatch(line) for line in path.read_text().splitlines()]
    return [line.groups() for line in found if line is not None]


class Mine:
    """A value that has no words."""

    n_asked = 0

    def __str__(self) -> str:
        self.n_asked += 1
        raise ValueError("it is broken")


def test_there_is_one_logger_a_package(log: logging.Logger) -> None:
    assert log.name == "tartan.cluster"
    assert logger_of("tartan.cluster.rank") is log
    assert len(log.filters) == 1


@pytest.mark.slow
def test_the_library_configures_nothing_and_prints_nothing() -> None:
    code = (
        "import logging, tartan.cluster.driver, tartan.run.session\n"
        "logging.getLogger('tartan.cluster').warning('rank %s is lost', 'a')\n"
        "print(logging.getLogger('tartan').handlers, logging.getLogger('tartan').level, logging.getLogger().handlers)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[<NullHandler (NOTSET)>] 0 []\n"
    assert done.stderr == ""


def test_the_standard_library_configures_it(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="tartan")
    log.info("rank %s has come: %d workers, %.1f s", "a\x1b[31m\nb", np.int64(3), np.float32(0.5))
    assert caplog.messages == ["rank a\\x1b[31m\\nb has come: 3 workers, 0.5 s"]


def test_nothing_is_formatted_where_nothing_is_logged(log: logging.Logger) -> None:
    value = Mine()
    with logging_to(LogSettings(), "driver"):
        log.info("%s", value)
    assert value.n_asked == 0
    log.warning("%s", value)  # what cannot be written ends nothing
    assert value.n_asked == 1


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("https://me:swordfish@host/a", "https://***@host/a"),
        ("s3://b/k?X-Amz-Signature=swordfish&n=1", "s3://b/k?X-Amz-Signature=***&n=1"),
        ("http://h/?token=swordfish: refused", "http://h/?token=*** refused"),
        ("http://h/?page=2", "http://h/?page=2"),
        ("me@host", "me@host"),
        (Path("a\u202eb"), "a\\u202eb"),
        ("a\udcffb", "a\\udcffb"),
        ("x" * 9000, "x" * 2000 + " ... " + "x" * 2000),
    ],
)
def test_words_of_users_are_shown_without_harm(
    log: logging.Logger, caplog: pytest.LogCaptureFixture, said: object, shown: str
) -> None:
    caplog.set_level("INFO", logger="tartan")
    log.info("%s", said)
    assert caplog.messages == [shown]


def test_a_file_has_a_line_for_each_event_and_is_added_to(log: logging.Logger, file: Path) -> None:
    for level, said in (("info", 2), ("debug", 3), ("warning", 1)):
        before = lines(file) if file.exists() else []
        with logging_to(LogSettings(level, str(file)), "driver"):
            log.debug("grant to %s: %d bytes", "a", 12)
            log.info("rank %s has come", "a\nb")
            log.warning("rank %s is lost", "a")
        assert len(lines(file)) == len(before) + said
    assert lines(file)[0] == ("INFO", "driver", "tartan.cluster", "rank a\\nb has come")
    assert len(file.read_text().splitlines()) == 6
    assert logging.getLogger("tartan").level == logging.NOTSET


def test_without_a_file_it_is_said_on_stderr(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to(LogSettings("info"), "driver"):
        log.info("rank %s has come", "a")
    found = [LINE.fullmatch(line) for line in capsys.readouterr().err.splitlines()]
    assert found[0] is not None
    assert found[0][4] == "rank a has come"
    assert len(found) == 1


def test_who_starts_ranks_learns_what_is_logged(file: Path) -> None:
    settings = LogSettings("info", str(file))
    assert active_settings() == LogSettings()
    with logging_to(settings, "driver"):
        assert active_settings() == settings
        with logging_to(LogSettings("debug", str(file), "rank-1"), "rank-1"):  # as in a fork of the driver
            assert active_settings().path == f"{file}.rank-1"
    assert active_settings() == LogSettings()
    assert file.read_text() == ""


def test_other_files_are_not_added_to(file: Path, tmp_path: Path, log: logging.Logger) -> None:
    other, link, folder, pipe = (tmp_path / name for name in ("photo.jpg", "link", "folder", "pipe"))
    other.write_bytes(b"\xff\xd8 a photo")
    link.symlink_to(file)
    folder.mkdir()
    os.mkfifo(pipe)
    wrong = {other: "not a log of Tartan", link: "a link", folder: "directory", pipe: "not a regular file"}
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    wrong |= {tmp_path / "none" / "log": "No such file", tmp_path / "one" / "log": ""}
    for path, reason in wrong.items():
        refused = pytest.raises(ConfigError, match=rf"--log-file {path} cannot be written: .*{reason}.*name another")
        with refused, logging_to(LogSettings("info", str(path)), "driver"):
            raise AssertionError("it was opened")
        with logging_to(LogSettings("info", str(path)), "driver", needed=False):
            log.info("the rank goes on")
    assert other.read_bytes() == b"\xff\xd8 a photo"
    assert not file.exists()


def test_a_file_of_another_user_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.touch()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ConfigError, match="belongs to another user"), logging_to(LogSettings("info", str(file)), "me"):
        pass


def test_a_run_folder_holds_no_log(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 1, "made": "by hand"}')
    with pytest.raises(ConfigError, match="lies in the run"), logging_to(LogSettings("info", f"{tmp_path}/log"), "me"):
        pass


def test_a_full_disk_loses_lines_and_says_so_once(
    log: logging.Logger, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left, write = [20, 0, 0, 10**6, 10**6], os.write

    def full(descriptor: int, data: bytes) -> int:
        room = left.pop(0)
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[:room])

    with logging_to(LogSettings("info", str(file)), "driver"):
        monkeypatch.setattr(os, "write", full)
        for number in range(5):
            log.info("event %d", number)
        monkeypatch.undo()
    assert [line[-1] for line in lines(file)] == ["event 3", "event 4"]
    assert capsys.readouterr().err == (
        f"tartan: {file} cannot be written: No space left on device; lines of the log are lost\n"
    )


def test_a_stream_that_is_closed_ends_nothing(log: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    with logging_to(LogSettings("info"), "driver"):
        log.info("rank %s has come", "a")


def test_a_rank_logs_beside_the_driver(file: Path) -> None:
    found = rank_settings(LogSettings("info", str(file)), "node 7/../x-3fa2b1")
    assert found.path == f"{file}.rank-node_7_.._x-3fa2b1"
    assert rank_settings(LogSettings(), "a") == LogSettings("", "", "rank-a")


def test_a_rank_elsewhere_logs_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    there = LogSettings("info", "/no/such/folder/log")
    assert rank_settings(there, "a").path == "log.rank-a"
    assert (tmp_path / "log.rank-a").read_text() == ""
    (tmp_path / "log.rank-b").mkdir()
    assert rank_settings(there, "b").path == ""
    assert "b has no log file: --log-file /no/such/folder/log.rank-b" in capsys.readouterr().err
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert rank_settings(there, "c").path == ""
    monkeypatch.chdir(tmp_path)


def test_a_relay_has_a_log_of_its_own_in_the_process_of_others(file: Path, log: logging.Logger) -> None:
    settings: Any = LogSettings("info", str(file))
    own = private_logger(settings, "tartan.cluster", "a/relay")
    own.info("the rank has ended: %s", "a\nb")
    log.info("of another run")
    close_private(own)
    own.info("too late")
    assert lines(file) == [("INFO", "a/relay", "tartan.cluster", "the rank has ended: a\\nb")]
    plain = private_logger(LogSettings(), "tartan.cluster", "a/relay")
    assert plain is log
    close_private(plain)
    assert len(log.filters) == 1
