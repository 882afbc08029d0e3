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


BUILTIN = {"kind": "name", "source": "builtin:microscopy"}


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
    for command in (["info"], ["show"], ["cluster"], ["resume"], ["microscopy", "fuse"]):
        more = ["0", "1"] if command == ["show"] else ["-o", str(tmp_path / "fused")] if "fuse" in command else []
        assert main([*command, str(old_run), *more]) == 0
        said = capfd.readouterr()
        assert "not opened" not in said.out + said.err


def test_a_run_from_before_an_output_was_there_goes_on_without_it(tmp_path: Path) -> None:
    folder, app = tmp_path / "parts", tartan.apps.Microscopy()
    assert main(["simulate", "microscopy", str(folder), "-n", "4"]) == 0
    app.outputs = {name: dtype for name, dtype in app.outputs.items() if name != "similarity"}
    app.analysed = None
    run = tartan.allpairs(app, str(folder), tmp_path / "run", quiet=True)
    manifest = Manifest.load(run.path)
    assert list(manifest.outputs) == ["scores", "tx", "ty", "theta", "evaluations"]
    text = replace(manifest, application=manifest.application | BUILTIN).to_json().encode()
    write_seal(run.path, text, FileWriter(run.path))
    (run.path / "manifest.json").write_bytes(text)
    more = tmp_path / "more.json"
    more.write_text((folder / "particles.json").read_text())
    assert main(["cluster", str(run.path), "-k", "2"]) == 0
    grown = tartan.add(run.path, str(more), quiet=True)
    assert grown.n_items == 8
    assert grown.manifest.analysed == "scores"
    assert np.nanmin(grown.matrix()) > 0
    assert main(["microscopy", "fuse", str(run.path), "-o", str(tmp_path / "fused")]) == 0


def test_more_is_not_computed_into_it(old_run: Path) -> None:
    with pytest.raises(ConfigError, match=r"begun by Tartan .* with the parameter 'starts'.* in another folder$"):
        tartan.add(old_run, str(old_run.parent / "parts" / "truth.json"))


def test_particles_of_which_nothing_is_to_be_said_are_stored_as_they_were(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(20, 3))
    np.save(tmp_path / "a.npy", points)
    assert Localisations(points).pack() == (tmp_path / "a.npy").read_bytes()
