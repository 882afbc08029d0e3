"""Compares on the workers of the executor, which read host slots and write chunk buffers."""

from __future__ import annotations

from functools import partial

from tartan.base.reasons import line_of
from tartan.errors import DeviceMemoryError, InternalError, RunFailedError
from tartan.runtime.compare import PairFailure, compare_tile
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
        wiring.executor.submit(
            compare_tile,
            (wiring.item_plan.items, part, wiring.keeper),
            partial(self._ended, part),
            priority=part.priority,
            timeout_seconds=wiring.timeout_seconds,
        )

    def close(self, *, kill: bool = False) -> None:
        """Do nothing: the executor belongs to the node."""

    def _ended(self, part: Part, outcome: Outcome) -> None:
        try:
            event = self._compared(part, outcome) if isinstance(outcome, Completed) else self._failed(part, outcome)
        except Exception as error:  # a defect; the node would wait for this part for ever
            event = NodeBroken(error)
        self._wiring.post(event)

    def _compared(self, part: Part, outcome: Completed) -> PartCompared:
        failures, counts, when = outcome.value
        name = "compare {}x{}".format(*part.shape)
        self._wiring.tracer.record(name, "compare", f"cpu/{when.worker}", when.start_ns, when.end_ns)
        return PartCompared(part, self._device, failures, counts, when.seconds)

    def _failed(self, part: Part, outcome: Raised | Died | TimedOut | Cancelled) -> Event:
        found = failed_call(outcome)
        if found is None:
            return PartDropped(part)
        if isinstance(found, NodeBroken):
            return found
        kind, reason, traceback = found
        return PartFailed(part, self._device, PairFailure(0, 0, reason, traceback), kind)


def failed_call(outcome: Raised | Died | TimedOut | Cancelled) -> NodeBroken | tuple[str, str, str] | None:
    """Return how a compare call failed: its kind, as of ``PartFailed``, its reason and traceback.

    None where the executor closes; NodeBroken where that is not the application's: no worker can be started, or there
    is a defect in Tartan.
    """
    match outcome:
        case Raised(InternalError() | RunFailedError() as fatal):
            return NodeBroken(fatal)
        case Raised():
            kind = "memory" if isinstance(outcome.error, MemoryError | DeviceMemoryError) else "raised"
            return kind, line_of(outcome.name, outcome.message), outcome.traceback
        case Died():
            return "died", f"compare ended its worker: {outcome.how}", outcome.traceback
        case TimedOut():
            return "late", late(outcome.seconds).reason, ""
        case Cancelled():
            return None


def late(seconds: float) -> PairFailure:
    """Return the failure of a compare call that took too long."""
    return PairFailure(0, 0, f"compare did not return within {seconds:g} s (--tile-timeout)")
