"""The shape of the source: who may import whom, what is documented, how long files are."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "tartan"

# Package: the packages that it may import besides itself, imports inside functions counted.
GROUND = {"errors", "_native", "base"}
ARROWS: dict[str, set[str]] = {
    "_native": set(),
    "errors": set(),
    "options": {"errors", "base"},
    "application": {"errors"},
    "base": {"errors", "_native"},
    "core": {"errors"},
    "comm": {*GROUND, "devices"},
    "workers": {*GROUND, "application"},
    "sources": GROUND,
    "devices": {*GROUND, "options"},
    "store": {*GROUND, "core"},
    "runtime": {*GROUND, "application", "core", "devices", "sources", "store", "workers"},
    "cluster": {*GROUND, "application", "core", "devices", "runtime", "sources", "store", "workers"},
    "blocks": {*GROUND, "cluster", "core", "devices", "workers"},
    "analytics": {*GROUND, "comm", "core", "devices", "options", "store"},
    "sort": {*GROUND, "core", "options"},
    "sort/ranks": {*GROUND, "cluster", "core", "options"},
    "plan": {*GROUND, "core", "options"},
    "apps": {*GROUND, "application"},
    "join": {*GROUND, "apps", "core", "options"},
    "apps/lcms": {*GROUND, "analytics"},
    "testing": {*GROUND, "application", "cluster", "comm", "devices"},
}
ARROWS["result"] = {*GROUND, "analytics", "comm", "core", "options", "sort", "store"}
ARROWS["run"] = {*ARROWS["runtime"], "analytics", "cluster", "options", "result", "runtime"}
ARROWS["api"] = {*GROUND, "analytics", "apps", "options", "result", "run"}
ARROWS["__init__"] = {"api", "application", "base", "errors", "join"}
ARROWS["view"] = {*GROUND, "__init__", "analytics", "apps", "result", "run", "store"}
ARROWS["cli"] = {
    *ARROWS["view"],
    "blocks",
    "cluster",
    "comm",
    "devices",
    "join",
    "options",
    "plan",
    "run",
    "sort",
    "sources",
    "store",
    "view",
    "workers",
}
ARROWS["__main__"] = {"base", "cli"}

HEAVY = [
    "scipy",
    "zarr",
    "pyarrow",
    "sklearn",
    "PIL",
    "cupy",
    "simplejpeg",
    "fsspec",
    "jinja2",
    "msgspec",
    "pytest",
    "distributed",
    "cryptography",
]

MODULES = sorted(PACKAGE.rglob("*.py"))
PLACES = ["src/**/*", "tests/**/*", "benches/**/*", "crates/**/*", "docs/**/*", "*"]
SUFFIXES = {".py", ".pyi", ".rs", ".md", ".toml", ".cff", ".css", ".js", ".html"}
TEXTS = sorted(
    path
    for place in PLACES
    for path in ROOT.glob(place)
    if path.suffix in SUFFIXES or path.name in ("Makefile", "LICENSE")
)


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


@functools.cache
def imports_of(path: Path) -> ast.Module:
    """Return the import statements of a file, those inside functions included."""
    return ast.Module([node for node in ast.walk(parsed(path)) if isinstance(node, ast.Import | ast.ImportFrom)], [])


def package_of(path: Path) -> str:
    """Return the folder or the module below ``tartan`` that a source file belongs to."""
    parts = path.relative_to(PACKAGE).parts
    within = "/".join(parts[:2])
    return within if within in ARROWS else parts[0].removesuffix(".py")


def imported_packages(tree: ast.AST, packages: set[str]) -> Iterator[str]:
    """Yield the package of every import of Tartan; "__init__" for names of Tartan itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "tartan":
            modules = [f"tartan.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            modules = [node.module or ""]
        else:
            continue
        for module in modules:
            top, _, rest = module.partition(".")
            if top == "tartan":
                first = rest.partition(".")[0]
                yield first if first in packages else "__init__"


def forbidden(package: str, imported: str) -> bool:
    """Whether ``package`` must not import ``imported``."""
    return imported not in {package, package.partition("/")[0], *ARROWS[package]}


# Rust reads what a Python class of the same name writes, or one holds the other.
IN_BOTH_LANGUAGES = {
    "Arena", "Edge", "Measured", "Objective", "Rule", "SlotMemory", "Survey", "Tile", "Weights",
}  # fmt: skip

PACKAGES = {package.partition("/")[0] for package in ARROWS}


@pytest.mark.slow
def test_imports_go_one_way() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports tartan.{imported}"
        for path in MODULES
        for imported in imported_packages(imports_of(path), PACKAGES)
        if forbidden(package_of(path), imported)
    ]
    assert wrong == []


