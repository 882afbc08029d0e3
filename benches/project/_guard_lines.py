"""The lines of ``tartan bench guard``: what one version of Tartan does in about a second, one function a line.

    python _guard_lines.py NAME

prints the seconds, and the kernel of the matrix products, as JSON. The interpreter may be that of another version:
lines keep to commands and to what the documents name, which stay; where a version lacks what a line needs, the line
fails there and is not judged. A line prepares its input and returns what is timed; where that returns a float, these
are its seconds. It is called once untimed, and then again and again for a moment: the least time counts. What starts
ranks takes seconds each time, and is called once.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import tartan

Timed = Callable[[], Any]
Prepare = Callable[[], Timed]

ENOUGH_SECONDS = 0.4
LEAST_CALLS = 2
_number = count()


@dataclass(frozen=True)
class Line:
    """What is timed, and whether one call is enough."""

    prepare: Prepare
    once: bool = False

    def seconds(self) -> float:
        """Return the least time of a call."""
        call = self.prepare()
        if self.once:
            return seconds_of(call)
        call()
        times: list[float] = []
        began = time.perf_counter()
        while len(times) < LEAST_CALLS or time.perf_counter() - began < ENOUGH_SECONDS:
            times.append(seconds_of(call))
        return min(times)


#: By name, which begins with that of the benchmark whose bar the line watches.
LINES: dict[str, Line] = {}


def line(name: str, *, once: bool = False) -> Callable[[Prepare], Prepare]:
    """Add a line."""

    def add(prepare: Prepare) -> Prepare:
        LINES[name] = Line(prepare, once)
        return prepare

    return add


def seconds_of(call: Timed) -> float:
    """Return the seconds of a call: its own, where it tells them."""
    start = time.perf_counter()
    own = call()
    return own if isinstance(own, float) else time.perf_counter() - start


def fresh() -> Path:
    """Return a path in the working directory where nothing is yet."""
    return Path(f"out-{next(_number)}").resolve()


def command(*words: object) -> None:
    """Run a command of Tartan in this process."""
    from contextlib import redirect_stdout
    from io import StringIO

    from tartan.cli.main import main

    with redirect_stdout(StringIO()):
        status = main([str(word) for word in words])
    if status:
        raise SystemExit(f"tartan {' '.join(map(str, words))}: exit status {status}")


def started(*words: object) -> str:
    """Run an interpreter of its own; return what it printed."""
    return subprocess.run([sys.executable, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout


def rows(n: int, d: int, dtype: str = "float32") -> np.ndarray:
    """Return random rows."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 2, (n, d)) if dtype == "bool" else rng.standard_normal((n, d))
    return numbers.astype(dtype)


def saved(array: np.ndarray, name: str = "items.npy") -> str:
    """Write an array; return its name."""
    np.save(name, array)
    return name


def blobs(n: int, k: int, spread: float = 1.0) -> np.ndarray:
    """Return the distances, float32, of points in k Gaussian clusters."""
    from scipy.spatial.distance import pdist, squareform

    rng = np.random.default_rng(12345)
    centres = rng.normal(0, 3.0, size=(k, 10))
    points = centres[rng.integers(0, k, size=n)] + rng.normal(0, spread, size=(n, 10))
    found: np.ndarray = squareform(pdist(points)).astype(np.float32)
    return found / found.max()


class Sums(tartan.Application):
    """Costs next to nothing, so that what is left is what a run costs."""

    releases_gil = True
    ragged = False

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Return sums of first values."""
        return left[:, 0][:, None] + right[:, 0][None, :]


class FirstBytes(Sums):
    """Keeps little of a file, in worker processes: what is left is how its bytes come there."""

    releases_gil = False

    def parse(self, key: str, data: bytes) -> Any:
        """Return the first bytes as numbers."""
        return np.frombuffer(data, np.uint8, 4).astype(np.float32)


def trivial(a: int, b: int) -> float:
    """Do nothing much."""
    return a * b


def busy(a: int, b: int) -> float:
    """Take tens of microseconds of the interpreter's time."""
    x, y = min(a, b), max(a, b)
    for _ in range(300):
        x = (x * 1103515245 + y) & 0x7FFFFFFF
    return x / 0x7FFFFFFF


@line("start: import tartan")
def import_tartan() -> Timed:
    return lambda: started("-c", "import tartan")


@line("start: tartan run, of 20 rows")
def start_of_a_run() -> Timed:
    name = saved(rows(20, 4))
    return lambda: started("-m", "tartan", "run", "vectors", name, "-o", fresh(), "--quiet")


@line("start: tartan info")
def info() -> Timed:
    command("run", "vectors", saved(rows(20, 4)), "-o", "run", "--quiet")
    return lambda: started("-m", "tartan", "info", "run")


