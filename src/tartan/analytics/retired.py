"""Options of estimators that are accepted for one more version, with a warning that names the way out."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from sklearn.base import BaseEstimator


class Retired(NamedTuple):
    """An option that goes in the next version.

    Attributes
    ----------
    default : object
        What it is where it is not given, and what it will always be.
    way_out : str
        What to do instead.
    """

    default: Any
    way_out: str


#: The way out for objects of one call, which are no property of an estimator.
IN_FIT = "give it to fit"


class RetiringEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator that accepts retired options: in its constructor, ``set_params`` and clones.

    A retired option that is given is a parameter like the others; one that is not given is none.
    """

    retired: ClassVar[Mapping[str, Retired]] = {}
    verbose: int
    checkpoint: str | Path | None

    def __init_subclass__(cls, **options: Any) -> None:
        """Let the constructor accept retired options, which its signature does not show."""
        super().__init_subclass__(**options)
        plain = cls.__init__

        @functools.wraps(plain)
        def accepting(self: RetiringEstimator, *args: Any, **given: Any) -> None:
            plain(self, *args, **{name: value for name, value in given.items() if name not in self.retired})
            self._accept_retired({name: value for name, value in given.items() if name in self.retired})

        cls.__init__ = accepting  # type: ignore[assignment, method-assign]

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Keep the arguments of the constructor, its ``locals()``, under their names and as they are."""
        self.__dict__.update({name: value for name, value in given.items() if name != "self"})

    def _accept_retired(self, given: Mapping[str, Any]) -> None:
        """Set retired options, each with a warning."""
        for name, value in given.items():
            warnings.warn(
                f"{type(self).__name__}: the option {name} goes in the next version; {self.retired[name].way_out}",
                DeprecationWarning,
                stacklevel=3,
            )
            setattr(self, name, value)

    def _value_of(self, name: str) -> Any:
        """Return a retired option as it was given, or its default."""
        return vars(self).get(name, self.retired[name].default)

    def all_options(self) -> dict[str, Any]:
        """Return all parameters by name, retired ones included."""
        return {name: self._value_of(name) for name in self.retired} | self.get_params(deep=False)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; retired ones only if they were given."""
        found: dict[str, Any] = super().get_params(deep)
        return found | {name: value for name, value in vars(self).items() if name in self.retired}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        self._accept_retired({name: value for name, value in params.items() if name in self.retired})
        super().set_params(**{name: value for name, value in params.items() if name not in self.retired})
        return self


class PairwiseEstimator(RetiringEstimator):
    """An estimator whose input is a matrix of dissimilarities."""

    metric: str

    def __sklearn_tags__(self) -> Any:
        """Return the tags of an estimator whose input is a matrix of pairs."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        tags.input_tags.positive_only = True
        return tags
