"""Expectation-maximisation of pairwise clustering: costs of points in clusters, memberships, and their fixed point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.clusters.dapwc.product import Columns, Product
from tartan.base.checks import FRACTION, Fit, number, whole
from tartan.base.signatures import Checked, Flag, Fraction, FromOne, Positive

Vector = NDArray[np.float64]

# _PRIOR_STEPS and _PRIOR_CHANGE, by judgement: shares of clusters settle in a few steps; they are a beginning only. No
# benchmark.
_PRIOR_STEPS = 40
_PRIOR_CHANGE = 1e-3
# By judgement: half of what the tolerance allows, so that the next step does not pass it. No benchmark.
_STANDING = 0.5  # of tol

_BELOW_ZERO: Fit = ("a number below 0, such as -0.01", lambda value: value < 0)
_Points = Annotated[float, Checked(number, ("a number of points, 0 or more", lambda value: value >= 0))]


@dataclass(frozen=True)
class Cooldown:
    """Factors of the temperature between splits and while freezing; its last value."""

    cooling: Fraction = 0.99
    final_cooling: Fraction = 0.98
    min_temperature: Annotated[float | None, Checked(number, FRACTION)] = None


@dataclass(frozen=True)
class Division:
    """When clusters are split."""

    split_threshold: Annotated[float, Checked(number, _BELOW_ZERO)] = -0.01
    min_split_size: _Points = 1
    max_failed_splits: Annotated[int | None, Checked(whole)] = None


@dataclass(frozen=True)
class Convergence:
    """When a temperature is done, and the run."""

    tol: Positive = 1e-3
    max_iter: FromOne = 2000
    freezing_limit: Positive = 0.002


@dataclass(frozen=True)
class PairwiseSettings:
    """The options of :class:`tartan.analytics.DAPWC` of the same names, in groups."""

    n_clusters: FromOne
    min_cluster_size: _Points = 1
    continuous_prior: Flag = False
    intermediate: Flag = False
    cooldown: Cooldown = Cooldown()
    division: Division = Division()
    convergence: Convergence = Convergence()


@dataclass
class Memberships:
    """Memberships of n points in k clusters, and what follows from them.

    Attributes
    ----------
    members : ndarray (n, k)
        M; rows sum to 1.
    costs : ndarray (n, k)
        epsilon = B + A, in units of dissimilarities.
    prior : ndarray (k,)
        P: shares of the clusters, or ones.
    sizes, inner, change : ndarray (k,)
        C and A of the memberships that the costs were computed from; the sum over points of |cost - cost before|,
        infinite where there is no cost before.
    """

    members: Columns
    costs: Columns
    prior: Vector
    sizes: Vector
    inner: Vector
    change: Vector

    @property
    def k(self) -> int:
        return len(self.prior)

    @property
    def hamiltonian(self) -> float:
        """H, the sum of sizes times widths."""
        return float(-2.0 * (self.inner * self.sizes).sum())

    @property
    def freezing(self) -> Vector:
        """Share of each cluster that is still undecided: sum of M (1 - M), by its size."""
        sizes: Vector = self.members.sum(0)
        squares: Vector = np.einsum("nk,nk->k", self.members, self.members)
        return (sizes - squares) / np.maximum(sizes, np.finfo(float).tiny)

    def copy(self) -> Memberships:
        return Memberships(*(np.array(value) for value in self.arrays().values()))

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return all arrays by name."""
        return {name: getattr(self, name) for name in ("members", "costs", "prior", "sizes", "inner", "change")}

    def join(self, pairs: list[tuple[int, int]]) -> Memberships:
        """Return the state in which the second cluster of each pair is part of the first."""
        members = self.members.copy()
        stays = np.ones(self.k, bool)
        for first, second in pairs:
            members[:, first] += members[:, second]
            stays[second] = False
        return replace(self, members=members).keep(stays)

    def keep(self, columns: NDArray[np.bool_]) -> Memberships:
        """Return the state with some of its clusters; memberships are not yet shared out again."""
        new = Memberships(*(np.ascontiguousarray(value[..., columns]) for value in self.arrays().values()))
        new.change[:] = np.inf
        return new


def first_state(members: Columns) -> Memberships:
    """Return a state of given memberships; its costs are not known yet."""
    k = members.shape[1]
    return Memberships(members, np.zeros(members.shape), np.ones(k), np.zeros(k), np.zeros(k), np.full(k, np.inf))


def update_costs(state: Memberships, product: Product) -> None:
    """Compute costs, sizes and inner of the present memberships."""
    products, mass = product(state.members)
    scratch = np.empty(_native.pwc_scratch_len(*state.members.shape))
    _native.pwc_costs(
        products, mass, state.members, product.scale, product.unknown, state.costs, state.sizes, state.inner,
        state.change, scratch,
    )  # fmt: skip


def assign(state: Memberships, temperature: float, settings: PairwiseSettings) -> None:
    """Share the points out by their costs; with a continuous prior until shares and prior agree."""
    copies = np.ones(state.k)
    if not settings.continuous_prior:
        _native.pwc_assign(state.costs, state.prior, copies, state.k, temperature, state.members)
        return
    for _ in range(_PRIOR_STEPS):
        before = state.members.copy()
        _native.pwc_assign(state.costs, state.prior, copies, state.k, temperature, state.members)
        state.prior = state.members.mean(0)
        if np.abs(state.members - before).sum() < _PRIOR_CHANGE * len(before):
            break


def stands(state: Memberships, product: Product, settings: PairwiseSettings) -> bool:
    """Return whether a lower temperature leaves the costs as they are, within ``tol``.

    It does where the last step left them so and nearly all points are decided: what is undecided of a cluster, decided
    either way, moves its costs by twice that share of the largest dissimilarity at most.
    """
    tol = settings.convergence.tol
    limit = _STANDING * tol * product.unit * len(state.members)
    return bool(state.change.max() <= limit and state.freezing.max() <= _STANDING * tol)


def converge(
    state: Memberships, temperature: float, product: Product, settings: PairwiseSettings, ignore: int = 0
) -> int:
    """Step until no cluster's costs change by more than ``tol`` on average; return the number of steps.

    At least ``ignore`` steps are made. ``tol`` is a share of the largest dissimilarity.
    """
    limit = settings.convergence.tol * product.unit * len(state.members)
    for step in range(1, settings.convergence.max_iter + 1):
        update_costs(state, product)
        assign(state, temperature, settings)
        if step > ignore and state.change.max() <= limit:
            break
    return step
