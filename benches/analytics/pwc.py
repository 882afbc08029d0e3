"""Pairwise clustering against a NumPy implementation of the same equations, and its passes against memory bandwidth.

The peer is float64 NumPy with BLAS on all cores: the same schedule, expectation-maximisation and splits, and the two
power iterations for each cluster that the published program makes. It is given float64, Tartan float32 and int16.
A pass of expectation-maximisation is compared with reading the same matrix by as many threads.

    tartan bench pwc [n=4000] [k=8]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import adjusted_rand_score

from benches.shared._measure import cores, load_average, options_of, print_table, seconds_of
from tartan.analytics import DAPWC, Alone, Monitor, as_dissimilarities
from tartan.analytics.clusters.dapwc.product import HostProduct
from tartan.analytics.clusters.dapwc.state import PairwiseSettings, assign, first_state, update_costs

ITEMS, CLUSTERS = 4000, 8
PASSES = 60
FITS = 3  # of Tartan, the median counts: each is ten times shorter than the peer's, a moment of a neighbour's hurts it
COLUMNS = (1, 2, 5, 8, 16, 32)


def blobs(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return distances of n points in k Gaussian clusters, at most 1, and the clusters."""
    rng = np.random.default_rng(12345)
    centres = rng.normal(0, 3.0, size=(k, 10))
    labels = rng.integers(0, k, size=n)
    D = squareform(pdist(centres[labels] + rng.normal(0, 1.0, size=(n, 10))))
    return D / D.max(), labels