@line("vectors: all cosine distances, 5,000 x 256")
def dense() -> Timed:
    name = saved(rows(5000, 256))
    return lambda: command("run", "vectors", name, "-o", fresh(), "--quiet")


@line("vectors: top-10, 12,000 x 128")
def top() -> Timed:
    name = saved(rows(12_000, 128))
    return lambda: command("run", "vectors", name, "-o", fresh(), "--quiet", "--top-k", 10)


@line("vectors: below a threshold, 12,000 x 128")
def below() -> Timed:
    name = saved(rows(12_000, 128))
    return lambda: command("run", "vectors", name, "-o", fresh(), "--quiet", "--threshold", 0.6)


@line("bits: within a threshold, 20,000 x 2,048")
def bits() -> Timed:
    words = np.random.default_rng(1).integers(0, 2**63, (6, 20_000, 32), np.uint64)
    name = saved(np.unpackbits(np.bitwise_and.reduce(words, axis=0).view(np.uint8), axis=1).view(np.bool_))
    more = ("--set", "metric=jaccard", "--threshold", 0.3)
    return lambda: command("run", "vectors", name, "-o", fresh(), "--quiet", *more)


@line("vectors: neighbors(10)")
def neighbors() -> Timed:
    command("run", "vectors", saved(rows(6000, 32)), "-o", "run", "--quiet", "--top-k", 10)
    return lambda: tartan.open("run").neighbors(10)


def tile(metric: str, dtype: str) -> Timed:
    """Compare 512 x 512 rows by a metric."""
    from tartan.apps.vectors import Vectors

    app = Vectors(metric=metric)
    items = app.preprocess_block(rows(1024, 512, dtype), np)
    return lambda: app.compare(items[:512], items[512:], np)


@line("vectors_kernels: tile of euclidean")
def euclidean() -> Timed:
    return tile("euclidean", "float32")


@line("vectors_kernels: tile of manhattan")
def manhattan() -> Timed:
    return tile("manhattan", "float32")


@line("vectors_kernels: tile of jaccard")
def jaccard() -> Timed:
    return tile("jaccard", "bool")


@line("phylogeny: read four proteomes")
def read_proteomes() -> Timed:
    from tartan.apps.phylogeny import Phylogeny

    command("simulate", "phylogeny", "in", "-n", 4, "--set", "n_proteins=1500")
    app, data = Phylogeny(k=5), [path.read_bytes() for path in sorted(Path("in").glob("*.gz"))]
    return lambda: [app.parse("a.faa.gz", content) for content in data]


@line("phylogeny: tile of composition vectors")
def composition() -> Timed:
    from tartan.apps.phylogeny import Phylogeny

    command("simulate", "phylogeny", "in", "-n", 8, "--set", "n_proteins=600")
    app = Phylogeny(k=5)
    items = [app.parse(path.name, path.read_bytes()) for path in sorted(Path("in").glob("*.gz"))]
    return lambda: app.compare(items[:4] * 8, items[4:] * 8, np)


@line("genomes: sketch ten million letters")
def sketch() -> Timed:
    from tartan.apps.genomes import Genomes

    letters = np.random.default_rng(1).choice(np.frombuffer(b"ACGT", np.uint8), (125_000, 80))
    text = b">1\n" + np.column_stack([letters, np.full(len(letters), ord("\n"), np.uint8)]).tobytes()
    return lambda: Genomes().parse("1", text)


@line("sets: tile of 512 x 512")
def shared() -> Timed:
    import tartan

    sets = np.sort(np.random.default_rng(1).integers(0, 2**62, (1024, 5000), np.uint64), axis=1)
    return lambda: tartan.shared_counts(sets[:512], sets[512:])


@line("microscopy: 36 pairs")
def microscopy() -> Timed:
    command("simulate", "microscopy", "in", "-n", 9)
    return lambda: command("run", "microscopy", "in", "-o", fresh(), "--quiet")


@line("fuse: 12 particles")
def fuse() -> Timed:
    command("simulate", "microscopy", "in", "-n", 12)
    command("run", "microscopy", "in", "-o", "run", "--quiet")
    return lambda: command("microscopy", "fuse", "run", "-o", fresh())


@line("forensics: noise pattern of 1,024 x 1,024")
def noise_pattern() -> Timed:
    from tartan.apps.forensics import prnu

    grey = np.random.default_rng(0).integers(0, 65536, (1024, 1024), dtype=np.uint16)
    return lambda: prnu.noise_pattern(grey, np)


