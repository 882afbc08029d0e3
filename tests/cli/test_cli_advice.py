"""Messages name what the user of the program has, and what they propose works: each is followed here."""

from __future__ import annotations

import argparse
import ast
import functools
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.analytics.matrix.files import FORMATS as READ_FORMATS
from tartan.apps.vectors import Vectors
from tartan.cli.main import build_parser
from tartan.cli.shared.matrix import FORMATS
from tartan.cli.shared.wording import OTHER_NAMES, commands_of, destinations, in_options

SOURCE = Path(tartan.__file__).parent
#: Arguments that only programs give: of objects in memory, and of estimators.
PYTHON_ONLY = {
    "allpairs",
    "link_cut",
    "ragged",
    "n",
    "copies",
    "cluster",
    "folder",
    "like",
    "missing_value",
    "app",
    "previous",
}


@functools.cache
def texts_of_calls() -> list[tuple[Path, str, list[str]]]:
    """Return the file, the name of what is called, and the texts among the arguments, of each call that has texts."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and any(texts := list(_texts(node))):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                found.append((path, name, texts))
    return found


def arguments() -> Iterator[tuple[str, str, Path]]:
    """Yield the arguments that messages name in backquotes, with their values and files."""
    for path, _, texts in texts_of_calls():
        for text in texts:
            for name, value in re.findall(r"`([a-z_]+)=([^`]*)`", text):
                yield name, value, path


def _texts(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        pieces = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
        yield "".join(str(getattr(piece, "value", "x")) if isinstance(piece, ast.Constant) else "x" for piece in pieces)


@pytest.mark.slow
def test_each_argument_that_a_message_names_is_an_option_of_some_command() -> None:
    commands = commands_of(build_parser())
    missing = {
        (name, value, path.name)
        for name, value, path in set(arguments()) - {("name", "value", SOURCE / "cli/shared/wording.py")}
        if name not in {"x", *PYTHON_ONLY}  # x: what is formatted in
        and not any("`--" in in_options(f"`{name}={value}`", command) for command in commands.values())
    }
    assert missing == set()


def test_no_message_names_an_argument_without_backquotes() -> None:
    """A plain ``name=value`` reaches users of the program as it is."""
    bare = re.compile(r"(?<![`\w.-])(distance|missing|triangle|format|overwrite|failed|byteorder|output)=")
    found = [
        (path.name, text)
        for path, name, texts in texts_of_calls()
        if name.endswith("Error")
        for text in texts
        if bare.search(text)
    ]
    assert found == []


class TestWording:
    @pytest.fixture
    def parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser()
        parser.add_argument("--overwrite", action="store_true")
        parser.add_argument("--sorted", dest="sort", action="store_true")
        parser.add_argument("-k", "--clusters", type=int)
        parser.add_argument("--distance")
        parser.add_argument("--descending", dest="ascending", action="store_false")
        return parser

    @pytest.mark.parametrize(
        ("said", "written"),
        [
            ("`overwrite=True`", "`--overwrite`"),
            ("`overwrite=False`", "`overwrite=False`"),
            ("`sort=True`", "`--sorted`"),
            ("`n_clusters=3`", "`--clusters 3`"),
            ("`distance='max-s'`", "`--distance max-s`"),
            ("`distance='sqrt(2-2s)'`", "`--distance 'sqrt(2-2s)'`"),
            ("`distance=`", "`--distance`"),
            ("`ascending=False`", "`--descending`"),
            ("`unknown=1`", "`unknown=1`"),
            ("`tartan resume RUN`", "`tartan resume RUN`"),
        ],
    )
    def test_arguments_become_options(self, parser: argparse.ArgumentParser, said: str, written: str) -> None:
        assert in_options(f"x; {said} y", parser) == f"x; {written} y"

    def test_other_names_are_those_of_options(self) -> None:
        known = set().union(*map(destinations, commands_of(build_parser()).values()))
        assert set(OTHER_NAMES.values()) <= known


def test_formats_are_those_that_are_read() -> None:
    assert set(FORMATS) == set(READ_FORMATS) - {"run"}


# What is wrong, and the option that the message proposes.
WRONG: dict[str, tuple[Callable[[], Any], str]] = {}


def wrong(words: str, option: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Note a command on inputs that a function makes, and the way out that its message must name."""

    def note(make: Callable[[], Any]) -> Callable[[], Any]:
        WRONG[words] = (make, option)
        return make

    return note


def matrix() -> np.ndarray:
    points = np.random.default_rng(3).random((6, 2))
    return np.linalg.norm(points[:, None] - points, axis=2)


@wrong("tree m.npy", "--triangle upper")
@wrong("cluster m.npy -k 2", "--triangle upper")
@wrong("neighbors m.npy", "--triangle lower")
@wrong("outliers m.npy", "--triangle lower")
@wrong("embed m.npy -o map", "--triangle upper")
def asymmetric() -> None:
    D = matrix()
    D[0, 1] += 1
    np.save("m.npy", D)