class Peer:
    """The equations in NumPy; every product with the matrix is one BLAS call."""

    def __init__(self, D: np.ndarray, n_clusters: int) -> None:
        self.D, self.n, self.n_clusters = D, len(D), n_clusters
        self.n_products = 0

    def costs(self, members: np.ndarray) -> tuple[np.ndarray, ...]:
        self.n_products += 1
        sizes = members.sum(0)
        distances = self.D @ members / sizes
        inner = -0.5 * (distances * members).sum(0) / sizes
        return sizes, distances, inner, distances + inner

    def assign(self, costs: np.ndarray, temperature: float, copies: np.ndarray) -> np.ndarray:
        weights = np.exp((costs.min(1, keepdims=True) - costs) / temperature)
        return weights / (weights @ copies)[:, None]

    def converge(
        self, members: np.ndarray, costs: np.ndarray, temperature: float, copies: np.ndarray, ignore: int, limit: int
    ) -> tuple[np.ndarray, np.ndarray]:
        for step in range(limit):
            new = self.costs(members)[3]
            members = self.assign(new, temperature, copies)
            change = np.abs(new - costs).sum(0).max() / self.n
            costs = new
            if step >= ignore and change <= 1e-3:
                break
        return members, costs

    def power(self, apply: Callable[[np.ndarray], np.ndarray]) -> tuple[float, np.ndarray]:
        vector = 1 + 0.5 * np.arange(self.n) / self.n
        vector /= np.linalg.norm(vector)
        value = 0.0
        for step in range(200):
            image = apply(vector)
            new = float(vector @ image)
            residual = float(((image - new * vector) ** 2).sum())
            done = step > 10 and abs(new - value) <= abs(new) * 1e-3 and residual <= new**2 * 1e-3
            value, vector = new, image / np.linalg.norm(image)
            if done:
                break
        return value, vector

    def eigen(self, members: np.ndarray, k: int, temperature: float, factor: float) -> tuple[float, float, np.ndarray]:
        sizes, distances, inner, _ = self.costs(members)
        m, b, a, size = members[:, k], distances[:, k], inner[k], sizes[k]

        def apply(vector: np.ndarray) -> np.ndarray:
            self.n_products += 1
            weighted = m * vector
            mixed = self.D @ weighted - (2 * a + b) * weighted.sum() - weighted @ b
            return factor * m * (vector + mixed / (temperature * size))

        first, vector = self.power(apply)
        shifted, other = self.power(lambda v: first * v - apply(v))
        if first < 0:  # the largest by magnitude is the smallest, where a cluster is far beyond its phase transition
            return first, first - shifted, vector
        return first - shifted, first, other

    def test(self, members: np.ndarray, costs: np.ndarray, temperature: float) -> tuple[Any, ...]:
        k = members.shape[1]
        found = []
        for cluster in range(k):
            looked_at, factor = members, 0.5
            if k > 1:
                copies = np.ones(k)
                copies[cluster] = 2
                looked_at, _ = self.converge(members, costs, temperature, copies, 0, 200)
                factor = 1.0
            found.append((*self.eigen(looked_at, cluster, temperature, factor), cluster))
        return min(found, key=lambda one: one[0])

    def fit(self) -> None:
        temperature = float(2 * self.D.sum() / (self.n * (self.n - 1)))
        members, costs = np.ones((self.n, 1)), np.zeros((self.n, 1))
        cooling, waited, ignore = 0.9, 0, 0
        while True:
            k = members.shape[1]
            members, costs = self.converge(members, costs, temperature, np.ones(k), ignore, 2000)
            ignore = 0
            if k == self.n_clusters:
                break
            if k == 1 or waited >= 10:
                low, high, vector, cluster = self.test(members, costs, temperature)
                waited = 0
                if low <= -0.01 * high:
                    costs = self.split(members, costs, temperature, vector, cluster)
                    members = self.assign(costs, temperature, np.ones(k + 1))
                    cooling, ignore = 0.99, 2
                    continue
            temperature *= cooling
            waited += 1
        self.labels = self.freeze(members, costs, temperature)

    def split(
        self, members: np.ndarray, costs: np.ndarray, temperature: float, vector: np.ndarray, cluster: int
    ) -> np.ndarray:
        slope = members[:, cluster] / 2 * vector / temperature
        gradient = np.abs(slope).sum() if members.shape[1] == 1 else abs(slope.sum())
        old = costs[:, cluster]
        step = min(0.05 * members[:, cluster].sum() / gradient, 0.1 * np.sqrt((old**2).sum() / (vector**2).sum()))
        new = np.column_stack([costs, old - step * vector])
        new[:, cluster] += step * vector
        return new

    def freeze(self, members: np.ndarray, costs: np.ndarray, temperature: float) -> np.ndarray:
        copies = np.ones(members.shape[1])
        for _ in range(2000):
            members, costs = self.converge(members, costs, temperature, copies, 0, 2000)
            if ((members * (1 - members)).sum(0) / members.sum(0)).max() <= 0.002:
                break
            temperature *= 0.98
        return costs.argmin(1)


def best(call: Callable[[], object], rounds: int = PASSES) -> float:
    """Return the shortest time of a call in seconds."""
    return min(seconds_of(call) for _ in range(rounds))


def reading(D: np.ndarray, pool: ThreadPoolExecutor) -> Callable[[], object]:
    """Return a call that reads the matrix on all cores and does next to nothing with it."""
    parts = np.array_split(D.reshape(-1).view(np.int64), cores())
    return lambda: list(pool.map(np.bitwise_xor.reduce, parts))


def both_times(call: Callable[[], object]) -> tuple[float, float]:
    """Return how long a call takes, and the processor time of all threads meanwhile."""
    before = time.process_time()
    seconds = seconds_of(call)
    return seconds, time.process_time() - before


