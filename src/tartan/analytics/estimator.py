"""What the estimators share: how they keep their options, and what scikit-learn knows of their input."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from tartan.errors import ConfigError


class Estimator:
    """An estimator by scikit-learn's conventions that shows progress and saves checkpoints.

    It does not inherit from ``sklearn.base``, whose import takes longer than most analyses: scikit-learn asks for
    methods and tags, not for a class.
    """

    verbose: int
    checkpoint: str | Path | None
    _estimator_type: ClassVar[str | None] = None

    def _keep(self, arguments: Mapping[str, Any]) -> None:
        """Keep the arguments of the constructor, its ``locals()``, under their names and as they are."""
        self.__dict__.update({name: value for name, value in arguments.items() if name != "self"})

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """Return the parameters of the constructor with their defaults."""
        listed = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return {one.name: one.default for one in sorted(listed, key=lambda one: one.name)}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters.

        Parameters
        ----------
        deep : bool
            As scikit-learn gives it; no parameter is an estimator.
        """
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; return the estimator.

        Raises
        ------
        ConfigError
            If there is no parameter of a name.
        """
        known = self._defaults()
        for name in params:
            if name not in known:
                raise ConfigError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}")
        self.__dict__.update(params)
        return self

    def __repr__(self) -> str:
        shown = {
            name: getattr(self, name)
            for name, default in self._defaults().items()
            if default is not getattr(self, name)
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks of an estimator."""
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags() if hasattr(self, "transform") else None,
        )


class PairwiseEstimator(Estimator):
    """An estimator whose input is a matrix of dissimilarities."""

    metric: str

    def __sklearn_tags__(self) -> Any:
        """Return the tags of an estimator whose input is a matrix of pairs."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        tags.input_tags.positive_only = True
        return tags
