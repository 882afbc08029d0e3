"""When a rank that has nothing to do takes pieces of a task from another one, and how many.

Ranks never end at just the same moment, and who ends first has nothing to do until the task ends. What it takes must
come to it first, and goes back where it was when the next task is divided into equal shares again. So pieces are taken
only where the task ends sooner by more than both ways cost, and by a share of the time that it has run: what is less
than that is chance, and shares stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

#: By how much sooner a task must end, as a share of the time since it began.
LEAST_GAIN = 0.125


@dataclass(frozen=True)
class StealChance:
    """What is known when a rank has nothing to do.

    Attributes
    ----------
    n_left : int
        Pieces that its victim has not ended.
    thief_seconds, victim_seconds : float
        Between the ends of two pieces on each.
    elapsed_seconds : float
        Since the task began.
    n_busy, n_cores : int
        Subtasks that run, and cores that all ranks share, where they do: while no core is idle, what a thief computes
        slows the others down.

    Examples
    --------
    >>> chance = StealChance(n_left=8, thief_seconds=1.0, victim_seconds=1.0, elapsed_seconds=16.0)
    >>> chance.count(6), chance.pays(4, 0.5), chance.pays(4, 2.0), chance.pays(1, 0.0)
    (4, True, False, False)
    """

    n_left: int
    thief_seconds: float
    victim_seconds: float
    elapsed_seconds: float
    n_busy: int = 0
    n_cores: float = inf

    def count(self, n_free: int) -> int:
        """Return how many pieces let both end together, of those that the victim has not begun."""
        share = self.victim_seconds / (self.victim_seconds + self.thief_seconds)
        return min(n_free, int(self.n_left * share))

    def pays(self, count: int, transfer_seconds: float) -> bool:
        """Return whether some pieces are worth their transfer to the thief, and once more back.

        Parameters
        ----------
        count : int
        transfer_seconds : float
            Until all that they need is at the thief.
        """
        if self.n_busy >= self.n_cores:
            return False
        victim_ends = (self.n_left - count) * self.victim_seconds
        ends = max(victim_ends, transfer_seconds + count * self.thief_seconds)
        gain = self.n_left * self.victim_seconds - ends
        return gain > transfer_seconds + LEAST_GAIN * self.elapsed_seconds
