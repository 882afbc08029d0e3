"""Blocks that must be moved between 8 nodes, by how pieces of work are dealt, against dealing at random.

Two workloads: the product of two matrices of 16 x 16 blocks (a piece makes one block of the result and needs a row of
blocks and a column of blocks), and all pairs of 64 blocks. Blocks lie on one node; on the nodes in turn, row by row
(for one-dimensional blocks: one by one); in turn by columns (contiguously); or at random. Scores are those of Unicorn
(local, transfers, remote) and the marginal one of Tartan; beside them shares of consecutive pieces row by row, and the
shares of ``core/division.py``. Figures are means over seeds.

Words: ``seeds=20``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from _measure import options_of, print_table
from tartan.core.affinity import Score, deal, moved_weight
from tartan.core.division import Divider, Sharer
from tartan.core.region import Region

NODES = 8
PRODUCT_SIDE = 16
PAIRS_SIDE = 64
SCORES: tuple[Score, ...] = ("local", "transfers", "remote", "marginal")


def product_needs() -> np.ndarray:
    """Return what the pieces of a product need: units are the blocks of the left and of the right matrix."""
    side = PRODUCT_SIDE
    needs = np.zeros((side, side, 2, side, side))
    for i in range(side):
        for j in range(side):
            needs[i, j, 0, i, :] = 1
            needs[i, j, 1, :, j] = 1
    return needs.reshape(side**2, -1)


def pair_needs() -> np.ndarray:
    """Return what all pairs of blocks need."""
    rows, columns = np.triu_indices(PAIRS_SIDE)
    needs = np.zeros((len(rows), PAIRS_SIDE))
    needs[np.arange(len(rows)), rows] = 1
    needs[np.arange(len(rows)), columns] = 1
    return needs


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


def changes(needs: np.ndarray, place: np.ndarray, geometry: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """Return the weight moved by every way to deal, over that of dealing at random."""
    held = place == np.arange(NODES)[:, None]
    in_turn = np.arange(len(needs)) * NODES // len(needs)
    ways: dict[str, Callable[[], np.ndarray]] = {
        **{score: (lambda score=score: deal(needs, held, score, rng)) for score in SCORES},
        "row-major": lambda: in_turn,
        "division": lambda: geometry,
    }
    base = moved_weight(needs, held, rng.permutation(in_turn))
    return {name: moved_weight(needs, held, way()) / base for name, way in ways.items()}


def main(words: list[str]) -> int:
    """Measure, print, and hold the bars."""
    chosen = options_of(words, seeds=20)
    failed: list[str] = []
    cases = (
        ("product", product_needs(), product_placements, shares_of_product()),
        ("all pairs", pair_needs(), pair_placements, shares_of_pairs()),
    )
    lines = []
    for name, needs, placements, geometry in cases:
        for kind in placements(np.random.default_rng(0)):
            found = [
                changes(needs, placements(np.random.default_rng(seed))[kind], geometry, np.random.default_rng(seed))
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
