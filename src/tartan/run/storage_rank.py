"""A rank next to the data: reads items, and parses them where asked, for the ranks that compute; has no devices."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from tartan.cluster.packing import CodecSample
from tartan.cluster.rank import RankLink
from tartan.cluster.storage import ServerOptions, SizeSample, SpanReader, StorageServer, StoredSpan
from tartan.core.pairs.call_limit import CallLimit
from tartan.core.ranks.messages import Hello
from tartan.run.identity import Noted
from tartan.run.probing import ItemFacts, ask, learn
from tartan.run.rank import Rank, open_rank
from tartan.run.request import Request
from tartan.runtime.codec import encode_parts
from tartan.runtime.tasks import ParsedSpan, parse_for_transit
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
        reader = ExecutorReader(note_checksums(asked.source, noted), rank.executor, facts, limit, noted.write)
        room = replace(how, keep_bytes=_keep_bytes(asked, rank), n_at_once=rank.executor.n_workers + 1)
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


def size_sample(source: Source, facts: ItemFacts) -> SizeSample:
    """Return what items take as files and parsed, from what is known when a run begins."""
    stamps = source.fingerprints()
    sizes = np.empty(0) if stamps is None else stamps[0][stamps[0] >= 0]
    item = facts.substitute
    parts = [np.frombuffer(part, np.uint8) for part in encode_parts(item)[0]]
    return SizeSample(
        float(sizes.mean()) if len(sizes) else 0.0,
        float(facts.item_bytes if facts.parsed is None else facts.parsed.nbytes),
        float(facts.item_bytes if facts.form is None else facts.form.nbytes),
        CodecSample.of(max(parts, key=len)),
    )


def _keep_bytes(asked: Request, rank: Rank) -> int:
    given = asked.options.host_cache
    return rank.capacity.host_bytes if given is None or given.in_items else given.amount


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
    """

    def __init__(
        self,
        source: Source,
        executor: Executor,
        facts: Callable[[], ItemFacts],
        limit: CallLimit | None = None,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self._done = done
        self._source, self._executor, self._facts, self._limit = source, executor, facts, limit
        self._lock = threading.Lock()
        self._learning = threading.Lock()
        self._n_parsed = self._read_bytes = 0
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

    def parse(self, first: int, files: StoredSpan, *, ready: bool) -> StoredSpan | None:
        parsed = self._parse_span(first, files, ready=ready)
        if parsed is None or parsed.n_failed:
            return None
        with self._lock:
            if self._limit is not None:
                self._limit.on_ended(parsed.parse_seconds + parsed.preprocess_seconds, len(files.lengths))
            self._n_parsed += len(files.lengths)
            self._parse_seconds += parsed.parse_seconds
            self._preprocess_seconds += parsed.preprocess_seconds
        return StoredSpan(memoryview(parsed.data))

    def _parse_span(self, first: int, files: StoredSpan, *, ready: bool) -> ParsedSpan | None:
        with self._learning:
            facts = self._facts()
        keys = self._source.keys[first : first + len(files.lengths)]
        forms = (facts.form, None if ready else facts.parsed)
        limit = None if self._limit is None else self._limit.seconds(len(files.lengths))
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
                "seconds_per_stage": {"parse": self._parse_seconds, "preprocess": self._preprocess_seconds},
            }


def _payloads(files: StoredSpan) -> Sequence[bytes]:
    ends = np.cumsum(files.lengths).tolist()
    return [bytes(files.data[end - length : end]) for end, length in zip(ends, files.lengths, strict=True)]
