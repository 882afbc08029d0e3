"""``tartan doctor``: what was found on this machine, what is wrong with it, and the way out."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tartan.base import machine
from tartan.base.format import format_bytes, reason_of
from tartan.cli.shared.output import print_json, print_table, put

_PACKAGES = (
    "numpy", "scipy", "zarr", "pyarrow", "fsspec", "rich", "array-api-compat", "cloudpickle", "threadpoolctl",
    "simplejpeg", "pillow", "scikit-learn", "cupy-cuda12x", "cupy-cuda13x", "mpi4py", "distributed",
    "cryptography",
)  # fmt: skip
_OPTIONAL = ("scikit-learn", "cupy-cuda12x", "cupy-cuda13x", "mpi4py", "distributed", "cryptography")
# _MIN_FREE_BYTES and _MIN_OPEN_FILES, by judgement: small runs fit; 1,024 is the default of Linux distributions.
_MIN_FREE_BYTES = 10**9
# By convention of Linux: the default soft limit.
_MIN_OPEN_FILES = 1024


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: none."""


def execute(args: argparse.Namespace) -> int:
    """Look around and print it; 1 when Tartan cannot work here."""
    found = examine()
    complaints = list(warnings(found))
    if args.json:
        print_json({**found, "warnings": complaints})
    else:
        print_table(_rows(found))
        for complaint in complaints:
            put(f"warning: {complaint}")
        if not complaints:
            put("nothing to mend")
    return 0 if found["native"]["loaded"] else 1


def examine() -> dict[str, Any]:
    """Return everything that was found, JSON-able; sizes in bytes."""
    limits = machine.cgroup_limits()
    memory = machine.memory(limits=limits)
    soft, hard = machine.open_file_limits()
    return {
        "tartan": machine.tartan_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": {"usable": machine.usable_cores(limits), "all": os.cpu_count(), "cgroup_limit": limits.cores},
        "cpu_features": machine.cpu_features(),
        "memory": {
            "total_bytes": memory.total_bytes,
            "available_bytes": memory.available_bytes,
            "cgroup_limit_bytes": limits.memory_bytes,
        },
        "disk": _space("."),
        "dev_shm": _space("/dev/shm"),
        "open_files": {"soft": soft, "hard": hard},
        "gpus": _gpus(),
        "cuda": _cuda(),
        "mpi": {"launcher": shutil.which("mpiexec") or shutil.which("mpirun"), "mpi4py": _has("mpi4py")},
        "python": platform.python_version(),
        "packages": {name: machine.package_version(name) for name in _PACKAGES},
        "native": _native(),
    }


def _space(path: str) -> dict[str, Any] | None:
    space = machine.disk_space(path)
    if space is None:
        return None
    return {"path": os.path.realpath(path), "total_bytes": space[0], "free_bytes": space[1]}


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _gpus() -> list[dict[str, Any]]:
    from tartan.devices.cuda import find_gpus, why_not_pinned

    return [{**gpu, "unpinned": why_not_pinned(gpu["index"]) if gpu["usable"] else ""} for gpu in find_gpus()]


def _cuda() -> dict[str, Any]:
    """Return versions of the driver and the runtime as CuPy sees them; a broken driver may raise anything."""
    if not _has("cupy"):
        return {"cupy": None, "runtime": None, "driver": None, "headers": None}
    headers = _cuda_headers(os.environ)
    try:
        cupy = importlib.import_module("cupy")
        runtime = cupy.cuda.runtime
        return {
            "cupy": cupy.__version__,
            "runtime": _cuda_version(runtime.runtimeGetVersion()),
            "driver": _cuda_version(runtime.driverGetVersion()),
            "headers": headers,
        }
    except Exception as error:
        return {"cupy": None, "runtime": None, "driver": None, "headers": headers, "error": reason_of(error)}


def _cuda_headers(environment: Mapping[str, str]) -> str | None:
    """Return the folder of CUDA's headers, without which CuPy compiles nothing: of a toolkit, or of its wheels."""
    toolkits = [Path(environment[name]) for name in ("CUDA_PATH", "CUDA_HOME") if environment.get(name)]
    folders = [toolkit / "include" for toolkit in (*toolkits, Path("/usr/local/cuda"))]
    wheels = importlib.util.find_spec("nvidia")
    for location in list(wheels.submodule_search_locations or []) if wheels else []:
        folders += sorted(Path(location).glob("*/include"))
    return next((str(folder) for folder in folders if (folder / "cuda_fp16.h").is_file()), None)


