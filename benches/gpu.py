"""What a GPU brings on this machine: the device kit, copies, the cost of a tile, and three applications.

Peers, each in the same run: for copies, CuPy's own from and to ordinary memory; for applications, the same run on all
cores of the CPU. Pairs/s are pairs over the time of the whole run, from the first load to the last commit, and over the
time inside compare. Without a GPU this prints one line.

Words: ``device=cuda:1``; ``vectors=20000`` ``photos=60`` ``proteomes=60`` set the sizes. ``device=sim`` runs all of it
on the simulator, to try the benchmark itself.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import overhead
import tartan
from _measure import load_average, options_of, print_table, seconds_of
from tartan.apps import builtin
from tartan.devices import Device, found_gpus, open_device

COPY_BYTES = 256 * 2**20
ROUNDS = 5
OVERHEAD_ITEMS = 2000


def kit(device: str) -> str:
    """Run the tests of the device; return pytest's last line."""
    root = Path(__file__).resolve().parents[1]
    tests = "tests/devices/test_kit.py" if device.startswith("sim") else "tests/gpu"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", tests],
        cwd=root,
        env={**os.environ, "TARTAN_REQUIRE_GPU": "0" if device.startswith("sim") else "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return (done.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")


def copies(device: Device) -> dict[str, dict[str, float]]:
    """Measure both copy engines, alone and together with a plain copy as their peer, in GB/s."""
    shape = (COPY_BYTES // 4,)
    host, target = device.staging(shape, np.float32), device.allocate(shape, np.float32)
    host[...] = 1
    plain = np.ones(shape, np.float32)
    calls = {
        "upload": (lambda: device.upload(host, target), lambda: _plain_upload(device, plain, target)),
        "download": (lambda: device.download(target, host), lambda: _plain_download(device, target, plain)),
    }
    found = {}
    for name, (ours, peer) in calls.items():
        ours(), peer()
        rates = [COPY_BYTES / 1e9 / min(seconds_of(call) for _ in range(ROUNDS)) for call in (ours, peer)]
        found[name] = {"gb_per_second": rates[0], "plain_gb_per_second": rates[1], "ratio": rates[0] / rates[1]}
    return found


def _plain_upload(device: Device, host: np.ndarray, target: Any) -> None:
    if hasattr(target, "set"):
        target.set(host)
    else:
        device.upload(host, target)


def _plain_download(device: Device, source: Any, host: np.ndarray) -> None:
    if hasattr(source, "get"):
        source.get(out=host)
    else:
        device.download(source, host)


def inputs(name: str, folder: Path, n: int) -> Any:
    """Make input for an application."""
    if name == "vectors":
        return np.random.default_rng(0).standard_normal((n, 512), dtype=np.float32)
    options: dict[str, Any] = {"size": (1024, 1024)} if name == "forensics" else {}
    importlib.import_module(f"tartan.apps.{name}.simulate").simulate(folder, n, 1, **options)
    return sorted(str(p) for p in folder.rglob("*") if p.name.lower().endswith(builtin(name)().item_suffixes))


def application(name: str, n: int, device: str) -> dict[str, float]:
    """Run an application on the CPU and on the device; return pairs/s of both and how far they differ."""
    found: dict[str, float] = {"n": n}
    matrices = []
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as place:
        items = inputs(name, Path(place) / "data", n)
        for kind in ("cpu", device):
            run = tartan.allpairs(
                builtin(name)(), items, out=Path(place) / f"{kind.partition(':')[0]}.run", device=kind
            )
            label = "cpu" if kind == "cpu" else "device"
            found[f"{label}_pairs_per_second"] = run.n_pairs / run.stats["wall_seconds"]
            compare = max(run.stats["seconds_per_stage"]["compare"], 1e-9)
            found[f"{label}_pairs_per_compare_second"] = run.n_pairs / compare
            matrices.append(run.scores[: min(n, 512), : min(n, 512)])
    found["ratio"] = found["device_pairs_per_second"] / found["cpu_pairs_per_second"]
    found["largest_difference"] = float(np.nanmax(np.abs(matrices[0] - matrices[1])))
    return found


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print one table, return the numbers."""
    options = options_of(words, device="cuda", vectors=20_000, photos=60, proteomes=60)
    name = options.device
    gpus = [gpu for gpu in found_gpus() if gpu["usable"]]
    if name.startswith("cuda") and not gpus:
        print("gpu: this machine has no GPU that CuPy can use; nothing was measured")
        return {"gpus": []}
    print(f"device kit on {name}: {kit(name)}")
    device = open_device(name)
    copied = copies(device)
    device.close()
    tile = overhead.run_once(overhead.Forgetful, OVERHEAD_ITEMS, overhead.resident_grid(), name)
    tile_ms = 1e3 * tile["seconds"] / tile["tiles"]
    sizes = {"vectors": "vectors", "forensics": "photos", "phylogeny": "proteomes"}
    applications = {app: application(app, getattr(options, word), name) for app, word in sizes.items()}
    rows: list[list[object]] = [
        [f"{way}, GB/s, against a plain copy", r["gb_per_second"], r["plain_gb_per_second"], r["ratio"]]
        for way, r in copied.items()
    ]
    rows.append(["an empty 32 x 32 tile, ms, bar 0.5", tile_ms, 0.5, 0.5 / tile_ms])
    for app, r in applications.items():
        for what, key in (("run", "pairs_per_second"), ("compare", "pairs_per_compare_second")):
            ours, cpu = r[f"device_{key}"], r[f"cpu_{key}"]
            rows.append([f"{app}, n = {r['n']:,}, pairs/s of {what}", ours, cpu, ours / cpu])
        rows.append([f"{app}, largest difference of a score", r["largest_difference"], "", ""])
    about = f"{gpus[0]['name']}" if gpus else "the simulator"
    print_table(f"{name} ({about}) against the CPU", rows, ("", name.partition(":")[0], "peer", "ratio"))
    return {"gpus": gpus, "copies": copied, "tile_ms": tile_ms, "applications": applications, "load": load_average()}


if __name__ == "__main__":
    main(sys.argv[1:])
