"""Each CUDA kernel of the package without a GPU: against its twin on the CPU, for planted faults, and as machine code.

The twins are in the tests of the kernels, which draw fresh input in each run and state the error that they allow; here
they run on the emulator, and kernels that no test launched are missing in the count. Faults are planted in a kernel of
the emulator's own tests: each must be found. NVRTC compiles for the GPUs named. Minutes on two cores.

Words: ``races`` also looks for races by ThreadSanitizer, a system thread for each GPU thread;
``parts=twins,faults,code`` some parts only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benches.shared._measure import options_of, print_table
from support.nvrtc import ARCHITECTURES, compile_cuda, cuda_files
from tartan.base.kernels import kernel_names
from tartan.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
TWINS = {
    "vectors.cu": "tests/apps/test_vectors_cuda.py",
    "composition.cu": "tests/apps/test_phylogeny_cuda.py",
    "forensics.cu": "tests/apps/test_forensics_cuda.py",
    "register.cu": "tests/apps/test_microscopy_cuda.py",
    "pagerank.cu": "tests/blocks/test_devices.py",
}
EMULATOR = "tests/testing/test_emulator.py"
FAULTS = {
    "a missing barrier": "test_a_missing_barrier_changes_the_answer",
    "an index behind a buffer": "test_an_index_behind_a_buffer_is_named",
    "an index behind shared memory": "test_an_index_behind_shared_memory_is_named",
    "unset shared memory": "test_unset_shared_memory_shows",
    "a divergent barrier": "test_a_divergent_barrier_is_an_error",
    "an update without atomic": "test_an_update_without_atomic_is_a_race",
}
PARTS = ("twins", "faults", "code")


def outcomes(file: str, *, races: bool) -> tuple[dict[str, bool], set[str]]:
    """Run a file of tests; return which passed, and the names of the kernels that they launched."""
    with tempfile.TemporaryDirectory() as folder:
        report, launched = Path(folder, "report.xml"), Path(folder, "launched")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "benches" / "gpu"), os.environ.get("PYTHONPATH", "")]),
            "TARTAN_LAUNCHED": str(launched),
            "TARTAN_REQUIRE_COMPILER": "1",
        }
        words = ["-q", "-p", "_launched_kernels", f"--junit-xml={report}", *([] if races else ["-m", "not exhaustive"])]
        subprocess.run(
            [sys.executable, "-m", "pytest", *words, file], cwd=ROOT, env=environment, stdout=sys.stderr, check=False
        )
        cases = ElementTree.parse(report).iter("testcase")
        passed = {str(case.get("name")): case.find("failure") is None and case.find("error") is None for case in cases}
        return passed, set(launched.read_text().splitlines())


def twins(races: bool) -> list[list[object]]:
    """Compare all kernels with their twins."""
    rows: list[list[object]] = []
    for path in cuda_files():
        kernels = set(kernel_names(path.read_text()))
        passed, launched = outcomes(TWINS[path.name], races=races)
        rows.append([path.name, "tests of kernels against their twins", sum(passed.values()), f"= {len(passed)}"])
        rows.append([path.name, "kernels launched by them", len(kernels & launched), f"= {len(kernels)}"])
    return rows


def faults() -> list[list[object]]:
    """Look for planted faults."""
    passed, _ = outcomes(EMULATOR, races=False)
    found = {fault: [ok for case, ok in passed.items() if case.startswith(test)] for fault, test in FAULTS.items()}
    return [["planted", fault, "found" if oks and all(oks) else "missed", "found"] for fault, oks in found.items()]


def code() -> list[list[object]]:
    """Compile all kernels to machine code."""
    rows: list[list[object]] = []
    texts = [path.read_text() for path in cuda_files()]
    wanted = sum(len(kernel_names(text)) for text in texts)
    for architecture in ARCHITECTURES:
        uses = [use for text in texts for use in compile_cuda(text, architecture)[1].values()]
        rows.append([architecture, "kernels compiled", len(uses), f"= {wanted}"])
        rows.append([architecture, "bytes spilled by a thread", max(use.spilled_bytes for use in uses), "= 0"])
        rows.append([architecture, "most registers of a thread", max(use.registers for use in uses), ""])
    return rows


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Measure, print a table, return the numbers."""
    words = options_of(arguments, parts=",".join(PARTS), races=False)
    unknown = [part for part in words.parts.split(",") if part not in PARTS]
    if unknown:
        raise ConfigError(f"parts={unknown[0]}: parts are {', '.join(PARTS)}")
    rows: list[list[object]] = []
    for part in words.parts.split(","):
        rows += twins(words.races) if part == "twins" else faults() if part == "faults" else code()
    print_table("kernels without a GPU", rows, ("where", "what", "found", "bar"))
    return {f"{where}, {what}": found for where, what, found, _ in rows}


if __name__ == "__main__":
    main(sys.argv[1:])
