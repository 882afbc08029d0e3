"""``tartan blocks``: arrays in, Zarr out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import zarr

from tartan.cli.main import main


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.standard_normal((40, 40)) + 40 * np.eye(40))
    np.save(tmp_path / "b.npy", rng.standard_normal((40, 30)))
    np.save(tmp_path / "k.npy", np.ones((3, 3)) / 9)
    np.save(tmp_path / "edges.npy", rng.integers(0, 20, (60, 2)))
    return tmp_path


def run(folder: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    where = [str(folder / word) if "." in word else word for word in words]
    assert main(["blocks", *where, "--workers", "1", "--json"]) == 0
    found: dict[str, float] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_each_application(arrays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = np.load(arrays / "a.npy"), np.load(arrays / "b.npy")
    found = run(arrays, "matmul", "a.npy", "b.npy", "-o", "c.zarr", "--block", "16", capsys=capsys)
    np.testing.assert_allclose(zarr.open_array(arrays / "c.zarr")[:], a @ b)
    assert found["subtasks"] == 6
    assert found["bytes_moved"] == found["bytes_bound"] == 0
    assert found["seconds"] > 0
    run(arrays, "lu", "a.npy", "-o", "lu.zarr", "--block", "16", capsys=capsys)
    factors = np.asarray(zarr.open_array(arrays / "lu.zarr")[:])
    np.testing.assert_allclose((np.tril(factors, -1) + np.eye(40)) @ np.triu(factors), a, atol=1e-10)
    run(arrays, "convolve", "b.npy", "k.npy", "k.npy", "-o", "s.zarr", "--boundary", "nearest", capsys=capsys)
    assert zarr.open_array(arrays / "s.zarr").shape == b.shape
    run(arrays, "pagerank", "edges.npy", "-o", "p.zarr", capsys=capsys)
    assert np.asarray(zarr.open_array(arrays / "p.zarr")[:]).sum() == pytest.approx(1)


def test_the_page_and_the_trace_say_who_computed_what(arrays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = ["--report", "page.html", "--trace", "trace.json"]
    found = run(arrays, "matmul", "a.npy", "b.npy", "-o", "c.zarr", "--block", "16", *seen, capsys=capsys)
    assert found["ranges"] == 12
    assert found["hits"] == 12 - 5  # three rows and two columns are read once each
    page = (arrays / "page.html").read_text()
    assert "rank 0: 6 blocks" in page
    assert '<img src="data:image/png;base64,' in page
    events = json.loads((arrays / "trace.json").read_text())["traceEvents"]
    computed = [event["name"] for event in events if event["ph"] == "X" and event["name"].startswith("Multiply")]
    assert sorted(computed) == [f"Multiply ({i}, {j})" for i in range(3) for j in range(2)]
    lost = str(arrays / "none" / "page.html")
    assert main(["blocks", "lu", str(arrays / "a.npy"), "-o", str(arrays / "d.zarr"), "--report", lost]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert not (arrays / "d.zarr").exists()


def test_block_tasks_say_beforehand_what_memory_they_need(arrays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["blocks", "matmul", str(arrays / "a.npy"), str(arrays / "b.npy"), "--workers", "1", "-o"]
    assert main([*words, str(arrays / "c.zarr")]) == 0
    assert re.match(r"tartan: needs at most [\d.]+ .B of memory: ", capsys.readouterr().err)
    assert main([*words, str(arrays / "d.zarr"), "--json"]) == 0
    assert "needs at most" not in capsys.readouterr().err


def test_what_is_refused(arrays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = arrays / "there.zarr"
    there.mkdir()
    a, b = str(arrays / "a.npy"), str(arrays / "b.npy")
    assert main(["blocks", "lu", a, "-o", str(there)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["blocks", "matmul", b, a, "-o", str(arrays / "c.zarr")]) == 2
    assert "cannot be multiplied" in capsys.readouterr().err
    assert main(["blocks", "lu", a, b, "-o", str(arrays / "c.zarr")]) == 2
    assert "2 arrays: lu A" in capsys.readouterr().err
    assert main(["blocks", "matmul", a, "-o", str(arrays / "c.zarr")]) == 2
    assert "1 array: matmul A B" in capsys.readouterr().err
    assert main(["blocks", "matmul", a, str(arrays / "no.npy"), "-o", str(arrays / "c.zarr")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["blocks", "matmul", a, b, "-o", str(arrays / "c.zarr"), "--host-cache", "4kB", "--block", "64"]) == 1
    assert "host cache" in capsys.readouterr().err
    np.save(arrays / "zero.npy", np.load(arrays / "a.npy") * (np.arange(40) != 20))
    assert (
        main(["blocks", "lu", str(arrays / "zero.npy"), "-o", str(arrays / "c.zarr"), "--block", "16", "--json"]) == 1
    )
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1, "a matrix without factors is not a defect: no traceback"
    assert told[0].startswith("tartan: error: subtask (1, 1) of Trail: the pivot in row 20 of the matrix")
    assert main(["blocks", "matmul", a, b, "-o", str(arrays / "c.zarr"), "--block", "0"]) == 2
    assert "argument --block" in capsys.readouterr().err


def test_devices_are_named_as_for_pairs(arrays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = np.load(arrays / "a.npy"), np.load(arrays / "b.npy")
    options = ["--block", "16", "--device", "sim:memory=1MB", "--device-cache", "50kB", "--report", "page.html"]
    found = run(arrays, "matmul", "a.npy", "b.npy", "-o", "c.zarr", *options, capsys=capsys)
    np.testing.assert_array_equal(zarr.open_array(arrays / "c.zarr")[:], a @ b)
    assert (found["subtasks"], found["device_subtasks"], found["device_ranges"], found["device_hits"]) == (6, 6, 12, 7)
    assert (found["bytes_uploaded"], found["bytes_downloaded"]) == (a.nbytes + b.nbytes, 40 * 30 * 8)
    assert found["seconds_device_waited"] >= 0
    assert "ranges that were on the device" in (arrays / "page.html").read_text()
    named = ["blocks", "lu", str(arrays / "a.npy"), "-o", str(arrays / "d.zarr"), "--workers", "1"]
    assert main([*named, "--block", "16", "--device", "sim"]) == 0
    assert "21 subtasks on devices" in capsys.readouterr().err
    np.testing.assert_array_less(0, np.abs(np.diagonal(zarr.open_array(arrays / "d.zarr")[:])))


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--device", "sim", "--device-cache", "1kB"], 1, "--device-cache of at least"),
        (["--device", "sim,cpu"], 2, "--on local:2"),
        (["--device", "sim:colour=1"], 2, "no option 'colour'"),
    ],
)
def test_devices_that_will_not_do(
    arrays: Path, options: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ["blocks", "matmul", str(arrays / "a.npy"), str(arrays / "b.npy"), "-o", str(arrays / "c.zarr")]
    assert main([*named, "--workers", "1", *options]) == status
    assert message in capsys.readouterr().err
    assert not (arrays / "c.zarr").exists()
