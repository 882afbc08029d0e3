"""The arrays of runs are plain Zarr v3: three programs that know nothing of Tartan read the same scores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from store.kit import commit_missing, describe, table
from tartan.store.folder import RunFolder

N = 11
DTYPES = ("float32", "float64", "float16", "int8", "uint16", "int64", "complex64", "bool")
PROGRAM = """
import * as zarr from "zarrita";
import fs from "node:fs/promises";
import path from "node:path";
const [, , run, ...names] = process.argv;
const store = { async get(key) {
  try { return new Uint8Array(await fs.readFile(path.join(run, key))); } catch (error) {
    if (error.code === "ENOENT") return undefined; throw error; } } };
const said = {};
for (const name of names) {
  const array = await zarr.open.v3(zarr.root(store).resolve(`${name}.zarr`), { kind: "array" });
  const block = await zarr.get(array);
  const text = (value) => String(typeof value === "boolean" ? Number(value) : value);
  said[name] = { shape: block.shape, values: Array.from(block.data, text) };
}
console.log(JSON.stringify(said));
"""


def truth_of(dtype: str) -> np.ndarray:
    """Return the upper triangle of an array as the specification has it: scores where i < j, else the fill value."""
    chance = np.random.default_rng(3)
    values = (chance.normal(size=(N, N)) * 9).astype(np.float64)
    kind = np.dtype(dtype).kind
    scores = (values + 1j * values.T if kind == "c" else np.abs(values) if kind == "u" else values).astype(dtype)
    fill = np.nan if kind in "fc" else 0
    return np.where(np.triu(np.ones((N, N), bool), 1), scores, np.array(fill).astype(dtype)).astype(dtype)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "compressed"])
def run(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zarr") / "run"
    outputs = {f"of-{dtype}": dtype for dtype in DTYPES}
    # Samples of one value shrink, random bits do not.
    bits = np.random.default_rng(1).integers(0, 256, 8192, np.uint8)
    samples = {
        name: np.zeros(999, dtype) if request.param or dtype == "bool" else bits.view(dtype)
        for name, dtype in outputs.items()
    }
    with np.errstate(all="ignore"):
        folder = RunFolder.create(path, describe(N, 4, outputs=outputs), table(N), samples=samples)
    with folder.lock():
        commit_missing(folder, {name: truth_of(dtype) for name, dtype in outputs.items()})
    codecs = [codec["name"] for codec in json.loads((path / "of-int64.zarr/zarr.json").read_text())["codecs"]]
    assert ("zstd" in codecs) == request.param
    return path


@pytest.mark.parametrize("dtype", DTYPES)
def test_zarr_python_reads_scores(run: Path, dtype: str) -> None:
    np.testing.assert_array_equal(zarr.open_array(run / f"of-{dtype}.zarr", mode="r")[:], truth_of(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensorstore_reads_scores(run: Path, dtype: str) -> None:
    tensorstore = pytest.importorskip("tensorstore", reason="tensorstore is not installed: pip install tensorstore")
    place = {"driver": "file", "path": str(run / f"of-{dtype}.zarr")}
    array = tensorstore.open({"driver": "zarr3", "kvstore": place}, open=True, read=True).result()
    found = np.asarray(array.read().result())
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, truth_of(dtype))
    place["path"] = str(run / "status.zarr")
    status = tensorstore.open({"driver": "zarr3", "kvstore": place}, open=True, read=True).result().read().result()
    np.testing.assert_array_equal(np.asarray(status), np.triu(np.ones((N, N), np.uint8), 1))


def test_zarrita_reads_scores(run: Path, tmp_path: Path) -> None:
    node, packages = shutil.which("node"), Path(os.environ.get("NODE_PATH", "node_modules"))
    if node is None:
        pytest.skip("there is no node on this machine")
    if not (packages / "zarrita").is_dir():
        pytest.skip("zarrita is not in NODE_PATH: npm install zarrita, NODE_PATH=node_modules")
    (tmp_path / "node_modules").symlink_to(packages.resolve())
    program = tmp_path / "read.mjs"
    program.write_text(PROGRAM)
    # It knows no complex numbers, and half precision only where the language has it.
    names = ["status", *(f"of-{dtype}" for dtype in DTYPES if not dtype.startswith(("complex", "float16")))]
    done = subprocess.run([node, program, run, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, block in json.loads(done.stdout).items():
        dtype = "uint8" if name == "status" else name.removeprefix("of-")
        expected = np.triu(np.ones((N, N), np.uint8), 1) if name == "status" else truth_of(dtype)
        assert block["shape"] == [N, N]
        values = [float(value) for value in block["values"]]
        np.testing.assert_array_equal(np.array(values).reshape(N, N), expected.astype(np.float64))
