"""Applications are found, described the same in every process, and travel."""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tartan import apps
from tartan.application import Application, as_application
from tartan.errors import ConfigError
from tartan.workers import shipping
from tartan.workers.shipping import build, compute_fingerprint_of, plain

SOURCE = '''
import helper_beside
import tartan.application

class Scaled(tartan.application.Application):
    """Has parameters."""
    name = "scaled"

    def __init__(self, factor: float = 1.0, k: int = 5, deep: bool = False):
        self.factor, self.k, self.deep = factor, k, deep

    def compare_pair(self, a, b):
        return self.factor * helper_beside.twice(a * b)

class Other(tartan.application.Application):
    def compare_pair(self, a, b):
        return a

ready = Scaled(factor=3.0)

def product(a, b):
    return a * b

_hidden = 5
number = 7
'''


class Local(Application):
    """An application of an importable module."""

    name = "local"

    def __init__(self, size: int = 3) -> None:
        self.size = size

    def compare_pair(self, a: float, b: float) -> float:
        return a * b * self.size


def difference(a: float, b: float) -> float:
    return abs(a - b)


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's file with a module beside it; what loading does to this process is undone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    path = tmp_path / "spectra.py"
    path.write_text(SOURCE)
    (tmp_path / "helper_beside.py").write_text("def twice(x):\n    return 2 * x\n")
    yield path
    for name in set(sys.modules) - before:
        if name.startswith("tartan_user_") or name == "helper_beside":
            del sys.modules[name]


