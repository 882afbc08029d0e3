"""The frame of the command line: help, exit statuses, errors, and what it costs to start."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from conftest import Outcome
from tartan.apps import BUILTIN, builtin
from tartan.cli import commands
from tartan.cli.main import main
from tartan.cli.shared.options import separate_settings
from tartan.errors import ConfigError, RunCancelledError, RunFailedError, StoreError

EXECUTION = {
    "--host-cache", "--device-cache", "--disk-cache", "--cache-at", "--workers", "--order", "--device", "--on-error",
    "--max-failures", "--tile-timeout", "--verify", "--keep-all", "--trace", "--quiet", "--verbose", "--json", "--help",
    "--on", "--scheduler-file", "--insecure", "--rank-timeout", "--stages", "--parse-at", "--wait",
}  # fmt: skip

LOG = {"--log-level", "--log-file"}

# Of every command that reads a matrix.
MATRIX = {
    "--at", "--format", "--byteorder", "--triangle", "--output", "--distance", "--transform", "--missing", "--failed",
    "--names", "--quiet", "--json", "--help",
}  # fmt: skip

# Written out by hand on purpose: an option that vanishes breaks somebody's script.
OPTIONS = {
    "run": LOG | EXECUTION
    | {"--out", "--overwrite", "--part", "--set", "--arity", "--against", "--group", "--pairs", "--tile", "--top-k"}
    | {"--threshold"}
    | {"--dim", "--dtype", "--keys", "--largest", "--smallest", "--exclude", "--first"},
    "resume": LOG | EXECUTION | {"--inputs", "--retry-failed", "--trust"},
    "attach": LOG | EXECUTION | {"--inputs", "--trust"},
    "add": LOG | EXECUTION | {"--dim", "--dtype", "--inputs", "--keys", "--no-map", "--trust"},
    "remove": {"--quiet", "--json", "--help"},
    "replace": LOG | EXECUTION | {"--inputs", "--no-map", "--trust"},
    "rename": {"--quiet", "--json", "--help"},
    "log": {"--out", "--overwrite", "--json", "--help"},
    "expire": {"--keep", "--now", "--quiet", "--json", "--help"},
    "info": {"--out", "--overwrite", "--at", "--names", "--verbose", "--why-slow", "--json", "--help"},
    "report": {"--at", "--color-by", "--names", "--out", "--overwrite", "--trust", "--quiet", "--json", "--help"},
    "view": LOG | {"--at", "--names", "--port", "--trust", "--json", "--help"},
    "show": {"--out", "--overwrite", "--at", "--names", "--trust", "--json", "--help"},
    "export": {
        "--at", "--format", "--output", "--diagonal", "--missing", "--failed", "--clip", "--overwrite", "--json",
        "--help", "--sorted",
        "--threshold-count", "--ascending", "--descending", "--memory", "--tmp",
        "--pairs", "--names", "--distance", "--trust",
    },
    "embed": LOG | MATRIX
    | {
        "--method", "--dim", "--out", "--labels", "--color-by", "--seed", "--init", "--pviz", "--svg",
        "--checkpoint", "--density",
        "--extend", "--no-keep", "--ranks", "--link", "--overwrite",
    },
    "align": {"--out", "--overwrite", "--weights", "--no-scale", "--no-reflection", "--json", "--help"},
    "tree": LOG | MATRIX
    | {
        "--method", "--out", "--draw", "--picture", "--compare", "--layout", "--clusters", "--memory",
        "--root", "--nonnegative", "--support",
        "--seed", "--trust", "--overwrite",
    },
    "names": {"--out", "--overwrite", "--quiet", "--json", "--help"},
    "cluster": LOG | MATRIX
    | {
        "-k", "--clusters", "--threshold", "--cut", "--method", "--min-size", "--truth", "--centres", "--picture",
        "--color-by", "--curve", "--map", "--representative", "--trust", "--seed", "--checkpoint", "--out",
        "--ranks", "--link", "--drep", "--sourmash", "--memory",
        "--overwrite",
    },
    "forensics cameras": LOG | EXECUTION | {
        "--questioned", "--group", "--out", "--overwrite", "--false-alarm", "--set", "--json", "--help",
    },
    "microscopy fuse": LOG | {"--names", "--keep", "--out", "--overwrite", "--trust", "--json", "--help"},
    "neighbors": LOG | MATRIX | {
        "-k", "--count", "--out", "--overwrite", "--of", "--within", "--on", "--by", "--how", "--metric", "--memory",
    },
    "outliers": LOG | MATRIX | {"-k", "--count", "--threshold", "--all", "--out", "--overwrite"},
    "lcms cluster": LOG | {
        "--out", "--charge", "--mode", "--earlier", "--compare", "--checkpoint", "--set", "--quiet", "--json",
        "--help", "--ranks", "--link", "--overwrite",
    },
    "sort": LOG | {
        "--dtype", "--key", "--descending", "--memory", "--tmp", "--pack", "--threads", "--in-place", "--overwrite",
        "--fresh", "--format", "--total-order", "--columns", "--nulls", "--compression", "--quote", "--quiet", "--json",
        "--help", "--on", "--scheduler-file", "--insecure", "--rank-timeout", "--separator", "--no-header",
        "--unique", "--top",
    },
    "blocks": LOG | {
        "--out", "--overwrite", "--block", "--boundary", "--damping", "--on", "--workers", "--host-cache",
        "--place", "--json", "--report", "--trace", "--device", "--device-cache", "--help",
    },
    "simulate": {"-n", "--seed", "--set", "--hard", "--overwrite", "--json", "--help"},
    "ranks": LOG | {"--cpus", "--nodes", "--groups", "--grace", "--link", "--json", "--help"},
    "plan": {"--out",
        "--workers", "--fail", "--from", "--items", "--devices", "--host-cache", "--device-cache", "--chart", "--json",
        "--help", "--overwrite",
    },
    "cluster-certs": {"--days", "--json", "--help"},
    "demo": {"--photos", "--cameras", "--seed", "--quiet", "--json", "--help"},
    "bench": {"--json", "--help"},
    "completion": {"--json", "--help"},
    "doctor": {"--out", "--overwrite", "--json", "--help"},
    "apps": {"--out", "--overwrite", "--json", "--help"},
}  # fmt: skip


class TestHelp:
    def test_lists_every_command(self, command: Any) -> None:
        shown = command("--help")
        assert shown.status == 0
        assert [name for name in OPTIONS if f" {name} " not in shown.out] == []
        lines = shown.out.splitlines()
        assert len(lines) < 40
        assert max(map(len, lines)) <= 80
        assert sum(line[10:].startswith("tartan ") for line in lines) == 5

    def test_every_file_of_a_command_is_in_a_group(self) -> None:
        """A new command must stand in ``GROUPS``, or nobody can call it."""
        files = {path.stem for path in Path(commands.__file__).parent.glob("*.py")}
        named = {name.replace(" ", "_").replace("-", "_") for name in commands.COMMANDS}
        assert files - named == {"__init__", "main", "commands"}
        assert list(commands.COMMANDS) == [one.name for group in commands.GROUPS.values() for one in group]
        assert set(OPTIONS) == set(commands.COMMANDS)

    @pytest.mark.parametrize("words", [(), ("help",), ("-h",), ("help", "help")])
    def test_is_what_no_command_prints(self, command: Any, words: tuple[str, ...]) -> None:
        assert command(*words) == command("--help")

    @pytest.mark.parametrize("name", ["run", "microscopy fuse", "microscopy"])
    def test_of_a_command_is_asked_for_in_two_ways(self, command: Any, name: str) -> None:
        shown = command("help", *name.split())
        assert shown == command(*name.split(), "--help")
        assert shown.out.startswith(f"usage: tartan {name} ")

    def test_of_an_application_names_its_settings(self, command: Any) -> None:
        shown = command("run", "forensics", "--help")
        assert shown == command("apps", "forensics") == command("help", "run", "forensics")
        assert re.findall(r"^  (\w+)", shown.out, re.MULTILINE) == ["crop", "score", "turns", "shift", "max_megapixels"]
        assert "  max_megapixels=250 " in shown.out

    @pytest.mark.parametrize("name", BUILTIN)
    def test_every_setting_of_an_application_is_explained(self, command: Any, name: str) -> None:
        about = json.loads(command("apps", name, "--json").out)["applications"][name]
        assert set(about["settings"]) == set(inspect.signature(builtin(name)).parameters)
        assert all(known["about"] and known["kind"] for known in about["settings"].values())
        assert name in command("apps").out

    @pytest.mark.parametrize("name", OPTIONS)
    def test_of_a_command_names_each_option(self, command: Any, name: str) -> None:
        shown = command(*name.split(), "--help")
        assert shown.status == 0
        explained = {
            word.rstrip(",:")
            for line in shown.out.splitlines()
            if line.startswith("  -")
            for word in line.split()
            if word.startswith("-")
        }
        assert explained - {"-h", "-o", "-q", "-v"} == OPTIONS[name]
        assert ("-q" in explained) == ("--quiet" in explained)

    @pytest.mark.parametrize("name", OPTIONS)
    def test_explains_every_argument(self, command: Any, name: str) -> None:
        lines = command(*name.split(), "--help").out.splitlines()
        for index, line in enumerate(lines):
            if line.startswith("  -"):
                following = lines[index + 1] if index + 1 < len(lines) else ""
                assert "  " in line.strip() or following.startswith(" " * 10), line


class TestWrongUse:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["weave"], "there is no command 'weave' (tartan --help lists them)"),
            (["fuse", "r"], "`tartan fuse` is now `tartan microscopy fuse`"),
            (["lcms", "peaks.txt"], "`tartan lcms` is now `tartan lcms cluster`"),
            (["forensics", "camras"], "forensics has no command 'camras'; did you mean cameras?"),
            (["microscopy"], "COMMAND"),
            (["apps", "fornesics"], "did you mean forensics?"),
            (["run", "vectors", "x", "-o", "r", "--metric", "cosine"], "--metric; did you mean --set metric=...?"),
            (["tree", "r", "--method", "averge"], "did you mean average?"),
            (["hepl"], "did you mean help?"),
            (["clutser", "r"], "there is no command 'clutser'; did you mean cluster?"),
            (["run", "vectors", "x.npy"], "-o"),
            (["run", "vectors", "-o", "r"], "INPUT"),
            (["run", "vectors", "x", "-o", "r", "--host-cache", "much"], "'much' is not a size"),
            (["run", "vectors", "x", "-o", "r", "--host-cache", "0MB"], "must be more than zero"),
            (["run", "vectors", "x", "-o", "r", "--workers", "0"], "'0' is not a whole number above zero"),
            (["run", "vectors", "x", "-o", "r", "--tile", "1.5"], "'1.5' is not a whole number"),
            (["run", "vectors", "x", "-o", "r", "--max-failures", "-1"], "zero or more"),
            (["run", "vectors", "x", "-o", "r", "--tile-timeout", "nan"], "not a number, zero or more"),
            (["run", "vectors", "x", "-o", "r", "--device", "cpu,tpu"], "'tpu' is not a device"),
            (["run", "vectors", "x", "-o", "r", "--order", "random"], "invalid choice: 'random'"),
            (["run", "vectors", "x", "-o", "r", "--set", "k"], "'k' is not name=value"),
            (["run", "vectors", "x", "-o", "r", "--top-k", "3", "--threshold", "1"], "not allowed with"),
            (["run", "vectors", "x", "-o", "r", "--wrokers", "2"], "--wrokers; did you mean --workers?"),
            (["run", "vectors", "x", "-o", "r", "--cluster=local:2"], "--cluster is now --on"),
            (["tree", "r", "--similarity", "max-s"], "--similarity is now --distance"),
            (["resume", "r", "--tile", "5"], "unrecognized arguments: --tile"),
            (["run", "vectors", "x", "-o", "r", "-x"], "tartan run: error: unrecognized arguments: -x"),
            (["info", "r", "s"], "tartan info: error: unrecognized arguments: s"),
            (["simulate", "forensics", "d"], "-n"),
            (["simulate", "photos", "d", "-n", "3"], "invalid choice"),
            (["tree", "r", "-o", "-"], "-o names a file or a folder, and - is neither"),
            (["run", "vectors", "x", "--out", "-"], "-o names a file or a folder, and - is neither"),
            (["info", "r", "-o", "-"], "-o names a file or a folder, and - is neither"),
            (["tree", "r", "--method", "median"], "invalid choice"),
            (["tree", "r", "--missing", "none"], "'none' is not nan, negative, error or a number"),
            (["cluster", "r", "-k", "2", "--threshold", "1"], "not allowed with"),
            (["cluster", "r", "--threshold", "-1"], "'-1' is not a number, zero or more"),
            (["neighbors", "r", "-k", "0"], "'0' is not a whole number above zero"),
            (["outliers", "r", "--threshold", "inf"], "'inf' is not a finite number"),
            (["sort", "a", "b", "--memory", "much"], "'much' is not a size"),
            (["sort", "a", "b", "--pack", "maybe"], "invalid choice: 'maybe'"),
            (["sort", "a"], "name a destination too, or add --in-place"),
        ],
    )
    def test_is_status_2_with_a_word_on_what(self, command: Any, words: list[str], said: str) -> None:
        shown = command(*words)
        assert shown.status == 2
        assert shown.out == ""
        assert said in shown.err
        assert shown.err.count("\n") == 1


class TestPrinted:
    def test_goes_into_the_file_of_o(self, command: Any, tmp_path: Path) -> None:
        printed, path = command("apps"), tmp_path / "apps.txt"
        assert command("apps", "-o", path) == Outcome(0, "", "")
        assert path.read_text() == printed.out
        again = command("apps", "--json", "-o", path)
        assert again.status == 2
        assert "--overwrite" in again.err
        assert path.read_text() == printed.out
        assert command("apps", "--json", "-o", path, "--overwrite").status == 0
        assert set(json.loads(path.read_text())["applications"]) == set(BUILTIN)

    def test_of_what_fails_is_no_file(self, command: Any, tmp_path: Path) -> None:
        assert command("info", tmp_path / "none", "-o", tmp_path / "i.txt").status == 2
        assert list(tmp_path.iterdir()) == []


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "status"),
        [
            (ConfigError("k is 0; use 1 or more"), 2),
            (StoreError("r is locked by process 7"), 1),
            (RunFailedError("100 of 100 pairs failed"), 1),
            (RunCancelledError("stopped", context={"signal": 15}), 143),
            (RunCancelledError("stopped", context={"signal": 2}), 130),
            (RunCancelledError("stopped"), 130),
        ],
    )
    def test_known_error_is_one_line(self, command: Any, api: Any, error: Any, status: int) -> None:
        api.raises = error
        shown = command("run", "vectors", "x.npy", "-o", "r")
        assert (shown.status, shown.out) == (status, "")
        assert shown.err == f"tartan: error: {error}\n"

    def test_known_error_is_an_object_with_json(self, command: Any, api: Any) -> None:
        api.raises = ConfigError("k is 0", context={"option": "k", "value": float("nan")})
        shown = command("run", "vectors", "x.npy", "-o", "r", "--json")
        assert json.loads(shown.out) == {
            "error": {"code": "config", "message": "k is 0", "context": {"option": "k", "value": None}}
        }

    def test_debugging_shows_the_traceback(self, command: Any, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TARTAN_DEBUG", "1")
        api.raises = StoreError("broken")
        shown = command("run", "vectors", "x.npy", "-o", "r")
        assert "Traceback" in shown.err
        assert shown.err.endswith("tartan: error: broken\n")

    def test_first_traceback_of_user_code_is_shown(self, command: Any, api: Any) -> None:
        api.raises = RunFailedError("all failed", context={"traceback": "Traceback:\n  NameError: x\n"})
        shown = command("run", "vectors", "x.npy", "-o", "r")
        assert shown.err == "Traceback:\n  NameError: x\ntartan: error: all failed\n"

    def test_interrupt_before_the_run_is_130(self, command: Any, api: Any) -> None:
        api.raises = KeyboardInterrupt()
        shown = command("run", "vectors", "x.npy", "-o", "r")
        assert (shown.status, shown.err) == (130, "tartan: interrupted\n")

    def test_interrupt_of_a_run_says_how_to_resume(self, command: Any, api: Any) -> None:
        api.raises = KeyboardInterrupt("stopped")
        api.raises.__cause__ = RunCancelledError("stopped; run it again to resume", context={"signal": 2})
        shown = command("run", "vectors", "x.npy", "-o", "r")
        assert (shown.status, shown.err) == (130, "tartan: error: stopped; run it again to resume\n")

    def test_interrupt_that_compiled_code_made_another_error_of_is_130(self, command: Any, api: Any) -> None:
        class SwallowedError(SystemError):
            def __init__(self) -> None:
                with contextlib.suppress(KeyboardInterrupt):
                    os.kill(os.getpid(), signal.SIGINT)

        api.raises = SwallowedError
        shown = command("run", "vectors", "x.npy", "-o", "r")
        assert (shown.status, shown.err) == (130, "tartan: interrupted\n")

    def test_defect_says_so_with_its_traceback(self, command: Any, api: Any) -> None:
        api.raises = ZeroDivisionError("division by zero")
        shown = command("run", "vectors", "x.npy", "-o", "r")
        assert shown.status == 1
        assert "Traceback" in shown.err
        assert "tartan: error: ZeroDivisionError: division by zero (a defect" in shown.err


class TestSettings:
    @pytest.mark.parametrize(
        ("words", "separated"),
        [
            ("run --set k=5 phylogeny x", "run --set k=5 phylogeny x"),
            ("run --set k=5 unknown=map phylogeny x", "run --set k=5 --set unknown=map phylogeny x"),
            ("run --set a=1 --set b=2 c=3", "run --set a=1 --set b=2 --set c=3"),
            ("run a=b --set k=5 --quiet d=e", "run a=b --set k=5 --quiet d=e"),
            ("bench x -- --set a=1 b=2", "bench x -- --set a=1 b=2"),
            ("run --set", "run --set"),
            ("", ""),
        ],
    )
    def test_several_may_follow(self, words: str, separated: str) -> None:
        assert separate_settings(words.split()) == separated.split()


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(command: Any, option: str) -> None:
    shown = command(option)
    assert shown.status == 0
    assert shown.out.startswith("tartan ")


def test_data_are_utf8_in_any_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """File names come back as the bytes that they are, also those that are not text."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["--version"]) == 0
    print("\u00fc.fa", os.fsdecode(b"\xff.fa"), flush=True)
    assert written.getvalue().splitlines()[1] == b"\xc3\xbc.fa \xff.fa"


