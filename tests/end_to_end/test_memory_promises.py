"""What commands say that they need of memory is held: the peak of all their processes is no more, and no third less."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tartan.cli.completion import list_commands
from tartan.cli.main import build_parser
from tests.support.memory_peak import watch

SAID = re.compile(r"needs at most ([\d.]+) ([kMG])B of memory: ")
UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}
#: What is said may be so many times the peak.
MOST_TIMES = 1.5
#: The small size, in every `make test`, and the large one.
SIZES = (0, 1)

OWN = """
import numpy as np, tartan
class Tables(tartan.Application):
    symmetric, ragged = True, True
    def parse(self, key, data): return np.frombuffer(data, np.uint8).astype(np.float32)
    def compare(self, a, b, xp=np): return np.array([[abs(len(x) - len(y)) for y in b] for x in a], np.float32)
class Triples(tartan.Application):
    arity, releases_gil, rows, ragged = 3, True, True, False
    def compare(self, a, b, c, xp=np): return xp.einsum("ix,jx,kx->ijk", a, b, c, optimize=True)
def difference(a, b): return float(abs(len(a) - len(b)))
"""


def write_rows(folder: Path, n: int, width: int) -> str:
    np.save(folder / "rows.npy", np.random.default_rng(0).random((n, width), np.float32))
    return str(folder / "rows.npy")


def write_files(folder: Path, n: int, n_bytes: int) -> str:
    (folder / "own.py").write_text(OWN)
    (folder / "files").mkdir()
    rng = np.random.default_rng(0)
    for number in range(n):
        (folder / "files" / f"{number}.bin").write_bytes(rng.bytes(n_bytes + number))
    return str(folder / "files")


def write_genomes(folder: Path, n: int, n_letters: int, pack: Callable[[bytes], bytes] = bytes, end: str = "") -> str:
    rng = np.random.default_rng(0)
    (folder / "genomes").mkdir()
    for number in range(n):
        letters = np.frombuffer(b"ACGT", np.uint8)[rng.integers(0, 4, n_letters)].tobytes()
        (folder / "genomes" / f"{number}.fa{end}").write_bytes(pack(b">a\n" + letters + b"\n"))
    return str(folder / "genomes")


def pack_quickly(data: bytes) -> bytes:
    return gzip.compress(data, 1)


def write_simulated(folder: Path, app: str, n: int) -> str:
    made = watch(["simulate", app, str(folder / app), "-n", str(n)], folder)
    assert made.status == 0, made.err
    return str(folder / app)


def write_numbers(folder: Path, n: int) -> str:
    np.random.default_rng(0).integers(0, 2**62, n).tofile(folder / "in.bin")
    return str(folder / "in.bin")


def write_vectors(folder: Path, name: str, n: int, width: int) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(len(name))
    vectors = pa.FixedSizeListArray.from_arrays(rng.standard_normal(n * width, np.float32), width)
    table = pa.table({"id": [f"{name} {row}" for row in range(n)], "key": rng.integers(0, n // 50, n), "e": vectors})
    pq.write_table(table, folder / f"{name}.parquet")
    return str(folder / f"{name}.parquet")


def join(n_left: int, n_right: int, width: int, *more: str) -> Callable[[Path], list[str]]:
    """Return what makes two tables of vectors in a folder, and the command that joins them."""
    return lambda folder: [
        "neighbors", write_vectors(folder, "one", n_left, width),
        "--of", write_vectors(folder, "other", n_right, width),
        "-o", str(folder / "out.parquet"), *more,
    ]  # fmt: skip


def write_csv(folder: Path, n: int) -> str:
    rng = np.random.default_rng(0)
    lines = [f"{a},name {b}" for a, b in zip(rng.integers(0, 2**40, n).tolist(), rng.integers(0, 2**30, n).tolist())]
    (folder / "in.csv").write_text("\n".join(["a,b", *lines, ""]))
    return str(folder / "in.csv")


def write_parquet(folder: Path, n: int) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    pq.write_table(pa.table({"a": rng.integers(0, 2**40, n), "b": rng.random(n)}), folder / "in.parquet")
    return str(folder / "in.parquet")


def run(app: str, make: Callable[[Path], str], *more: str) -> Callable[[Path], list[str]]:
    """Return what makes the input of a run in a folder, and its command."""
    return lambda folder: ["run", app.format(folder=folder), make(folder), "-o", str(folder / "run"), *more]


def sort(make: Callable[[Path], str], suffix: str, *more: str) -> Callable[[Path], list[str]]:
    """Return what makes the input of a sort in a folder, and its command."""
    return lambda folder: ["sort", make(folder), str(folder / f"out{suffix}"), *more]


def write_matrix(folder: Path, n: int) -> str:
    points = np.random.default_rng(0).random((n, 8))
    squares = (points**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0)).astype(np.float32)
    distances = np.maximum(distances, distances.T)
    np.fill_diagonal(distances, 0)
    np.save(folder / "matrix.npy", distances)
    return str(folder / "matrix.npy")


def analyse(*words: str) -> Callable[[int], Callable[[Path], list[str]]]:
    """Return what makes a matrix of a size in a folder, and the command that analyses it."""
    return lambda size: lambda folder: [
        words[0], write_matrix(folder, [300, 3000][size]), "-o", str(folder / "out"), *words[1:]
    ]  # fmt: skip


def write_pairs(folder: Path, n: int, n_pairs: int) -> str:
    import scipy.sparse

    rng = np.random.default_rng(0)
    i, j = np.sort(rng.integers(0, n, (2, n_pairs)), axis=0)
    kept = scipy.sparse.csr_matrix((rng.random(n_pairs) + 0.01, (i, j)), shape=(n, n))
    kept.setdiag(0)
    kept.eliminate_zeros()
    scipy.sparse.save_npz(folder / "pairs.npz", kept)
    return str(folder / "pairs.npz")


def write_list(folder: Path, n: int, n_pairs: int) -> str:
    pairs = np.sort(np.random.default_rng(0).integers(0, n, (n_pairs, 2)), axis=1)
    np.save(folder / "list.npy", np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0))
    return str(folder / "list.npy")


def run_list(size: int) -> Callable[[Path], list[str]]:
    """Return what makes rows and a list of pairs in a folder, and the command that compares them."""
    n, n_pairs = [(1000, 10_000), (20_000, 3_000_000)][size]
    return lambda f: run("vectors", lambda f: write_rows(f, n, 64), "--pairs", write_list(f, n, n_pairs))(f)


def analyse_pairs(*words: str) -> Callable[[int], Callable[[Path], list[str]]]:
    """Return what makes kept pairs in a folder, and the command that analyses them."""
    return lambda size: lambda folder: [
        words[0], write_pairs(folder, [300, 20_000][size], [3000, 2_000_000][size]), "-o", str(folder / "out.csv"),
        *words[1:],
    ]  # fmt: skip


def analyse_run(words: tuple[str, ...], *rule: str) -> Callable[[int], Callable[[Path], list[str]]]:
    """Return what computes a run in a folder, and the command that analyses it."""

    def make(folder: Path, size: int) -> list[str]:
        made = watch(run("vectors", lambda f: write_rows(f, [300, 6000][size], 16), *rule)(folder), folder)
        assert made.status == 0, made.err
        out = folder / ("out.nwk" if words[0] == "tree" else "out.csv")
        return [words[0], str(folder / "run"), "-o", str(out), *words[1:]]

    return lambda size: lambda folder: make(folder, size)


OWN_TABLES, OWN_FUNCTION = "{folder}/own.py:Tables", "{folder}/own.py:difference"
COMMANDS: dict[str, Callable[[int], Callable[[Path], list[str]]]] = {
    "vectors": lambda size: run("vectors", lambda f: write_rows(f, [500, 6000][size], 256)),
    "vectors top-k": lambda size: run("vectors", lambda f: write_rows(f, [500, 12_000][size], 256), "--top-k", "5"),
    "vectors threshold": lambda size: run(
        "vectors", lambda f: write_rows(f, [500, 6000][size], 256), "--threshold", "0.2"
    ),
    "vectors cached": lambda size: run(
        "vectors", lambda f: write_rows(f, [2000, 8000][size], 1024), "--host-cache", "500items"
    ),
    "forensics": lambda size: run("forensics", lambda f: write_simulated(f, "forensics", [6, 30][size])),
    "forensics cached": lambda size: run(
        "forensics", lambda f: write_simulated(f, "forensics", [8, 30][size]), "--host-cache", "24MB"
    ),
    "microscopy": lambda size: run("microscopy", lambda f: write_simulated(f, "microscopy", [10, 40][size])),
    "phylogeny": lambda size: run("phylogeny", lambda f: write_simulated(f, "phylogeny", [10, 60][size])),
    "genomes": lambda size: run("genomes", lambda f: write_genomes(f, [10, 40][size], [200_000, 3_000_000][size])),
    "genomes packed": lambda size: run(
        "genomes", lambda f: write_genomes(f, [10, 12][size], [200_000, 40_000_000][size], pack_quickly, ".gz")
    ),
    "genome alone": lambda size: run("genomes", lambda f: write_genomes(f, 2, [20_000_000, 150_000_000][size])),
    "own tables": lambda size: run(OWN_TABLES, lambda f: write_files(f, [10, 40][size], [10_000, 500_000][size])),
    "own tables cached": lambda size: run(
        OWN_TABLES, lambda f: write_files(f, [10, 40][size], 500_000), "--host-cache", "12MB"
    ),
    "own function": lambda size: run(OWN_FUNCTION, lambda f: write_files(f, [10, 60][size], [1000, 500_000][size])),
    "join": lambda size: join([500, 60_000][size], [500, 1000][size], 64, "-k", ["10", "30"][size]),
    "join by key": lambda size: join([500, 200_000][size], [500, 200_000][size], 8, "-k", "1", "--by", "key"),
    "join within in little": lambda size: join(
        [500, 20_000][size], [500, 2000][size], 64, "--within", "0.8", "--memory", "250MB"
    ),
    "sort numbers": lambda size: sort(
        lambda f: write_numbers(f, [1_000_000, 20_000_000][size]), ".bin", "--dtype", "i8"
    ),
    "sort numbers in little": lambda size: sort(
        lambda f: write_numbers(f, [12_000_000, 30_000_000][size]), ".bin", "--dtype", "i8", "--memory", "128MB"
    ),
    "sort csv": lambda size: sort(lambda f: write_csv(f, [100_000, 1_500_000][size]), ".csv", "--key", "b"),
    "sort lines": lambda size: sort(lambda f: write_csv(f, [100_000, 1_500_000][size]), ".txt", "--format", "lines"),
    "sort parquet": lambda size: sort(lambda f: write_parquet(f, [100_000, 3_000_000][size]), ".parquet", "--key", "a"),
}
COMMANDS |= {
    "cluster single": analyse("cluster", "--threshold", "0.2"),
    "cluster average": analyse("cluster", "--threshold", "0.5", "--method", "average"),
    "cluster average on disk": analyse("cluster", "--threshold", "0.5", "--method", "average", "--memory", "10MB"),
    "cluster of any number": analyse("cluster"),
    "cluster pwc": analyse("cluster", "-k", "3"),
    "cluster greedy": analyse("cluster", "--method", "greedy", "--threshold", "0.5"),
    "cluster greedy of many": analyse("cluster", "--method", "greedy", "--threshold", "0.9"),
    "cluster hdbscan": analyse("cluster", "--method", "hdbscan"),
    "tree nj": analyse("tree"),
    "tree upgma": analyse("tree", "--method", "upgma"),
    "embed": analyse("embed"),
    "neighbors": analyse("neighbors", "-k", "3"),
    "outliers": analyse("outliers"),
    "vectors of a list of pairs": run_list,
    "outliers of a run": analyse_run(("outliers",)),
    "tree nj of a run": analyse_run(("tree",)),
    "neighbors of a run": analyse_run(("neighbors", "-k", "3")),
    "neighbors of distances of a run": analyse_run(("neighbors", "-k", "3", "--distance", "max-s")),
    "neighbors of a top-k run": analyse_run(("neighbors", "-k", "3"), "--top-k", "10"),
    "cluster of a top-k run": analyse_run(("cluster", "--threshold", "0.5"), "--top-k", "10"),
    "neighbors of pairs": analyse_pairs("neighbors", "-k", "3"),
    "cluster of pairs": analyse_pairs("cluster", "--threshold", "0.5"),
}


def write_square(folder: Path, n: int, name: str = "a", dtype: str = "f4") -> str:
    square = np.random.default_rng(0).random((n, n), np.float32).astype(dtype)
    np.save(folder / f"{name}.npy", square + n * np.eye(n, dtype=dtype))
    return str(folder / f"{name}.npy")


def write_kernel(folder: Path) -> str:
    np.save(folder / "kernel.npy", np.random.default_rng(0).random((5, 5), np.float32))
    return str(folder / "kernel.npy")


def write_links(folder: Path, n: int, n_links: int) -> str:
    np.save(folder / "links.npy", np.random.default_rng(0).integers(0, n, (n_links, 2)))
    return str(folder / "links.npy")


def blocks(*make: Callable[[Path], str], more: tuple[str, ...] = ()) -> Callable[[Path], list[str]]:
    """Return what makes the inputs of block tasks in a folder, and the words after the name of the application."""
    return lambda folder: [*(one(folder) for one in make), "-o", str(folder / "out.zarr"), *more]


def of_blocks(application: str, words: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
    return lambda folder: ["blocks", application, *words(folder)]


COMMANDS |= {
    "blocks matmul": lambda size: of_blocks(
        "matmul",
        blocks(lambda f: write_square(f, [512, 4096][size]), lambda f: write_square(f, [512, 4096][size], "b")),
    ),
    "blocks matmul in little": lambda size: of_blocks(
        "matmul",
        blocks(
            lambda f: write_square(f, [1024, 4096][size]),
            lambda f: write_square(f, [1024, 4096][size], "b"),
            more=("--host-cache", ["8MB", "64MB"][size], "--block", ["256", "512"][size]),
        ),
    ),
    "blocks lu": lambda size: of_blocks("lu", blocks(lambda f: write_square(f, [512, 4096][size]))),
    "blocks convolve": lambda size: of_blocks(
        "convolve", blocks(lambda f: write_square(f, [512, 3072][size]), write_kernel)
    ),
    "blocks pagerank": lambda size: of_blocks(
        "pagerank", blocks(lambda f: write_links(f, [10_000, 300_000][size], [50_000, 2_000_000][size]))
    ),
}


def change_run(change: Callable[[Path, int], list[str]], *first: str) -> Callable[[int], Callable[[Path], list[str]]]:
    """Return what computes a run in a folder, and the command that goes on with it."""

    def make(folder: Path, size: int) -> list[str]:
        words = run("vectors", lambda f: write_rows(f, [500, 6000][size], 256), *first)(folder)
        made = watch(words, folder)
        assert made.status == 0, made.err
        return change(folder, size)

    return lambda size: lambda folder: make(folder, size)


def add_rows(folder: Path, size: int) -> list[str]:
    np.save(folder / "more.npy", np.random.default_rng(1).random(([400, 3000][size], 256), np.float32))
    return ["add", str(folder / "run"), str(folder / "more.npy")]


def replace_file(folder: Path, size: int) -> list[str]:
    n_bytes = [10_000, 500_000][size]
    made = watch(run(OWN_TABLES, lambda f: write_files(f, [10, 40][size], n_bytes))(folder), folder)
    assert made.status == 0, made.err
    (folder / "other.bin").write_bytes(np.random.default_rng(1).bytes(n_bytes))
    return ["replace", str(folder / "run"), "0.bin", str(folder / "other.bin")]


COMMANDS |= {
    "resume of a part": change_run(lambda folder, size: ["resume", str(folder / "run")], "--part", "1/2"),
    "add": change_run(add_rows),
    "replace": lambda size: lambda folder: replace_file(folder, size),
}
#: Which case holds a command that takes --memory or --host-cache to what it says.
HELD = {
    "run": "vectors cached",
    "resume": "resume of a part",
    "attach": "resume of a part",  # what it does once the driver is gone
    "add": "add",
    "replace": "replace",
    "forensics cameras": "forensics cached",  # the run that it makes
    "sort": "sort numbers in little",
    "blocks": "blocks matmul in little",
    "cluster": "cluster average on disk",
    "tree": "tree upgma",
    "neighbors": "join within in little",
}
#: Those that are held to nothing, and why.
NOT_HELD = {
    "plan": "it computes nothing: what it says is of a run on the machine that it is asked about",
    "export": "its sort takes --memory at most, and says nothing beforehand yet",
}
#: Those of which the small size is watched in every `make test`: a kind of estimate each.
QUICK = ("vectors", "vectors top-k", "own tables", "sort numbers", "sort csv", "tree nj", "join")


def hold(words: list[str], folder: Path) -> None:
    """Run a command, and hold it to what it says."""
    watched = watch(words, folder)
    assert watched.status == 0, watched.err
    said = [match for line in watched.err.splitlines() if (match := SAID.search(line))]
    assert len(said) == 1, watched.err
    promised = float(said[0][1]) * UNITS[said[0][2]]
    line = f"{said[0].string}; the peak is {watched.peak_bytes / 1e6:.0f} MB of {watched.n_processes} processes"
    assert watched.peak_bytes <= promised, line
    assert promised <= MOST_TIMES * watched.peak_bytes, line


def test_every_command_that_bounds_its_memory_has_a_case() -> None:
    bounded = [name for name, options in list_commands(build_parser()) if options & {"--memory", "--host-cache"}]
    assert sorted(bounded) == sorted([*HELD, *NOT_HELD])
    assert set(HELD.values()) <= set(COMMANDS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", QUICK)
def test_what_is_said_is_held(kind: str, tmp_path: Path) -> None:
    hold(COMMANDS[kind](0)(tmp_path), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", COMMANDS)
def test_what_is_said_is_held_of_every_kind_at_two_sizes(kind: str, size: int, tmp_path: Path) -> None:
    hold(COMMANDS[kind](size)(tmp_path), tmp_path)
