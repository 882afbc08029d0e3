"""``tartan align``: lay one map onto another map of the same points."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tartan.cli.shared.output import print_json, put, say
from tartan.cli.shared.outputs import COORDINATES, add_overwrite, require_outputs
from tartan.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tartan.view.coordinates import Coordinates


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("source", metavar="MAP", help="coordinates: .tsv, .csv, .npy or .pviz")
    add("target", metavar="TARGET-MAP", help="the map that MAP is laid onto; points are matched by key, or by place")
    add("-o", "--out", metavar="OUT", type=Path, help="write the moved MAP here: .tsv, .csv, .npy")
    add_overwrite(parser)
    add("--weights", metavar="FILE", type=Path, help="a number for each point of MAP, one a line")
    add("--no-scale", action="store_true", help="keep the size of MAP")
    add("--no-reflection", action="store_true", help="do not mirror MAP")


def execute(args: argparse.Namespace) -> int:
    """Align; return the exit status."""
    import numpy as np

    from tartan.analytics import align
    from tartan.view.coordinates import read_coordinates, write_coordinates

    require_outputs(args, (args.out, COORDINATES))
    source, target = read_coordinates(args.source), read_coordinates(args.target)
    chosen, partners = _match(source, target)
    weights = None if args.weights is None else _weights(args.weights, len(source.points))[chosen]
    found = align(
        source.points[chosen],
        target.points[partners],
        weights,
        scale=not args.no_scale,
        reflection=not args.no_reflection,
    )
    if args.out is not None:
        write_coordinates(args.out, found.apply(source.points), source.keys, source.clusters)
        say(f"wrote {args.out}")
    if args.json:
        print_json(
            {
                "n_points": found.n_points,
                "scale": found.scale,
                "reflected": found.reflected,
                "error": found.error,
                "rotation": np.round(found.rotation, 12).tolist(),
                "translation": found.translation.tolist(),
            }
        )
    else:
        mirrored = "mirrored" if found.reflected else "not mirrored"
        put(f"{found.n_points} points, scale {found.scale:.6g}, {mirrored}, error {found.error:.6g}")
    return 0


def _match(source: Coordinates, target: Coordinates) -> tuple[list[int], list[int]]:
    """Return the places of the points that both maps have, in either."""
    if source.keys is None or target.keys is None:
        if len(source.points) != len(target.points):
            raise ConfigError(
                f"the maps have {len(source.points)} and {len(target.points)} points, and not both have keys to match"
            )
        return list(range(len(source.points))), list(range(len(target.points)))
    for name, keys in (("A", source.keys), ("B", target.keys)):
        if len(set(keys)) < len(keys):
            raise ConfigError(f"two points of {name} have one key; points are matched by keys")
    places = {key: place for place, key in enumerate(target.keys)}
    both = [(i, places[key]) for i, key in enumerate(source.keys) if key in places]
    return [i for i, _ in both], [j for _, j in both]


def _weights(path: Path, n: int) -> NDArray[np.float64]:
    import numpy as np

    try:
        weights = np.array([float(line) for line in path.read_text().split()])
    except (OSError, ValueError) as error:
        raise ConfigError(f"--weights {path}: {error}") from None
    if len(weights) != n:
        raise ConfigError(f"--weights {path} has {len(weights)} numbers for {n} points")
    return weights
