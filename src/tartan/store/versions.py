"""Versions of a run: which of its slots are items, in which order, and under which names.

A *slot* is a row of the arrays of a run, and of ``items.parquet``; its scores never change. A *version* is an ordered
list of live slots with their names. Version 1 has the slots of the first generation in the manifest. Each later
generation (``tartan add``) makes a version, which appends its slots; each record of ``versions.jsonl`` makes one, too:
it is the difference to the version before. A folder without that file has generations only.

``versions.jsonl`` is replaced whole, so a kill leaves the log before or after a change. Each line ends with a checksum
that covers all lines above it. A record may stand on a generation that is not there yet (``replace`` writes it before
the manifest): it does not count until that generation is there, and the next writer takes it out.

Not here: how scores of a version are read (version_view.py), and who may change a run (changing.py).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from tartan.base.files import FileWriter, read_regular
from tartan.base.json_input import MOST_JSON_BYTES, parse_json
from tartan.errors import ConfigError, CorruptResultError
from tartan.store.manifest import Manifest, ends_of_leaves, leaves

FILE_NAME = "versions.jsonl"
FORMAT = 1
# By format: a manifest of this format was written after the first log.
FORMAT_WITH_LOG = 2
Slots = NDArray[np.int64]

_Size = Annotated[int, Meta(ge=0, le=2**40)]
_Spans = list[tuple[_Size, _Size]]


class LogHead(msgspec.Struct, forbid_unknown_fields=True):
    """The first line: the oldest version that can be read, its items where that is not 1, how many lines follow."""

    format: int
    records: _Size
    first: Annotated[int, Meta(ge=1, le=2**40)] = 1
    generations: Annotated[int, Meta(ge=1, le=2**40)] = 1
    slots: _Spans | None = None
    names: dict[str, str] = {}
    erase: bool = False
    unmarked: bool = False


class Record(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One change, the difference to the version before.

    Attributes
    ----------
    change : str
        The command: remove, rename, add, replace.
    time : str
        ISO 8601.
    generations : int
        How many generations of the manifest are versions before it, or, in a replacement, belong to it.
    gone : list of (first, number)
        Slots that are no items any more.
    placed : list of (new, old)
        Slots that stand where others stood.
    names : dict of str to str
        New names, by slot.
    extends : bool
        Whether it and the last of its generations are one version: its slots are new.
    opened : list of (first, number)
        Slots of which a top-k run lost one of the best; empty again once their pairs are marked (opening.py).
    whole : bool
        Whether a top-k run lacked nothing of the version before.
    """

    change: str
    time: str
    generations: Annotated[int, Meta(ge=1, le=2**40)]
    gone: _Spans = []
    placed: list[tuple[_Size, _Size]] = []
    names: dict[str, str] = {}
    extends: bool = False
    opened: _Spans = []
    whole: bool = False


@dataclass(frozen=True, eq=False)
class RunVersion:
    """The items of a run at one version.

    Attributes
    ----------
    number : int
        From 1.
    slots : int64 array (n,)
        Which slots the items are, in the order of the items.
    names : mapping of int to str
        Names by slot, where they are not those of ``items.parquet``.
    newest : bool
        Whether the run has no later one.
    change : str
        What made it: run, add, remove, rename, replace.
    time : str
        When, in ISO 8601; empty where that was not recorded.
    gone : int64 array
        Slots that the version before had, and this one has not.
    n_new : int
        How many slots the version before did not have.
    renamed : tuple of int
        Slots that it gave a name.
    was_whole : bool
        Whether nothing of it was lacking when it was changed, as far as a top-k run knows.
    is_exact : bool
        Whether the best of each item among its items are kept by a top-k run.
    """

    number: int
    slots: Slots
    names: Mapping[int, str] = field(default_factory=dict)
    newest: bool = True
    change: str = "run"
    time: str = ""
    gone: Slots = field(default_factory=lambda: np.zeros(0, np.int64))
    n_new: int = 0
    renamed: tuple[int, ...] = ()
    was_whole: bool = False
    is_exact: bool = True

    @property
    def touched(self) -> list[int]:
        """Slots that it took away or renamed."""
        return self.gone.tolist() if len(self.gone) else list(self.renamed)

    @property
    def ascends(self) -> bool:
        """Whether the items stand in the order of their slots: no replacement is among them."""
        return bool((np.diff(self.slots) > 0).all())

    def is_whole(self, n_slots: int) -> bool:
        """Whether its items are all slots, in their order."""
        return len(self.slots) == n_slots and self.ascends

    def live(self, n_slots: int) -> NDArray[np.bool_]:
        """Return which slots are items: bool (n_slots,)."""
        found = np.zeros(n_slots, bool)
        found[self.slots] = True
        return found

    def places(self, n_slots: int) -> Slots:
        """Return where the items of slots stand: int64 (n_slots,), -1 for slots that are none."""
        found = np.full(n_slots, -1, np.int64)
        found[self.slots] = np.arange(len(self.slots))
        return found


