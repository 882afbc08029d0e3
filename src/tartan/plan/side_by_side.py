"""Run replays in processes of their own, so that they use all cores.

A child is a fresh interpreter that gets its task through a pipe: the caller's script needs no main guard, and
its threads and locks are not copied.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tartan.errors import InternalError, TartanError
from tartan.plan.blocks import BlockRow
from tartan.plan.cluster import ClusterRow
from tartan.plan.report import Prediction
from tartan.plan.triples import TripleRow

AnyPrediction = Prediction | ClusterRow | BlockRow | TripleRow
PredictionCall = partial[Prediction] | partial[ClusterRow] | partial[BlockRow] | partial[TripleRow]


def predict_all(tasks: Sequence[PredictionCall], processes: int) -> list[AnyPrediction]:
    """Return the outcome of every task, ``processes`` at a time; tasks are calls of functions of the package.

    Raises
    ------
    TartanError
        The first error of a replay.
    InternalError
        If a child ended without an answer.
    """
    pool = ThreadPoolExecutor(processes)
    try:
        return list(pool.map(_predict_in_child, tasks))
    finally:
        pool.shutdown(cancel_futures=True)


def _predict_in_child(task: PredictionCall) -> AnyPrediction:
    child = subprocess.run(
        [sys.executable, "-m", "tartan.plan.side_by_side"], input=pickle.dumps(task), capture_output=True, check=False
    )
    if child.returncode:
        raise InternalError(f"a replay ended with status {child.returncode}: {child.stderr.decode()[-500:]}")
    answer = pickle.loads(child.stdout)
    if isinstance(answer, TartanError):
        raise answer
    assert isinstance(answer, AnyPrediction)
    return answer


def _answer() -> None:
    """Answer the task on stdin, in the child."""
    try:
        answer: AnyPrediction | TartanError = pickle.loads(sys.stdin.buffer.read())()
    except TartanError as error:
        answer = error
    sys.stdout.buffer.write(pickle.dumps(answer))


if __name__ == "__main__":
    _answer()
