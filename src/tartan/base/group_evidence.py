"""How an application weighs what groups of its items have in common."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GroupEvidence:
    """How what two groups have in common is weighed, beyond what single pairs of their items show.

    Items are patterns whose scores are correlations, or follow from them: the mean of a group's patterns shows what
    they have in common more clearly than each. Of two unlike items the score, as ``deviations`` (below), is normal; of
    the means of two groups it is, too, around what unlike items have in common.

    Attributes
    ----------
    correlation : str
        The output that is the correlation of two items, 1 of an item with itself; may be the scores themselves.
    squared : bool
        Whether a score is the signed square of deviations; else it is a multiple of them.
    deviation : float
        The score, or its root, of one deviation.
    spread : float
        Standard deviation of the deviations of unlike items.
    common : float
        Largest mean correlation of unlike items.
    scatter : float
        Standard deviation of that mean over pairs of groups.
    share : float
        Two groups of several items are joined only where their mean correlation is at least this share of what those
        within them say of one group, so that no common part joins them.
    false_alarm : float
        Chance that any unlike groups of a run are joined.
    closely : bool
        Whether the application has clearer patterns of items (``Application.look_closely``), by which items that are
        still alone are tested.
    why : str
        What the joins rest on, in a few words.
    """

    correlation: str
    squared: bool = False
    deviation: float = 1.0
    spread: float = 1.0
    common: float = 0.0
    scatter: float = 0.0
    share: float = 0.0
    false_alarm: float = 1e-6
    closely: bool = False
    why: str = ""