@dataclass(frozen=True)
class VersionLog:
    """The log of a run folder.

    Attributes
    ----------
    generations : sequence of int
        Of the manifest.
    created : str
        When the run was.
    records : tuple of Record
        Only those that count.
    first : int
        The oldest version that can be read.
    base : (int, slots, names), optional
        Where ``first`` is not 1: how many generations it has, its slots, and its names.
    erase : bool
        Whether bytes of slots that no version has are being erased (``tartan expire --now``).
    unmarked : bool
        Whether the pairs of what the last change opened are not marked yet (opening.py).
    there : bool
        Whether the folder has the file.
    """

    generations: Sequence[int]
    created: str = ""
    records: tuple[Record, ...] = ()
    first: int = 1
    base: tuple[int, Slots, Mapping[int, str]] | None = None
    erase: bool = False
    unmarked: bool = False
    there: bool = False

    @classmethod
    def read(cls, folder: Path, manifest: Manifest) -> VersionLog:
        """Read the log of a run folder; one without the file has the generations of its manifest.

        Raises
        ------
        CorruptResultError
            If the file is damaged, or is not of this run.
        """
        plain = cls(tuple(manifest.generations), manifest.created)
        path = folder / FILE_NAME
        try:
            text = read_regular(path, MOST_JSON_BYTES)
        except FileNotFoundError:
            if manifest.format >= FORMAT_WITH_LOG:  # what was removed would be read
                raise make_log_error(path, "is gone") from None
            return plain
        except OSError as error:
            raise make_log_error(path, f"cannot be read ({error.strerror})") from error
        return replace(plain, **_parse(path, text, manifest), there=True)

    @property
    def n_slots(self) -> int:
        """Number of slots."""
        return int(self.generations[-1])

    @property
    def last(self) -> int:
        """The newest version."""
        return self.first + len(self._steps())

    def with_record(self, record: Record) -> VersionLog:
        """Return the log with one more change."""
        return replace(self, records=(*self.records, record), there=True, unmarked=bool(record.opened))

    @property
    def opened(self) -> Slots:
        """Slots that the last change opened and whose pairs are not marked yet."""
        return from_spans(self.records[-1].opened if self.unmarked and self.records else [])

    def marked(self) -> VersionLog:
        """Return the log after the pairs of what the last change opened were marked."""
        last = msgspec.structs.replace(self.records[-1], opened=[])
        return replace(self, records=(*self.records[:-1], last), unmarked=False)

    def lifetimes(self) -> NDArray[np.int64]:
        """Return numbers of slots, int64 (n_slots,), equal where the same versions that can be read have them."""
        spans = np.full((self.n_slots, 2), -1, np.int64)
        for version in self.list_versions():
            spans[version.slots, 1] = version.number
            new = version.slots[spans[version.slots, 0] < 0]
            spans[new, 0] = version.number
        return np.unique(spans, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def ranks(self) -> NDArray[np.int64] | None:
        """Return where slots stand among all, int64 (n_slots,), in every version alike; None where that is their order.

        A slot that took the place of another stands behind it, and no version has both.
        """
        steps = self._steps()
        first = self._list(self.first)[0]
        if first.ascends and not any(record.placed for record, _ in steps if record is not None):
            return None
        order: list[int] = first.slots.tolist()
        for record, span in steps:
            placed = [] if record is None else record.placed
            for new, old in placed:
                order.insert(order.index(old) + 1, new)
            if record is None or record.extends:
                taken = {new for new, _ in placed}
                order += [slot for slot in range(*span) if slot not in taken]
        ranks = np.full(self.n_slots, self.n_slots, np.int64)
        ranks[order] = np.arange(len(order))
        return ranks

    def since(self, first: int, *, erase: bool) -> VersionLog:
        """Return the log without the versions before one, which cannot be read any more."""
        version, steps = self.at(first), self._steps()
        at = 1 if self.base is None else self.base[0]
        n_records = 0
        for record, _ in steps[: first - self.first]:
            n_records += record is not None
            at += record is None or record.extends
        base = at, version.slots, version.names
        return replace(self, records=self.records[n_records:], first=first, base=base, erase=erase, there=True)

    def needed(self) -> NDArray[np.bool_]:
        """Return which slots a version that can be read has: bool (n_slots,)."""
        found = np.zeros(self.n_slots, bool)
        for version in self.list_versions():
            found[version.slots] = True
        return found

    def erased(self) -> VersionLog:
        """Return the log of one version without names of what is none of its items."""
        if self.base is None or self.records:
            return self
        at, slots, names = self.base
        live = set(slots.tolist())
        return replace(self, base=(at, slots, {slot: name for slot, name in names.items() if slot in live}))

    def write(self, folder: Path, writer: FileWriter) -> None:
        """Replace the file, whole or not at all."""
        head = LogHead(FORMAT, len(self.records), self.first, erase=self.erase, unmarked=self.unmarked)
        if self.base is not None:
            head.generations, slots, names = self.base
            head.slots, head.names = as_spans(slots), {str(slot): name for slot, name in names.items()}
        lines, check = [], ""
        for entry in (head, *self.records):
            body = msgspec.json.encode(entry).decode()
            check = _chain(check, body)
            lines.append(f'{{"entry": {body}, "check": "{check}"}}\n')
        writer.replace(folder / FILE_NAME, ["".join(lines).encode()])

    def at(self, number: int | None = None) -> RunVersion:
        """Return a version; default: the newest.

        Raises
        ------
        ConfigError
            If there is none of this number, or no more.
        """
        last = self.last
        wanted = last if number is None else number
        if wanted < 1 or wanted > last:
            raise ConfigError(
                f"there is no version {wanted}; the run has versions {self.first} to {last} (`tartan log` lists them)",
                code="no-version",
                context={"option": "--at", "version": wanted, "first": self.first, "last": last},
            )
        if wanted < self.first:
            raise ConfigError(
                f"version {wanted} has expired; the oldest that is kept is {self.first}, the newest {last} (`tartan "
                "log` lists them)",
                code="expired-version",
                context={"option": "--at", "version": wanted, "first": self.first, "last": last},
            )
        return self._list(wanted)[-1]

    def list_versions(self) -> list[RunVersion]:
        """Return all versions that can be read, the oldest first."""
        return self._list(self.last)

    def _list(self, until: int) -> list[RunVersion]:
        steps = self._steps()
        if self.base is None:
            slots, names = np.arange(self.generations[0], dtype=np.int64), {}
        else:
            slots, names = self.base[1], dict(self.base[2])
        recorded = [at for at, (record, _) in enumerate(steps) if record is not None]
        exact_from = self.first + (recorded[0] if recorded else len(steps))  # a top-k run: where it began to keep all

        def say(number: int) -> dict[str, Any]:
            following = steps[number - self.first][0] if number - self.first < len(steps) else None
            return {"was_whole": following is not None and following.whole, "is_exact": number >= exact_from}

        kind = "run" if self.first == 1 else ""
        first = RunVersion(self.first, slots, names, not steps, kind, _first_time(self), **say(self.first))
        found = [first]
        for number, (record, span) in enumerate(steps[: until - self.first], start=self.first + 1):
            slots, names = _step(found[-1], record, span)
            gone = np.setdiff1d(found[-1].slots, slots)
            change, time = ("add", "") if record is None else (record.change, record.time)
            n_new, renamed = (
                len(slots) - len(found[-1].slots) + len(gone),
                tuple(map(int, record.names if record else ())),
            )
            newest = number == self.first + len(steps)
            found.append(RunVersion(number, slots, names, newest, change, time, gone, n_new, renamed, **say(number)))
        return found

    def _steps(self) -> list[tuple[Record | None, tuple[int, int]]]:
        """Return what made each version after the first: a record, and the new slots (first, end)."""
        at = 1 if self.base is None else self.base[0]
        steps: list[tuple[Record | None, tuple[int, int]]] = []
        for record in self.records:
            own = int(record.extends)
            for generation in range(at, record.generations - own):
                steps.append((None, self._span(generation)))
            steps.append((record, self._span(record.generations - 1) if own else (0, 0)))
            at = record.generations
        steps += [(None, self._span(generation)) for generation in range(at, len(self.generations))]
        return steps

    def _span(self, generation: int) -> tuple[int, int]:
        return int(self.generations[generation - 1]), int(self.generations[generation])


def _first_time(log: VersionLog) -> str:
    return log.created if log.first == 1 else ""


def _step(before: RunVersion, record: Record | None, span: tuple[int, int]) -> tuple[Slots, dict[int, str]]:
    """Return the slots and names of a version from those of the one before."""
    slots, names = before.slots, dict(before.names)
    if record is None:
        return np.concatenate([slots, np.arange(*span, dtype=np.int64)]), names
    if record.gone:
        slots = slots[~np.isin(slots, from_spans(record.gone))]
    for new, old in record.placed:
        slots = np.where(slots == old, new, slots)
    if record.extends:
        placed = {new for new, _ in record.placed}
        slots = np.concatenate([slots, [slot for slot in range(*span) if slot not in placed]]).astype(np.int64)
    names.update((int(slot), name) for slot, name in record.names.items())
    return slots, names


def stamp_log(folder: Path) -> tuple[int, ...]:
    """Return what tells whether the log of versions of a folder was replaced."""
    try:
        found = (folder / FILE_NAME).stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def as_spans(slots: Slots) -> list[tuple[int, int]]:
    """Return slots, in their order, as (first, number) of runs that follow each other."""
    if not len(slots):
        return []
    starts = np.flatnonzero(np.diff(slots, prepend=slots[0] - 2) != 1)
    lengths = np.diff(starts, append=len(slots))
    return list(zip(slots[starts].tolist(), lengths.tolist(), strict=True))


def from_spans(spans: Sequence[tuple[int, int]]) -> Slots:
    """Return the slots of (first, number), in their order."""
    found = [np.arange(first, first + number, dtype=np.int64) for first, number in spans]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def inputs_without(manifest: Manifest, keys: Sequence[str], live: NDArray[np.bool_]) -> dict[str, Any]:
    """Return where the items of a version come from: without files and groups that were named and are gone."""
    given = list(leaves(manifest.inputs))
    if live.all() or not any(leaf.get("patterns") for leaf in given):
        return manifest.inputs
    ends = ends_of_leaves(manifest)
    known = len(ends) == len(given) + 1
    spans = itertools.pairwise(ends) if known else itertools.repeat((0, manifest.n_items))

    def cut(inputs: dict[str, Any]) -> dict[str, Any]:
        if "parts" in inputs:
            return inputs | {"parts": [cut(part) for part in inputs["parts"]]}
        first, stop = next(spans)
        if live[first:stop].all():
            return inputs
        named: list[set[str]] = [set(), set()]
        for slot in range(first, stop):
            named[bool(live[slot])].add(keys[slot])
        return _cut_leaf(inputs, *named)

    return cut(manifest.inputs)


def _cut_leaf(inputs: dict[str, Any], gone: set[str], there: set[str]) -> dict[str, Any]:
    """Return what was given at once without what belongs to items that are gone, by their keys."""
    names = {key.rpartition("/")[2] for key in gone}

    def is_gone(pattern: str) -> bool:
        if pattern.rpartition("/")[2] not in names or any(
            pattern == key or pattern.endswith(f"/{key}") for key in there
        ):
            return False
        return any(pattern == key or pattern.endswith(f"/{key}") for key in gone)

    found = dict(inputs)
    if "patterns" in inputs:
        found["patterns"] = [pattern for pattern in inputs["patterns"] if not is_gone(pattern)]
    if "groups" in inputs:  # one may be an item by its path, where its name was taken
        dead = gone | {key.rpartition("/")[2] for key in gone} - {key.rpartition("/")[2] for key in there}
        found["groups"] = {key: files for key, files in inputs["groups"].items() if key in there or key not in dead}
    return found


def _chain(before: str, body: str) -> str:
    return hashlib.sha256(f"{before}\n{body}".encode()).hexdigest()[:16]


def _parse(path: Path, text: bytes, manifest: Manifest) -> dict[str, Any]:
    """Return head and records of the text of a log, checked."""
    check, entries = "", []
    for number, line in enumerate(text.decode("utf-8", errors="replace").removesuffix("\n").split("\n"), start=1):
        try:
            found = parse_json(line)
            entry, said = found["entry"], found["check"]
            body = line[len('{"entry": ') : line.rindex(', "check": ')]
        except (ValueError, KeyError, TypeError) as error:
            raise make_log_error(path, f"cannot be read in line {number} ({error})") from error
        check = _chain(check, body)
        if said != check:
            raise make_log_error(path, f"does not match its checksum in line {number}")
        entries.append(entry)
    try:
        head = msgspec.convert(entries[0], LogHead)
        records = [msgspec.convert(entry, Record) for entry in entries[1:]]
    except msgspec.ValidationError as error:
        if isinstance(entries[0], dict) and entries[0].get("format") != FORMAT:
            raise _newer(path, entries[0].get("format")) from error
        raise make_log_error(path, f"does not describe versions: {error}") from error
    if head.format != FORMAT:
        raise _newer(path, head.format)
    if len(records) != head.records:  # what was removed would be read
        raise make_log_error(path, f"has {len(records)} changes of {head.records}")
    counted = [one for one in records if one.generations <= len(manifest.generations)]
    unmarked = head.unmarked and len(counted) == len(records)  # what does not count has opened nothing
    records = counted
    base = None
    if head.slots is not None:
        if sum(number for _, number in head.slots) > manifest.n_items:
            raise make_log_error(path, "has more items than the run")
        base = head.generations, from_spans(head.slots), _names(path, head.names)
        if any(slot >= manifest.n_items for slot in base[2]):
            raise make_log_error(path, "names items that the run does not have")
    found_log = VersionLog(
        tuple(manifest.generations),
        manifest.created,
        tuple(records),
        head.first,
        base,
        head.erase,
        unmarked,
        there=True,
    )
    _check(path, found_log)
    return {
        "records": found_log.records,
        "first": head.first,
        "base": base,
        "erase": head.erase,
        "unmarked": unmarked,
    }


def _check(path: Path, log: VersionLog) -> None:
    """Refuse a log whose records do not follow from each other."""
    before = 1 if log.base is None else log.base[0]
    if before > len(log.generations):
        raise make_log_error(path, "is of a run with more generations")
    for record in log.records:
        if record.generations < before or (record.extends and record.generations == before):
            raise make_log_error(path, "does not follow from the generations of the run")
        named = [*(slot for pair in record.placed for slot in pair), *_names(path, record.names)]
        named += [first + number - 1 for first, number in (*record.gone, *record.opened)]
        if any(slot >= log.n_slots for slot in named):
            raise make_log_error(path, "names items that the run does not have")
        before = record.generations
    slots = log.at().slots
    if not len(slots) or len(np.unique(slots)) != len(slots) or int(slots.max()) >= log.n_slots:
        raise make_log_error(path, "leaves no items, or names one twice")


def _names(path: Path, names: Mapping[str, str]) -> dict[int, str]:
    if not all(slot.isascii() and slot.isdecimal() for slot in names):
        raise make_log_error(path, "names what is not an item")
    return {int(slot): name for slot, name in names.items()}


def _newer(path: Path, found: Any) -> CorruptResultError:
    return CorruptResultError(
        f"{path} has format {found}, this Tartan reads {FORMAT}; use a newer Tartan",
        code="newer-format",
        context={"path": str(path), "format": found},
    )


def make_log_error(path: Path, what: str) -> CorruptResultError:
    """Return the error of a log that cannot be believed."""
    return CorruptResultError(
        f"{path}, the versions of this run, {what}; restore it from a copy, or start a new run in another folder",
        context={"path": str(path)},
    )