@line("forensics: tile of PCE, 12 x 12")
def pce() -> Timed:
    from tartan.apps.forensics import prnu

    half = np.random.default_rng(1).standard_normal((12, 2, 256, 129), dtype=np.float32)
    return lambda: prnu.pce_tile(half, half, np)


@line("pair_function: a trivial function, one worker")
def one_worker() -> Timed:
    return lambda: run_seconds(trivial, list(range(800)), workers=1)


@line("pair_function: 30 us of Python, two workers")
def two_workers() -> Timed:
    return lambda: run_seconds(busy, list(range(200)), workers=2)


def run_seconds(app: Any, items: Any, **options: Any) -> float:
    """Return what a run takes by itself, start and end of its workers apart."""
    return float(tartan.allpairs(app, items, fresh(), quiet=True, **options).stats["wall_seconds"])


@line("overhead: empty comparisons, chunks of 32")
def overhead() -> Timed:
    items = np.zeros((1500, 4), np.float32)
    return lambda: run_seconds(Sums(), items, tile=32)


@line("reads: 16 files of 16 MiB to one worker process")
def reads() -> Timed:
    folder = fresh()
    folder.mkdir()
    for number in range(16):
        (folder / f"{number}.bin").write_bytes(bytes(16 << 20))
    return lambda: run_seconds(FirstBytes(), str(folder / "*.bin"), workers=1)


@line("loads: room for 60 of 400 items")
def loads() -> Timed:
    items = np.zeros((400, 4), np.float32)
    return lambda: run_seconds(Sums(), items, host_cache="60items")


@line("commit: 10,000 items that cost nothing, to disk")
def commit() -> Timed:
    items = np.zeros((10_000, 4), np.float32)
    return lambda: run_seconds(Sums(), items)


@line("simulated: overlap on the simulated device")
def simulated() -> Timed:
    items = np.zeros((300, 4), np.float32)
    return lambda: run_seconds(Sums(), items, device="sim:compare=8us", host_cache="60items", workers=1)


@line("cluster_speed: two ranks", once=True)
def two_ranks() -> Timed:
    items = np.zeros((1500, 4), np.float32)
    return lambda: run_seconds(Sums(), items, on="local:2", workers=1, host_cache="400items")


@line("cluster_bulk: large items between two ranks", once=True)
def large_items() -> Timed:
    name = saved(np.zeros((60, 250_000), np.float32))
    options = {"on": "local:2", "workers": 1, "host_cache": "35items"}
    return lambda: run_seconds(Sums(), np.load(name, mmap_mode="r"), **options)


@line("cluster_plan: tartan plan, nodes that are unlike")
def plan() -> Timed:
    return lambda: command("plan", "rocket-unlike", "--workers", 1)


@line("blocks: product of 2,048 x 2,048, to disk")
def product() -> Timed:
    names = saved(rows(2048, 2048), "a.npy"), saved(rows(2048, 2048), "b.npy")
    return lambda: command("blocks", "matmul", *names, "-o", f"{fresh()}.zarr", "--block", 512)


@line("blocks: LU of 1,024 x 1,024")
def factors() -> Timed:
    name = saved(rows(1024, 1024) + 100 * np.eye(1024, dtype=np.float32))
    return lambda: command("blocks", "lu", name, "-o", f"{fresh()}.zarr", "--block", 128)


def ranks(task: str, options: dict[str, Any]) -> Timed:
    """Let two ranks take part in a task of ``_comm_ranks.py``."""
    script = Path(__file__).parents[1] / "comm" / "_comm_ranks.py"
    call = ("-m", "tartan", "ranks", "--cpus", 2, script, task, json.dumps(options), "together")
    return lambda: min(json.loads(started(*call).splitlines()[-1]))


@line("comm: barrier of two ranks", once=True)
def barrier() -> Timed:
    return ranks("barrier", {"times": 2000, "rounds": 5})


@line("comm: round trip of 1 MB", once=True)
def round_trip() -> Timed:
    return ranks("pingpong", {"n_bytes": 1_000_000, "times": 200, "rounds": 5})


@line("comm: all-gather of 8 MB", once=True)
def all_gather() -> Timed:
    return ranks("gather", {"n_bytes": 8_000_000, "way": "out", "times": 10, "rounds": 5})


@line("sort: 5 million whole numbers")
def sort_numbers() -> Timed:
    np.random.default_rng(0).integers(-(1 << 63), (1 << 63) - 1, 5_000_000).tofile("in.i8")
    return lambda: command("sort", "in.i8", f"{fresh()}.i8", "--dtype", "int64", "--quiet")


