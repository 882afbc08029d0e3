"""Block tasks against NumPy, SciPy and Dask array: product, LU, convolution.

On one rank against NumPy's product and SciPy's ``lu_factor`` with all cores, and Dask's LU in threads; on several ranks
of this machine against Dask array on as many worker processes of one thread, operands spread before the clock starts.
Bytes are those that move between processes; of Dask the sums of ``transfer_incoming_log``. The bound of the product is
the two-dimensional one less what ranks hold.

``ranks`` also gives Dask's time over that of one NumPy product with all cores: more than that nothing can reach here.

``output`` counts the writing of the product to disk, too.

``memory`` runs the product on one rank whose memory is a quarter and a sixteenth of the three matrices, in blocks of a
side that Tartan chooses, and counts the words read and written.

``link`` multiplies on ranks in threads of this process whose functions wait instead of computing, over links so slow
that the busiest rank sends, or receives, for a given share of that time; beside it stands what the replay says.

``replay`` runs product, LU and convolution on several ranks, operands spread at random, and counts the bytes over those
of the same tasks in virtual time: without stealing they are equal, with it within a tenth.

Words: ``only=product`` (or ``output``, ``lu``, ``convolve``, ``ranks``, ``memory``, ``link``, ``replay``) ``n=8192``
``block=1024`` ``ranks=4`` ``rounds=2`` ``filters=10``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import zarr

from benches.blocks.blocks_plan import bound_of_equal_lines
from benches.shared._measure import alternate, options_of, print_table
from tartan.blocks import Session, Task
from tartan.blocks.applications.convolve import convolve
from tartan.blocks.applications.lu import eliminate, lu
from tartan.blocks.applications.matmul import matmul
from tartan.blocks.cluster_crew import ClusterCrew, RankOptions
from tartan.blocks.cluster_crew import main as main_of_rank
from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.thread_engine import ThreadHub
from tartan.core.blocks.workloads import BlockWorkload, lu_of_blocks, product_of_blocks, stencil_of_blocks
from tartan.core.replay.blocks import BlockNetwork, BlockOptions, BlockRank, BlockReplay

Row = list[Any]


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print one table, return the numbers."""
    options = options_of(words, only="", n=8192, block=1024, ranks=4, rounds=2, filters=10)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((options.n, options.n), dtype=np.float32) for _ in "ab")
    parts: dict[str, Callable[[Any, np.ndarray, np.ndarray], dict[str, Any]]] = {
        "product": product,
        "output": output,
        "lu": factors,
        "convolve": filtered,
        "ranks": ranks,
        "memory": memory,
        "link": link,
        "replay": replay,
    }
    results = {name: part(options, a, b) for name, part in parts.items() if options.only in ("", name)}
    rows = [[name, key, f"{value:,.3f}"] for name, found in results.items() for key, value in found.items()]
    print_table("block tasks", rows, ("part", "figure", "value"))
    return results


