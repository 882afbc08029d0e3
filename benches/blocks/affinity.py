"""Blocks that must be moved between 8 nodes, by how pieces of work are dealt, against dealing at random.

Two workloads: the product of two matrices of 16 x 16 blocks (a piece makes one block of the result and needs a row of
blocks and a column of blocks), and all pairs of 64 blocks. Blocks lie on one node; on the nodes in turn, row by row
(for one-dimensional blocks: one by one); in turn by columns (contiguously); or at random. Scores are those of Unicorn
(local, transfers, remote) and the marginal one of Tartan; beside them shares of consecutive pieces row by row, and the
shares of ``core/ranks/division.py``. Figures are means over seeds.

Words: ``seeds=20``.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from benches.shared._measure import options_of, print_table
from tartan.core.affinity import TaskNeeds
from tartan.core.blocks.assignment import Affinity, Assignment, assign
from tartan.core.pairs.region import Region
from tartan.core.ranks.division import Divider, Sharer

NODES = 8
PRODUCT_SIDE = 16
PAIRS_SIDE = 64
SCORES: tuple[Affinity, ...] = ("local", "transfers", "remote", "marginal")


def product_demand() -> TaskNeeds:
    """Return what the pieces of a product need: units are the blocks of the left and of the right matrix."""
    side = range(PRODUCT_SIDE)

    def needs(piece: tuple[int, int]) -> dict[Hashable, float]:
        i, j = piece
        return dict.fromkeys([*(("left", i, k) for k in side), *(("right", k, j) for k in side)], 1.0)

    return in_order(TaskNeeds.of(((i, j) for i in side for j in side), needs))


def in_order(found: tuple[TaskNeeds, list[Hashable]]) -> TaskNeeds:
    """Number the units in ascending order."""
    demand, units = found
    place = np.argsort(np.array(sorted(range(len(units)), key=units.__getitem__)))
    return replace(demand, units=place[demand.units])


def pair_demand() -> TaskNeeds:
    """Return what all pairs of blocks need."""
    pieces = zip(*np.triu_indices(PAIRS_SIDE))
    return in_order(TaskNeeds.of(pieces, lambda piece: dict.fromkeys(map(int, piece), 1.0)))


def product_placements(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the node of each block of a product."""
    _, rows, columns = np.indices((2, PRODUCT_SIDE, PRODUCT_SIDE)).reshape(3, -1)
    return {
        "central": np.zeros(rows.size, dtype=int),
        "cyclic": rows % NODES,
        "column cyclic": columns % NODES,
        "random": rng.integers(0, NODES, rows.size),
    }


def pair_placements(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the node of each block of all pairs."""
    blocks = np.arange(PAIRS_SIDE)
    return {
        "central": np.zeros(PAIRS_SIDE, dtype=int),
        "cyclic": blocks % NODES,
        "contiguous": blocks * NODES // PAIRS_SIDE,
        "random": rng.integers(0, NODES, PAIRS_SIDE),
    }


def divided(pairs: np.ndarray) -> np.ndarray:
    """Return the node of each piece in the shares of the division, in the order of the pieces."""
    owners = np.full(pairs.shape, -1)
    shares = Divider(pairs, 1, circle=True).next_panel([Sharer(k, 1.0, len(pairs)) for k in range(NODES)])
    for node, regions in shares.items():
        for region in regions:
            mark(owners, region, node)
    return owners[pairs > 0]


def mark(owners: np.ndarray, region: Region, node: int) -> None:
    """Note who computes the chunks of a region."""
    for chunk in region.chunks():
        owners[chunk] = node


def shares_of_product() -> np.ndarray:
    """Return the two-dimensional shares of a product."""
    pairs = np.zeros((2 * PRODUCT_SIDE, 2 * PRODUCT_SIDE), dtype=np.int64)
    pairs[:PRODUCT_SIDE, PRODUCT_SIDE:] = 1
    return divided(pairs)


def shares_of_pairs() -> np.ndarray:
    """Return the shares of all pairs."""
    return divided(np.triu(np.ones((PAIRS_SIDE, PAIRS_SIDE), dtype=np.int64)))


def changes(demand: TaskNeeds, place: np.ndarray, geometry: np.ndarray, seed: int) -> dict[str, float]:
    """Return the weight moved by every way to deal, over that of dealing at random."""
    held = (place == np.arange(NODES)[:, None]).astype(float)
    task = Assignment(demand, held, np.ones(NODES), seed=seed)
    ways = {score: assign(task, score) for score in SCORES}
    ways["row-major"] = np.arange(demand.n_pieces) * NODES // demand.n_pieces
    ways["division"] = geometry
    base = task.cost(assign(task, "none"))
    return {name: task.cost(owners) / base for name, owners in ways.items()}


def main(words: list[str]) -> int:
    """Measure, print, and hold the bars."""
    chosen = options_of(words, seeds=20)
    failed: list[str] = []
    cases = (
        ("product", product_demand(), product_placements, shares_of_product()),
        ("all pairs", pair_demand(), pair_placements, shares_of_pairs()),
    )
    lines = []
    for name, demand, placements, geometry in cases:
        for kind in placements(np.random.default_rng(0)):
            found = [
                changes(demand, placements(np.random.default_rng(seed))[kind], geometry, seed)
                for seed in range(chosen.seeds)
            ]
            mean = {way: float(np.mean([one[way] for one in found])) for way in found[0]}
            lines.append([name, kind, *(f"{value - 1:+.0%}" for value in mean.values())])
            failed += [f"{name}, {kind}: {text}" for text in missed(name, mean)]
    head = ["workload", "blocks lie", *SCORES, "row-major", "division"]
    print_table(f"blocks moved between {NODES} nodes, against dealing at random", lines, head)
    for text in failed:
        print(f"NOT HELD: {text}", file=sys.stderr)
    return 1 if failed else 0


def missed(name: str, mean: dict[str, float]) -> list[str]:
    """Return the bars that are not held."""
    found = []
    best = min(mean[score] for score in ("local", "transfers", "remote"))
    if mean["marginal"] > 0.6:
        found.append(f"marginal moves {mean['marginal']:.1%} of dealing at random, more than 60 %")
    if mean["marginal"] > best * 1.01:
        found.append(f"marginal moves {mean['marginal'] / best - 1:.1%} more than the best of the others")
    if name == "product" and mean["division"] > mean["marginal"] * 0.85:
        found.append(f"two-dimensional shares move {mean['division'] / mean['marginal']:.1%} of marginal")
    return found
