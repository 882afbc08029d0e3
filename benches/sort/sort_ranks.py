"""A sort on several ranks of this machine: bytes over links, shares, and time against one process.

    tartan bench sort_ranks [gigabytes=8] [memory=512MB] [ranks=4] [link=125] [folder=DIR] [parts=bytes,link,alone]

- bytes: for each kind of int64 the bytes over links as a share of what they are unpacked, and the largest share of a
  rank over the mean
- link: random int64 with links of so many MB/s (125: 1 Gbit/s), packed and not; each rank sends through one throttle
- alone: without throttle, against one process with the memory of all ranks and the same cores

Times are from the first rank that is ready to the last part that is written; starting ranks takes seconds more, and the
table says how many. Every output is verified: order, count, sum, exclusive or.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benches.shared._measure import options_of, print_table
from benches.sort._sort_data import check, write_integers
from benches.sort._sort_rank import LINK
from tartan.cluster.engine import ClusterEngine
from tartan.cluster.launch import ClusterTarget, open_engine
from tartan.errors import ConfigError
from tartan.options import parse_size
from tartan.sort import SortResult, sort_file
from tartan.sort.engine import Order, Pack, SortOptions
from tartan.sort.formats import Destination, open_sources
from tartan.sort.keys import parse_key
from tartan.sort.ranks.launch import RankedSort, SortWays

PARTS = ("bytes", "link", "alone")
KINDS = {"random": 0.8, "narrow": 0.8, "sorted": 0.5, "reversed": 0.5, "zipf": 0.5, "equal": 0.5, "two": 0.5}
"""Kinds of integers, each with the largest share of unpacked bytes that may cross links."""
MOST_SHARE, MOST_TIME = 1.1, 1.3


@dataclass(frozen=True)
class SlowWays(SortWays):
    """Ranks of this machine behind slow links."""

    link_bytes_per_second: float = 0.0

    @contextlib.contextmanager
    def engine(self, run: str) -> Iterator[ClusterEngine]:
        """Return the driver's engine, for as long as its context lasts."""
        os.environ[LINK] = str(self.link_bytes_per_second)
        with open_engine(self.target, run, entry="benches.sort._sort_rank:main") as engine:
            yield engine


@dataclass(frozen=True)
class RanksSetting:
    """What all parts share."""

    folder: Path
    n_values: int
    memory: int
    n_ranks: int
    link: float

    def sort(self, source: Path, *, pack: Pack = "auto", link: float = 0.0) -> SortResult:
        """Sort a file on ranks."""
        target = self.folder / "sorted.bin"
        found, record = open_sources([source], "int64")
        order = Order(record, parse_key(None, record, descending=False))
        destination = Destination(target, record, self.n_values, found, in_place=False, overwrite=True)
        options = SortOptions.read(memory=self.memory, tmp=self.folder, pack=pack, threads=1, direct="auto")
        ways = SlowWays(ClusterTarget(self.n_ranks), folders=(str(self.folder),), link_bytes_per_second=link)
        return RankedSort(found, destination, order, options, ways).run(resume=False, quiet=True)