# Folder of core: the folders of core that it may import besides itself; what lies in core itself all may.
FOLDERS_OF_CORE = {
    "pairs": set[str](),
    "ranks": {"pairs"},
    "blocks": {"pairs"},
    "sorting": set[str](),
    "replay": {"blocks", "pairs", "ranks"},
}


def test_folders_of_core_are_imported_one_way() -> None:
    core = PACKAGE / "core"
    assert {path.name for path in core.iterdir() if path.is_dir()} - {"__pycache__"} == set(FOLDERS_OF_CORE)
    wrong = [
        f"{path.relative_to(core)} imports {name}"
        for folder, allowed in FOLDERS_OF_CORE.items()
        for path in sorted((core / folder).glob("*.py"))
        for name in imported_modules(imports_of(path), modules_by_name())
        if (reached := name.removeprefix("tartan.core.").partition(".")[0]) in FOLDERS_OF_CORE
        if reached not in {folder, *allowed}
    ]
    assert wrong == []


def test_every_package_is_known() -> None:
    assert {package_of(path) for path in MODULES} <= set(ARROWS)


def test_the_architecture_shows_the_arrows() -> None:
    rows = re.findall(r"^\| `([a-z/]+)` \|.*\| (.*)\|$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    shown = {
        package: set(re.findall(r"`(\w+)`", imports.replace("`tartan`", "`__init__`"))) for package, imports in rows
    }
    modules = {"_native", "errors", "options", "application", "__init__", "__main__"}
    assert shown == {package: imports - GROUND for package, imports in ARROWS.items() if package not in modules}


def test_the_check_of_imports_sees_what_it_should() -> None:
    source = (
        "import tartan\nfrom tartan import store\nfrom tartan.core import grid\ndef f():\n    import tartan.cli.main\n"
    )
    assert list(imported_packages(ast.parse(source), PACKAGES)) == ["__init__", "store", "core", "cli"]
    assert forbidden("core", "store")
    assert forbidden("apps", "runtime")
    assert forbidden("apps", "__init__")
    assert forbidden("view", "cli")
    assert not forbidden("runtime", "store")
    assert not forbidden("core", "core")


def modules_by_name() -> dict[str, Path]:
    """Return every file by its dotted name, packages by their own."""
    names = (path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", ".") for path in MODULES)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, MODULES)}


def imported_modules(tree: ast.AST, known: Collection[str]) -> Iterator[str]:
    """Yield the known modules that a tree imports anywhere, inside functions and for type checks included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from {name if name in known else str(node.module) for name in names} & set(known)


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules each of which reaches all others of its group by imports, in order."""
    reached = {name: {name} for name in imports}
    for name, seen in reached.items():
        waiting = [name]
        while waiting:
            found = imports[waiting.pop()] - seen
            seen |= found
            waiting += found
    groups = {tuple(sorted(other for other in seen if name in reached[other])) for name, seen in reached.items()}
    return sorted(list(group) for group in groups if len(group) > 1)


@pytest.mark.slow
def test_no_circles() -> None:
    modules = modules_by_name()
    known = {*modules, "tartan._native"}
    imports = {
        name: set(imported_modules(imports_of(path), known)) & {*modules} - {name} for name, path in modules.items()
    }
    assert circles(imports) == []


def test_the_search_for_circles_sees_what_it_should() -> None:
    known = {"a", "b", "b.c"}
    source = "import a\nfrom b import c, d\nimport numpy\ndef f():\n    from b.c import e\n"
    assert sorted(set(imported_modules(ast.parse(source), known))) == ["a", "b", "b.c"]
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"f", "a"}, "f": {"e"}}
    assert circles(edges) == [["a", "b", "c"], ["e", "f"]]


