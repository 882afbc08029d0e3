"""export, tree, simulate, plan, bench, doctor."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tartan.apps.genomes.signatures import SUFFIXES
from tartan.cli import doctor, export
from tartan.errors import ConfigError
from tartan.store.export import FORMATS


def module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    made = ModuleType(name)
    made.__dict__.update(members)
    monkeypatch.setitem(sys.modules, name, made)


class TestExport:
    @pytest.fixture
    def exported(self, api: Any) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []

        def export(path: Path, format: str | None, **options: Any) -> Path:  # noqa: A002
            calls.append((path.name, format, options))
            path.write_bytes(b"12345")
            return path

        folder = SimpleNamespace(path="r", keys=[], failures=[], version=None)
        about = SimpleNamespace(notes=["a note of the files"])
        api.opened = SimpleNamespace(export=export, n_pairs_left=0, folder=folder, manifest=about)
        return calls

    def test_suffix_chooses(self, command: Any, exported: list[Any], tmp_path: Path) -> None:
        shown = command("export", "r", tmp_path / "m.npy")
        assert exported == [("m.npy", None, {"overwrite": False})]
        assert (shown.status, shown.out) == (0, "")
        assert "5 bytes" in shown.err
        assert "tartan: a note of the files" in shown.err

    def test_everything_is_passed_on(self, command: Any, exported: list[Any], tmp_path: Path) -> None:
        shown = command(
            "export", "r", tmp_path / "m.bin", "--format", "int16", "--output", "pce", "--overwrite",
            "--diagonal", "1", "--missing", "-1", "--clip", "--failed", "error", "--json",
        )  # fmt: skip
        options = {
            "overwrite": True,
            "failed": "error",
            "output": "pce",
            "diagonal": 1.0,
            "missing": -1.0,
            "clip": True,
        }
        assert exported == [("m.bin", "int16", options)]
        assert json.loads(shown.out) == {"file": str(tmp_path / "m.bin"), "size_bytes": 5}

    def test_formats_are_those_of_the_store(self) -> None:
        assert export.FORMATS == FORMATS
        assert export.SIGNATURES == SUFFIXES

    def test_unknown_format_is_refused(self, command: Any, exported: list[Any], tmp_path: Path) -> None:
        shown = command("export", "r", tmp_path / "m", "--format", "xlsx")
        assert shown.status == 2
        assert "npy-condensed" in shown.err


class TestSimulate:
    @pytest.fixture
    def simulated(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        calls: list[Any] = []

        def simulate(folder: Path, n: int, seed: int, *, cameras: int = 3, kind: str = "x") -> Path:
            assert folder.is_dir()
            calls.append((n, seed, cameras, kind))
            return folder / "truth.json"

        module(monkeypatch, "tartan.apps.forensics.simulate", simulate=simulate)
        return calls

    def test_truth_is_printed(self, command: Any, simulated: list[Any], tmp_path: Path) -> None:
        shown = command("simulate", "forensics", tmp_path / "a" / "b", "-n", "6")
        assert (shown.status, shown.out) == (0, f"{tmp_path}/a/b/truth.json\n")
        assert simulated == [(6, 0, 3, "x")]

    def test_options_are_typed(self, command: Any, simulated: list[Any], tmp_path: Path) -> None:
        shown = command(
            "simulate", "forensics", tmp_path, "-n", "6", "--seed", "9", "--set", "cameras=4", "kind=y", "--json"
        )
        assert simulated == [(6, 9, 4, "y")]
        assert json.loads(shown.out) == {
            "folder": str(tmp_path), "n_items": 6, "seed": 9, "truth": f"{tmp_path}/truth.json"
        }  # fmt: skip

    def test_unknown_option_is_refused(self, command: Any, simulated: list[Any], tmp_path: Path) -> None:
        shown = command("simulate", "forensics", tmp_path, "-n", "6", "--set", "lenses=4")
        assert shown.status == 2
        assert "has no such option; it has cameras, kind" in shown.err
        assert simulated == []

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [("noise=x", "'x' must be a number"), ("others=1.5", "1.5 must be a whole number"), ("noise=true", "True")],
    )
    def test_options_are_of_their_kind(self, command: Any, tmp_path: Path, text: str, wanted: str) -> None:
        shown = command("simulate", "lcms", tmp_path, "-n", "6", "--set", text)
        assert shown.status == 2
        assert f"--set {text.split('=')[0]}: {wanted}" in shown.err

    def test_difficult_input_is_asked_for_by_an_argument_of_its_own(self, command: Any, tmp_path: Path) -> None:
        shown = command("simulate", "vectors", tmp_path / "v", "-n", "12", "--hard", "--set", "d=5")
        assert shown.status == 0
        assert len(json.loads((tmp_path / "v" / "truth.json").read_text())["bad"]) == 3
        assert command("simulate", "vectors", tmp_path / "w", "-n", "12", "--set", "hard=true").status == 2

    def test_a_file_is_no_folder(self, command: Any, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        shown = command("simulate", "lcms", tmp_path / "file", "-n", "6")
        assert shown.status == 2
        assert "it is a file" in shown.err


def forget_benches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the modules of a checkout be imported again."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "benches"]:
        monkeypatch.delitem(sys.modules, name)


class TestBench:
    @pytest.fixture
    def checkout(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        folder = tmp_path / "benches" / "pairs"
        folder.mkdir(parents=True)
        (folder / "shared.py").write_text("FACTOR = 2\ndef main(): return None\n")
        (folder / "loads.py").write_text(
            "from benches.pairs.shared import FACTOR\ndef main(words):\n"
            "    print('for people')\n    return {'ratio': FACTOR, 'words': words}\n"
        )
        (folder / "fails.py").write_text("def main():\n    return 1\n")
        (folder / "_helper.py").write_text("")
        monkeypatch.chdir(tmp_path)
        forget_benches(monkeypatch)
        yield folder
        forget_benches(monkeypatch)

    def test_lists_what_there_is(self, command: Any, checkout: Path) -> None:
        assert command("bench").out == "fails\nloads\nshared\n"
        assert json.loads(command("bench", "--json").out) == {"benchmarks": ["fails", "loads", "shared"]}

    def test_runs_one(self, command: Any, checkout: Path) -> None:
        shown = command("bench", "--json", "loads", "--", "--quick")
        assert json.loads(shown.out)["loads"] == {"ratio": 2, "words": ["--quick"]}
        assert shown.err == "for people\n"
        assert command("bench", "loads").out == "for people\n"

    def test_json_has_the_joules_or_why_they_are_not_known(
        self, command: Any, checkout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Lit:
            problem = ""

            def joules(self) -> float:
                return 7.5

            def close(self) -> None:
                pass

        class Dark(Lit):
            problem = "no counters here"

            def joules(self) -> None:  # type: ignore[override]
                return None

        monkeypatch.setattr("tartan.cli.bench.GpuEnergyMeter", Lit)
        monkeypatch.setattr("tartan.cli.bench.EnergyMeter", Dark)
        found = json.loads(command("bench", "--json", "loads").out)["energy"]
        assert found == {"loads": {"processor_joules": None, "gpu_joules": 7.5, "unknown": ["no counters here"]}}

    def test_status_of_all_is_the_worst(self, command: Any, checkout: Path) -> None:
        shown = command("bench", "all")
        assert (shown.status, shown.out) == (1, "for people\n")

    def test_one_whose_device_is_missing_fails_alone_and_is_left_out_of_all(self, command: Any, checkout: Path) -> None:
        (checkout / "fails.py").write_text(
            "from tartan.errors import DeviceError\ndef main(): raise DeviceError('no GPU here')\n"
        )
        alone, among_all = command("bench", "fails"), command("bench", "all")
        assert alone.status == 1
        assert "no GPU here" in alone.err
        assert (among_all.status, among_all.out) == (0, "for people\n")
        assert "fails is left out: no GPU here" in among_all.err

    def test_unknown_is_refused_with_what_there_is(self, command: Any, checkout: Path) -> None:
        shown = command("bench", "speed")
        assert shown.status == 2
        assert "there are fails, loads, shared" in shown.err

    def test_file_without_main_is_refused(self, command: Any, checkout: Path) -> None:
        (checkout / "fails.py").write_text("")
        assert "has no main()" in command("bench", "fails").err

    def test_search_path_is_left_as_it_was(self, command: Any, checkout: Path) -> None:
        before = list(sys.path)
        command("bench", "loads")
        assert sys.path == before


def sound() -> dict[str, Any]:
    """A machine with nothing to mend."""
    return {
        "system": "Linux 6 x86_64",
        "memory": {"available_bytes": 8 * 10**9},
        "disk": {"path": "/data", "free_bytes": 10**11},
        "open_files": {"soft": 4096, "hard": 4096},
        "cpu_features": ["avx2"],
        "gpus": [],
        "packages": {"numpy": "2.1", "mpi4py": None},
        "native": {"loaded": True},
    }


class TestDoctor:
    def test_shows_this_machine(self, command: Any) -> None:
        shown = command("doctor")
        assert (shown.status, shown.err) == (0, "")
        names = {line.split("  ")[0] for line in shown.out.splitlines()}
        assert {"tartan", "system", "cores", "memory", "open files", "CUDA", "MPI", "numpy", "zarr"} <= names

    def test_json(self, command: Any) -> None:
        found = json.loads(command("doctor", "--json").out)
        assert found["cores"]["usable"] >= 1
        assert found["memory"]["available_bytes"] > 0
        assert found["packages"]["numpy"]
        assert found["native"]["loaded"] is True
        assert isinstance(found["warnings"], list)
        assert {"cpu_features", "disk", "dev_shm", "open_files", "gpus", "cuda", "mpi", "python"} <= set(found)

    def test_sound_machine_has_no_warnings(self) -> None:
        assert list(doctor.warnings(sound())) == []

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"native": {"loaded": False, "error": "no such file"}}, "make build"),
            ({"packages": {"zarr": None}}, "zarr is not installed"),
            ({"memory": {"available_bytes": 10**8}}, "--host-cache"),
            ({"disk": {"path": "/data", "free_bytes": 10**6}}, "only 1 MB is free in /data"),
            ({"open_files": {"soft": 256, "hard": 1024}}, "ulimit -n 1024"),
            ({"open_files": {"soft": 256, "hard": -1}}, "ulimit -n 4096"),
            ({"cpu_features": ["sse4_2"]}, "no AVX2"),
            (
                {"gpus": [{"index": 0, "name": "H200", "usable": True, "reason": "", "unpinned": "no permission"}]},
                "cannot pin host memory (no permission)",
            ),
            ({"gpus": [{"index": 1, "name": "H200", "usable": False, "reason": "no CuPy"}]}, "GPU 1 (H200) cannot"),
        ],
    )
    def test_each_trouble_has_a_way_out(self, change: dict[str, Any], said: str) -> None:
        (complaint,) = doctor.warnings(sound() | change)
        assert said in complaint

    def test_machine_where_tartan_cannot_work_is_status_1(self, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "tartan._native", None)
        shown = command("doctor")
        assert shown.status == 1
        assert "native module missing" in shown.out
        assert "warning: the native module cannot be loaded" in shown.out

    def test_driver_that_breaks_is_reported(self, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken() -> int:
            raise RuntimeError("driver is too old")

        runtime = SimpleNamespace(runtimeGetVersion=broken, getDeviceCount=broken)
        module(monkeypatch, "cupy", __version__="13", __spec__=object(), cuda=SimpleNamespace(runtime=runtime))
        shown = command("doctor")
        assert shown.status == 0
        assert "RuntimeError: driver is too old" in shown.out

    def test_versions_of_cuda(self, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        runtime = SimpleNamespace(
            runtimeGetVersion=lambda: 12080, driverGetVersion=lambda: 12040, getDeviceCount=lambda: 0
        )
        module(monkeypatch, "cupy", __version__="13.3", __spec__=object(), cuda=SimpleNamespace(runtime=runtime))
        found = json.loads(command("doctor", "--json").out)["cuda"]
        found.pop("headers", None)  # where CuPy's are, or those of other wheels
        assert found == {"cupy": "13.3", "runtime": "12.8", "driver": "12.4"}


def test_config_error_of_a_command_is_status_2(command: Any, api: Any) -> None:
    api.opened = ConfigError("not a run")
    for words in (("export", "r", "f.npy"), ("info", "r")):
        shown = command(*words)
        assert (shown.status, shown.out) == (2, "")
