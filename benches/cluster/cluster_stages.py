"""Stages next to the data, or where pairs are computed: each over a slow link, and what ``auto`` chooses.

A storage rank and a rank that computes, with a link of 100 MB/s between them; comparisons cost next to nothing. Photos
and proteomes grow when they are parsed, vectors as text shrink; of photos ``fingerprints`` keep a tenth after
preprocess, and a user's filter keeps a hundredth of its files. Times are from the first rank that is ready to the last
chunk, the best of some rounds in turns.

Input: photos and proteomes are those of ``../shared/data``, else simulated. Words: ``rounds=3``, ``link=100`` (MB/s),
``only=photos``.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benches.cluster._stage_apps import Fingerprints, Kept, Photos, Proteomes, TextVectors
from benches.shared._measure import options_of, print_table
from tartan import Application, apps
from tartan.application import preprocesses
from tartan.apps.forensics.simulate import simulate as simulate_photos
from tartan.apps.phylogeny.simulate import simulate as simulate_proteomes
from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.engine import DRIVER, ClusterEngine
from tartan.cluster.launch import ClusterTarget
from tartan.cluster.thread_engine import ThreadHub
from tartan.errors import ClusterError
from tartan.options import run_options
from tartan.run.cluster_rank import main as be_rank
from tartan.run.cluster_run import ClusterWays
from tartan.run.execute import start
from tartan.run.request import request

WAYS = ("storage:parse", "storage:parse,preprocess", "compute", "auto")
MARGIN = 1.05
N_VECTORS, N_DIMENSIONS = 60, 100_000
N_KEPT_FROM = 4_000_000
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@dataclass(frozen=True)
class Beside(ClusterWays):
    """One rank next to the data and one that computes, in threads of this process."""

    link_bytes_per_second: float = 1e8

    @property
    def may_have_storage(self) -> bool:
        return True

    @contextlib.contextmanager
    def engine(self, run: str) -> Iterator[ClusterEngine]:
        hub = ThreadHub(run)
        engines = [hub.engine("storage"), hub.engine("compute")]
        engines[0].resources = {"storage": 1.0}
        throttle = Throttle(self.link_bytes_per_second)
        threads = [threading.Thread(target=_rank, args=(engine, throttle), daemon=True) for engine in engines]
        driver = hub.engine(DRIVER)
        begin = driver.start

        def start_all(*args: object) -> None:
            begin(*args)  # type: ignore[arg-type]
            for thread in threads:
                thread.start()

        driver.start = start_all  # type: ignore[method-assign, assignment]
        try:
            yield driver
        finally:
            for thread in threads:
                thread.join()


def _rank(engine: ClusterEngine, throttle: Throttle) -> None:
    with contextlib.suppress(ClusterError):
        be_rank(engine, throttle=throttle)
        engine.leave()


@dataclass(frozen=True)
class Stage:
    """A workload: an application, and its files."""

    name: str
    app: type[Application]
    prepare: Callable[[Path], str]


def _photos(scratch: Path) -> str:
    if (SHARED / "photos").exists():
        return str(SHARED / "photos" / "nikon" / "*.JPG")
    simulate_photos(scratch, 24, 1, size=(1500, 2000), flats=1)
    return str(scratch / "*.jpg")


def _proteomes(scratch: Path) -> str:
    if (SHARED / "proteomes").exists():
        return str(SHARED / "proteomes" / "*.gz")
    simulate_proteomes(scratch, 8, 1, n_proteins=3000)
    return str(scratch / "*.faa*")


def _text_vectors(scratch: Path) -> str:
    rng = np.random.default_rng(1)
    for number in range(N_VECTORS):
        (scratch / f"{number:04}.txt").write_text(" ".join(map("{:.7f}".format, rng.random(N_DIMENSIONS).tolist())))
    return str(scratch / "*.txt")


def _noise(scratch: Path) -> str:
    rng = np.random.default_rng(1)
    for number in range(N_VECTORS):
        (scratch / f"{number:04}.raw").write_bytes(rng.bytes(N_KEPT_FROM))
    return str(scratch / "*.raw")


STAGES = (
    Stage("photos", Photos, _photos),
    Stage("fingerprints", Fingerprints, _photos),
    Stage("filter", Kept, _noise),
    Stage("proteomes", Proteomes, _proteomes),
    Stage("text", TextVectors, _text_vectors),
)


def main(words: list[str]) -> int:
    """Measure, print, and hold the bar."""
    chosen = options_of(words, rounds=3, link=100.0, only="")
    lines, failed = [], []
    for stage in [stage for stage in STAGES if chosen.only in ("", stage.name)]:
        with tempfile.TemporaryDirectory(dir=".", prefix="stages-") as folder:
            scratch = Path(folder)
            found = _measured(stage, scratch, chosen.rounds, chosen.link * 1e6)
        best = {way: min(times for times, _ in found[way]) for way in found}
        megabytes = {way: found[way][0][1] / 1e6 for way in found}
        ratio = best["auto"] / min(best[way] for way in found if way != "auto")
        lines.append(
            [stage.name, *(best.get(way, "") for way in WAYS), *(megabytes.get(way, "") for way in WAYS), ratio]
        )
        if ratio > MARGIN:
            failed.append(f"{stage.name}: auto takes {ratio:.2f} times as long as the best way")
    head = ["files", *(f"{way}, s" for way in WAYS), *(f"{way}, MB" for way in WAYS), "auto / best"]
    print_table(f"where stages run, over a link of {chosen.link:g} MB/s", lines, head)
    for text in failed:
        print(f"NOT HELD: {text}", file=sys.stderr)
    return 1 if failed else 0


def _measured(stage: Stage, scratch: Path, rounds: int, link: float) -> dict[str, list[tuple[float, float]]]:
    """Return seconds and bytes on the link of every round, by way."""
    files = scratch / "files"
    files.mkdir()
    items = stage.prepare(files)
    ways = [way for way in WAYS if preprocesses(stage.app()) or "preprocess" not in way]
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in ways if number % 2 else ways[::-1]:
            found[way].append(_compute(stage, items, scratch / f"{way} {number}", partial(_beside, way, link)))
    return found


def _beside(way: str, link: float) -> Beside:
    return Beside(ClusterTarget(n_local=1), stages=way, link_bytes_per_second=link)


def _compute(stage: Stage, items: str, out: Path, ways: Callable[[], Beside]) -> tuple[float, float]:
    options = run_options({"host_cache": "2GB", "workers": 2, "quiet": True})
    stats = start(request(stage.app(), items, options, registry=apps), out, ranks=ways()).stats
    return stats["wall_seconds"], stats["bytes_between_ranks"]
