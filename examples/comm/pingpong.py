"""Send a message back and forth between two ranks: what a message of each length costs.

tartan ranks --cpus 2 examples/comm/pingpong.py --bytes 0 1000 1000000
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from tartan import comm


def round_trips(world: comm.RankCommunicator, message: np.ndarray, times: int) -> tuple[float, np.ndarray]:
    """Send a message from rank 0 to rank 1 and back; return the seconds of a round trip, and what came back."""
    echo = np.empty_like(message)
    world.barrier()
    start = time.perf_counter()
    for _ in range(times if world.rank < 2 else 0):
        if world.rank == 0:
            world.send(message, to=1)
            world.recv(echo, source=1)
        else:
            world.recv(echo, source=0)
            world.send(echo, to=0)
    return (time.perf_counter() - start) / times, echo


def main() -> None:
    """Measure each length; ranks beyond the second one sleep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, nargs="+", default=[0, 1000, 1_000_000])
    parser.add_argument("--times", type=int, default=1000, help="round trips of each length")
    parser.add_argument("--save", metavar="FILE.npy", help="where the last message goes that came back")
    args = parser.parse_args()
    world = comm.world()
    if world.size < 2:
        raise SystemExit("two ranks are needed: tartan ranks --cpus 2 pingpong.py")
    for n_bytes in args.bytes:
        message = np.arange(n_bytes).astype(np.uint8)
        seconds, echo = round_trips(world, message, args.times)
        if world.rank == 0:
            print(f"{n_bytes:>10,} bytes: {seconds * 1e6:10.1f} us a round trip")
            if args.save:
                np.save(args.save, echo)


if __name__ == "__main__":
    main()
