"""JSON of others: bounded in size and depth, from regular files only."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tartan.base import json_input
from tartan.base.files import arrow_file, read_regular
from tartan.base.json_input import parse_json, read_json


@pytest.mark.parametrize("text", ["3", '{"a": [1, {"b": null}]}', "[" * 100 + "]" * 100])
def test_what_is_json_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    assert read_json(tmp_path / "x.json") == parse_json(text) != []


@pytest.mark.parametrize("text", ["[" * 101 + "]" * 101, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000])
def test_what_is_too_deep_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"levels deep|Expecting"):
        parse_json(text)


def test_what_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_input, "MOST_JSON_BYTES", 10)
    (tmp_path / "x.json").write_text('"0123456789"')
    with pytest.raises(OSError, match="larger than 10 bytes") as raised:
        read_json(tmp_path / "x.json")
    assert raised.value.errno == errno.EFBIG
    assert read_regular(tmp_path / "x.json", 12) == b'"0123456789"'


@pytest.mark.parametrize("read", [read_json, arrow_file])
def test_a_pipe_and_a_device_hold_no_reader(read: object, tmp_path: Path) -> None:
    assert callable(read)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(OSError, match="not a regular file"):
            read(tmp_path / name)
