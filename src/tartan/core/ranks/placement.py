"""Where the stages before a comparison run: beside the data, or with the ranks that compute.

Stages follow one another, so a placement is one number, its *depth*: how many of them run beside the data. At depth 0
the bytes of files travel, at depth 1 parsed items, at depth 2 items that are ready to be compared. A group of files is
parsed by ``group``, which stands in the place of ``parse``.

What an item costs is known before a run from the few that were looked at, and then from what each side measures. All
stages overlap, so the longest of three decides: the work beside the data, the link, and the work of those that compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tartan.errors import ConfigError

FILES, PARSED, READY = 0, 1, 2
"""Depths."""
AUTO = -1
"""In place of a depth: choose it by what an item costs."""
STORAGE_RANKS = "storage ranks"
"""Entry of the bytes of a run: what came from ranks beside the data."""
DEPTHS = {"parse": PARSED, "group": PARSED, "preprocess": READY}
"""Of the stages that may run beside the data."""

# By arithmetic: below what times of runs vary by (5 % on an idle machine), and well within the 5 % that a choice may
# cost. `tartan bench cluster_stages` holds the outcome.
NEAR = 1.02
"""Placements whose time is within this factor of the least are equal: the one with the fewest bytes is taken."""
# By judgement: a link of 1 Gbit/s, the slowest that clusters have; used until a transfer has shown another.
ASSUMED_LINK = 1.17e8
"""Bytes a second of a link that is not known."""
# By judgement: a user does not feel it, and a link that is not known can be off by as much.
WORTH_SECONDS = 1.0
"""Where the link is not known, bytes decide unless another placement makes the run faster by more than this."""


@dataclass(frozen=True)
class StageNames:
    """Which stages an application has, in their order.

    Attributes
    ----------
    app : str
        Its name, for messages.
    names : tuple of str
        Of ``DEPTHS``.
    on_device : bool
        Whether devices preprocess.
    """

    app: str
    names: tuple[str, ...]
    on_device: bool = False

    def depth_of(self, wanted: Sequence[str]) -> int:
        """Return how many stages run beside the data if these do; ``READY`` where they are all that there are.

        Raises
        ------
        ConfigError
            If the application lacks one, one that runs there needs the result of one that does not, or a device
            preprocesses.
        """
        for name in wanted:
            self._require(name)
        depth = max((DEPTHS[name] for name in wanted), default=FILES)
        first = [name for name in self.names if DEPTHS[name] == PARSED]
        if depth == READY and first and not set(first) & set(wanted):
            raise ConfigError(
                f"--stages: preprocess needs what {' or '.join(first)} makes, so it cannot run beside the data alone; "
                f"write --stages storage:{','.join(first)},preprocess",
                context={"option": "--stages"},
            )
        return READY if depth and depth == max(DEPTHS[name] for name in self.names) else depth

    def _require(self, name: str) -> None:
        if name not in self.names:
            has = f"its stages are {', '.join(self.names)}" if self.names else "it has none; leave --stages out"
            raise ConfigError(f"--stages: {self.app} defines no {name}; {has}", context={"option": "--stages"})
        if DEPTHS[name] == READY and self.on_device:
            others = ",".join(one for one in self.names if DEPTHS[one] < READY)
            keep = f"storage:{others}" if others else "compute"
            raise ConfigError(
                f"--stages: {name} of {self.app} runs on the devices of this run, and a storage rank has none; write "
                f"--stages {keep}, or --device cpu",
                context={"option": "--stages"},
            )


def parse_stages(text: str) -> tuple[str, ...] | None:
    """Return which stages run beside the data, from what a user wrote; None: "auto".

    Raises
    ------
    ConfigError
        If it is not understood.

    Examples
    --------
    >>> parse_stages("storage:parse,preprocess")
    ('parse', 'preprocess')
    >>> parse_stages("compute")
    ()
    """
    forms = "auto, compute, or storage: and stages, such as storage:parse,preprocess"
    if text == "auto":
        return None
    if text == "compute":
        return ()
    place, colon, listed = text.partition(":")
    names = [name.strip() for name in listed.split(",")]
    if place != "storage" or not colon or names == [""]:
        raise ConfigError(f"--stages {text!r} is unknown; choose {forms}", context={"option": "--stages"})
    unknown = next((name for name in names if name not in DEPTHS), None)
    if unknown is not None:
        raise ConfigError(
            f"--stages {text!r}: {unknown!r} cannot run beside the data; what can is {', '.join(DEPTHS)}",
            context={"option": "--stages"},
        )
    if len(set(names)) < len(names):
        raise ConfigError(f"--stages {text!r} names a stage twice", context={"option": "--stages"})
    return tuple(sorted(names, key=list(DEPTHS).index))


@dataclass(frozen=True)
class PlacementCosts:
    """What an item costs, by depth and by stage; all lists are by depth or by stage, in their order.

    Attributes
    ----------
    sent_bytes : sequence of float
        What travels, of an item, by depth; infinite where it cannot.
    beside_seconds, there_seconds : sequence of float
        Of each stage, on one worker beside the data and on one of those that compute.
    n_beside, n_there : int
        Workers of all ranks beside the data, and of all that compute.
    compare_seconds : float
        What workers that compute have to do besides, for an item.
    device_seconds : float
        What devices with memory of their own have to do, all together.
    link_bytes_per_second : float
        Of all links together; 0 where it is not known.
    n_items : int
    """

    sent_bytes: Sequence[float]
    beside_seconds: Sequence[float]
    there_seconds: Sequence[float]
    n_beside: int = 1
    n_there: int = 1
    compare_seconds: float = 0.0
    device_seconds: float = 0.0
    link_bytes_per_second: float = 0.0
    n_items: int = 1

    def run_seconds(self, depth: int) -> float:
        """Return how long a run takes at a depth: its slowest resource works all the time, the others begin with it."""
        beside = sum(self.beside_seconds[:depth]) / max(1, self.n_beside)
        there = (self.compare_seconds + sum(self.there_seconds[depth:])) / max(1, self.n_there)
        link = self.sent_bytes[depth] / (self.link_bytes_per_second or ASSUMED_LINK)
        parts = (beside, link, there, self.device_seconds)
        return max(parts) * self.n_items + sum(parts) - max(parts)


def choose_depth(costs: PlacementCosts, depths: Sequence[int]) -> int:
    """Return the depth at which a run is fastest; of those that are about as fast, the one with the fewest bytes.

    Parameters
    ----------
    costs : PlacementCosts
    depths : sequence of int
        Those that are possible; at least one.
    """
    seconds = {depth: costs.run_seconds(depth) for depth in depths}
    least = min(seconds.values())
    slack = WORTH_SECONDS if costs.link_bytes_per_second <= 0 else 0.0
    near = [depth for depth in depths if seconds[depth] <= max(NEAR * least, least + slack)]
    return min(near, key=lambda depth: (costs.sent_bytes[depth], depth))


class Means:
    """Means of what was measured of an item, by name; what is not known yet is what was expected."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}

    def note(self, name: str, total: float, n_items: int, *, warms_up: bool = False) -> None:
        """Take note of what some items took together; the first that ``warms_up`` counts for nothing."""
        before = self._sums.get(name)
        if before is None and warms_up:
            self._sums[name] = (0.0, 0)
            return
        before = before or (0.0, 0)
        self._sums[name] = (before[0] + total, before[1] + n_items)

    def of(self, name: str, expected: float = 0.0) -> float:
        """Return what an item takes."""
        total, count = self._sums.get(name, (0.0, 0))
        return total / count if count else expected