def main(arguments: Sequence[str]) -> int:
    """Run the parts that are asked for; 1 if an output is wrong or a bar is missed."""
    options = options_of(
        arguments, parts=",".join(PARTS), memory="512MB", folder="", gigabytes=8.0, ranks=4, link=125.0
    )
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        raise ConfigError(f"parts: there is no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="tartan-bench-", dir=options.folder or None) as folder:
        memory, n_values = parse_size(options.memory).amount, int(options.gigabytes * 10**9) // 8
        setting = RanksSetting(Path(folder), n_values, memory, options.ranks, options.link * 1e6)
        missed = [line for part in parts for line in _PART[part](setting)]
    for line in missed:
        print(f"  missed: {line}")
    return 1 if missed else 0


def measure_bytes(setting: RanksSetting) -> Iterator[str]:
    """Bytes over links and shares, for each kind."""
    rows = []
    for kind, most in KINDS.items():
        source = setting.folder / "source.bin"
        truth = write_integers(source, kind, setting.n_values)
        result = setting.sort(source)
        yield from _verified(setting, truth, kind)
        whole = 8 * setting.n_values * (setting.n_ranks - 1) / setting.n_ranks  # what a random exchange would move
        ratio, share = _ranks(result)["link_bytes"] / whole, _ranks(result)["largest_share"]
        moved = _ranks(result)["plain_link_bytes"] / whole
        rows.append([kind, ratio, moved, share, result.bits_per_value or 64.0, _seconds(result)])
        if ratio > most:
            yield f"{kind}: {ratio:.2f} of the bytes cross links; the bar is {most}"
        if share > MOST_SHARE:
            yield f"{kind}: the largest share is {share:.2f} of the mean; the bar is {MOST_SHARE}"
    head = ["int64", "bytes over links", "the same unpacked", "largest share", "bits a value", "seconds"]
    print_table(f"{_about(setting)}; bytes as a share of an unpacked exchange of random keys", rows, head)


def measure_link(setting: RanksSetting) -> Iterator[str]:
    """Packing on and off behind slow links."""
    source = setting.folder / "source.bin"
    truth = write_integers(source, "random", setting.n_values)
    found = {}
    for pack in ("never", "always"):
        found[pack] = setting.sort(source, pack=pack, link=setting.link)
        yield from _verified(setting, truth, f"pack={pack}")
    seconds = {pack: result.phase_seconds["merge"] for pack, result in found.items()}
    n_bytes = {pack: _ranks(result)["link_bytes"] for pack, result in found.items()}
    rows = [[pack, n_bytes[pack] / 1e6, seconds[pack], _seconds(found[pack])] for pack in found]
    print_table(
        f"{_about(setting)}, random, links of {setting.link / 1e6:g} MB/s",
        rows,
        ["pack", "MB over links", "seconds of merge", "seconds"],
    )
    ratio, bar = seconds["always"] / seconds["never"], 1.1 * n_bytes["always"] / n_bytes["never"] + 0.1
    if ratio > bar:
        yield f"packed, the merge takes {ratio:.2f} of the time without; the bar is {bar:.2f}"


def measure_alone(setting: RanksSetting) -> Iterator[str]:
    """Without throttle, against one process."""
    source = setting.folder / "source.bin"
    truth = write_integers(source, "random", setting.n_values)
    target = setting.folder / "sorted.bin"
    one = sort_file(source, target, dtype="int64", memory=setting.memory * setting.n_ranks, overwrite=True, quiet=True)
    ranked = setting.sort(source)
    yield from _verified(setting, truth, "on ranks")
    ratio = _seconds(ranked) / _seconds(one)
    rows = [
        ["one process", _seconds(one), 1.0, one.wall_seconds],
        [f"{setting.n_ranks} ranks", _seconds(ranked), ratio, ranked.wall_seconds],
    ]
    print_table(f"{_about(setting)}, random", rows, ["", "seconds", "ratio", "with start"])
    if ratio > MOST_TIME:
        yield f"{setting.n_ranks} ranks take {ratio:.2f} of the time of one process; the bar is {MOST_TIME}"


def _about(setting: RanksSetting) -> str:
    size, memory = 8 * setting.n_values / 1e9, setting.memory / 1e6
    return f"{size:g} GB of int64 on {setting.n_ranks} ranks of {memory:.0f} MB"


def _seconds(result: SortResult) -> float:
    return sum(result.phase_seconds.values())


def _ranks(result: SortResult) -> dict[str, float]:
    assert result.ranks is not None
    return result.ranks


def _verified(setting: RanksSetting, truth: object, what: str) -> Iterator[str]:
    found = check(setting.folder / "sorted.bin")
    same = [getattr(found, name) == getattr(truth, name) for name in ("count", "sum", "xor")]
    if not (found.ordered and all(same)):
        yield f"{what}: the output is wrong"


_PART = {"bytes": measure_bytes, "link": measure_link, "alone": measure_alone}
