"""Below the folders that Tartan keeps nothing is made, written, renamed or removed but through base/confined.py.

A link in such a folder, one of a stranger or in a place that others write to, leads anywhere: see that module.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "tartan"
PLACES = ["base", "store", "sort", "blocks", "run", "runtime"]
HELPER = "base/confined.py"

ON_PATHS = {"unlink", "rmdir", "mkdir", "rename", "touch", "chmod", "write_text", "write_bytes"}
ON_PATHS |= {"symlink_to", "hardlink_to", "create_array", "savez"}
OF_MODULES = {
    "os": {"unlink", "remove", "rmdir", "removedirs", "mkdir", "makedirs", "rename", "renames", "replace", "link"}
    | {"symlink", "truncate", "utime", "chmod", "chown", "mkfifo", "mknod", "open"},
    "shutil": {"rmtree", "move", "copy", "copy2", "copyfile", "copytree", "copymode", "copystat"},
}
CREATORS = {"open_memmap", "arrow_file", "OSFile", "memmap", "open_array"}

# File: which calls it may make, how often, and why they cannot be led astray.
ALLOWED: dict[str, dict[str, int]] = {
    # Files of the user beside a target that they name; a link of theirs is resolved and stays.
    "base/files.py": {"unlink": 1, "OSFile": 1, "os.open": 1},  # the last one for reading
    "base/trace.py": {"open(w)": 1},
    "base/logs.py": {"os.open": 2},  # the file that the user names, never through a link, never another user's
    # The key of the user, in a folder of state that only they can write to.
    "base/keys.py": {"os.open": 2, "mkdir": 1, "os.link": 1, "rename": 1, "unlink": 1},
    "store/folder.py": {"mkdir": 1},  # the top folder, as its user names it
    "store/layout.py": {"mkdir": 1},  # the same one
    "store/remote.py": {"mkdir": 1},  # the top folder, a new one for temporary files
    "store/disk_cache.py": {"mkdir": 1},  # the top folder
    "run/share.py": {"mkdir": 1},
    "run/session.py": {"mkdir": 1},
    "blocks/checkpoint.py": {"mkdir": 1, "memmap": 1},  # the top folder; a file that was opened by the helper
    "blocks/session.py": {"mkdir": 1},
    "blocks/unfinished.py": {"mkdir": 1},  # the folders of the result, as its user names it
    # The result of the user; it is made in a spill folder or one of outputs that are not finished, which are private.
    "blocks/zarr_output.py": {"mkdir": 1, "rename": 2, "open_array": 1, "create_array": 1},
    "blocks/store.py": {"memmap": 1},  # for reading
    # The file that the user asked for, and its unfinished one, which open_unfinished has made.
    "sort/formats.py": {"rename": 1, "unlink": 1, "os.open": 1, "shutil.copymode": 1},
    # The same unfinished file, opened by a rank: never through a link, and known by the token behind its end.
    "sort/ranks/rank.py": {"os.open": 1},
    # In a folder that tempfile.TemporaryDirectory has made: a name that nobody can guess, mode 0700.
    "sort/repaged.py": {"arrow_file": 1},
    "sort/table_job.py": {"mkdir": 1},
    # What users export, to a temporary name beside the target that whole_file has chosen.
    "store/pair_files.py": {"arrow_file": 2},
    "store/export.py": {"open(w)": 1},
}


def calls_of(path: Path) -> Iterator[tuple[str, int]]:
    """Yield what a file calls that may change files, and where."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and (name := name_of(node)) is not None:
            yield name, node.lineno


def name_of(call: ast.Call) -> str | None:
    """Return the name of a call that may change files; None of any other."""
    function, first = call.func, ast.unparse(call.args[0]) if call.args else ""
    if isinstance(function, ast.Name):
        if function.id == "open":
            return "open(w)" if may_write(call.args[1:2] + of_keyword(call, "mode")) and not is_open(first) else None
        return function.id if function.id in CREATORS and may_write(call.args[1:2]) else None
    if not isinstance(function, ast.Attribute):
        return None
    owner = ast.unparse(function.value)
    if function.attr in OF_MODULES.get(owner, ()):
        return f"{owner}.{function.attr}"
    if function.attr == "open":  # of a path; others take no mode that is written down
        return "open(w)" if any(isinstance(mode, ast.Constant) and may_write([mode]) for mode in call.args) else None
    if f"{owner}.{function.attr}" == "np.save":
        return None if is_open(first) else "np.save"
    if function.attr in CREATORS:
        return function.attr if may_write([*call.args[1:], *of_keyword(call, "mode")]) else None
    return function.attr if function.attr in ON_PATHS else None


def may_write(modes: list[ast.expr]) -> bool:
    """Whether a mode is one of writing, or is not written down."""
    plain = [mode.value if isinstance(mode, ast.Constant) else "w" for mode in modes]
    return any(isinstance(mode, str) and set(mode) & set("wax+") and len(mode) < 4 for mode in plain)


def of_keyword(call: ast.Call, name: str) -> list[ast.expr]:
    return [word.value for word in call.keywords if word.arg == name]


def is_open(first: str) -> bool:
    """Whether what a call takes was opened by the helper before: a descriptor or a file."""
    return first in ("descriptor", "file", "stream") or ".open(" in first or "open_unfinished(" in first


FILES = sorted(path for place in PLACES for path in (PACKAGE / place).rglob("*.py"))


@pytest.mark.slow
def test_nothing_changes_files_but_the_helper() -> None:
    wrong = []
    for path in FILES:
        name = path.relative_to(PACKAGE).as_posix()
        if name == HELPER:
            continue
        found = list(calls_of(path))
        allowed = ALLOWED.get(name, {})
        counted = Counter(call for call, _ in found)
        wrong += [
            f"{name}:{line}: {call}; use ConfinedFolder of {HELPER}, or say here why it cannot be led astray"
            for call, line in found
            if counted[call] > allowed.get(call, 0)
        ]
        wrong += [f"{name}: {call} is allowed {n} times and called {counted[call]}" for call, n in allowed.items()
                  if counted[call] < n]  # fmt: skip
    assert wrong == []


CHANGES = """
path.unlink()
shutil.rmtree(place)
os.rename(a, b)
(a / b).rename(c)
open(path, 'wb')
open(path, mode)
open(path, mode=mode)
path.mkdir()
path.open('r+b')
path.touch()
path.write_text('x')
os.open(path, flags)
np.save(path, values)
np.lib.format.open_memmap(path, 'w+')
arrow_file(path, 'wb')
"""


@pytest.mark.parametrize("code", CHANGES.split("\n")[1:-1])
def test_what_would_change_files_is_seen(code: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(code)
    assert len(list(calls_of(tmp_path / "module.py"))) == 1


@pytest.mark.parametrize(
    "code", ["open(path)", "path.open('rb')", "text.replace('a', 'b')", "confined.move(a, b)", "RunFolder.open(place)"]
)
def test_what_only_reads_is_not(code: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(code)
    assert list(calls_of(tmp_path / "module.py")) == []
