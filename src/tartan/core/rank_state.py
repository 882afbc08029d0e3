"""What a coordinator knows of each rank: its plan, what it was granted, and how fast it is."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tartan.core.messages import Hello
from tartan.core.region import Region


@dataclass
class PlannedRegion:
    """A region that a rank will be granted; ``position`` says when its stream comes, where ranks stream together."""

    region: Region
    position: int | None = None


@dataclass
class RankState:
    """A rank, what it is to be granted and what it has been."""

    number: int
    peer: str
    hello: Hello
    heard: float
    plan: deque[PlannedRegion] = field(default_factory=deque)
    planned_pairs: int = 0
    granted_pairs: int = 0
    band: frozenset[int] = frozenset()
    waiting: bool = False
    has_enough: bool = False
    thief: int | None = None
    barren: bool = False

    @property
    def position(self) -> int | None:
        """Where it is, or will begin, in the stream that all ranks of its panel share."""
        return next((planned.position for planned in self.plan if planned.position is not None), None)

    @property
    def left(self) -> int:
        return self.planned_pairs + self.granted_pairs


class RankSpeeds:
    """Pairs a second of every rank, as measured; what is not measured yet is guessed from the others."""

    def __init__(self) -> None:
        self._guesses: dict[int, float] = {}
        self._measured: dict[int, float] = {}
        self._sum = 0.0
        self._known_guesses = 0.0
        self._all_guesses = 0.0

    def add(self, rank: int, guess: float) -> None:
        """A rank came, with a guess in a unit that is the same for all."""
        self._guesses[rank] = guess
        self._all_guesses += guess

    def remove(self, rank: int) -> None:
        """A rank went."""
        self._forget(rank)
        self._all_guesses -= self._guesses.pop(rank)

    def measured(self, rank: int, speed: float) -> None:
        """A rank measured its speed; 0 says that it does not know it."""
        if speed > 0:
            self._forget(rank)
            self._measured[rank] = speed
            self._sum += speed
            self._known_guesses += self._guesses[rank]

    def knows(self, rank: int) -> bool:
        """Whether the speed of a rank was measured."""
        return rank in self._measured

    def of(self, rank: int) -> float:
        """Return the speed of a rank."""
        return self._measured.get(rank) or self._guesses[rank] * self._unit

    @property
    def total(self) -> float:
        """The speed of all ranks together."""
        return self._sum + (self._all_guesses - self._known_guesses) * self._unit

    @property
    def _unit(self) -> float:
        return self._sum / self._known_guesses if self._measured else 1.0

    def _forget(self, rank: int) -> None:
        if rank in self._measured:
            self._sum -= self._measured.pop(rank)
            self._known_guesses -= self._guesses[rank]
