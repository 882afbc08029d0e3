"""Any sequence of changes of a run: after each step Tartan and the plain reader give the same answers."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tartan
from tartan.store.folder import RunFolder

from .plain import READER, refuse_other_answers

MOST_ITEMS = 9
GOOD = st.integers(0, 99)
KEEPS: dict[str, Any] = {
    "matrix": None,
    "one way": None,
    "threshold": {"kind": "threshold", "threshold": 40, "largest": False},
    "top-k": {"kind": "top-k", "k": 2, "largest": False},
    "one way, top-k": {"kind": "top-k", "k": 2, "largest": False},
    "two sets": None,
    "two sets, top-k": {"kind": "top-k", "k": 2, "largest": False},
}


class Away(tartan.Application):
    outputs: ClassVar = {"away": "float64", "sum": "int32"}
    item_suffixes = (".txt",)
    releases_gil = True

    def parse(self, key: str, data: bytes) -> Any:
        return int(data)

    def compare_pair(self, a: Any, b: Any) -> Any:
        if a % 2 and b % 2 and (a + b) % 5 < 2:
            raise ValueError("it does not like that sum")
        return {"away": abs(a - b), "sum": a + b}


class OneWay(Away):
    symmetric = False

    def compare_pair(self, a: Any, b: Any) -> Any:
        return super().compare_pair(a, b) | {"away": 2 * a - b}


class LivingMachine(RuleBasedStateMachine):
    """The model is the list of names of each version that can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tartan-test-"))
        self.run, self.n_files = self.root / "run", 0
        self.versions: dict[int, list[str]] = {}
        self.exact_from = 0  # the first version that a top-k run can answer: later ones keep what is needed

    def write(self, number: int | None) -> str:
        """Write an item; one without a number cannot be parsed."""
        path = self.root / f"f{self.n_files:02}.txt"
        path.write_text("broken" if number is None else str(number))
        self.n_files += 1
        return str(path)

    def keep(self, names: list[str]) -> None:
        """Note a version. Without a log a top-k run answers for the newest alone: it drops what others need."""
        newest = max(self.versions, default=0)
        if not (self.run / "versions.jsonl").exists():
            self.exact_from = newest + 1
        self.versions[newest + 1] = names

    @property
    def keeps_best(self) -> bool:
        return "top-k" in self.kind

    @property
    def one_set(self) -> bool:
        return bool(self.versions) and "two sets" not in self.kind

    @property
    def left(self) -> list[str]:
        """Items that may go: some stay, of each set."""
        return [name for name in self.names if name not in self.stay]

    def take_out(self, gone: list[str]) -> None:
        tartan.remove(self.run, gone)
        self.keep([name for name in self.names if name not in gone])

    def compare_what_lacks(self) -> None:
        """A run that keeps the best of each item takes no new items before."""
        if self.keeps_best:
            tartan.resume(self.run, **self.ways)

    @property
    def names(self) -> list[str]:
        return self.versions[max(self.versions)]

    @property
    def ways(self) -> dict[str, Any]:
        return {"app": self.app, "workers": 1, "quiet": True}

    @initialize(second=GOOD, others=st.lists(st.none() | GOOD, max_size=4), kind=st.sampled_from([*KEEPS]))
    def compute(self, second: int, others: list[int | None], kind: str) -> None:
        """The first item is even and stays, so that some pair can be compared: a run of which none can is refused."""
        self.app, self.kind = (OneWay() if kind.startswith("one way") else Away()), kind
        files = [self.write(number) for number in (0, second, *others)]
        ways = self.ways | {"reduce": KEEPS[kind], "tile": 3, "out": self.run}
        self.stay = {Path(files[0]).name}
        if kind.startswith("two sets"):
            against = [self.write(number) for number in (2, *others)]
            ways |= {"against": against}
            self.stay.add(Path(against[0]).name)
            files = [*files, *against]
            tartan.allpairs(ways.pop("app"), files[: len(files) - len(against)], **ways)
        else:
            tartan.allpairs(ways.pop("app"), files, **ways)
        self.keep([Path(file).name for file in files])

    @precondition(lambda self: self.one_set and len(self.names) < MOST_ITEMS)
    @rule(first=GOOD, others=st.lists(st.none() | GOOD, max_size=1))
    def add(self, first: int, others: list[int | None]) -> None:
        self.compare_what_lacks()
        files = [self.write(number) for number in (first, *others)]
        tartan.add(self.run, files, **self.ways)
        self.keep([*self.names, *(Path(file).name for file in files)])

    @precondition(lambda self: self.versions and len(self.left) > 1)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(self.left), min_size=1, unique=True))
        self.take_out(gone)

    @precondition(lambda self: self.one_set and self.left)
    @rule(data=st.data(), number=GOOD)
    def replace(self, data: st.DataObject, number: int) -> None:
        self.compare_what_lacks()
        tartan.replace(self.run, data.draw(st.sampled_from(self.left)), self.write(number), **self.ways)
        self.keep(list(self.names))

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def rename(self, data: st.DataObject) -> None:
        old, new = data.draw(st.sampled_from(self.names)), f"name{self.n_files}"
        self.n_files += 1
        tartan.rename(self.run, old, new)
        self.stay = {new if name == old else name for name in self.stay}
        self.keep([new if name == old else name for name in self.names])

    @precondition(lambda self: self.versions)
    @rule(keep=st.integers(1, 3), erase=st.booleans())
    def expire(self, keep: int, erase: bool) -> None:
        keep = 1 if erase else keep
        tartan.expire(self.run, keep, now=erase)
        self.versions = {number: self.versions[number] for number in sorted(self.versions)[-keep:]}

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def lose_a_chunk_and_resume(self, data: st.DataObject) -> None:
        """As after a power cut: what it had is missing for both readers, and is computed again."""
        chunks = sorted(self.run.glob("status.zarr/c/*/*"))
        if chunks:
            lost = data.draw(st.sampled_from(chunks))
            lost.unlink()
            mirrored = lost.parents[1] / lost.name / lost.parent.name
            mirrored.unlink(missing_ok=True)
            (self.run / "result.parquet").unlink(missing_ok=True)
            self.answers_are_the_same()
        tartan.resume(self.run, **self.ways)

    @invariant()
    def answers_are_the_same(self) -> None:
        for number, names in self.versions.items():
            if self.keeps_best and number < self.exact_from:
                for refuses in (tartan.open, READER.PlainRun):
                    with pytest.raises(ValueError):
                        refuses(self.run, number)
                continue
            plain = READER.PlainRun(self.run, number)
            assert plain.keys == names
            refuse_other_answers(tartan.open(self.run, number), plain)

    def teardown(self) -> None:
        shutil.rmtree(self.root)


