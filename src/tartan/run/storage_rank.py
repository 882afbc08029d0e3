"""A rank next to the data: reads items, and runs those stages on them that belong there; has no devices."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from tartan.application import preprocesses
from tartan.cluster.packing import CodecSample
from tartan.cluster.rank import RankLink
from tartan.cluster.storage import ServerOptions, SizeSample, SpanReader, StorageServer, StoredSpan
from tartan.core.pairs.call_limit import CallLimit
from tartan.core.ranks.messages import Hello
from tartan.core.ranks.placement import FILES, PARSED, READY
from tartan.result.statistics import ITEMS_PER_STAGE
from tartan.run.identity import Noted
from tartan.run.probing import ItemFacts, ask, learn
from tartan.run.rank import Rank, open_rank
from tartan.run.request import Request
from tartan.runtime.codec import encode_parts
from tartan.runtime.tasks import ParsedSpan, parse_alone, parse_for_transit
from tartan.sources.checked import note_checksums
from tartan.sources.items import Source
from tartan.store.folder import RunFolder
from tartan.workers.executor import Completed, Executor

# By contract: speeds are above 0; a share by it rounds to nothing.
QUIET_SPEED = 1e-9
"""What a rank says of its speed that computes nothing."""


def serve_storage(
    asked: Request,
    folder: RunFolder,
    link: RankLink,
    identity: tuple[tuple[str, str], ...],
    *,
    n_sharing: int,
    how: ServerOptions,
) -> None:
    """Serve the ranks of a run until it ends.

    Parameters
    ----------
    asked : Request
    folder : RunFolder
        Joined as one of several writers, for the statistics.
    link : RankLink
    identity : tuple of (str, str)
        What must be the same on all ranks.
    n_sharing : int
        Ranks on this machine.
    how : ServerOptions
        Without the room, which is that of this rank.
    """
    options = replace(asked.options, device=("cpu",))
    with open_rank(asked.app, options, n_sharing) as rank:
        facts = cache(partial(learn, asked.app, asked.source, rank.executor, options, 1, folder.manifest))
        noted = Noted(folder, asked.source)
        limit = CallLimit.of(options.tile_timeout, grows=rank.executor.in_processes)
        source, prepares = note_checksums(asked.source, noted), preprocesses(asked.app)
        reader = ExecutorReader(source, rank.executor, facts, limit, noted.write, preprocesses=prepares)
        n_workers = rank.executor.n_workers
        room = replace(how, keep_bytes=_keep_bytes(asked, rank), n_at_once=n_workers + 1, n_workers=n_workers)
        server = StorageServer(reader, link.credentials, link.host, room)
        try:
            hello = Hello(
                identity,
                devices=(),
                cores=rank.executor.n_workers,
                host=socket.gethostname(),
                pid=os.getpid(),
                address=server.address,
                speed=QUIET_SPEED,
                storage=True,
            )
            link.join(hello)
            link.wait_stopped()
        finally:
            server.close()
            folder.write_stats(reader.statistics())


def size_sample(
    source: Source, facts: ItemFacts, *, pairs_an_item: float = 0.0, n_ranks: int = 1, divides: bool = True
) -> SizeSample:
    """Return what items take as files, parsed and ready, from what is known when a run begins.

    Parameters
    ----------
    source : Source
    facts : ItemFacts
    pairs_an_item : float
        Pairs of the run over its items.
    n_ranks : int
        Ranks that compute.
    divides : bool
        Whether parse may run beside the data without preprocess: not where there is none.
    """
    stamps = source.fingerprints()
    sizes = np.empty(0) if stamps is None else stamps[0][stamps[0] >= 0]
    parsed, ready = travelling_parts(facts.parsed_substitute), travelling_parts(facts.substitute)
    ready_bytes = float(facts.item_bytes if facts.form is None else facts.form.nbytes)
    parsed_bytes = ready_bytes if facts.parsed is None else float(facts.parsed.nbytes)
    if facts.parsed is None and parsed and ready:
        parsed_bytes *= sum(map(len, parsed)) / max(1, sum(map(len, ready)))
    return SizeSample(
        float(sizes.mean()) if len(sizes) else 0.0,
        parsed_bytes,
        ready_bytes,
        _sample_of(parsed),
        _sample_of(ready),
        seconds=facts.stage_seconds,
        compare_seconds=facts.costs.compare_seconds * pairs_an_item,
        n_items=source.n_items,
        n_ranks=n_ranks,
        depths=(FILES, *((PARSED,) if parsed and divides else ()), *((READY,) if ready else ())),
    )


def travelling_parts(item: Any) -> list[np.ndarray]:
    """Return the parts of an item as it travels; none where it cannot be pickled."""
    try:
        return [np.frombuffer(part, np.uint8) for part in encode_parts(item)[0]]
    except Exception:  # threads may hold what cannot be pickled
        return []


def _sample_of(parts: list[np.ndarray]) -> CodecSample:
    return CodecSample.of(max(parts, key=len)) if parts else CodecSample()


def _keep_bytes(asked: Request, rank: Rank) -> int:
    given = asked.options.host_cache
    return rank.host_bytes if given is None or given.in_items else given.amount


class ExecutorReader(SpanReader):
    """Reads items from a source, and has them parsed by the workers of an executor.

    Parameters
    ----------
    source : Source
    executor : Executor
    facts : callable
        Returns what a few items show; called when the first span is parsed.
    limit : CallLimit or None
        Longest time that one item may take.
    done : callable
        Called when items have been read, before they are given to anyone.
    preprocesses : bool
        Whether the application has anything to preprocess.
    """

    def __init__(
        self,
        source: Source,
        executor: Executor,
        facts: Callable[[], ItemFacts],
        limit: CallLimit | None = None,
        done: Callable[[], None] = lambda: None,
        *,
        preprocesses: bool = True,
    ) -> None:
        self._preprocesses = preprocesses
        self._done = done
        self._source, self._executor, self._facts, self._limit = source, executor, facts, limit
        self._lock = threading.Lock()
        self._learning = threading.Lock()
        self._n_parsed = self._n_preprocessed = self._read_bytes = 0
        self._parse_seconds = self._preprocess_seconds = 0.0

    def read(self, first: int, length: int) -> StoredSpan | None:
        payloads: list[bytes] = []
        for index in range(first, first + length):
            try:
                payload = self._source.read(index)
            except Exception:  # the rank that asks reads it again, and says why it cannot
                return None
            if not isinstance(payload, bytes):
                return None
            payloads.append(payload)
        self._done()
        data = payloads[0] if length == 1 else b"".join(payloads)
        with self._lock:
            self._read_bytes += len(data)
        return StoredSpan(memoryview(data), tuple(map(len, payloads)))

    def parse(self, first: int, files: StoredSpan, *, depth: int, ready: bool) -> StoredSpan | None:
        parsed = self._parse_span(first, files, depth=depth, ready=ready)
        if parsed is None or parsed.n_failed:
            return None
        with self._lock:
            if self._limit is not None:
                self._limit.on_ended(parsed.parse_seconds + parsed.preprocess_seconds, len(files.lengths))
            self._n_parsed += len(files.lengths)
            self._n_preprocessed += len(files.lengths) if depth == READY and self._preprocesses else 0
            self._parse_seconds += parsed.parse_seconds
            self._preprocess_seconds += parsed.preprocess_seconds
        return StoredSpan(memoryview(parsed.data), seconds=(parsed.parse_seconds, parsed.preprocess_seconds))

    def _parse_span(self, first: int, files: StoredSpan, *, depth: int, ready: bool) -> ParsedSpan | None:
        keys = self._source.keys[first : first + len(files.lengths)]
        limit = None if self._limit is None else self._limit.seconds(len(files.lengths))
        if depth == PARSED and ready:
            outcome = ask(self._executor, parse_alone, keys, _payloads(files), timeout=limit)
        else:
            with self._learning:
                facts = self._facts()
            forms = (facts.form, None if depth == READY else facts.parsed)
            outcome = ask(self._executor, parse_for_transit, *forms, keys, _payloads(files), timeout=limit)
        if not isinstance(outcome, Completed):
            return None  # the rank that asks tries each item alone
        assert isinstance(outcome.value, ParsedSpan)
        return outcome.value

    def statistics(self) -> dict[str, Any]:
        """Return what was done, for the statistics of the run."""
        with self._lock:
            return {
                "parses": self._n_parsed,
                "bytes_per_level": {"storage": self._read_bytes},
                ITEMS_PER_STAGE: {"storage:parse": self._n_parsed, "storage:preprocess": self._n_preprocessed},
                "seconds_per_stage": {"parse": self._parse_seconds, "preprocess": self._preprocess_seconds},
            }


def _payloads(files: StoredSpan) -> Sequence[bytes]:
    ends = np.cumsum(files.lengths).tolist()
    return [bytes(files.data[end - length : end]) for end, length in zip(ends, files.lengths, strict=True)]