def _cuda_version(number: int) -> str | None:
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def _native() -> dict[str, Any]:
    try:
        native = importlib.import_module("tartan._native")
    except ImportError as error:
        return {"loaded": False, "version": None, "error": str(error)}
    return {"loaded": True, "version": native.__version__}


def warnings(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a machine as ``examine`` describes it, each with the way out."""
    if not found["native"]["loaded"]:
        yield f"the native module cannot be loaded ({found['native']['error']}); build it with: make build"
    for name, version in found["packages"].items():
        if version is None and name not in _OPTIONAL:
            yield f"{name} is not installed; run: pip install tartan-allpairs"
    yield from _room(found)
    soft, hard = found["open_files"]["soft"], found["open_files"]["hard"]
    if 0 <= soft < _MIN_OPEN_FILES:
        yield f"only {soft} files may be open at once; run: ulimit -n {min(4096, hard) if hard > 0 else 4096}"
    features = found["cpu_features"]
    if found["system"].endswith("x86_64") and features and "avx2" not in features:
        yield "this processor has no AVX2; comparisons run several times slower here"
    cuda = found.get("cuda", {})
    if cuda.get("cupy") and not cuda.get("headers"):
        yield "CuPy finds no CUDA headers to compile kernels; run: pip install 'tartan-allpairs[cuda12]' (or cuda13)"
    for gpu in found["gpus"]:
        if not gpu["usable"]:
            yield f"GPU {gpu['index']} ({gpu['name']}) cannot be used: {gpu['reason']}"
        elif gpu.get("unpinned"):
            yield (
                f"GPU {gpu['index']} ({gpu['name']}) cannot pin host memory ({gpu['unpinned']}); copies are slower, "
                "unless the container or the driver is changed to allow that"
            )


def _room(found: Mapping[str, Any]) -> Iterator[str]:
    available = found["memory"]["available_bytes"]
    if available < _MIN_FREE_BYTES:
        yield f"only {format_bytes(available)} of memory is available; close programs or set --host-cache"
    disk = found["disk"]
    if disk is not None and disk["free_bytes"] < _MIN_FREE_BYTES:
        yield (
            f"only {format_bytes(disk['free_bytes'])} is free in {disk['path']}; "
            "write runs elsewhere with -o, or keep less with --top-k"
        )


def _rows(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    cores, memory, files = found["cores"], found["memory"], found["open_files"]
    yield "tartan", f"{found['tartan']} (native module {found['native']['version'] or 'missing'})"
    yield "system", f"{found['system']}, Python {found['python']}"
    limit = f", {cores['cgroup_limit']:.1f} by the container" if cores["cgroup_limit"] else ""
    yield "cores", f"{cores['usable']} of {cores['all']}{limit}"
    yield "instructions", ", ".join(found["cpu_features"]) or "unknown"
    limit = ", limited by the container" if memory["cgroup_limit_bytes"] else ""
    yield "memory", f"{_free(memory, 'available_bytes')}{limit}"
    for name in ("disk", "dev_shm"):
        if found[name] is not None:
            yield found[name]["path"], _free(found[name], "free_bytes")
    yield "open files", f"{_limit(files['soft'])}, at most {_limit(files['hard'])}"
    yield from _accelerators(found)
    for name, version in found["packages"].items():
        yield name, version or "not installed"


def _free(space: Mapping[str, Any], free: str) -> str:
    return f"{format_bytes(space[free])} free of {format_bytes(space['total_bytes'])}"


def _limit(count: int) -> str:
    return "unlimited" if count < 0 else f"{count:,}"


def _accelerators(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for gpu in found["gpus"]:
        size = f", {format_bytes(gpu['memory_bytes'])}" if gpu["memory_bytes"] else ""
        yield f"GPU {gpu['index']}", f"{gpu['name']}{size}{'' if gpu['usable'] else ' (not usable)'}"
    if not found["gpus"]:
        yield "GPU", "none"
    cuda = found["cuda"]
    versions = f"runtime {cuda['runtime']}, driver {cuda['driver']}, CuPy {cuda['cupy']}"
    yield "CUDA", versions if cuda["cupy"] else cuda.get("error", "CuPy is not installed")
    launcher = found["mpi"]["launcher"] or "no launcher"
    yield "MPI", f"{launcher}, mpi4py {'installed' if found['mpi']['mpi4py'] else 'not installed'}"