@wrong("cluster nan.npy -k 2 --method single", "--missing nan")
@wrong("neighbors nan.npy", "--missing nan")
@wrong("outliers nan.npy", "--missing nan")
@wrong("embed nan.npy -o map", "--missing nan")
@wrong("embed nan.npy -o map ", "--failed drop")
@wrong("tree nan.npy --missing nan", "--failed drop")
@wrong("cluster nan.npy -k 2 --method average --missing nan", "--failed drop")
def without_numbers() -> None:
    D = matrix()
    D[0, 1] = D[1, 0] = np.nan
    np.save("nan.npy", D)


@wrong("neighbors negative.npy", "--missing negative")
def with_negatives() -> None:
    D = matrix()
    D[0, 1] = D[1, 0] = -1
    np.save("negative.npy", D)


@wrong("tree matrix.bin", "--format float32")
@wrong("cluster matrix.bin -k 2", "--format float32")
@wrong("neighbors matrix.bin", "--format float32")
@wrong("outliers matrix.bin", "--format float32")
@wrong("embed matrix.bin -o map", "--format float32")
def unnamed() -> None:
    matrix().astype("<f4").tofile("matrix.bin")


@wrong("neighbors ones.i16", "--byteorder little")
def of_no_byteorder() -> None:
    D = np.full((4, 4), 0x0102, "<i2")
    D[0, 1:] = D[1:, 0] = 0x0201
    np.fill_diagonal(D, 0)
    D.tofile("ones.i16")


@wrong("tree alike.npy", "--distance max-s")
@wrong("cluster alike.npy -k 2", "--distance max-s")
@wrong("embed alike.npy -o map", "--distance max-s")
def similarities() -> None:
    np.save("alike.npy", 1 / (1 + matrix()))


@wrong("tree a.tartan -o t.nwk", "--overwrite")
@wrong("export a.tartan t.nwk --format csv", "--overwrite")
@wrong("sort numbers.npy t.nwk --dtype i8", "--overwrite")
def in_the_way() -> None:
    Path("t.nwk").write_text("precious")


@wrong("run vectors other.npy -o a.tartan", "--overwrite")
def another_run() -> None:
    np.save("other.npy", np.eye(3))


@wrong("export a.tartan m.npy --memory 4GB", "--sorted")
@wrong("export failed.tartan m.phy --failed error", "--failed drop")
@wrong("tree failed.tartan --failed error", "--failed drop")
@wrong("cluster failed.tartan -k 2 --failed error", "--failed drop")
@wrong("neighbors failed.tartan --failed error", "--failed drop")
@wrong("outliers failed.tartan --failed error", "--failed drop")
@wrong("embed failed.tartan -o map --failed error", "--failed drop")
def of_a_failed_item() -> None:
    points = np.random.default_rng(0).random((7, 3))
    points[2] = np.nan
    tartan.allpairs(Vectors(), points, out="failed.tartan", quiet=True)


@wrong("export similar.tartan m.phy", "--distance max-s")
@wrong("cluster similar.tartan --threshold 0.3", "--distance max-s")
def of_similarities() -> None:
    tartan.allpairs(Similar, np.arange(5.0)[:, None] ** 2, out="similar.tartan", workers=1, quiet=True)


@wrong("sort raw.dat sorted.dat", "--dtype")
@wrong("sort numbers.npy numbers.npy", "--in-place")
@wrong("sort table.csv sorted.csv", "--key")
@wrong("sort lines.log sorted.log", "--format")
def to_sort() -> None:
    np.arange(5)[::-1].tofile("raw.dat")
    Path("table.csv").write_text("a,b\n2,1\n1,2\n")
    Path("lines.log").write_text("b\na\n")


class Similar(tartan.Application):
    """Similarities without a declared distance."""

    similarity = True

    def compare_pair(self, a: np.ndarray, b: np.ndarray) -> float:
        return 1 / (1 + float(abs(a[0] - b[0])))


#: What stands for the rest of an option that a message leaves open, and what goes away when it is followed.
VALUES = {"--dtype": "i8", "--key": "a", "--format": "lines"}
GOES = {"--in-place": "numbers.npy", "--sorted": "m.npy"}


@pytest.mark.slow
@pytest.mark.parametrize("words", WRONG)
def test_advice_is_in_options_and_works(
    command: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tartan.allpairs(Vectors(), np.random.default_rng(0).random((6, 3)), out="a.tartan", quiet=True)
    np.save("numbers.npy", np.arange(5)[::-1])
    make, option = WRONG[words]
    make()
    said = command(*shlex.split(words))
    assert said.status == 2, said.err
    wanted = option if option != "--format float32" else "--format"
    assert wanted in said.err
    assert not re.search(r"\w='|=True|\b(format|key|dtype|output)=", said.err.replace(words, ""))
    followed = shlex.split(words)
    if option in GOES:
        followed.reverse()
        followed.remove(GOES[option])
        followed.reverse()
    if option == "--sorted":
        followed.append("m.csv")
    followed += [*option.split(), *([VALUES[option]] if option in VALUES else [])]
    done = command(*followed)
    assert done.status == 0, done.err
