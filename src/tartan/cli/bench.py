"""``tartan bench``: run a benchmark of the checkout against its peer or bound."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from importlib.abc import Loader
from pathlib import Path
from types import ModuleType
from typing import Any

from tartan.base.energy import EnergyMeter
from tartan.base.gpu_energy import GpuEnergyMeter
from tartan.cli.shared.output import print_json, put, say
from tartan.errors import ConfigError, DeviceError

# The entry of the JSON object beside those of benchmarks, none of which has this name.
ENERGY = "energy"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="a benchmark, or all; without it, list them")
    parser.add_argument(
        "arguments", metavar="ARGUMENT", nargs="*", help="passed on; after -- where one begins with a dash"
    )


def execute(args: argparse.Namespace) -> int:
    """Run or list benchmarks; return the exit status."""
    found = _benchmarks()
    if args.name is None:
        return _list(found, args)
    chosen = found if args.name == "all" else {args.name: _find_named(found, args.name)}
    # One JSON object is all that may reach stdout: what benchmarks print for people goes to stderr then.
    results, energy = {}, {}
    with contextlib.redirect_stdout(sys.stderr if args.json else sys.stdout):
        for name, path in chosen.items():
            with _measure_energy() as energy[name]:
                results[name] = _result(name, path, args)
    if args.json:
        print_json(results | {ENERGY: energy})
    return max((result for result in results.values() if isinstance(result, int)), default=0)


@contextlib.contextmanager
def _measure_energy() -> Iterator[dict[str, Any]]:
    """Yield what the processors and the GPUs of this machine take meanwhile, filled in at the end, or why not."""
    processors, gpus, found = EnergyMeter(), GpuEnergyMeter(), dict[str, Any]()
    try:
        yield found
    finally:
        found["processor_joules"], found["gpu_joules"] = processors.joules(), gpus.joules()
        found["unknown"] = [meter.problem for meter in (processors, gpus) if meter.problem]
        gpus.close()


def _result(name: str, path: Path, args: argparse.Namespace) -> Any:
    """Run a benchmark; among all, one whose device is not there is left out."""
    try:
        return _call(name, path, args.arguments)
    except DeviceError as error:
        if args.name != "all":
            raise
        say(f"{name} is left out: {error}")
        return None


def _benchmarks() -> dict[str, Path]:
    import tartan

    folders = (Path.cwd() / "benches", Path(tartan.__file__).resolve().parents[2] / "benches")
    for folder in folders:
        if files := {path.stem: path for path in folder.glob("*/[!_]*.py")}:
            return dict(sorted(files.items()))
    raise ConfigError("there are no benchmarks here; they are in the folder benches of a checkout of Tartan")


def _list(found: dict[str, Path], args: argparse.Namespace) -> int:
    if args.json:
        print_json({"benchmarks": list(found)})
    else:
        put("\n".join(found))
    return 0


def _find_named(found: dict[str, Path], name: str) -> Path:
    name = name.replace("-", "_")
    if name not in found:
        raise ConfigError(f"there is no benchmark {name!r}; there are {', '.join(found)}")
    return found[name]


def _call(name: str, path: Path, arguments: list[str]) -> Any:
    spec = importlib.util.spec_from_file_location(f"tartan_bench_{name}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"benchmark {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    checkout = path.parents[2]
    # Benchmarks share helpers, ``benches.shared`` and the like, and stand-ins with the tests.
    reached = [str(checkout), str(checkout / "tests")]
    sys.path[:0] = reached
    try:
        _execute_module(spec.loader, module)
        main = getattr(module, "main", None)
        if main is None:
            raise ConfigError(f"benchmark {name!r} has no main()")
        if inspect.signature(main).parameters:
            return main(arguments)
        if arguments:
            raise ConfigError(f"{arguments[0]}: benchmark {name!r} takes no words")
        return main()
    finally:
        for folder in reached:
            sys.path.remove(folder)


def _execute_module(loader: Loader, module: ModuleType) -> None:
    """Run a module that can be found while it runs (dataclasses look for theirs) but not later.

    Pickled by name, what it defines could not be found by worker processes.
    """
    sys.modules[module.__name__] = module
    try:
        loader.exec_module(module)
    finally:
        del sys.modules[module.__name__]