@line("sort: 200,000 rows of CSV by two columns")
def sort_csv() -> Timed:
    keys = np.random.default_rng(0).integers(0, 10**6, (200_000, 2))
    Path("in.csv").write_text("a,b\n" + "".join(f"{a},name {b}\n" for a, b in keys.tolist()))
    return lambda: command("sort", "in.csv", f"{fresh()}.csv", "--key", "a:number,b:text", "--quiet")


@line("sort: 1 million rows of Parquet")
def sort_parquet() -> Timed:
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = np.random.default_rng(0).integers(0, 10**9, 1_000_000)
    pq.write_table(pa.table({"key": keys, "value": keys * 0.5}), "in.parquet")
    return lambda: command("sort", "in.parquet", f"{fresh()}.parquet", "--key", "key", "--quiet")


@line("sort_kernels: 2 million whole numbers in memory")
def sort_kernel() -> Timed:
    from tartan import _native

    numbers = np.random.default_rng(0).integers(-(1 << 63), (1 << 63) - 1, 2_000_000)
    return lambda: _native.sort_keys(numbers.copy(), "auto", 1)


@line("tree: average linkage of 3,000 items")
def average_linkage() -> Timed:
    from scipy.spatial.distance import pdist

    from tartan.analytics import linkage

    pairs = pdist(rows(3000, 5, "float64"))
    return lambda: linkage(pairs, "average")


@line("tree: neighbour joining of 1,500 leaves")
def joining() -> Timed:
    from tartan.analytics import neighbor_joining

    D = blobs(1500, 5).astype(np.float64)
    return lambda: neighbor_joining(D)


@line("mds: 150 steps, 2,000 items")
def mds_steps() -> Timed:
    from tartan.analytics import DAMDS, as_dissimilarities

    D, X = as_dissimilarities(blobs(2000, 5)), np.random.default_rng(7).uniform(-1, 1, (2000, 3))
    return lambda: DAMDS(annealing=False, tol=0, max_iter=150).fit(D, init=X)


@line("mds: annealed map of 600 items")
def annealed_map() -> Timed:
    from tartan.analytics import DAMDS

    D = blobs(600, 5)
    return lambda: DAMDS(random_state=0).fit(D)


@line("chisq: least squares, 200 items")
def least_squares() -> Timed:
    from tartan.analytics import LMMDS

    D, X = blobs(200, 5).astype(np.float64), np.random.default_rng(7).uniform(-1, 1, (200, 3))
    return lambda: LMMDS(3, weighting="even", max_iter=30).fit(D, init=X)


@line("pwc: 8 clusters of 1,500 items, annealed")
def annealed_clusters() -> Timed:
    from tartan.analytics import DAPWC

    D = blobs(1500, 8)
    return lambda: DAPWC(8, random_state=0).fit(D)


@line("groups: 40 groups, their number given")
def groups_of_a_number() -> Timed:
    from tartan.analytics import cluster

    D = blobs(400, 40, 0.1)
    return lambda: cluster(D, 40)


@line("groups: 20 groups, their number found")
def groups_without_number() -> Timed:
    from tartan.analytics import cluster

    D = blobs(200, 20, 0.1)
    return lambda: cluster(D)


@line("vs: 400 LC-MS peaks")
def sponge() -> Timed:
    command("simulate", "lcms", "in", "-n", 400)
    return lambda: command("lcms", "cluster", "in/peaks.txt", "-o", fresh(), "--quiet")


def finished_run() -> str:
    """Return the name of a finished run."""
    command("run", "vectors", saved(rows(400, 16)), "-o", "run", "--quiet")
    return "run"


@line("analyses: tartan report, 400 items")
def report() -> Timed:
    run = finished_run()
    return lambda: command("report", run, "-o", f"{fresh()}.html")


@line("analyses: tartan export, CSV of all pairs")
def export() -> Timed:
    run = finished_run()
    return lambda: command("export", run, f"{fresh()}.csv", "--pairs")


@line("analyses: tartan view, page and picture")
def view() -> Timed:
    from urllib.request import HTTPCookieProcessor, build_opener

    words = [sys.executable, "-m", "tartan", "view", finished_run()]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    atexit.register(server.wait)
    atexit.register(server.kill)
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    browser = build_opener(HTTPCookieProcessor())
    browser.open(url).read()
    site = url.partition("?")[0].rstrip("/")
    return lambda: [browser.open(f"{site}/{name}").read() for name in ("body", "state", "tile/0/0/0.png")]


def kernel() -> str:
    """Return which kernel of OpenBLAS this process used."""
    from threadpoolctl import threadpool_info

    return "/".join(sorted({str(one["architecture"]) for one in threadpool_info() if "architecture" in one}))


if __name__ == "__main__":
    _seconds = LINES[sys.argv[1]].seconds()
    print(json.dumps({"seconds": _seconds, "kernel": kernel()}))