def python(code: str, *arguments: str) -> str:
    """Run a script that is not a module, in a fresh interpreter; return what it prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# Found by name


@pytest.mark.parametrize(("name", "value"), [("Scaled", 12.0), ("ready", 36.0), ("product", 6), ("Other", 2)])
def test_a_name_in_a_file(user_file: Path, name: str, value: float) -> None:
    app, description = shipping.load_application(f"{user_file}:{name}", {})
    assert app.compare_pair(2, 3) == value  # type: ignore[attr-defined]
    assert description["kind"] == "file"
    assert description["source"] == f"{user_file.resolve()}:{name}"
    assert description["source_hash"] == hashlib.sha256(SOURCE.encode()).hexdigest()
    assert json.loads(json.dumps(description)) == description


def test_the_description_has_name_and_parameters(user_file: Path) -> None:
    _, scaled = shipping.load_application(f"{user_file}:Scaled", {"factor": "2.5"})
    assert scaled["name"] == "scaled"
    assert scaled["parameters"] == {"factor": 2.5, "k": 5, "deep": False}
    _, product = shipping.load_application(f"{user_file}:product", {})
    assert (product["name"], product["parameters"]) == ("product", {})


def test_the_source_of_a_description_finds_the_application_again(user_file: Path) -> None:
    for spec in (f"{user_file}:Scaled", f"{__name__}:Local", f"{__name__}:difference", "vectors"):
        _, first = shipping.load_application(spec, {}, apps)
        _, second = shipping.load_application(first["source"], first["parameters"], apps)
        assert first == second


def test_a_module_and_a_qualified_name() -> None:
    app, description = shipping.load_application(f"{__name__}:Local", {"size": 5})
    assert app.compare_pair(1.0, 2.0) == 10.0  # type: ignore[attr-defined]
    assert description == {
        "name": "local",
        "kind": "module",
        "source": f"{__name__}:Local",
        "source_hash": hashlib.sha256(Path(__file__).read_bytes()).hexdigest(),
        "parameters": {"size": 5},
    }


@pytest.mark.parametrize("spec", ["vectors", "builtin:vectors"])
def test_a_built_in_name(spec: str) -> None:
    app, description = shipping.load_application(spec, {"metric": "euclidean"}, apps)
    assert description["kind"] == "builtin"
    assert description["source"] == "builtin:vectors"
    assert description["parameters"]["metric"] == "euclidean"
    described = shipping.describe_application(app, apps)
    assert described == description
    with pytest.raises(ConfigError, match="no application 'vectors' here"):
        shipping.load_application("vectors", {})


def test_a_file_is_loaded_once_until_it_changes(user_file: Path) -> None:
    spec = f"{user_file}:Scaled"
    first, again = (type(shipping.load_application(spec, {})[0]) for _ in range(2))
    assert first is again
    user_file.write_text(SOURCE + "\n# changed\n")
    changed, description = shipping.load_application(spec, {})
    assert type(changed) is not first
    assert description["source_hash"] == hashlib.sha256(user_file.read_bytes()).hexdigest()


# What is wrong is said


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.py: No such file"):
        shipping.load_application(f"{tmp_path}/missing.py:NAME", {})


@pytest.mark.parametrize("spec", ["{}:Nothing", "{}"])
def test_a_missing_name_lists_what_there_is(user_file: Path, spec: str) -> None:
    with pytest.raises(ConfigError, match=r"it has: Scaled, Other, ready, product$"):
        shipping.load_application(spec.format(user_file), {})


def test_a_file_without_candidates(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("x = 1\n")
    with pytest.raises(ConfigError, match="holds no application and no function"):
        shipping.load_application(f"{path}:App", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ndef f(:\n", r"bad\.py, line 2: invalid syntax"),
        ("import os\n\nraise OSError('no licence')\n", r"bad\.py, line 3: OSError: no licence"),
        ("import nonsense_module\n", r"bad\.py, line 1: ModuleNotFoundError: No module named 'nonsense_module'"),
        ("x = '\0'\n", r"bad\.py: .*null bytes"),
    ],
)
def test_a_file_that_cannot_be_run_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    for _ in range(2):
        with pytest.raises(ConfigError, match=message):
            shipping.load_application(f"{path}:App", {})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "nonsense",
            "no application 'nonsense'; choose cameras, forensics, genomes, microscopy, phylogeny, sets, vectors",
        ),
        ("no_such_module:App", "cannot import no_such_module: ModuleNotFoundError"),
        (f"{__name__}:Missing", "has no 'Missing'; it has: Local"),
        (f"{__name__}:SOURCE", "neither a tartan.Application nor a function"),
    ],
)
def test_what_cannot_be_found(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        shipping.load_application(spec, {}, apps)


@pytest.mark.parametrize("name", ["ready", "product"])
def test_only_classes_take_parameters(user_file: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not a class, so factor cannot be set"):
        shipping.load_application(f"{user_file}:{name}", {"factor": 1.0})


# Parameters


class Typed:
    """One parameter of every kind."""

    def __init__(
        self,
        count: int = 1,
        share: float = 0.5,
        deep: bool = False,
        word: str = "a",
        mode: Literal["skip", "map", 3] = "skip",
        limit: int | None = None,
        path: Path | None = None,
        free: Any = None,
        untyped=2.5,  # type: ignore[no-untyped-def]
        choices: tuple[int, ...] = (),
    ) -> None:
        self.values = {name: value for name, value in locals().items() if name != "self"}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "7", 7),
        ("count", np.int64(7), 7),
        ("share", "1e-3", 0.001),
        ("share", 2, 2.0),
        ("deep", "yes", True),
        ("deep", "False", False),
        ("word", "12", "12"),
        ("mode", "map", "map"),
        ("mode", "3", 3),
        ("limit", "none", None),
        ("limit", "4", 4),
        ("limit", None, None),
        ("path", "x/y", Path("x/y")),
        ("free", "[1, 2]", [1, 2]),
        ("free", "plain text", "plain text"),
        ("free", 1j, 1j),
        ("untyped", "3", 3.0),
        ("choices", (1, 2), (1, 2)),
    ],
)
def test_values_are_read_as_the_parameter_says(name: str, text: Any, value: Any) -> None:
    found = build(Typed, {name: text}, "Typed").values[name]
    assert found == value
    assert type(found) is type(value) or isinstance(value, Path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", "many", "Typed: count='many' is not an integer"),
        ("count", 1.5, "count=1.5 is not an integer"),
        ("count", True, "count=True is not an integer"),
        ("share", "x", "share='x' is not a number"),
        ("deep", "maybe", "deep='maybe' is not true or false"),
        ("deep", 1, "deep=1 is not true or false"),
        ("word", 3, "word=3 is not text"),
        ("mode", "drop", "mode='drop' is not 'skip' or 'map' or 3"),
        ("limit", "x", "limit='x' is not an integer or none"),
        ("unknown", 1, "Typed has no parameter 'unknown'; it has: count, share, deep"),
    ],
)
def test_wrong_values_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Typed, {name: value}, "Typed")
    assert message in str(caught.value)


def test_missing_parameters_and_refusing_constructors() -> None:
    class Needs:
        def __init__(self, size: int, **rest: Any) -> None:
            if size < 0:
                raise ValueError("size must not be negative")
            self.rest = rest

    with pytest.raises(ConfigError, match=r"Needs needs 'size'; give it with --set size="):
        build(Needs, {}, "Needs")
    with pytest.raises(ConfigError, match=r"Needs refuses size=-1: ValueError: size must not be negative"):
        build(Needs, {"size": -1}, "Needs")
    assert build(Needs, {"size": 1, "other": "2"}, "Needs").rest == {"other": 2}
    with pytest.raises(ConfigError, match="it has: none"):
        build(type("Bare", (), {}), {"x": 1}, "Bare")


def test_parameters_are_written_plainly() -> None:
    class Opaque:
        pass

    array = np.arange(3, dtype=np.int16)
    values = {"a": np.float32(0.5), "b": (1, "x", None), "c": {2: Path("p")}, "d": array, "e": Opaque(), "f": 1j}
    assert json.loads(json.dumps(plain(values))) == {
        "a": 0.5,
        "b": [1, "x", None],
        "c": {"2": "p"},
        "d": f"array int16 (3,) sha256:{hashlib.sha256(array.tobytes()).hexdigest()}",
        "e": f"{__name__}.test_parameters_are_written_plainly.<locals>.Opaque",
        "f": "1j",
    }


# Described as objects


def test_objects_of_modules_are_described_by_their_file() -> None:
    described = shipping.describe_application(Local(size=4))
    assert described == shipping.load_application(f"{__name__}:Local", {"size": 4})[1]
    described = shipping.describe_application(as_application(difference))
    assert described == shipping.load_application(f"{__name__}:difference", {})[1]


def test_objects_of_files_are_described_by_them(user_file: Path) -> None:
    app, description = shipping.load_application(f"{user_file}:Scaled", {"k": 9})
    assert shipping.describe_application(app) == description


def test_lambdas_and_inner_functions_are_objects() -> None:
    def inner(a: float, b: float) -> float:
        return a

    for function in (lambda a, b: a, inner, functools.partial(inner, 1.0)):
        described = shipping.describe_application(as_application(function))
        assert (described["kind"], described["source"].split(":")[0]) == ("object", "python")
        assert len(described["source_hash"]) == 64


def functions(scale: float, names: tuple[str, ...] = ("a", "b")) -> dict[str, Callable[[float, float], Any]]:
    """Functions that differ in one thing each."""

    def helper(a: float) -> float:
        return a * scale

    return {
        "closure": lambda a, b: helper(a) + b,
        "product": lambda a, b: a * b,
        "product again": lambda a, b: a * b,
        "sum": lambda a, b: a + b,
        "constant": lambda a, b: a + b + 1,
        "default": lambda a, b, c=names: a,
        "attribute": lambda a, b: np.hypot(a, b),
        "attribute two": lambda a, b: np.arctan2(a, b),
        "set": lambda a, b: a in {"x", "y", "z", "w"},
    }


def test_fingerprints_tell_functions_apart() -> None:
    prints = {name: compute_fingerprint_of(function) for name, function in functions(2.0).items()}
    assert prints.pop("product again") == prints["product"]
    assert len(set(prints.values())) == len(prints)
    assert {name: compute_fingerprint_of(f) for name, f in functions(2.0).items() if name in prints} == prints
    assert compute_fingerprint_of(functions(3.0)["closure"]) != prints["closure"]
    assert compute_fingerprint_of(functions(2.0, ("c",))["default"]) != prints["default"]


def test_fingerprints_see_data_but_no_addresses() -> None:
    class Opaque:
        def __init__(self, size: int) -> None:
            self.size = size

        def method(self) -> None:
            pass

    def using(value: Any) -> Callable[[Any, Any], Any]:
        return lambda a, b: value

    makers: list[Callable[[int], Any]] = [
        lambda n: np.full(4, n),
        lambda n: {"b": [n], "a": {1, n}},
        lambda n: Opaque(n),
        lambda n: functions(n)["closure"],
        lambda n: functools.partial(max, n),
        lambda n: Opaque(n).method,
        lambda n: functools.lru_cache(functions(n)["closure"]),
    ]
    for make in makers:
        assert compute_fingerprint_of(using(make(7))) == compute_fingerprint_of(using(make(7)))
        assert compute_fingerprint_of(using(make(7))) != compute_fingerprint_of(using(make(8)))
    assert compute_fingerprint_of(using(threading.Lock())) == compute_fingerprint_of(using(threading.Lock()))
    partials = [functools.partial(f, 1.0) for f in (functions(2.0)["sum"], functions(2.0)["product"])]
    assert compute_fingerprint_of(partials[0]) != compute_fingerprint_of(partials[1])
    circle: list[Any] = []
    circle.append(circle)
    assert compute_fingerprint_of(using(circle)) == compute_fingerprint_of(using(circle))


SCRIPT = """
import numpy as np, tartan.application
from tartan.workers import shipping
{above}
SCALE = {scale}
NAMES = {{"alpha", "beta", "gamma", "delta"}}
def helper(a):
    return a * SCALE