def _drive(request: Any, n_examples: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    phases = [Phase.explicit, Phase.generate, *([] if n_examples < 10 else [Phase.shrink])]
    ways = settings(max_examples=n_examples, stateful_step_count=6, deadline=None, phases=phases)
    run_state_machine_as_test(LivingMachine, settings=ways)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KEEPS if "top-k" in kind])
def test_readers_agree_before_what_a_removal_opened_is_compared(kind: str) -> None:
    """Pairs whose code is 4 count for what is kept, in the newest version and in older ones."""
    machine = LivingMachine()
    try:
        machine.compute(second=70, others=[12, 30, 42, 44, 8, 10, 52, 60], kind=kind)
        for gone in list(machine.left)[::3]:
            machine.take_out([gone])
            machine.answers_are_the_same()
        assert (READER.PlainRun(machine.run).array("status")[:] == READER.OPENED).any()
        tartan.resume(machine.run, **machine.ways)
        machine.answers_are_the_same()
        folder = RunFolder.open(machine.run, writable=True)
        with folder.lock():  # as where a kill came before the status: what a part has of them does not count
            for chunk in list(folder.committed_of_slots()):
                folder.take_back(*chunk, np.eye(*folder.chunk_shape(*chunk), dtype=bool))
            folder.forget_result()
        machine.answers_are_the_same()
    finally:
        machine.teardown()


@pytest.mark.slow
def test_readers_agree_on_a_run_that_lives(request: Any) -> None:
    _drive(request, 3)


@pytest.mark.exhaustive
def test_readers_agree_on_many_runs_that_live(request: Any) -> None:
    _drive(request, 200)
