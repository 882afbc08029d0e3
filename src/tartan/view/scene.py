"""Describe pictures of maps: points with labels in coloured clusters, and lines between them.

A scene is data only. It is written as a page (``scene_page``), a picture (``map_image``) or a .pviz file (``pviz``).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.base.palette import GROUP_COLOURS, hex_colour
from tartan.errors import ConfigError

__all__ = ["Cluster", "Scene", "SceneMap", "scene"]

Colour = tuple[int, int, int, int]

#: Items that no group has.
ASIDE: Final = "in no group"
#: Items of which a table says nothing.
NO_VALUE: Final = "no value"
_LAST: Final = (ASIDE, NO_VALUE)
_GREY: Final = (150, 150, 156)
_NUMBERED: Final = re.compile(r"(\D*)(\d{1,15})(?!\d)")


@dataclass(frozen=True)
class Cluster:
    """How the points of one cluster look.

    Attributes
    ----------
    label : str
    colour : tuple of int
        Red, green, blue, opacity: 0 to 255.
    visible : bool
    size : float
        Of its points, as a factor.
    shape : int
        Number of a shape in .pviz files; pages and pictures draw discs.
    """

    label: str
    colour: Colour
    visible: bool = True
    size: float = 1.0
    shape: int = 3


@dataclass(frozen=True, eq=False)
class SceneMap:
    """One map: a title and the places of all points, (n, 2) or (n, 3); NaN for points that it does not have."""

    title: str
    points: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scene:
    """Maps of the same points.

    Attributes
    ----------
    title : str
    maps : tuple of SceneMap
        At least one; several are shown side by side or one after the other.
    labels : tuple of str
        Label of each point.
    clusters : tuple of Cluster
    cluster_of : ndarray of int64, shape (n,)
        Place of each point's cluster in ``clusters``.
    edges : tuple of tuple of int
        Lines along points: two for an edge, more for a way.
    point_size : float
        Factor of the size of all points.
    """

    title: str
    maps: tuple[SceneMap, ...]
    labels: tuple[str, ...]
    clusters: tuple[Cluster, ...]
    cluster_of: NDArray[np.int64]
    edges: tuple[tuple[int, ...], ...] = ()
    point_size: float = 1.0
    glyph_visible: bool = True
    glyph_scale: float = 1.0

    def __post_init__(self) -> None:
        n = len(self.labels)
        if not self.maps:
            raise ConfigError("a scene needs a map")
        for number, shown in enumerate(self.maps):
            if shown.points.ndim != 2 or len(shown.points) != n or shown.points.shape[1] not in (2, 3):
                raise ConfigError(
                    f"map {number} has shape {shown.points.shape}; it needs {n} rows for {n} labels and 2 or 3 columns"
                )
        if len(self.cluster_of) != n or (
            n and not 0 <= self.cluster_of.min() <= self.cluster_of.max() < len(self.clusters)
        ):
            raise ConfigError(f"cluster_of needs one of {len(self.clusters)} clusters for each of {n} points")
        wrong = [edge for edge in self.edges if len(edge) < 2 or not all(0 <= point < n for point in edge)]
        if wrong:
            raise ConfigError(f"an edge leads along {wrong[0]}; it needs two or more of the points 0 to {n - 1}")

    @property
    def n(self) -> int:
        """Number of points."""
        return len(self.labels)

    def segments(self) -> NDArray[np.int64]:
        """Return the edges as pairs of points, (m, 2)."""
        pairs = [pair for edge in self.edges for pair in pairwise(edge)]
        return np.array(pairs, np.int64).reshape(-1, 2)


def scene(
    maps: ArrayLike | Sequence[tuple[str, ArrayLike]],
    *,
    title: str = "Map",
    labels: Sequence[str] | None = None,
    clusters: Sequence[Hashable] | None = None,
    colours: Mapping[str, str] | None = None,
    edges: Sequence[Sequence[int]] = (),
    point_size: float = 1.0,
) -> Scene:
    """Make a scene of coordinates.

    Parameters
    ----------
    maps : array_like (n, 1 to 3), or sequence of (title, array_like)
        One map, or several of the same points. Beyond three dimensions the first three are shown.
    title : str
    labels : sequence of str, optional
        Default: the numbers of the points.
    clusters : sequence, optional
        Cluster of each point; they get colours in the order of their numbers, where all have one, else in that of their
        first points. Points that are "in no group" are grey.
    colours : mapping of str to str, optional
        Colours of clusters, as ``#0072b2``, in the order of the legend; others have theirs.
    edges : sequence of sequences of int
    point_size : float

    Raises
    ------
    ConfigError
        If the lengths disagree.

    Examples
    --------
    >>> made = scene([[0, 0], [1, 1], [2, 0]], clusters=["a", "b", "a"])
    >>> [cluster.label for cluster in made.clusters], made.cluster_of.tolist()
    (['a', 'b'], [0, 1, 0])
    """
    several = isinstance(maps, list | tuple) and bool(maps) and _is_named(maps[0])
    named: Any = maps if several else [(title, maps)]
    shown = tuple(SceneMap(str(name), _points(points)) for name, points in named)
    n = len(shown[0].points)
    texts = tuple(map(str, range(n) if labels is None else labels))
    if clusters is not None and len(clusters) != n:
        raise ConfigError(f"{len(clusters)} clusters for {n} points: each point needs one")
    of_points = ["points"] * n if clusters is None else list(map(str, clusters))
    own = group_colours(of_points)
    colour_of = {name: shade for name, shade in (colours or {}).items() if name in own}
    colour_of |= {name: shade for name, shade in own.items() if name not in colour_of}
    order = {name: place for place, name in enumerate(colour_of)}
    return Scene(
        title,
        shown,
        texts,
        tuple(Cluster(name, (*bytes.fromhex(colour[1:]), 255)) for name, colour in colour_of.items()),
        np.array([order[name] for name in of_points], np.int64),
        tuple(tuple(map(int, edge)) for edge in edges),
        point_size,
    )


def group_colour(place: int) -> tuple[int, int, int]:
    """Return the colour of a cluster: those that are easy to tell apart first, then steps around the circle of hues."""
    if place < len(GROUP_COLOURS):
        return GROUP_COLOURS[place]
    # The golden angle: neighbours in the list are far apart on the circle, however long the list is.
    hue = (place * 0.61803398875) % 1.0
    value = (0.85, 0.6)[place // 2 % 2]
    shades = np.clip(np.abs((hue * 6 + np.array([0, 4, 2])) % 6 - 3) - 1, 0, 1)
    red, green, blue = (int(255 * value * (0.25 + 0.75 * shade)) for shade in shades)
    return red, green, blue


def group_colours(groups: Iterable[str]) -> dict[str, str]:
    """Return a colour for each group, as ``#0072b2``: in the order of ``order_groups``."""
    names = order_groups(groups)
    return {name: hex_colour(_GREY if name in _LAST else group_colour(place)) for place, name in enumerate(names)}


def order_groups(groups: Iterable[str]) -> list[str]:
    """Return each group once: by their numbers where all names are one text with a number, else as they come first.

    What is in no group comes last.

    Examples
    --------
    >>> order_groups(["group 10", "in no group", "group 2"]), order_groups(["b", "a", "b"])
    (['group 2', 'group 10', 'in no group'], ['b', 'a'])
    """
    found = list(dict.fromkeys(groups))
    names = [name for name in found if name not in _LAST]
    numbered = [_NUMBERED.match(name) for name in names]
    known = [match for match in numbered if match is not None]
    if len(known) == len(names) and len({match[1] for match in known}) == 1:
        names = [match.string for match in sorted(known, key=lambda match: int(match[2]))]
    return names + [name for name in _LAST if name in found]


def _is_named(entry: object) -> bool:
    return isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)


def _points(given: ArrayLike) -> NDArray[np.float64]:
    points = np.asarray(given, np.float64)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ConfigError(
            f"a map has shape {points.shape}; it needs a row for each point and a column for each dimension"
        )
    if points.shape[1] == 1:
        points = np.column_stack([points, np.zeros(len(points))])
    return points[:, :3]