class App(tartan.application.Application):
    def compare_pair(self, a, b):
        return helper(a) if a in NAMES else np.hypot(a, b)
{below}
print(shipping.describe_application(App())["source_hash"])
f = lambda a, b: helper(b) - a
print(shipping.describe_application(tartan.application.as_application(f))["source_hash"])
"""


@pytest.mark.slow
def test_fingerprints_of_scripts_survive_other_processes_and_edits_elsewhere(tmp_path: Path) -> None:
    def described(name: str, **options: Any) -> list[str]:
        path = tmp_path / name
        path.write_text(SCRIPT.format(**{"above": "", "below": "", "scale": 2, **options}))
        result = subprocess.run([sys.executable, path], check=True, capture_output=True, text=True)
        return result.stdout.split()

    first = described("one.py")
    assert len(first) == 2
    assert described("two.py", above="# a comment\nimport json", below="unused = 5") == first
    changed = described("one.py", scale=3)
    assert changed[0] != first[0]
    assert changed[1] != first[1]


# Sent


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Scaled", "ready", "product"])
def test_what_comes_from_a_file_travels_with_its_source(user_file: Path, name: str) -> None:
    app, _ = shipping.load_application(f"{user_file}:{name}", {})
    data = shipping.dump(app)
    expected = app.compare_pair(2, 3)  # type: ignore[attr-defined]
    user_file.write_text("raise RuntimeError('edited meanwhile')")
    code = (
        "import sys; from tartan.workers import shipping\n"
        "print(shipping.load(bytes.fromhex(sys.argv[1])).compare_pair(2, 3))"
    )
    assert float(python(code, data.hex())) == expected


def test_lambdas_and_instances_travel() -> None:
    factor = 3
    for app in (as_application(lambda a, b: a * b * factor), Local(size=3)):
        assert shipping.load(shipping.dump(app)).compare_pair(1.0, 2.0) == 6.0


def test_what_cannot_travel_is_named() -> None:
    app = Local()
    app.size = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"Local cannot be sent to worker processes: .*releases_gil = True") as caught:
        shipping.dump(app)
    assert caught.value.code == "not-picklable"


MAIN = """
import sys, threading
from tartan.application import Application
from tartan.workers.start import open_executor

class Point:
    def __init__(self, x):
        self.x = x

class App(Application):
    def compare_pair(self, a, b):
        return Point(a.x + b.x)

def score(context, a, b):
    return context.application.compare_pair(a, b)

print("started")
executor = open_executor(App(), 2)
answered = threading.Event()
outcomes = []
executor.submit(score, (Point(1), Point(2)), lambda outcome: (outcomes.append(outcome), answered.set()))
answered.wait(60)
executor.close()
print(type(outcomes[0].value) is Point, outcomes[0].value.x)
"""


@pytest.mark.slow
@pytest.mark.parametrize("from_file", [True, False])
def test_a_script_needs_no_main_guard(tmp_path: Path, from_file: bool) -> None:
    path = tmp_path / "script.py"
    path.write_text(MAIN)
    # A file that hides a module of the standard library from everything that looks in the working directory.
    (tmp_path / "struct.py").write_text("raise RuntimeError('imported by accident')")
    command = [sys.executable, "-P", path] if from_file else [sys.executable, "-P", "-c", MAIN]
    result = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert result.stdout.split() == ["started", "True", "3"]
    assert result.stderr == ""
