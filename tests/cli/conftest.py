"""Runs commands inside this process, on fakes of the Python interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from fake_api import FakeApi

import tartan
from tartan.cli.main import main
from tartan.workers import shipping


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi()
    for name in ("allpairs", "resume", "add"):
        monkeypatch.setattr(tartan, name, fake.call(name), raising=False)
    monkeypatch.setattr(tartan, "open", fake.open, raising=False)
    monkeypatch.setattr(shipping, "load_application", fake.load_application)
    return fake


@dataclass
class Outcome:
    """What one command did."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run one command inside this process."""

    def run(*words: object) -> Outcome:
        status = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run