def passes(D: np.ndarray, k: int, rounds: int = PASSES) -> dict[str, float]:
    """Compare a pass, and the product in it, with reading the matrix.

    On a busy machine two threads seldom run at once, and times say who was lucky. Processor time counts only what a
    thread ran; for the same number of threads its ratio is that of the times on an idle machine.
    """
    found = as_dissimilarities(D)
    product = HostProduct(found, Alone(), Monitor())
    settings = PairwiseSettings(k)
    state = first_state(np.random.default_rng(0).dirichlet(np.ones(k), found.n))

    def step() -> None:
        update_costs(state, product)
        assign(state, 0.1, settings)

    with ThreadPoolExecutor(cores()) as pool:
        calls = {"read": reading(D, pool), "pass": step, "product": lambda: product(state.members)}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for _ in range(rounds):  # taking turns, so that all suffer the same neighbours
            for name, call in calls.items():
                times[name].append(both_times(call))
    fastest = {name: min(values)[0] for name, values in times.items()}
    median, busy = (
        {name: statistics.median(value[which] for value in values) for name, values in times.items()}
        for which in (0, 1)
    )
    return {
        "pass_ms": 1e3 * fastest["pass"],
        "gb_per_s": D.nbytes / fastest["pass"] / 1e9,
        "read_gb_per_s": D.nbytes / fastest["read"] / 1e9,
        "share_of_bandwidth": fastest["read"] / fastest["pass"],
        "median_share": median["read"] / median["pass"],
        "processor_share": busy["read"] / busy["pass"],
        "processor_share_of_product": busy["read"] / busy["product"],
    }


def solutions(n: int, k: int) -> dict[str, Any]:
    """Compare times to solution."""
    D, labels = blobs(n, k)
    single, short = D.astype(np.float32), np.rint(D * 32767).astype(np.int16)
    result: dict[str, Any] = {}
    for name, given in (("float32", single), ("int16", short)):
        given_checked = as_dissimilarities(given)
        result[f"check_{name}_s"] = seconds_of(given_checked.check)
        model = DAPWC(k, random_state=0)
        turns = zip(*(both_times(partial(model.fit, given_checked)) for _ in range(FITS)), strict=True)
        result[f"{name}_s"], result[f"{name}_processor_s"] = map(statistics.median, turns)
        result[f"ari_{name}"] = float(adjusted_rand_score(labels, model.labels_))
    peer = Peer(D, k)
    result["peer_s"], result["peer_processor_s"] = both_times(peer.fit)
    result["ari_peer"] = float(adjusted_rand_score(labels, peer.labels))
    result["peer_products"] = peer.n_products
    for name in ("float32", "int16"):
        result[f"ratio_{name}"] = result["peer_s"] / result[f"{name}_s"]
        result[f"processor_ratio_{name}"] = result["peer_processor_s"] / result[f"{name}_processor_s"]
    return result


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Measure, print, return the numbers."""
    words = options_of(arguments, n=ITEMS, k=CLUSTERS)
    n, k = words.n, words.k
    solved = solutions(n, k)
    print_table(
        f"time to solution, {n} items, {k} clusters",
        [
            [
                name,
                solved[f"{name}_s"],
                solved[f"ratio_{name}"],
                solved[f"processor_ratio_{name}"],
                solved[f"ari_{name}"],
            ]
            for name in ("float32", "int16")
        ]
        + [["NumPy", solved["peer_s"], 1.0, 1.0, solved["ari_peer"]]],
        ["what", "seconds", "times faster", "times less processor time", "ARI"],
    )
    rng = np.random.default_rng(0)
    rows, found = [], {}
    for dtype in ("int16", "float32"):
        for columns in COLUMNS:
            D = rng.integers(0, 32767, (n, n), dtype=np.int16)
            D = np.triu(D, 1) + np.triu(D, 1).T
            one = passes(D if dtype == "int16" else (D / np.float32(32767)), columns)
            found[f"{dtype} {columns}"] = one
            rows.append([dtype, columns, *one.values()])
    head = ["values", "K", "pass ms", "GB/s", "read GB/s", "best", "median", "processor", "product alone"]
    print_table(f"a pass of expectation-maximisation as a share of the speed of reading, {n} items", rows, head)
    return {"solution": solved, "passes": found, "load": load_average()}


if __name__ == "__main__":
    main(sys.argv[1:])
