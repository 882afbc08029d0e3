"""Run replays in processes of their own, so that they use all cores; a child gets its task through a pipe."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tartan.base.child import describe_exit, die_with_parent, start_child
from tartan.errors import InternalError, TartanError
from tartan.plan.blocks import BlockRow
from tartan.plan.cluster import ClusterRow
from tartan.plan.report import Prediction
from tartan.plan.sorting import SortRow
from tartan.plan.triples import TripleRow

AnyPrediction = Prediction | ClusterRow | BlockRow | TripleRow | SortRow
PredictionCall = partial[Prediction] | partial[ClusterRow] | partial[BlockRow] | partial[TripleRow] | partial[SortRow]


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
    pipe = subprocess.PIPE
    with start_child("tartan.plan.side_by_side:main", os.getpid(), stdin=pipe, stdout=pipe, stderr=pipe) as child:
        found, errors = child.communicate(pickle.dumps(task))
    if child.returncode:
        raise InternalError(f"a replay ended: {describe_exit(child.returncode)}: {errors.decode()[-500:]}")
    answer = pickle.loads(found)
    if isinstance(answer, TartanError):
        raise answer
    assert isinstance(answer, AnyPrediction)
    return answer


def main(parent_pid: int) -> None:
    """Answer the task on standard input, in the child."""
    die_with_parent(parent_pid)
    try:
        answer: AnyPrediction | TartanError = pickle.loads(sys.stdin.buffer.read())()
    except TartanError as error:
        answer = error
    sys.stdout.buffer.write(pickle.dumps(answer))
