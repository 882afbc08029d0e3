"""Progress, cancellation and checkpoints of long calls.

An algorithm calls ``report`` and ``save`` once an iteration and ``check`` between calls of native code, each of which
takes less than half a second; so a call ends within a second of being cancelled, wherever the algorithm is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import numbers
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from tartan.base.checks import path_of
from tartan.base.checksum import checksum_of_array
from tartan.base.files import fsync
from tartan.base.format import format_duration
from tartan.base.logs import logger_of
from tartan.base.progress import LIVE_SECONDS, Display, is_known_well
from tartan.errors import ConfigError, RunCancelledError

_log = logger_of(__name__)
State = dict[str, Any]
_FORMAT = 3
_ABOUT = "__about__"
# By judgement: a log of an hour has 720 lines at most. No benchmark.
_PLAIN_SECONDS = 5.0


# By judgement: a shorter call prints nothing, and one that people wait for says how long they will.
_QUIET_SECONDS = 2.0
# By judgement: the time left that follows from less is a guess.
_LEAST_SECONDS, _LEAST_SHARE = 0.5, 0.005
# Phases as people read them; those that are not here are words of the field.
_WORDS: Final = {
    "anneal": "annealing",
    "check": "checking the distances",
    "checksum": "checksum of the distances",
    "classical start": "first map",
    "freeze": "settling who belongs where",
    "greedy": "choosing representatives",
    "intermediate": "trying the groups so far",
    "materialize": "reading the distances",
    "near pairs": "finding near pairs",
    "neighbors": "finding neighbours",
    "number of clusters": "finding the number of groups",
    "parts": "placing the parts of the map",
    "picture": "drawing the picture",
    "place": "placing items on the map",
    "rows": "copying the distances to disk",
    "search": "trying other groups",
    "settle": "settling the map",
    "weights": "reading the weights",
}


@dataclass
class _PhaseShown:
    """A phase of a call: when it began, how much was done then, and is now."""

    name: str
    start_seconds: float
    start_share: float
    share: float


class Monitor:
    """Progress, cancel and checkpoint of one long call.

    Parameters
    ----------
    verbose : int
        0 prints nothing; 1 shows the latest report: one live line on a terminal, a plain line now and then elsewhere;
        2 prints every report as a line.
    checkpoint : path, optional
        File (.npz) from which the call resumes when it is made again, with the same input and parameters.
    every_seconds : float
        How often the checkpoint is written, at most. It is also written when the call is cancelled.
    writes : bool
        Whether the checkpoint is written and removed at all: of several ranks, all read it and one writes it.
    stream : text stream, optional
        Where progress goes; default: stderr.
    clock : callable, optional
        Returns seconds; for tests.

    Examples
    --------
    >>> monitor = Monitor()
    >>> monitor.cancel()
    >>> monitor.check()
    Traceback (most recent call last):
        ...
    tartan.errors.RunCancelledError: stopped on request
    """

    def __init__(
        self,
        verbose: int = 0,
        checkpoint: str | Path | None = None,
        *,
        every_seconds: float = 60.0,
        writes: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        level: Any = verbose
        if not isinstance(level, numbers.Integral):
            raise ConfigError(f"verbose is {verbose!r}; it must be 0, 1 or 2")
        if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
            raise ConfigError(f"checkpoint is {checkpoint!r}; it must be a path or None")
        self.verbose = int(verbose)
        self.checkpoint = None if checkpoint is None else path_of("checkpoint", checkpoint)
        self.every_seconds = every_seconds
        self._writes = writes
        self._display = Display(stream, stays=True)
        self._clock = clock
        self._started = clock()
        self._shown, self._saved = float("-inf"), clock()
        self._about: dict[str, Any] = {}
        self._pending: State | None = None
        self._stop = threading.Event()
        self._signal: int | None = None
        self._phase: _PhaseShown | None = None

    def report(self, phase: str, *, share: float | None = None, **numbers: Any) -> None:
        """Report where the call is. May be called at any rate.

        Parameters
        ----------
        phase : str
        share : float, optional
            How much of the phase is done, 0 to 1; default: the first number over the one called ``of``.
        **numbers
            With ``verbose=1`` lines have those that people read, percent and the time left of the phase; with 2 all.
        """
        if not self.verbose:
            return
        live = self._display.is_live and self.verbose == 1
        now = self._clock()
        share = _find_share(numbers) if share is None else share
        if self._phase is None or self._phase.name != phase or (share is not None and share < self._phase.share):
            self._phase = _PhaseShown(phase, now, share or 0.0, share or 0.0)
        elif share is not None:
            self._phase.share = share
        if now - self._shown < (0.0 if self.verbose > 1 else LIVE_SECONDS if live else _PLAIN_SECONDS):
            return
        if not live and self.verbose == 1 and now - self._started < _QUIET_SECONDS:
            return
        self._shown = now
        if self.verbose > 1:
            line = _make_line(now - self._started, phase, numbers)
        else:
            line = _make_brief_line(self._phase, share, now, numbers)
        if live:
            self._display.draw(line)
        else:
            self._display.say(line)

    def cancel(self, signal_number: int | None = None) -> None:
        """Ask the call to stop; from any thread or signal handler."""
        self._signal = signal_number
        self._stop.set()

    @property
    def cancelled(self) -> bool:
        """Whether the call was asked to stop."""
        return self._stop.is_set()

    def check(self) -> None:
        """Raise if the call was asked to stop; the last saved state is written first.

        Raises
        ------
        RunCancelledError
        """
        if not self._stop.is_set():
            return
        self._display.close()
        kept = self._write()
        where = f"; the same call resumes from {self.checkpoint}" if kept else ""
        context = {} if self._signal is None else {"signal": self._signal}
        raise RunCancelledError(f"stopped on request{where}", context=context)

    def identify(
        self, algorithm: str, fingerprint: Callable[[], str], parameters: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Describe what is computed, before the first ``load`` or ``save``.

        Parameters
        ----------
        algorithm : str
        fingerprint : callable
            Returns that of the input, such as ``Dissimilarities.fingerprint``; called only where there is a checkpoint.
        parameters : callable
            Returns the mapping of what the result depends on; values are compared as text, arrays by their contents,
            functions by their names.
        """
        if self.checkpoint is None:
            return
        self._about = {
            "format": _FORMAT,
            "algorithm": algorithm,
            "input": fingerprint(),
            "parameters": {name: _as_text(value) for name, value in sorted(parameters().items())},
        }

    def load(self) -> State | None:
        """Return the state that was saved last, or None where there is no checkpoint.

        Raises
        ------
        ConfigError
            If the file is not a checkpoint, or one of another algorithm, input or parameters; the message says
            which. Also
            if its folder is missing: an error now, not when the first state would be lost.
        """
        if self.checkpoint is None:
            return None
        if not self.checkpoint.parent.is_dir():
            raise ConfigError(
                f"checkpoint: there is no folder {self.checkpoint.parent}; create it or name another file"
            )
        if not os.access(self.checkpoint.parent, os.W_OK):
            raise ConfigError(
                f"checkpoint: the folder {self.checkpoint.parent} cannot be written to; name another file"
            )
        if not self.checkpoint.exists():
            return None
        try:
            with np.load(self.checkpoint, allow_pickle=False) as file:
                about = json.loads(str(file[_ABOUT][()]))
                state = {name: _value(file[name]) for name in file.files if name != _ABOUT}
        except Exception as error:  # a damaged archive raises errors of every layer
            raise ConfigError(
                f"{self.checkpoint} cannot be read as a checkpoint ({error}); remove it to start afresh"
            ) from error
        self._refuse_other(about)
        _log.info("resumes from %s", self.checkpoint)
        return state

    def _refuse_other(self, about: Mapping[str, Any]) -> None:
        problem = _difference(about, self._about)
        if problem:
            raise ConfigError(
                f"{self.checkpoint} is the checkpoint of another call: {problem}; remove it or name another file",
                context={"checkpoint": str(self.checkpoint)},
            )

    def save(self, state: Mapping[str, Any]) -> None:
        """Remember a state from which the call can resume: arrays, numbers and texts by name.

        Arrays are copied. The file is written if the last time was ``every_seconds`` ago, and by ``check`` when the
        call is cancelled.
        """
        if self.checkpoint is None or not self._writes:
            return
        self._pending = {name: np.array(value) for name, value in state.items()}
        if self._clock() - self._saved >= self.every_seconds:
            self._write()

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Write the last saved state when Ctrl-C comes as a KeyboardInterrupt, as it does without signal handlers."""
        try:
            yield
        except KeyboardInterrupt:
            self._display.close()
            self._write()
            raise

    def finish(self) -> None:
        """End the call, whose result is complete: remove the checkpoint, end the live line."""
        self._display.close()
        self._pending = None
        if self.checkpoint is not None and self._writes:
            self.checkpoint.unlink(missing_ok=True)
            self._name_unfinished().unlink(missing_ok=True)

    def _write(self) -> bool:
        """Write the remembered state; return whether there is a checkpoint now."""
        if self.checkpoint is None:
            return False
        if self._pending is not None:
            try:
                self._write_state(self.checkpoint, self._pending)
                _log.info("the state is saved in %s", self.checkpoint)
            except OSError as error:  # what is computed is worth more than its checkpoint
                _log.warning("checkpoint %s could not be written: %s", self.checkpoint, error.strerror)
                self._display.close()
                self._display.say(f"checkpoint {self.checkpoint} could not be written: {error.strerror}; going on")
            self._pending = None
            self._saved = self._clock()
        return self.checkpoint.exists()

    def _write_state(self, path: Path, state: State) -> None:
        unfinished = self._name_unfinished()
        try:
            with open(unfinished, "wb") as file:
                np.savez(file, allow_pickle=False, **state, **{_ABOUT: np.array(json.dumps(self._about))})
                file.flush()
                fsync(file.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _name_unfinished(self) -> Path:
        """Return where a checkpoint is while it is written; a kill at that time leaves it there."""
        assert self.checkpoint is not None
        return self.checkpoint.with_name(f".{self.checkpoint.name}.unfinished")


def as_monitor(monitor: Monitor | None = None, verbose: int = 0, checkpoint: str | Path | None = None) -> Monitor:
    """Return the monitor that was given, or one made of the two options."""
    return Monitor(verbose, checkpoint) if monitor is None else monitor


def _make_line(seconds: float, phase: str, numbers: Mapping[str, Any]) -> str:
    texts = (
        f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in numbers.items()
    )
    return "  ".join([f"{seconds:8.1f} s", phase, *texts])


def _find_share(numbers: Mapping[str, Any]) -> float | None:
    """Return the first number over the one called ``of``; None where there are no such numbers."""
    first, of = next(iter(numbers.values()), None), numbers.get("of")
    if first is of or not isinstance(first, int) or not isinstance(of, int) or of < 1:
        return None
    return min(first / of, 1.0)


def _make_brief_line(phase: _PhaseShown, share: float | None, now: float, numbers: Mapping[str, Any]) -> str:
    """Write a line for people: the phase, how much of it is done, what it found so far, and the time left."""
    parts = [_WORDS.get(phase.name, phase.name)]
    if share is not None:
        parts.append(f"{100 * share:.0f} %")
    first = next(iter(numbers), "")
    if _find_share(numbers) is not None:
        parts.append(f"{numbers[first]:,} of {numbers['of']:,}")
    parts += [f"{numbers[name]:,} clusters" for name in ("K", "clusters") if name in numbers]
    parts += [f"{name} {value}" for name, value in numbers.items() if isinstance(value, str)]
    parts += [f"stress {numbers['stress']:.3g}"] if "stress" in numbers else []
    seconds, gained = now - phase.start_seconds, phase.share - phase.start_share
    if share is not None and seconds >= _LEAST_SECONDS and gained >= _LEAST_SHARE and share < 1:
        left = (1 - share) * seconds / gained
        parts += [f"{format_duration(left)} left"] if is_known_well(left, seconds) else []
    return "  ".join(parts)


def _as_text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {value.dtype} {checksum_of_array(value)}"
    if isinstance(value, np.random.RandomState):
        return f"RandomState {hashlib.blake2b(repr(value.get_state()).encode(), digest_size=16).hexdigest()}"
    if callable(value):  # the address of a function differs from process to process
        return f"function {getattr(value, '__qualname__', type(value).__qualname__)}"
    return repr(value)


def _value(array: np.ndarray) -> Any:
    return array if array.ndim else array.item()


def _difference(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Return in which way two descriptions differ; "" if they do not."""
    if stored.get("format") != _FORMAT:
        return "it has the format of another version"
    if stored["algorithm"] != asked.get("algorithm"):
        return f"it is of {stored['algorithm']}, not of {asked.get('algorithm')}"
    if stored["input"] != asked["input"]:
        return "its input is not this input"
    before, now = stored["parameters"], asked["parameters"]
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            return f"{name} was {before.get(name, 'not there')} and is now {now.get(name, 'not there')}"
    return ""