@pytest.mark.slow
def test_the_package_can_be_run_as_a_module() -> None:
    ran = subprocess.run([sys.executable, "-m", "tartan", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("tartan ")


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from tartan.cli.main import main; main(['--help'])\n"
        "heavy = {'zarr', 'pyarrow', 'scipy', 'fsspec', 'rich', 'sklearn', 'PIL', 'cupy', 'numcodecs', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr == "[]\n"


@pytest.mark.slow
def test_a_run_is_opened_without_what_computes_one() -> None:
    script = (
        "import sys, tartan; tartan.open\n"
        "computing = ('tartan.runtime', 'tartan.workers.executor', 'tartan.run.probing', 'tartan.cluster', 'zarr')\n"
        "print([name for name in computing if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr == "[]\n"


LENGTHS = """
import tartan

class Lengths(tartan.Application):
    releases_gil = True

    def compare_pair(self, a, b):
        return abs(len(a) - len(b))
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [["vectors", "x.npy"], ["app.py:Lengths", "app.py", "x.npy", "--top-k", "1"]])
def test_a_run_imports_nothing_that_only_analyses_need(tmp_path: Path, words: list[str]) -> None:
    np.save(tmp_path / "x.npy", np.eye(5))
    (tmp_path / "app.py").write_text(LENGTHS)
    script = (
        f"import sys; from tartan.cli.main import main; main(['run', *{words}, '-o', 'run', '-q'])\n"
        "print(sorted({'scipy', 'sklearn', 'pandas', 'PIL', 'distributed'} & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ran.stderr == "[]\n"


@pytest.mark.slow
def test_clusters_and_maps_import_nothing_that_takes_longer_than_they_do(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(30, 2))
    np.save(tmp_path / "x.npy", np.linalg.norm(points[:, None] - points, axis=2))
    script = (
        "import sys; from tartan.cli.main import main\n"
        "main(['cluster', 'x.npy', '-k', '3', '-o', 'x.csv', '-q']), main(['embed', 'x.npy', '-o', 'y', '-q'])\n"
        "print(sorted({'scipy.stats', 'sklearn', 'pandas'} & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ran.stderr == "[]\n"


@pytest.mark.slow
def test_info_imports_nothing_that_takes_longer_than_its_answer(tmp_path: Path) -> None:
    items = {f"item {k}": float(k) for k in range(6)}
    run = tartan.allpairs(lambda a, b: abs(a - b), items, tmp_path / "run", quiet=True)
    run.embed(keep=True)
    script = (
        "import sys; from tartan.cli.main import main; main(['info', 'run'])\n"
        "slow = {'pandas', 'scipy', 'zarr', 'rich', 'sklearn', 'distributed', 'tartan.analytics'}\n"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ran.stderr == "[]\n"
    assert ran.stdout.startswith("pairs done   15 of 15 (100.0 %)\n")
    assert "map " in ran.stdout


@pytest.mark.slow
def test_reader_that_goes_away_is_no_error() -> None:
    script = "import sys; from tartan.cli.main import main; sys.exit(main(['doctor']))"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141