def product(options: Any, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Multiply on one rank."""

    def ours() -> float:
        with Session() as session:
            return matmul(session, a, b, block=options.block)[1].seconds

    contest = alternate(ours, lambda: _numpy_seconds(a, b, 1), options.rounds)
    return {"times NumPy's speed (bar 0.90)": contest.best_ratio, "seconds": min(contest.ours)}


def output(options: Any, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Multiply on one rank and write the product to disk, as ``tartan blocks matmul`` does, NumPy and Zarr alike."""
    with TemporaryDirectory(dir=".") as folder:

        def ours() -> float:
            begin = time.perf_counter()
            with Session() as session:
                matmul(session, a, b, block=options.block)[0].to_zarr(f"{folder}/ours.zarr", overwrite=True)
            return time.perf_counter() - begin

        def peer() -> float:
            begin = time.perf_counter()
            found = np.matmul(a, b)
            zarr.create_array(f"{folder}/peer.zarr", data=found, chunks=(options.block,) * 2, overwrite=True)
            return time.perf_counter() - begin

        contest = alternate(ours, peer, options.rounds)
    return {"times the speed of NumPy and Zarr": contest.best_ratio, "seconds": min(contest.ours)}


def _numpy_seconds(a: np.ndarray, b: np.ndarray, rounds: int) -> float:
    """Return what one product takes with all cores; the best of some."""
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        np.matmul(a, b)
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def factors(options: Any, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Factor on one rank; say also how far the factors are from the matrix."""
    import scipy.linalg

    matrix = a + np.diag(np.full(len(a), 4 * len(a) ** 0.5 * 10, np.float32))
    errors: list[float] = []

    def ours() -> float:
        with Session() as session:
            found, report = lu(session, matrix, block=options.block)
            if not errors:
                errors.append(_lu_error(matrix, found.array()))
        return report.seconds

    def peer() -> float:
        begin = time.perf_counter()
        scipy.linalg.lu_factor(matrix, check_finite=False)
        return time.perf_counter() - begin

    contest = alternate(ours, peer, options.rounds)
    return {
        "times SciPy's speed (bar 0.8)": contest.best_ratio,
        "times Dask's speed (bar 2)": _dask_lu_seconds(matrix, options.block) / min(contest.ours),
        "error / (n eps max) (bar 10)": errors[0],
    }


def _dask_lu_seconds(matrix: np.ndarray, block: int) -> float:
    """Factor with Dask array in threads of this process, as many as cores, each with one thread of BLAS."""
    import dask
    from dask.array import from_array, linalg
    from threadpoolctl import threadpool_limits

    begin = time.perf_counter()
    with threadpool_limits(1, "blas"), dask.config.set(scheduler="threads"):
        dask.persist(*linalg.lu(from_array(matrix, chunks=block)))
    return time.perf_counter() - begin


def _lu_error(matrix: np.ndarray, found: np.ndarray) -> float:
    lower = np.tril(found, -1)
    np.fill_diagonal(lower, 1)
    error = float(np.abs(matrix - lower @ np.triu(found)).max())
    return error / (len(matrix) * float(np.finfo(matrix.dtype).eps) * float(np.abs(matrix).max()))


def filtered(options: Any, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Convolve several times with 31 x 31, on several ranks; Dask with the same function."""
    from scipy.signal import fftconvolve

    kernel = np.full((31, 31), 1 / 961, np.float32)
    with Session(f"local:{options.ranks}") as session:
        report = convolve(session, a, [kernel] * options.filters, block=options.block, boundary="reflect")[1]
    with _dask(options.ranks) as (dask_array, client):
        image = client.persist(dask_array.from_array(a, chunks=options.block))
        _wait(image)
        begin = time.perf_counter()
        for _ in range(options.filters):
            image = image.map_overlap(
                lambda window: fftconvolve(window, kernel, mode="same").astype("f4"), depth=15, boundary="reflect"
            )
        image = client.persist(image)
        _wait(image)
        seconds = time.perf_counter() - begin
    assert report.bytes_bound is not None
    return {
        "times Dask's speed (bar 1)": seconds / report.seconds,
        "bytes moved / halos of equal shares (bar 1.05)": report.bytes_moved / report.bytes_bound,
        "subtasks stolen": report.steals,
        "seconds": report.seconds,
    }


def ranks(options: Any, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Multiply on several ranks, operands spread; Dask array the same."""
    with Session(f"local:{options.ranks}") as session:
        _, report, bound = matmul(session, a, b, block=options.block, place="random")
    with _dask(options.ranks) as (dask_array, client):
        left, right = (client.persist(dask_array.from_array(one, chunks=options.block)) for one in (a, b))
        _wait(left)
        _wait(right)
        before = _received(client)
        begin = time.perf_counter()
        _wait(client.persist(left @ right))
        seconds, received = time.perf_counter() - begin, _received(client) - before
    alone = _numpy_seconds(a, b, options.rounds)
    beyond = "" if seconds / alone >= 3 else ", beyond this machine"
    return {
        f"times Dask's speed (bar 3{beyond})": seconds / report.seconds,
        "NumPy with all cores, times Dask's speed": seconds / alone,
        "bytes / Dask's (bar 0.5)": report.bytes_moved / max(1, received),
        "bytes / bound (bar 1.2)": report.bytes_moved / max(1, bound),
        "seconds": report.seconds,
        "bytes moved": report.bytes_moved,
    }


def memory(options: Any, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Multiply files on one rank that has too little memory."""
    n, found = len(a), {}
    with TemporaryDirectory() as folder:
        for name, values in (("a", a), ("b", b)):
            np.save(f"{folder}/{name}.npy", values)
        for times in (4, 16):
            room = 3 * n * n // times
            with Session(host_cache=4 * room) as session:
                report = matmul(session, f"{folder}/a.npy", f"{folder}/b.npy")[1]
            words = (report.bytes_read + report.bytes_spilled + report.bytes_restored) / 4
            found[f"{times} times its memory: words / (3 n^2 + 2 n^3 / sqrt(M)) (bar 1)"] = words / (
                3 * n**2 + 2 * n**3 / room**0.5
            )
    return found


def link(options: Any, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Multiply 32 x 32 blocks over links on which the busiest rank is busy for a share of the time to compute."""
    blocks, side, seconds = 32, 32, 0.05
    whole = blocks**2 / options.ranks * seconds
    workload = product_of_blocks(blocks, side)
    speed, at_once = 2.0 * side**3 * blocks / seconds, BlockNetwork(1.0, latency_seconds=0.0)
    found = {}
    for placement in ("row cyclic", "random"):
        about = BlockOptions(placement=placement, steal=None)  # type: ignore[arg-type]
        bytes_of_busiest = BlockReplay(workload, [BlockRank(1e300)] * options.ranks, at_once, about).run().seconds
        for share in (0.5, 0.9):
            rate = bytes_of_busiest / (whole * share)
            network = BlockNetwork(rate, latency_seconds=0.0)
            said = BlockReplay(workload, [BlockRank(speed)] * options.ranks, network, about).run().seconds
            what = f"{placement}, transfer {share} of the work: time / work"
            bar = 1.1 if placement == "row cyclic" else max(1.1, 1.05 * bound_of_equal_lines(blocks, share))
            with _slow_ranks(options.ranks, rate) as crew, Session(crew) as session:
                found[f"{what} (bar {bar:.3g})"] = (
                    _seconds_of_waiting(session, blocks, side, seconds, placement) / whole
                )
            found[f"{what}, replayed"] = said / whole
    return found


def _seconds_of_waiting(session: Session, blocks: int, side: int, seconds: float, placement: str) -> float:
    """Return what a product takes whose subtasks wait instead of computing."""
    values = np.ones((blocks * side, blocks * side), np.float32)
    A, B = (session.space(values, block=side, place=placement) for _ in "AB")
    C = session.space(shape=values.shape, dtype="f4", block=side)

    def wants(i: Any, j: Any) -> Any:
        rows, columns = C.block(i, j)
        return A.read[rows, :], B.read[:, columns], C.write[rows, columns]

    def waits(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
        time.sleep(seconds)

    return session.run(Task(waits, C.grid, wants, at_once=True, releases_gil=True)).seconds


@contextmanager
def _slow_ranks(n_ranks: int, bytes_per_second: float) -> Iterator[ClusterCrew]:
    """Open ranks in threads, each of which sends no faster than this."""
    hub = ThreadHub()
    engine = hub.engine("driver")

    def start() -> None:
        while not engine.view().epoch:
            time.sleep(0.01)
        for number in range(n_ranks):
            rank = partial(main_of_rank, hub.engine(f"rank-{number}"), throttle=Throttle(bytes_per_second))
            threading.Thread(target=rank, daemon=True).start()

    @contextmanager
    def opened() -> Iterator[Any]:
        threading.Thread(target=start, daemon=True).start()
        yield engine
        engine.leave()

    yield ClusterCrew(opened(), n_ranks, RankOptions(1 << 28, 1, "", 1))


def replay(options: Any, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Run the computations of a plan on several ranks, and in virtual time."""
    side = options.block
    n = len(a) // side
    a, b = (one[: n * side, : n * side] for one in (a, b))
    matrix = a + np.diag(np.full(len(a), 40 * len(a) ** 0.5, np.float32))
    kernel = np.full((31, 31), 1 / 961, np.float32)
    runs: dict[str, tuple[Callable[[Session], Any], BlockWorkload]] = {
        "product": (lambda s: matmul(s, a, b, block=side, place="random"), product_of_blocks(n, side)),
        "LU": (lambda s: _eliminated(s, matrix, side), lu_of_blocks(n, side, ahead=True)),
        "convolution": (
            lambda s: convolve(s, a, [kernel] * 3, block=side, place="random"),
            stencil_of_blocks((n, n), side, 15, 3, 4.0, 1.0),
        ),
    }
    found = {}
    for name, (run, workload) in runs.items():
        about = BlockOptions(steal=None)
        said = BlockReplay(workload, [BlockRank(1e9)] * options.ranks, options=about).run().bytes_moved
        for steal, bar in ((False, "1.00"), (True, "0.90 to 1.10")):
            with Session(f"local:{options.ranks}", steal=steal) as session:
                run(session)
                moved = session.total.bytes_moved
            found[f"{name}, {'with' if steal else 'no'} stealing: bytes / replay's (bar {bar})"] = moved / said
    return found


def _eliminated(session: Session, matrix: np.ndarray, side: int) -> None:
    """Run the tasks of LU, without the search for the largest element before them."""
    a = session.space(matrix, block=side, place="random")
    for k in a.grid_rows:
        eliminate(session, a, k, np.inf)


@contextmanager
def _dask(n_workers: int) -> Iterator[tuple[Any, Any]]:
    import dask.array
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield dask.array, client


def _wait(array: Any) -> None:
    from distributed import wait

    wait(array)


def _received(client: Any) -> int:
    logs = client.run(lambda dask_worker: [one["total"] for one in dask_worker.transfer_incoming_log])
    return sum(sum(log) for log in logs.values())
