"""What the estimators share: how they keep their options, and what scikit-learn knows of their input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator


class Estimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator of scikit-learn's kind that shows progress and saves checkpoints."""

    verbose: int
    checkpoint: str | Path | None

    def _keep(self, arguments: Mapping[str, Any]) -> None:
        """Keep the arguments of the constructor, its ``locals()``, under their names and as they are."""
        self.__dict__.update({name: value for name, value in arguments.items() if name != "self"})


class PairwiseEstimator(Estimator):
    """An estimator whose input is a matrix of dissimilarities."""

    metric: str

    def __sklearn_tags__(self) -> Any:
        """Return the tags of an estimator whose input is a matrix of pairs."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        tags.input_tags.positive_only = True
        return tags
