"""Options, parameters and inputs that make no sense: refused before anything starts, by a message with the way out."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from applications import Distances
from whole_program import APPLICATIONS, Command, Numbers

import tartan
from tartan import analytics
from tartan.errors import ConfigError, DeviceError, RunNotFoundError, StoreError
from tartan.sort import sort_file

ITEMS = [float(i) for i in range(6)]

WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"workers": -1}, "workers is -1; it must be a whole number, 1 or more"),
    ({"workers": 0}, "workers is 0; it must be a whole number, 1 or more"),
    ({"workers": "many"}, "workers is 'many'; it must be a whole number"),
    ({"workers": 2.5}, "workers is 2.5; it must be a whole number"),
    ({"tile": 0}, "tile is 0; it must be a whole number, 1 or more"),
    ({"tile": 2.5}, "tile is 2.5; it must be a whole number"),
    ({"max_failures": -1}, "max_failures is -1; it must be a whole number, 0 or more"),
    ({"tile_timeout": -1}, "tile_timeout is -1; it must be a finite number, 0 or more"),
    ({"tile_timeout": math.nan}, "tile_timeout is nan; it must be a finite number, 0 or more"),
    ({"order": "random"}, "order: 'random' is unknown; choose panel or quadrant"),
    ({"on_error": "ignore"}, "on_error: 'ignore' is unknown; choose skip or raise"),
    ({"host_cache": "lots"}, "--host-cache: 'lots' is not a size; write 500MB, 500MiB, 2GB or 60items"),
    ({"host_cache": 0}, "--host-cache: 0 must be more than zero"),
    ({"host_cache": "1items"}, "--host-cache 1items holds 1 items of 8 bytes; comparing needs at least 2: give --host"),
    ({"host_cache": "15B"}, "--host-cache 15B holds 1 items of 8 bytes; .* give --host-cache 16B or more"),
    ({"device": "sim", "device_cache": "1items"}, "--device-cache 1items holds 1 items on sim; comparing needs at l"),
    ({"disk_cache": "5items"}, "--disk-cache: 5items counts items; write bytes, such as 2GB"),
    ({"device": "gpu"}, "there is no device 'gpu'; use cpu, cuda"),
    ({"device": ()}, "no device is named"),
    ({"reduce": "top-k"}, "reduce: 'top-k' is not understood; write"),
    ({"reduce": {"kind": "top"}}, "is not understood; write"),
    ({"reduce": {"kind": "top-k"}}, "is not understood; write"),
    ({"reduce": {"kind": "top-k", "k": 0}}, "k is 0; it must be a whole number, 1 or more"),
    ({"reduce": {"kind": "threshold", "threshold": "high"}}, "threshold is 'high'; it must be a finite number"),
    ({"reduce": {"kind": "top-k", "k": 3, "output": "other"}}, "there is no output 'other', only scores"),
    ({"pairs": [(0, 6)]}, r"candidate pair 0 is \(0, 6\), but the items are 0 to 5"),
    ({"pairs": [(0, -1)]}, r"candidate pair 0 is \(0, -1\)"),
    ({"pairs": [(0.5, 1.0)]}, "pairs: float64 .* give whole numbers"),
    ({"pairs": [(0, 1, 2)]}, "pairs: int64 .* is not a list of pairs"),
    ({"against": []}, "no items: list is empty"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS, ids=lambda value: str(value)[:40])
def test_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        tartan.allpairs(Distances(), ITEMS, tmp_path / "run", **options)
    assert tartan.allpairs(Distances(), ITEMS, tmp_path / "run").n_pairs_done == 15  # nothing is in its way


def test_an_unknown_option_is_refused_as_by_any_function(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'hostcache'"):
        tartan.allpairs(Distances(), ITEMS, tmp_path / "run", hostcache="1GB")  # type: ignore[call-arg]
    assert not (tmp_path / "run").exists()


class NeedsArguments(Distances):
    def __init__(self, scale: float) -> None:
        self.scale = scale


def outputs(outputs: Any) -> Distances:
    app = Distances()
    app.outputs = outputs
    return app


WRONG_APPLICATIONS: list[tuple[Any, str]] = [
    (None, "None is neither a tartan.Application nor a function of two items"),
    (3, "3 is neither"),
    (tartan.Application, "defines neither compare nor compare_pair"),
    (NeedsArguments, "missing a required argument: 'scale'; give an instance, as NeedsArguments"),
    (outputs({}), "there is no output: .*names each score with its dtype"),
    (outputs({"a/b": "f4"}), "output 'a/b' cannot be a file name"),
    (outputs({"status": "f4"}), "output 'status' cannot be a file name"),
    (outputs({"scores": "nonsense"}), "output 'scores': data type 'nonsense' not understood"),
    (outputs({"scores": object}), "output 'scores' of dtype object is not a number"),
    (outputs({"scores": "M8[s]"}), r"of dtype datetime64\[s\] is not a number"),
    (outputs({"scores": "longdouble"}), "output 'scores' of dtype .* differs from machine to machine"),
]


@pytest.mark.parametrize(
    ("app", "message"), WRONG_APPLICATIONS, ids=[message[:40] for _, message in WRONG_APPLICATIONS]
)
def test_applications(app: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tartan.allpairs(app, ITEMS)


WRONG_ITEMS: list[tuple[Any, str]] = [
    ([], "no items: list is empty; give at least one"),
    (np.zeros((0, 3)), r"the ndarray has no rows: its shape is \(0, 3\)"),
    (np.array(3.0), "an array without dimensions"),
    ({1.0, 2.0}, "items are a set; give paths, an array, or objects in a fixed order"),
    (5, "items are a int"),
    (None, "items are a NoneType"),
    (b"abc", "items are a bytes"),
    (["no", "such"], "input 'no': No such file or directory; .*as dict\\(enumerate\\(texts"),
]


@pytest.mark.parametrize(("items", "message"), WRONG_ITEMS, ids=lambda value: str(value)[:40])
def test_items(items: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tartan.allpairs(Distances(), items)


MATRIX = np.ones((4, 4)) - np.eye(4)

EMPTY_PATHS: list[tuple[str, Callable[[tartan.Run], Any]]] = [
    ("out", lambda run: tartan.allpairs(Distances(), ITEMS, "")),
    ("path", lambda run: tartan.open("")),
    ("path", lambda run: tartan.resume("")),
    ("path", lambda run: tartan.add("", ITEMS)),
    ("path", lambda run: tartan.supported_tree("", 2)),
    ("path", lambda run: run.export("", format="csv")),
    ("path", lambda run: run.export("", format="csv", sort=True)),
    ("D", lambda run: analytics.cluster("")),
    ("D", lambda run: analytics.embed("")),
    ("path", lambda run: analytics.read_matrix("")),
    ("path", lambda run: analytics.write_int16(MATRIX, "")),
    ("checkpoint", lambda run: analytics.DAPWC(2, checkpoint="").fit(MATRIX)),
    ("src", lambda run: sort_file("", "sorted.bin", dtype="<i4")),
    ("dst", lambda run: sort_file("numbers.bin", "", dtype="<i4")),
]


def test_an_empty_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.arange(4, dtype="<i4").tofile("numbers.bin")
    run = tartan.allpairs(Distances(), ITEMS, "run.tartan")
    before = sorted(tmp_path.iterdir())
    for name, call in EMPTY_PATHS:
        with pytest.raises(ConfigError, match=f"^{name} is ''; it must be the name of a file or folder"):
            call(run)
    assert sorted(tmp_path.iterdir()) == before


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(DeviceError, match="cuda"):
        tartan.allpairs(Distances(), ITEMS, device="cuda:97")


def file_in_the_way(folder: Path) -> Path:
    (folder / "file").write_text("mine")
    return folder / "file"


def folder_of_somebody(folder: Path) -> Path:
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").write_text("mine")
    return folder / "mine"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (lambda _: "/dev/null", "cannot write /dev/null: File exists"),
        (lambda _: "/dev/null/run", "cannot write /dev/null/run: Not a directory"),
        (lambda _: "/proc/run", "cannot write /proc/run: No such file or directory"),
        (lambda folder: folder / ("long" * 100), "File name too long"),
        (file_in_the_way, "File exists; choose a folder that is writable"),
        (folder_of_somebody, r"is not empty and holds no run \(notes.txt\); choose another folder"),
    ],
)
def test_places_for_the_result(place: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=message):
        tartan.allpairs(Distances(), ITEMS, place(tmp_path))


def test_folders_that_are_no_runs(tmp_path: Path) -> None:
    for use in (tartan.open, tartan.resume, lambda path: tartan.add(path, ITEMS)):
        with pytest.raises(RunNotFoundError, match=r"there is no folder .*nowhere"):
            use(tmp_path / "nowhere")
    (tmp_path / "items.npy").write_bytes(b"")
    for path, message in ((tmp_path, r"it has no manifest\.json"), (tmp_path / "items.npy", "is a file")):
        with pytest.raises(RunNotFoundError, match=message):
            tartan.open(path)


def test_objects_cannot_be_found_again(tmp_path: Path) -> None:
    tartan.allpairs(Distances(), ITEMS, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"give them again|exists only in the program"):
        tartan.add(tmp_path / "run", [7.0])


def test_a_tile_larger_than_the_matrix_is_the_matrix(tmp_path: Path) -> None:
    run = tartan.allpairs(Distances(), ITEMS, tmp_path / "run", tile=10**6)
    assert run.manifest.chunk == 6
    again = tartan.allpairs(Distances(), ITEMS, tmp_path / "run", tile=10**6)
    assert again.n_pairs_done == 15


COMMAND_LINES: list[tuple[str, str]] = [
    ("", "the following arguments are required: INPUT, -o/--out"),
    ("{items}", "the following arguments are required: -o/--out"),
    ("{items} -o {run} --workers -2", "'-2' is not a whole number above zero"),
    ("{items} -o {run} --tile none", "'none' is not a whole number above zero"),
    ("{items} -o {run} --host-cache 1items", "give --host-cache"),
    ("{items} -o {run} --host-cache many", "'many' is not a size; write 500MB, 500MiB, 2GB or 60items"),
    ("{items} -o {run} --device gpu", "'gpu' is not a device"),
    ("{items} -o {run} --top-k 3 --threshold 1", "not allowed with argument"),
    ("{items} -o {run} --set nonsense", "'nonsense' is not name=value"),
    ("{items} -o {run} --set unknown=1", "unknown"),
    ("{items}/nothing -o {run}", "No such file or directory"),
    ("{items}/*.jpg -o {run}", "no file matches"),
    ("{items} {items}/000.txt -o {run}", "is named twice; every item may be given once"),
]


@pytest.mark.parametrize(("line", "message"), COMMAND_LINES)
def test_command_lines(line: str, message: str, command: Command, numbers: Numbers, tmp_path: Path) -> None:
    """Wrong use ends with status 2, one clear message, and nothing on stdout."""
    words = [word.format(items=numbers(3), run=tmp_path / "run") for word in line.split()]
    outcome = command("run", f"{APPLICATIONS}:Distances", *words)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "nothing"),
        (f"{APPLICATIONS}", "say which application, as"),
        (f"{APPLICATIONS}:Nothing", "has no 'Nothing'; it has: "),
        ("/nowhere/file.py:App", "No such file or directory"),
    ],
)
def test_names_of_applications(name: str, message: str, command: Command, numbers: Numbers, tmp_path: Path) -> None:
    outcome = command("run", name, numbers(3), "-o", tmp_path / "run")
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err


@pytest.mark.slow
def test_files_that_do_not_load(command: Command, numbers: Numbers, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for text, message in [
        ("def f(a, b:\n", "mine.py, line 1:"),
        ("import nothing_of_that_name\n", "mine.py, line 1: ModuleNotFoundError"),
        ("\n1 / 0\n", "mine.py, line 2: ZeroDivisionError"),
    ]:
        file.write_text(text)
        outcome = command("run", f"{file}:f", numbers(3), "-o", tmp_path / "run")
        assert (outcome.status, outcome.out) == (2, "")
        assert message in outcome.err
