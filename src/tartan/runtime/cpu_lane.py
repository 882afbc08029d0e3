"""Compares on the workers of the executor, which read host slots and write chunk buffers."""

from __future__ import annotations

from functools import partial

from tartan.base.format import format_duration, make_line
from tartan.core.pairs.call_limit import CallLimit
from tartan.core.pairs.device_time import COMPARE
from tartan.errors import DeviceMemoryError, InternalError, RunFailedError
from tartan.runtime.compare import CellFailure, compare_tile
from tartan.runtime.events import Event, NodeBroken, PartCompared, PartDropped, PartFailed
from tartan.runtime.parts import Part
from tartan.runtime.wiring import Wiring
from tartan.workers.executor import Cancelled, Completed, Died, Outcome, Raised, TimedOut


class CpuLane:
    """Compares in host memory.

    Parameters
    ----------
    device : int
        Number of the device.
    wiring : Wiring
    """

    name = "cpu"
    shares_host_memory = True

    def __init__(self, device: int, wiring: Wiring) -> None:
        self._device = device
        self._wiring = wiring

    @property
    def n_workers(self) -> int:
        """How many parts it compares at a time."""
        return self._wiring.executor.n_workers

    @property
    def can_stop(self) -> bool:
        """Whether a compare call that takes too long is ended, and not only reported."""
        return self._wiring.executor.in_processes

    def compare(self, part: Part) -> None:
        """Start to compare a part; its end is posted once."""
        wiring = self._wiring
        wiring.device_time.begin(COMPARE)
        wiring.executor.submit(
            compare_tile,
            (wiring.item_plan.items, part, wiring.chooser),
            partial(self._on_part_ended, part),
            priority=part.priority,
            timeout_seconds=limit_of(part, wiring.call_limit),
        )

    def close(self, *, kill: bool = False) -> None:
        """Do nothing: the executor belongs to the node."""

    def _on_part_ended(self, part: Part, outcome: Outcome) -> None:
        self._wiring.device_time.end(COMPARE)
        try:
            event = (
                self._on_compared(part, outcome) if isinstance(outcome, Completed) else self._on_failed(part, outcome)
            )
        except Exception as error:  # a defect; the node would wait for this part for ever
            event = NodeBroken(error)
        self._wiring.post(event)

    def _on_compared(self, part: Part, outcome: Completed) -> PartCompared:
        failures, counts, when, rows = outcome.value
        if self._wiring.call_limit is not None:
            self._wiring.call_limit.on_ended(when.seconds)
        name = f"compare {'x'.join(map(str, part.shape))}"
        self._wiring.tracer.record(name, "compare", f"cpu/{when.worker}", when.start_ns, when.end_ns)
        return PartCompared(part, self._device, failures, counts, when.seconds, rows)

    def _on_failed(self, part: Part, outcome: Raised | Died | TimedOut | Cancelled) -> Event:
        found = describe_failure(outcome)
        if found is None:
            return PartDropped(part)
        if isinstance(found, NodeBroken):
            return found
        kind, reason, traceback = found
        return PartFailed(part, self._device, CellFailure((0,) * len(part.shape), reason, traceback), kind)


def describe_failure(outcome: Raised | Died | TimedOut | Cancelled) -> NodeBroken | tuple[str, str, str] | None:
    """Return how a compare call failed: its kind, as of ``PartFailed``, its reason and traceback.

    None where the executor closes; NodeBroken where that is not the application's: no worker can be started, or there
    is a defect in Tartan.
    """
    match outcome:
        case Raised(InternalError() | RunFailedError() as fatal):
            return NodeBroken(fatal)
        case Raised():
            kind = "memory" if isinstance(outcome.error, MemoryError | DeviceMemoryError) else "raised"
            return kind, make_line(outcome.name, outcome.message), outcome.traceback
        case Died():
            return "died", f"compare ended its worker: {outcome.how}", outcome.traceback
        case TimedOut():
            return "late", _late(outcome.seconds), ""
        case Cancelled():
            return None


def limit_of(part: Part, limit: CallLimit | None) -> float | None:
    """Return how many seconds a part may take; None: any number."""
    if limit is None:
        return None
    if part.again:
        return limit.of_last_try
    return limit.of_half if part.depth else limit.seconds()


def late(part: Part, seconds: float) -> CellFailure:
    """Return the failure of a compare call that took too long."""
    return CellFailure((0,) * len(part.shape), _late(seconds))


def _late(seconds: float) -> str:
    return f"compare did not return within {format_duration(seconds)} (--tile-timeout sets the limit, 0 none)"
