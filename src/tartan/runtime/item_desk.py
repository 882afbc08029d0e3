"""Items of a node: where each span lies, on its way from load to ready and out again, and which items failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from tartan.core.pairs.actions import Action, Evict, Load, Move, Prepare, Upload
from tartan.core.pairs.ledger import Failure
from tartan.core.pairs.schedule import Scheduler
from tartan.core.pairs.verdict import NodeReport
from tartan.runtime.device_lane import DeviceLane
from tartan.runtime.disk_level import DiskLevel
from tartan.runtime.events import KeptPrepared, SpanFilled, SpanMoved, SpanPrepared, SpanStored, SpanUploaded
from tartan.runtime.exchange import Exchange, Transit
from tartan.runtime.host import Place, UniformItems
from tartan.runtime.items import ItemFailure
from tartan.runtime.loader import Loader
from tartan.runtime.wiring import Wiring


class ItemDesk:
    """Carries out what the scheduler decides on items, and tells it what became of them.

    Parameters
    ----------
    wiring : Wiring
    scheduler : Scheduler
    loader : Loader
    disk : DiskLevel or None
    exchange : Exchange or None
        Learns where spans lie.
    device_lanes : mapping of int to DeviceLane
        By device.
    report : callable
        Adds up what failed; raises what ends the run.
    measured : bool
        Whether the scheduler learns the bytes of each span when it is loaded.
    """

    def __init__(
        self,
        wiring: Wiring,
        scheduler: Scheduler,
        loader: Loader,
        disk: DiskLevel | None,
        exchange: Exchange | None,
        device_lanes: Mapping[int, DeviceLane],
        report: Callable[[NodeReport], None],
        measured: bool,
    ) -> None:
        self.n_uploads = 0
        self.n_loaded = 0
        self._wiring = wiring
        self._items = wiring.item_plan.items
        self._transit = Transit(wiring.item_plan, wiring.arenas)
        self._grid = scheduler.grid
        self._scheduler = scheduler
        self._loader = loader
        self._disk = disk
        self._exchange = exchange
        self._lanes = device_lanes
        self._report = report
        self._measured = measured
        self._serial = 0
        self._places: dict[int, Place] = {}
        self._failed: dict[int, set[int]] = {}
        self._reasons: dict[int, Mapping[int, ItemFailure]] = {}

    # -- questions -------------------------------------------------------------------------------------------

    def places(self, spans: Iterable[int]) -> list[Place]:
        """Return where spans lie in host memory."""
        return [self._places[span] for span in spans]

    def find_failed(self, spans: Sequence[int]) -> tuple[int, ...]:
        """Return which items of consecutive spans failed, by position from the first item of the first span."""
        if not self._failed:
            return ()
        first = [self._grid.span_items(span).start for span in spans]
        return tuple(
            start - first[0] + position
            for span, start in zip(spans, first, strict=True)
            for position in sorted(self._failed.get(span, ()))
        )

    # -- actions ---------------------------------------------------------------------------------------------

    def load(self, action: Load) -> None:
        """Have a host place filled."""
        self._loader.load(self._place(action.span, action.address))

    def move(self, action: Move) -> None:
        """Copy a span to where its strip lies."""
        assert isinstance(self._items, UniformItems)
        place = self._place(action.span, action.address)
        target = self._items.block(self._wiring.arenas, place.address, place.length)
        target[...] = self._items.block(self._wiring.arenas, action.source, place.length)
        if self._exchange is not None:
            self._exchange.on_placed(place)
        self._wiring.post(SpanMoved(action.span))

    def evict(self, action: Evict) -> None:
        """Drop a span from the host level, or from a device."""
        if action.device is not None:
            self._lanes[action.device].forget(action.span)
            return
        if self._exchange is not None:
            self._exchange.on_evicted(action.span)
        # Which items of it failed stays known: a device may still hold the span, and compare it.
        place = self._places.pop(action.span, None)
        if place is not None:
            self._transit.clear(place)

    def prepare(self, action: Prepare) -> None:
        """Have a device preprocess a parsed span."""
        if self._exchange is not None:
            self._exchange.on_preparing(action.span)
        self._lanes[action.device].prepare(self._places[action.span], action.address)

    def upload(self, action: Upload) -> None:
        """Have a ready span copied to a device."""
        place = self._places[action.span]
        self.n_uploads += place.length
        self._lanes[action.device].upload(place, action.address)

    def _place(self, span: int, address: int) -> Place:
        self._serial += 1
        items = self._grid.span_items(span)
        place = self._places[span] = Place(span, address, len(items), self._serial, items.start)
        return place

    # -- events ----------------------------------------------------------------------------------------------

    def on_filled(self, event: SpanFilled) -> list[Action]:
        """Note what a load brought."""
        place = event.place
        self.n_loaded += place.length
        self._note(place, event.failures)
        size = max(1, event.n_bytes) if self._measured else None
        return self._scheduler.on_loaded(place.span, size, origin=event.origin)

    def on_moved(self, event: SpanMoved) -> list[Action]:
        """Tell the scheduler that a span was moved."""
        return self._scheduler.on_moved(event.span)

    def on_uploaded(self, event: SpanUploaded) -> list[Action]:
        """Tell the scheduler that a device has a span."""
        return self._scheduler.on_uploaded(event.device, event.place.span)

    def on_prepared(self, event: SpanPrepared) -> list[Action]:
        """Note which items failed on the device."""
        self._note(event.place, event.failures)
        if event.failures:
            self._reasons[event.place.span] = event.failures
        return self._scheduler.on_prepared(event.device, event.place.span)

    def on_stored(self, event: SpanStored) -> list[Action]:
        """Keep a span that a device has preprocessed in the disk level."""
        place = event.place
        self._keep_on_disk(place, self._failed.get(place.span, set()))
        if self._exchange is not None:
            self._exchange.on_stored(place, self._reasons.pop(place.span, {}))
        return self._scheduler.on_stored(place.span)

    def on_kept_prepared(self, event: KeptPrepared) -> list[Action]:
        """Let other ranks have a span that a device has preprocessed for them."""
        assert self._exchange is not None
        self._keep_on_disk(event.place, self._exchange.find_failed(event.place.span) | set(event.failures))
        self._exchange.on_prepared(event.place, event.failures)
        return []

    def _keep_on_disk(self, place: Place, failed: set[int]) -> None:
        form = self._wiring.item_plan.form
        if self._disk is not None:
            n_bytes = place.length * (form.nbytes if form is not None else 0)
            self._disk.keep(place, partial(self._wiring.copy_of, place), failed, n_bytes)

    def _note(self, place: Place, failures: Mapping[int, ItemFailure]) -> None:
        if not failures:
            return
        self._failed.setdefault(place.span, set()).update(failures)
        found = [
            Failure(place.first + position, None, failure.stage, failure.reason, failure.traceback)
            for position, failure in failures.items()
        ]
        self._report(NodeReport(failures=found))
