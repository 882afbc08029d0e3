"""Runs that were begun with a parameter that their application has no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.apps.microscopy.localisations import Localisations
from tartan.base.files import FileWriter
from tartan.cli.main import main
from tartan.errors import ConfigError
from tartan.store.manifest import Manifest
from tartan.store.seal import write_seal

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def old_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of particles whose manifest has the parameters of a former search."""
    folder = tmp_path_factory.mktemp("old")
    assert main(["simulate", "microscopy", str(folder / "parts"), "-n", "4"]) == 0
    run = tartan.allpairs(tartan.apps.Microscopy(), str(folder / "parts"), folder / "run", quiet=True)
    manifest = Manifest.load(run.path)
    parameters = {"starts": 0, "scale": 0.0, **manifest.application["parameters"]}
    old = replace(manifest, application=manifest.application | {"parameters": parameters})
    text = old.to_json().encode()
    write_seal(run.path, text, FileWriter(run.path))
    (run.path / "manifest.json").write_bytes(text)
    return run.path


def test_it_is_read_shown_and_fused(old_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in (["info"], ["show"], ["cluster"], ["resume"], ["fuse"]):
        more = ["0", "1"] if command == ["show"] else ["-o", str(tmp_path / "fused")] if command == ["fuse"] else []
        assert main([*command, str(old_run), *more]) == 0
        said = capfd.readouterr()
        assert "not opened" not in said.out + said.err


def test_more_is_not_computed_into_it(old_run: Path) -> None:
    with pytest.raises(ConfigError, match=r"begun by Tartan .* with the parameter 'starts'.* in another folder$"):
        tartan.add(old_run, str(old_run.parent / "parts" / "truth.json"))


def test_particles_of_which_nothing_is_to_be_said_are_stored_as_they_were(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(20, 3))
    np.save(tmp_path / "a.npy", points)
    assert Localisations(points).pack() == (tmp_path / "a.npy").read_bytes()
