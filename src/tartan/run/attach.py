"""Follow a run that another process computes, until it ends or its driver dies: ``tartan attach``.

Who may go on, and when, is judged by ``core/ranks/succession.py``; here is what it is judged by.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tartan.base.format import format_duration, printable
from tartan.base.lock import Holder, find_fate, find_writers, read_holder, take_from_silent
from tartan.base.logs import logger_of
from tartan.base.progress import ProgressLine, format_line
from tartan.core.ranks.succession import GRACE_SECONDS, Act, SeenWriter, Succession, judge_writers
from tartan.errors import StoreError
from tartan.result.statistics import STOPPED
from tartan.run.cluster_run import DRIVES, LEASE_SECONDS_NAME, ON
from tartan.store.folder import RunFolder

_log = logger_of(__name__)

# By judgement: a death is seen within a quarter of a second, by reading as many small files as the run has writers.
POLL_SECONDS = 0.25
# By judgement: progress that is two seconds old looks live; of a large ledger it is read more rarely. No benchmark.
LOOK_SECONDS = 2.0
# By judgement: reading the ledger takes a tenth of the time at most. No benchmark.
LOOK_SHARE = 10.0
# By judgement: a driver that held the folder alone joins it a moment later, on a busy machine some seconds; one that
# has left ends as soon. No benchmark.
LEAVING_SECONDS = 30.0
# By contract: the default of --rank-timeout.
LEASE_SECONDS = 15.0


class Standing(NamedTuple):
    """How a run stands when there is nothing to follow any more: this process goes on with it, or it is finished.

    Attributes
    ----------
    finished : bool
    on : str
        Where the last driver computed, as of ``--on``; empty where that is not known.
    left : bool
        Whether the driver that was followed has ended in order, before the run did.
    """

    finished: bool
    on: str = ""
    left: bool = False


class Follower:
    """Waits for the end of a run, or for its driver to be gone.

    Parameters
    ----------
    path : Path
        The run folder.
    quiet : bool
    clock, pause : callable
        Replaced in tests.
    """

    def __init__(
        self,
        path: Path,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path, self._quiet = path, quiet
        self._clock, self._pause = clock, pause
        self._said = ""
        self._on = ""
        self._last: Holder = {}
        self._left_since: float | None = None
        self._look_at = -math.inf

    def await_turn(self) -> Standing:
        """Return when the run is finished, or nobody computes it any more; a folder of silent writers is taken.

        Raises
        ------
        StoreError
            If there is no run.
        """
        with ProgressLine(quiet=self._quiet) as line:
            while True:
                turn = self._look(line)
                if turn is not None:
                    return turn
                self._pause(POLL_SECONDS)

    def _look(self, line: ProgressLine) -> Standing | None:
        alone, drivers, seen, lease, judged = look_at_writers(self._path)
        self._on = next((str(one[ON])[:300] for one in drivers if one.get(ON)), self._on)
        if judged.act is Act.FOLLOW:
            self._last = next((one for one in [*drivers, alone] if one and find_fate(one) != "gone"), self._last)
        if judged.act in (Act.FOLLOW, Act.WAIT):
            self._follow(line, judged, seen)
            return None
        if judged.act is Act.TAKE:
            return self._take(line, judged, lease)
        folder = RunFolder.open(self._path)
        if folder.finished:
            return Standing(not folder.has_leftovers, self._on)  # of a driver that died when all was computed
        return self._find_left(bool(drivers))

    def _find_left(self, died: bool) -> Standing | None:
        """Nobody writes: return whether who was followed has left in order; None where that is not clear.

        ``died`` says that the lease of a driver is still there, whose process is gone.
        A driver holds the folder alone, lets it go and joins it: in between it lives, and will be back.
        """
        if died or not self._last:
            _log.info("the driver of %s has died, or there was none", self._path)
            return Standing(False, self._on)
        now = self._clock()
        self._left_since = now if self._left_since is None else self._left_since
        if find_fate(self._last) in ("runs", "stopped") and now - self._left_since < LEAVING_SECONDS:
            return None
        stopped = bool(RunFolder.open(self._path).stats.get(STOPPED))
        _log.info("%s has %s", see_writer(self._last, 0.0).name, "left" if stopped else "died")
        return Standing(False, self._on, left=stopped)

    def _take(self, line: ProgressLine, judged: Succession, lease: float) -> Standing | None:
        try:
            epoch = take_from_silent(self._path, lease + GRACE_SECONDS)
        except StoreError as error:
            if error.code != "locked":
                raise
            return None
        who = ", ".join(judged.holders[:3])
        _log.warning("%s is taken from %s, epoch %d", self._path, who, epoch)
        line.say(printable(f"tartan: {who} was silent for too long; this process goes on with the run (epoch {epoch})"))
        return Standing(False, self._on)

    def _follow(self, line: ProgressLine, judged: Succession, seen: list[SeenWriter]) -> None:
        self._left_since = None
        if judged.act is Act.FOLLOW:
            text = f"{judged.holders[0]} computes {self._path}"
            if any(one.fate == "stopped" and one.name in judged.holders for one in seen):
                text = f"{judged.holders[0]} is stopped"
        else:
            text = f"the driver of {self._path} is gone; this process goes on when its ranks have ended"
        if text != self._said:
            self._said = text
            _log.info("%s", text)
            after = (
                "" if math.isinf(judged.seconds) else f", {format_duration(judged.seconds)} at most if they are silent"
            )
            line.say(printable(f"tartan: {text}{after if judged.act is Act.WAIT else ''}"))
        if not self._quiet and self._clock() >= self._look_at:
            begun = self._clock()
            self._show(line)
            self._look_at = self._clock() + max(LOOK_SECONDS, LOOK_SHARE * (self._clock() - begun))

    def _show(self, line: ProgressLine) -> None:
        folder = RunFolder.open(self._path)
        total = folder.wanted.n_scores
        unit = "pairs" if folder.manifest.arity == 2 else "triples"
        line.show(total - folder.n_left, total, lambda state: format_line(state, unit=unit))


class Looked(NamedTuple):
    """What is seen of those who write to a run.

    Attributes
    ----------
    alone : dict
        Who says that it holds the folder alone; empty where nobody does.
    drivers : list of dict
        Leases of drivers.
    seen : list of SeenWriter
    lease_seconds : float
        Silence after which they are lost.
    judged : Succession
    """

    alone: Holder
    drivers: list[Holder]
    seen: list[SeenWriter]
    lease_seconds: float
    judged: Succession


def look_at_writers(path: Path) -> Looked:
    """Look who writes to a run, and judge what one that wants to go on with it does."""
    alone = read_holder(path)
    found = find_writers(path)
    seen = [see_writer(one.holder, one.age_seconds) for one in found]
    if alone and find_fate(alone) in ("runs", "stopped"):  # of another machine only the lock itself tells
        seen.append(replace(see_writer(alone, 0.0), drives=True))
    drivers = [one.holder for one in found if one.holder.get(DRIVES) is True]
    lease = max((read_lease_seconds(one) for one in drivers), default=LEASE_SECONDS)
    return Looked(alone, drivers, seen, lease, judge_writers(seen, lease))


def see_writer(holder: Holder, age_seconds: float) -> SeenWriter:
    """Return what is seen of the holder of a lease."""
    name = f"process {holder.get('pid', 'unknown')} on {str(holder.get('host', 'an unknown host'))[:100]}"
    return SeenWriter(name, find_fate(holder), age_seconds, drives=holder.get(DRIVES) is True)


def read_lease_seconds(holder: Holder) -> float:
    """Return after how much silence the ranks of a driver are lost; a lease from elsewhere may say anything."""
    said: Any = holder.get(LEASE_SECONDS_NAME)
    is_number = isinstance(said, int | float) and not isinstance(said, bool)
    return float(said) if is_number and 0 < said < math.inf else LEASE_SECONDS
