"""What a GPU brings on this machine: the device kit, copies, the cost of a tile, kernels, and four applications.

Peers, each in the same run: for copies, one copy of page-locked memory by the driver; for applications, a run of the
first items on all cores of the CPU. Pairs/s are pairs over the time of the whole run, from the first load to the last
commit, and over the time inside compare. Kernels are compared with what the GPU could do: products with one large
product of cuBLAS, others with its clock and cores. Without a GPU it fails. It needs this folder, an installed Tartan,
and for the device kit pytest; nothing is built or fetched. The table also goes to ``benches/results/gpu-NAME.txt``
file, NAME that of the GPU, where one was measured.

Words: ``device=cuda:1``; ``vectors=20000`` ``photos=500`` ``proteomes=500`` ``particles=256`` and
``product=32768``, the side of matrices that block tasks multiply, set the sizes; ``photo=2736x3648`` is
the size of photos, ``cpu=48`` how many of the items the CPU compares too, vectors apart.
``device=sim`` runs all but the kernels on the simulator, to try the benchmark itself; its product is of at most 512.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from benches.gpu._gpu_kernels import shares
from benches.pairs import overhead
from benches.shared._measure import load_average, options_of, print_table, seconds_of
from tartan.apps import builtin
from tartan.apps.forensics.app import read_sides
from tartan.base.products import multiply_slices
from tartan.blocks import Session
from tartan.blocks.applications.matmul import matmul
from tartan.devices import Device, find_gpus, open_device
from tartan.errors import DeviceError

COPY_BYTES = 256 * 2**20
ROUNDS = 5
OVERHEAD_ITEMS = 2000
KERNEL_ROWS, KERNEL_WIDTH = 8192, 1024
KERNEL_ITEMS = 256
ALL_PROTEOMES, ALL_PHOTOS = 6818, 4980
WIDTH = 1024
ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benches" / "results"
CLOCK_RATE = 13  # cudaDevAttrClockRate
SIZES: dict[str, dict[str, Any]] = {
    "phylogeny": {"n_proteins": 3000},
    "microscopy": {"localisations": 36},
}
"""Of simulated items: proteins of a bacterium, particles of 1,000 to 2,000 points."""
PLAIN = ("-c", os.devnull, "--rootdir", ".", "--confcutdir", "tests/gpu", "-p", "no:cacheprovider")
"""For pytest alone, without the plugins that the tests of the checkout want."""


def kit(device: str) -> str:
    """Run the tests of the device; return pytest's last line."""
    if importlib.util.find_spec("pytest") is None:
        return "left out, pytest is not installed"
    simulated = device.startswith("sim")
    tests = ["tests/devices/test_kit.py"] if simulated else [*PLAIN, "tests/gpu"]
    path = os.pathsep.join([str(ROOT / "tests"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "TARTAN_REQUIRE_GPU": "0" if simulated else "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return (done.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")


def copies(device: Device) -> dict[str, dict[str, float]]:
    """Measure both copy engines; their peer is one copy of page-locked memory by the driver, in GB/s."""
    shape = (COPY_BYTES // 4,)
    host, target = device.staging(shape, np.float32), device.allocate(shape, np.float32)
    host[...] = 1
    ours = {"upload": lambda: device.upload(host, target), "download": lambda: device.download(target, host)}
    simulated = device.name.startswith("sim")
    calls = {way: (call, call if simulated else _driver_copy(target, way)) for way, call in ours.items()}
    found = {}
    for name, pair in calls.items():
        for call in pair:
            call()
        rates = [COPY_BYTES / 1e9 / min(seconds_of(call) for _ in range(ROUNDS)) for call in pair]
        found[name] = {"gb_per_second": rates[0], "driver_gb_per_second": rates[1], "ratio": rates[0] / rates[1]}
    return found


def _driver_copy(target: Any, way: str) -> Callable[[], None]:
    """Return a copy between page-locked memory and an array by the driver alone."""
    from tartan.devices.cuda import import_cupy

    cuda = import_cupy().cuda
    pinned, stream = cuda.alloc_pinned_memory(COPY_BYTES), cuda.Stream(non_blocking=True)
    kind = getattr(cuda.runtime, "memcpyHostToDevice" if way == "upload" else "memcpyDeviceToHost")

    def copy() -> None:
        ends = (target.data.ptr, pinned.ptr)
        cuda.runtime.memcpyAsync(*(ends if way == "upload" else ends[::-1]), COPY_BYTES, kind, stream.ptr)
        stream.synchronize()

    return copy


def inputs(name: str, folder: Path, n: int, photo: str) -> Any:
    """Make input for an application."""
    if name == "vectors":
        return np.random.default_rng(0).standard_normal((n, WIDTH), dtype=np.float32)
    importlib.import_module(f"tartan.apps.{name}.simulate").simulate(
        folder, n, 1, **(SIZES.get(name) or {"size": photo})
    )
    if name == "microscopy":
        app = builtin(name)()
        return [
            app.parse(str(k), part)[0]
            for k, part in enumerate(app.split("p", (folder / "particles.json").read_bytes()))
        ]
    suffixes = builtin(name)().item_suffixes
    found = (path for path in folder.rglob("*") if path.name.lower().endswith(suffixes) and path.stem != "truth")
    return sorted(map(str, found))


def application(name: str, n: int, device: str, n_cpu: int, photo: str) -> dict[str, float]:
    """Run an application on the device, and on the CPU with its first items; return rates and how far they differ."""
    found: dict[str, float] = {"n": n}
    matrices = []
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as place:
        items = inputs(name, Path(place) / "data", n, photo)
        few = items if name == "vectors" else items[:n_cpu]
        side = min(len(few), 512)
        for label, kind, given in (("cpu", "cpu", few), ("device", device, items)):
            run = tartan.allpairs(builtin(name)(), given, out=Path(place) / f"{label}.run", device=kind)
            found[f"{label}_pairs_per_second"] = run.n_pairs / run.stats["wall_seconds"]
            compare = max(run.stats["seconds_per_stage"]["compare"], 1e-9)
            found[f"{label}_pairs_per_compare_second"] = run.n_pairs / compare
            found[f"{label}_compare_seconds"], found[f"{label}_seconds"] = compare, run.stats["wall_seconds"]
            matrices.append(run.scores[:side, :side])
    found["n_cpu"] = len(few)
    found["ratio"] = found["device_pairs_per_second"] / found["cpu_pairs_per_second"]
    found["largest_difference"] = float(np.nanmax(np.abs(matrices[0] - matrices[1])))
    near = np.abs(matrices[0] - matrices[1]) <= 1e-4 * np.abs(matrices[0])
    found["share_within_1e-4"] = float(near[~np.isnan(matrices[0])].mean())
    return found


def kernels(device: Device, properties: dict[str, Any]) -> list[list[object]]:
    """Measure kernels of vectors in one large tile; return lines of the table, each with its bar."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((KERNEL_ROWS, KERNEL_WIDTH), dtype=np.float32)
    half = _loaded(device, rows.astype(np.float16))
    product = _seconds_on(device, lambda: multiply_slices(half, half, device.xp))
    cores, clock = properties["multiProcessorCount"], 1e3 * properties["clockRate"]
    # Two instructions an element on 128 lanes a core and clock; 16 words of 32 bits are counted a core and clock.
    elements, bits = cores * 128 * clock / 2, cores * 16 * 32 * clock
    of_all = KERNEL_ROWS**2 * KERNEL_WIDTH
    lines: list[list[object]] = []
    for what, options, raw, best, bar in (
        ("float16 product", {"precision": "float16"}, rows, product, 0.6),
        ("manhattan", {"metric": "manhattan"}, rows, of_all / elements, 0.3),
        ("hamming of booleans", {"metric": "hamming"}, rows > 0, of_all / bits, 0.3),
    ):
        app = builtin("vectors")(**options)
        block = _prepared(device, app, _loaded(device, raw))
        taken = _seconds_on(device, partial(app.compare, block, block, device.xp))
        lines.append([f"{what}, a tile, ms, against the least time, bar {bar}", 1e3 * taken, 1e3 * best, best / taken])
    return lines


def _loaded(device: Device, host: np.ndarray) -> Any:
    array = device.allocate(host.shape, host.dtype)
    device.upload(host, array)
    return array


def _prepared(device: Device, app: Any, raw: Any) -> Any:
    return device.compute("preprocess", len(raw), partial(app.preprocess_block, raw, device.xp))


def _seconds_on(device: Device, call: Callable[[], Any]) -> float:
    """Return the best of some rounds, after one that is not counted."""
    device.compute("compare", 1, call)
    return min(seconds_of(lambda: device.compute("compare", 1, call)) for _ in range(ROUNDS))


def streamed_product(name: str, n: int) -> dict[str, float]:
    """Multiply matrices by block tasks through memory for two of the three; the peer has all three on the device."""
    a, b = (np.random.default_rng(k).random((n, n), dtype=np.float32) for k in range(2))
    host_bytes = 5 * a.nbytes + 2**24
    with Session(device=name, device_cache=2 * a.nbytes, host_cache=host_bytes) as session:
        product, report, _ = matmul(session, a, b, block=max(1, n // 16))
        rows = product[: max(1, n // 16)]
    device = open_device(name)
    try:
        left, right, out = _loaded(device, a), _loaded(device, b), device.allocate(a.shape, a.dtype)
        whole = _seconds_on(device, lambda: device.xp.matmul(left, right, out=out))
    finally:
        device.close()
    apart = float(np.abs(rows - a[: len(rows)] @ b).max() / np.abs(rows).max())
    moved = report.bytes_uploaded + report.bytes_downloaded
    found = {"seconds": report.seconds, "peer_seconds": whole, "ratio": whole / report.seconds}
    return {**found, "moved_bytes": moved, "waited_seconds": report.seconds_device_waited, "largest_difference": apart}


def extrapolated(found: dict[str, float], n: int) -> float:
    """Return how many seconds n items would take: compare grows with their square, the rest as they do."""
    share = n / found["n"]
    rest = max(0.0, found["device_seconds"] - found["device_compare_seconds"])
    return rest * share + found["device_compare_seconds"] * share**2


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print one table, return the numbers."""
    options = options_of(
        words,
        device="cuda",
        vectors=20_000,
        photos=500,
        proteomes=500,
        particles=256,
        product=32_768,
        cpu=48,
        photo="2736x3648",
    )
    name = options.device
    gpus = [gpu for gpu in find_gpus() if gpu["usable"]]
    if name.startswith("cuda") and not gpus:
        reasons = "; ".join(gpu["reason"] for gpu in find_gpus()) or "none was found, or CuPy is not installed"
        raise DeviceError(
            f"gpu: this machine has no GPU that CuPy can use ({reasons}), and nothing was measured; "
            "`tartan doctor` shows what is missing",
            code="no-gpu",
        )
    print(f"device kit on {name}: {kit(name)}")
    device, sides = open_device(name), read_sides(options.photo, "photo")
    copied = copies(device)
    lines = kernels(device, _properties(name)) if gpus else []
    of_kernels = shares(device, partial(_seconds_on, device), sides, KERNEL_ITEMS) if gpus else []
    device.close()
    tile = overhead.run_once(overhead.Forgetful, OVERHEAD_ITEMS, overhead.resident_grid(), name)
    tile_ms = 1e3 * tile["seconds"] / tile["tiles"]
    sizes = {"vectors": "vectors", "forensics": "photos", "phylogeny": "proteomes", "microscopy": "particles"}
    applications = {
        app: application(app, getattr(options, word), name, options.cpu, options.photo) for app, word in sizes.items()
    }
    side = options.product if name.startswith("cuda") else min(options.product, 512)
    product = streamed_product(name, side)
    rows: list[list[object]] = [
        [
            f"{way}, GB/s, against a copy by the driver, bar 0.8",
            r["gb_per_second"],
            r["driver_gb_per_second"],
            r["ratio"],
        ]
        for way, r in copied.items()
    ]
    rows.append(["an empty 32 x 32 tile, ms, bar 0.5", tile_ms, 0.5, 0.5 / tile_ms])
    for app, r in applications.items():
        for what, key in (("run", "pairs_per_second"), ("compare", "pairs_per_compare_second")):
            ours, cpu = r[f"device_{key}"], r[f"cpu_{key}"]
            rows.append(
                [f"{app}, n = {r['n']:,} ({r['n_cpu']:,} on the CPU), pairs/s of {what}", ours, cpu, ours / cpu]
            )
        rows.append([f"{app}, largest difference of a score", r["largest_difference"], "", ""])
    rows += lines
    streamed, whole = product["seconds"], product["peer_seconds"]
    rows += [
        [f"product of {side:,}^2 by block tasks, s, against all on the device, bar 0.8", streamed, whole,
         product["ratio"]],
        ["product by block tasks, relative error of a row of blocks", product["largest_difference"], "", ""],
    ]  # fmt: skip
    phylogeny, microscopy, forensics = (applications[app] for app in ("phylogeny", "microscopy", "forensics"))
    of_photos, of_chance = (
        extrapolated(forensics, ALL_PHOTOS),
        0.01 / np.sqrt(np.prod(sides)),
    )
    apart = max(forensics["largest_difference"], 1e-30)
    rate, all_seconds = phylogeny["device_pairs_per_compare_second"], extrapolated(phylogeny, ALL_PROTEOMES)
    milliseconds = 1e3 / microscopy["device_pairs_per_compare_second"]
    rows += [
        [f"forensics, {ALL_PHOTOS:,} photos of {options.photo}, s, extrapolated, bar", of_photos, 180, 180 / of_photos],
        ["forensics, largest difference of NCC, bar 1 % of chance", apart, of_chance, of_chance / apart],
        ["phylogeny, largest difference of a distance, bar", phylogeny["largest_difference"], 1e-6, ""],
        ["phylogeny, pairs/s of compare, bar", rate, 200_000, rate / 200_000],
        [f"phylogeny, {ALL_PROTEOMES:,} proteomes, s, extrapolated, bar", all_seconds, 180, 180 / all_seconds],
        ["microscopy, ms a pair, bar", milliseconds, 0.25, 0.25 / milliseconds],
        ["microscopy, share of pairs with B within 1e-4, bar", microscopy["share_within_1e-4"], 0.99, ""],
    ]
    about = f"{gpus[0]['name']}" if gpus else "the simulator"
    with contextlib.redirect_stdout(io.StringIO()) as table:
        print_table(f"{name} ({about}) against the CPU", rows, ("", name.partition(":")[0], "peer", "ratio"))
        if of_kernels:
            print_table(
                "kernels against this GPU's copies and products", of_kernels, ("", "reached", "best", "share", "why")
            )
    print(table.getvalue(), end="")
    if gpus:
        RESULTS.mkdir(exist_ok=True)
        written = RESULTS / f"gpu-{re.sub('[^A-Za-z0-9]+', '-', about).strip('-').lower()}.txt"
        written.write_text(table.getvalue(), encoding="utf-8")
        print(written)
    return {"gpus": gpus, "copies": copied, "tile_ms": tile_ms, "applications": applications, "product": product,
            "load": load_average()}  # fmt: skip


def _properties(name: str) -> dict[str, Any]:
    from tartan.devices.cuda import import_cupy

    runtime, index = import_cupy().cuda.runtime, int(name.partition(":")[2] or 0)
    clock = runtime.deviceGetAttribute(CLOCK_RATE, index)  # newer properties lack it
    return {**runtime.getDeviceProperties(index), "clockRate": clock}


if __name__ == "__main__":
    main(sys.argv[1:])