@pytest.mark.slow
def test_analytics_are_entered_by_their_floors() -> None:
    """Other packages take public names, from ``tartan.analytics`` or one of its folders."""
    modules = modules_by_name()
    inside = {name for name in modules if name.startswith("tartan.analytics.")}
    files = {name for name in inside if modules[name].name != "__init__.py"}
    found = {
        name: reached
        for name, path in modules.items()
        if name not in {"tartan.analytics", *inside}
        and (reached := sorted(set(imported_modules(imports_of(path), modules)) & files))
    }
    assert found == {}


def public_types_of_rust() -> set[str]:
    declared = re.compile(r"^\s*pub (?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)
    texts = [path.read_text() for path in (ROOT / "crates").glob("*/src/**/*.rs")]
    return {name for text in texts for name in declared.findall(text)}


@pytest.mark.slow
def test_class_names_stand_for_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for module, path in modules_by_name().items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(module)
    several = {name: found for name, found in homes.items() if len(found) > 1}
    assert several == {}
    assert {name for name in public_types_of_rust() if name in homes} == IN_BOTH_LANGUAGES


def test_cupy_is_imported_in_one_place() -> None:
    """Applications may hold CUDA source; CuPy they get through ``xp``."""
    importers = {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if re.search(r"^\s*(import|from) (cupy|cupyx|array_api_compat\.cupy)\b", path.read_text(), re.MULTILINE)
    }
    assert importers - {path for path in importers if path.startswith("apps/")} == {"devices/cuda.py"}


def test_python_processes_are_started_in_one_place() -> None:
    """Each starter of its own has forgotten something: a search path, a closed stream, a signal without a name."""
    starters = {
        path.relative_to(PACKAGE).as_posix() for path in MODULES if re.search(r"\bsys\.executable\b", path.read_text())
    }
    assert {path for path in starters if not path.startswith(("testing/", "bench"))} == {"base/child.py"}


@pytest.mark.slow
@pytest.mark.parametrize("module", ["tartan", "tartan.cli.main", "tartan.devices", "tartan.testing.faults"])
def test_heavy_modules_are_imported_late(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert result.stdout.split() == []


@pytest.mark.slow
def test_what_is_public_is_documented() -> None:
    assert [name for path in MODULES for name in undocumented(path.relative_to(PACKAGE), parsed(path))] == []


def test_the_check_of_docstrings_sees_what_it_should() -> None:
    tree = ast.parse('def f(): ...\ndef g():\n    """Return."""\ndef _h(): ...\nclass C: ...\n')
    assert list(undocumented(Path("made_up.py"), tree)) == ["made_up.py", "made_up.py: f", "made_up.py: C"]
    assert list(undocumented(Path("empty.py"), ast.parse(""))) == []


def undocumented(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the module and those of its classes and functions without a leading underscore that have no docstring."""
    if tree.body and not ast.get_docstring(tree):
        yield f"{path}"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_" and not ast.get_docstring(node):
            yield f"{path}: {node.name}"


#: Modules that gather names for other packages of Tartan; only those that the packages before them list are stable.
GATHERING = {
    "tartan.api",
    "tartan.join",
    *(f"tartan.analytics.{name}" for name in ("clusters", "maps", "matrix", "trees")),
}


def test_what_is_stable_is_exported_and_listed() -> None:
    stated = {name: exported(parsed(path)) for name, path in modules_by_name().items() if path.suffix == ".py"}
    found = {name: names for name, names in stated.items() if names and name not in GATHERING}
    page = (ROOT / "docs" / "python.md").read_text()
    sections = re.findall(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    listed = {name: set(re.findall(r"`(\w+)`", text)) for name, text in sections if name != "tartan._native"}
    assert listed == found


@pytest.mark.parametrize("name", ["tartan", "tartan.analytics", "tartan.comm"])
def test_what_is_imported_late_is_completed(name: str) -> None:
    module = importlib.import_module(name)
    assert set(module.__all__) <= set(dir(module))


def exported(tree: ast.Module) -> set[str]:
    """Return the names in ``__all__``."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


MOST_PARAMETERS = 8


def long_signatures(tree: ast.Module, source: str) -> Iterator[str]:
    """Yield the functions and classes that take more than eight parameters, and do not say why."""
    lines = source.splitlines()
    for scope in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
        for node in scope.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            names = {part.arg for part in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
            if len(names - {"self", "cls"}) <= MOST_PARAMETERS:
                continue
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            head = "\n".join(lines[first - 2 : node.body[0].lineno])
            if "# " not in head.replace("# noqa", "") and "more than eight" not in (ast.get_docstring(node) or ""):
                yield scope.name if isinstance(scope, ast.ClassDef) and node.name == "__init__" else node.name


@pytest.mark.slow
def test_more_than_eight_parameters_are_public_or_explained() -> None:
    stable, found = set[str](), set[str]()
    for path in MODULES:
        if path.suffix == ".py":
            stable |= exported(parsed(path))
            found.update(long_signatures(parsed(path), path.read_text()))
    assert found <= stable, "say in a comment why"


def test_the_check_of_parameters_sees_what_it_should() -> None:
    many = ", ".join("abcdefghi")
    source = f"class A:\n    def __init__(self, {many}): pass\ndef f({many}): pass\n\n# Of C.\ndef g({many}): pass\n"
    assert list(long_signatures(ast.parse(source), source)) == ["f", "A"]


# Private names that a class shows by convention.
SHOWN = {"_replace", "_asdict", "_fields", "_make", "_repr_html_", "_repr_png_", "_native"}


@pytest.mark.slow
def test_tests_leave_private_names_alone() -> None:
    tests = ROOT / "tests"
    found = {
        path.relative_to(tests).as_posix(): names
        for path in sorted(tests.rglob("*.py"))
        if (names := list(private_names(path.read_text())))
    }
    assert found == {}


def test_the_check_of_private_names_sees_what_it_should() -> None:
    text = (
        'patch.setattr(module, "_a", 1)\npatch.setattr("tartan.cli.embed._b.c", 1)\nx = node._c\nnode.run()._d(1)\n'
        "from tartan.store import _e\nfrom tartan import _native\nself._f\nitem._replace(a=1)\nsuper()._g()\nx.__doc__"
    )
    assert sorted(private_names(text)) == ["_a", "_b", "_c", "_d", "_e"]


def private_names(text: str) -> Iterator[str]:
    """Yield the private names of other objects and modules that a text patches, reads or imports."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr"), args=arguments):
                literals = [a.value for a in arguments[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                names = [part for literal in literals for part in literal.split(".")]
            case ast.Attribute(value=ast.Name(id="self" | "cls" | "os" | "sys") | ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name):
                names = [name]
            case ast.ImportFrom(module=module, names=aliases) if (module or "").startswith("tartan"):
                names = [*(module or "").split("."), *(alias.name for alias in aliases)]
        yield from (name for name in names if re.match(r"_(?!_)", name) and name not in SHOWN)


def test_files_are_short() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): path.read_text().count("\n")
        for path in TEXTS
        if path.suffix in {".py", ".pyi", ".rs"}
    }
    assert {name: length for name, length in lengths.items() if length > 800} == {}


@pytest.mark.slow
def test_no_file_names_a_machine() -> None:
    # Spelt in pieces, because this file is searched too.
    folders = "|".join(["wo" + "rk", "ro" + "ot", "ho" + r"me/\w+"])
    pattern = re.compile(rf"(?<![\w.~}}/-])/({folders})(?=[/\s\"'`),;:]|$)", re.MULTILINE)
    assert pattern.search("see /" + "work/somewhere")
    assert not pattern.search("frame/" + "work/ or network")
    found = {
        path.relative_to(ROOT).as_posix(): match.group(0)
        for path in TEXTS
        if (match := pattern.search(path.read_text()))
    }
    assert found == {}


def test_files_of_benchmarks_that_are_named_exist() -> None:
    named = re.compile(r"\bbenches/[\w/]+\.(?:py|cpp|cu)\b")
    gone = {name for path in TEXTS for name in named.findall(path.read_text()) if not (ROOT / name).exists()}
    assert gone == set(), "a benchmark lies in a folder of benches/; call it `bench NAME` where its folder says nothing"


@pytest.mark.slow
def test_files_of_tests_have_names_of_their_own() -> None:
    """Two of one name outside packages cannot be collected together."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    names = Counter(path.name for path in files)
    assert [name for name, count in names.items() if count > 1] == []
