"""The Rust crates by themselves: their properties with other cases than in the tests, and `cargo fuzz`."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROPERTIES = ("hostile", "damage")  # names of tests begin with these, or of the modules that hold them
TARGETS = ("fasta", "packed_keys", "run_file")
SECONDS = 20
CASES = 1000


def lacks_cargo() -> str | None:
    """Return why the properties cannot be checked, or None."""
    return None if shutil.which("cargo") else "it needs cargo"


def lacks_cargo_fuzz() -> str | None:
    """Return why ``cargo fuzz`` cannot run, or None."""
    if (reason := lacks_cargo()) is not None:
        return reason
    found = subprocess.run(["cargo", "+nightly", "fuzz", "--version"], capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return None
    return "it needs a nightly compiler and cargo-fuzz: rustup toolchain install nightly; cargo install cargo-fuzz"


def properties(rng: random.Random, folder: Path) -> None:
    """Check the properties of the crates that read files, with drawn cases."""
    drawn = {"PROPTEST_RNG_SEED": str(rng.randrange(2**32)), "PROPTEST_CASES": str(CASES)}
    _run(["test", "--quiet", "-p", "tartan-kernels", "-p", "tartan-sort", "--", *PROPERTIES], **drawn)


def targets(rng: random.Random, folder: Path) -> None:
    """Run each target of ``cargo fuzz`` for some seconds."""
    for target in TARGETS:
        (corpus := folder / target).mkdir()
        where = ["--target-dir", "target/fuzz", target, str(corpus)]
        seed, end = f"-seed={rng.randrange(1, 2**31)}", f"-max_total_time={SECONDS}"
        _run(["+nightly", "fuzz", "run", *where, "--", seed, end, "-timeout=60", f"-artifact_prefix={folder}/"])


def _run(words: list[str], **variables: str) -> None:
    ran = subprocess.run(["cargo", *words], cwd=ROOT, env=os.environ | variables, capture_output=True, text=True)
    if ran.returncode != 0:
        settings = " ".join(f"{name}={value}" for name, value in variables.items())
        raise AssertionError(f"{settings} cargo {' '.join(words)}\n{ran.stdout[-6000:]}\n{ran.stderr[-6000:]}")
