"""Run the demonstration: simulate photos of several cameras, compare all, find which share a camera, show it.

Everything stays in one folder, and another run there reuses it. The program does not look at the truth before it has
its answer: photos are grouped by the scores alone.
"""

from __future__ import annotations

import json as json_format
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from tartan.base.format import format_number
from tartan.base.outputs import require_writable_folder
from tartan.base.palette import colours, value_colours, value_limits
from tartan.errors import ConfigError, TartanError
from tartan.store.downsample import shrink
from tartan.view.agreement import Agreement, compare_groups

_MOST_COLUMNS: Final = 6
_ASIDE: Final = "not compared"


@dataclass(frozen=True)
class _Setup:
    n_photos: int
    n_cameras: int
    seed: int


def run_demo(
    folder: Path,
    *,
    n_photos: int = 48,
    n_cameras: int = 4,
    seed: int = 1,
    quiet: bool = False,
    json: bool = False,
) -> dict[str, Any]:
    """Simulate flat photos, compare all of them, and show which share a camera.

    Parameters
    ----------
    folder : Path
        Folder for everything: ``photos/``, ``photos.tartan/``, ``matrix.png``, ``map.html``, ``report.html``.
    n_photos, n_cameras, seed : int
        What to simulate. A folder keeps the values that it was first used with.
    quiet : bool
        Write no progress to stderr.
    json : bool
        Write the returned values to stdout as JSON, instead of the table and the drawing.

    Returns
    -------
    dict
        n_photos, n_cameras, n_pairs, n_failed_items, n_right, n_same_found, n_same, n_different_found,
        n_different, threshold, seconds, and the paths run, matrix, map, report as text; map is None where the
        photos have none.

    Raises
    ------
    ConfigError
        If the numbers make no sense, or the folder holds a demonstration with others.
    """
    started = time.perf_counter()
    setup = _check(_Setup(n_photos, n_cameras, seed))
    tell = _Teller(None if quiet else sys.stderr)
    camera_of = _photos(folder, setup, tell)
    run = _compare(folder, tell, quiet)
    truth = [camera_of[Path(key).name] for key in run.keys]
    matrix = np.asarray(run.matrix(), dtype=np.float64)
    found, threshold = _group(run, folder, matrix)
    match = compare_groups(found, truth)
    files = _pictures(run, folder, found, truth, tell)
    result = _result(run, setup, match, threshold, files)
    result["seconds"] = round(time.perf_counter() - started, 3)
    if json:
        print(json_format.dumps(result, indent=1))
    else:
        _show(run, matrix, found, match, result, sys.stdout)
    return result


class _Teller:
    """Report progress on stderr, unless quiet."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def __call__(self, line: str) -> None:
        if self._stream is not None:
            print(line, file=self._stream, flush=True)


def _check(setup: _Setup) -> _Setup:
    if setup.n_photos < 2 or not 1 <= setup.n_cameras <= setup.n_photos:
        raise ConfigError(
            f"{setup.n_photos} photos of {setup.n_cameras} cameras: at least 2 photos and 1 camera are needed, "
            "and no more cameras than photos"
        )
    return setup


def _photos(folder: Path, setup: _Setup, tell: _Teller) -> Mapping[str, str]:
    """Simulate the photos unless they are there; return the camera of each file name."""
    from tartan.apps.forensics.simulate import simulate

    marker, photos = folder / "demo.json", folder / "photos"
    if marker.exists():
        _refuse_other_setup(marker, setup)
    else:
        require_writable_folder(folder)
        photos.mkdir(parents=True, exist_ok=True)
        marker.write_text(json_format.dumps(asdict(setup)) + "\n", encoding="utf-8")
    if not (photos / "truth.json").exists():  # which is written last
        tell(f"simulating {setup.n_photos} photos of {setup.n_cameras} cameras in {photos}")
        simulate(photos, setup.n_photos, setup.seed, cameras=setup.n_cameras, flats=1)
    truth = json_format.loads((photos / "truth.json").read_text(encoding="utf-8"))
    return {str(name): str(camera) for name, camera in truth["cameras"].items()}


def _refuse_other_setup(marker: Path, setup: _Setup) -> None:
    there = json_format.loads(marker.read_text(encoding="utf-8"))
    if there != asdict(setup):
        raise ConfigError(
            f"{marker.parent} holds a demonstration with {there}; delete the folder or name another one",
            context={"path": str(marker.parent), "there": there},
        )


def _compare(folder: Path, tell: _Teller, quiet: bool) -> Any:
    import tartan
    from tartan.apps import builtin

    def compare() -> Any:
        items, out = str(folder / "photos" / "*.jpg"), folder / "photos.tartan"
        return tartan.allpairs(builtin("forensics")(), items, out=out, quiet=quiet)

    tell(f"comparing every photo with every other, into {folder / 'photos.tartan'}")
    try:
        return compare()
    except TartanError as error:
        if error.code != "other-run":
            raise
        tell(f"{error}\nThe demonstration starts its run again.")
    # Another Tartan made the run, or photos have changed. The run is the demonstration's own.
    shutil.rmtree(folder / "photos.tartan")
    return compare()


def _group(run: Any, folder: Path, matrix: NDArray[np.float64]) -> tuple[list[str], float]:
    """Group the photos by their scores alone; return the group of each and the threshold."""
    from PIL import Image

    from tartan.apps.forensics.app import cameras, ncc_threshold

    with Image.open(folder / "photos" / Path(run.keys[0]).name) as photo:
        threshold = ncc_threshold(photo.width * photo.height)
    numbers = cameras(matrix, threshold)
    return [_ASIDE if number < 0 else f"group {number + 1}" for number in numbers], threshold


def _order(found: Sequence[str]) -> NDArray[np.intp]:
    """Put the groups one after the other, and photos that were not compared at the end."""
    names = sorted(set(found), key=lambda name: (name == _ASIDE, len(name), name))
    return np.argsort([names.index(name) for name in found], kind="stable")


def _pictures(
    run: Any, folder: Path, found: Sequence[str], truth: Sequence[str], tell: _Teller
) -> dict[str, str | None]:
    from tartan.view.matrix_image import save_matrix_image
    from tartan.view.report import write_report
    from tartan.view.thumbnails import thumbnails_of

    tell("drawing the matrix and the map, and writing the report")
    title = f"{run.n_items} photos: which share a camera?"
    order = _order(found)
    picture = save_matrix_image(run, folder / "matrix.png", order=order, groups=found, title=title)
    photos = [folder / "photos" / Path(key).name for key in run.keys]
    turning = _map(run, folder, found, title, tell)
    report = write_report(
        run, folder / "report.html", title=title, clusters=found, truth=truth, picture_of=thumbnails_of(photos).get
    )
    return {"run": str(run.path), "matrix": str(picture), "report": str(report), "map": turning}


def _map(run: Any, folder: Path, found: Sequence[str], title: str, tell: _Teller) -> str | None:
    """Keep a flat map, which the report shows, and write a page to turn a map of three dimensions in."""
    from tartan.view.scene import scene
    from tartan.view.scene_page import write_scene_page

    try:
        run.embed("damds", 2, keep=True, random_state=0, failed="drop")
        space = run.embed("damds", 3, random_state=0, failed="drop")
    except TartanError as error:
        tell(f"there is no map: {error}")
        return None
    shown = scene(space.points, title=title, labels=space.keys, clusters=found)
    return str(write_scene_page(shown, folder / "map.html"))


def _result(
    run: Any, setup: _Setup, match: Agreement, threshold: float, files: Mapping[str, str | None]
) -> dict[str, Any]:
    return {
        **asdict(setup),
        "n_pairs": int(run.n_pairs),
        "n_failed_items": sum(failure.kind == "item" for failure in run.failures),
        "n_right": match.n_right,
        "n_same_found": match.n_same_found,
        "n_same": match.n_same,
        "n_different_found": match.n_different_found,
        "n_different": match.n_different,
        "threshold": threshold,
        **files,
    }


def _show(
    run: Any,
    matrix: NDArray[np.float64],
    found: Sequence[str],
    match: Agreement,
    result: Mapping[str, Any],
    stream: TextIO,
) -> None:
    order = _order(found)
    print(file=stream)
    _print_table(match, stream)
    print(
        f"{match.n_right} of {match.n_items} photos are with their camera.\n"
        f"Pairs of one camera: {match.n_same_found:,} of {match.n_same:,} found; "
        f"pairs of two cameras: {match.n_different_found:,} of {match.n_different:,} kept apart.\n",
        file=stream,
    )
    print(matrix_text(matrix[np.ix_(order, order)], terminal_of(stream)), file=stream)
    print(
        f"\nrun     {result['run']}\nmatrix  {result['matrix']}\nmap     {result['map'] or 'none'}\n"
        f"report  {result['report']}\n"
        f"\n{run.n_pairs:,} pairs, everything in {result['seconds']:.1f} s. Open the report in a browser.",
        file=stream,
    )


def _print_table(match: Agreement, stream: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title="Photos by found group and true camera", title_justify="left")
    table.add_column("found")
    wide = len(match.groups) > _MOST_COLUMNS
    for camera in ["cameras"] if wide else match.groups:
        table.add_column(Text(camera), justify="left" if wide else "right")
    table.add_column("right", justify="right")
    table.add_column("wrong", justify="right")
    for row, name in enumerate(match.clusters):
        counts = match.counts[row]
        right = int(counts[match.matched[row]]) if match.matched[row] >= 0 else 0
        cells = [str(count) if count else "." for count in counts]
        if wide:
            named = zip(counts, match.groups, strict=True)
            cells = [", ".join(f"{count} of {camera}" for count, camera in named if count)]
        table.add_row(Text(name), *cells, str(right), str(int(counts.sum()) - right))
    Console(file=stream, highlight=False).print(table)


# Draw a matrix in a terminal: half blocks in 24-bit colour where the terminal has it, shades elsewhere.

_MOST_CHARACTERS: Final = 96
_UNKNOWN: Final = np.array((120, 120, 125), dtype=np.uint8)
_SHADES: Final = " ░▒▓█"
_ASCII: Final = " .:-=+*#%@"
_DIAGONAL: Final = "\\"
_RESET: Final = "\x1b[0m"


@dataclass(frozen=True)
class Terminal:
    """What a terminal can show.

    Attributes
    ----------
    columns : int
        Width in characters.
    colour : bool
        Whether it understands 24-bit colours.
    blocks : bool
        Whether its encoding has block characters.
    """

    columns: int = 80
    colour: bool = False
    blocks: bool = True


def terminal_of(stream: TextIO, environ: Mapping[str, str] | None = None) -> Terminal:
    """Find out what a stream can show; NO_COLOR and a missing COLORTERM are obeyed."""
    env = os.environ if environ is None else environ
    has_colour = env.get("COLORTERM", "").lower() in ("truecolor", "24bit")
    colour = has_colour and stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    columns = shutil.get_terminal_size((80, 24)).columns if stream.isatty() else 80
    return Terminal(columns=columns, colour=colour, blocks=encoding.startswith("utf"))


def matrix_text(
    values: NDArray[np.floating],
    terminal: Terminal,
    *,
    limits: tuple[float, float] | None = None,
) -> str:
    """Draw a square matrix as text.

    Parameters
    ----------
    values : ndarray of float, shape (n, n)
        NaN marks what is not known.
    terminal : Terminal
        What can be shown.
    limits : (low, high), optional
        Values of the first and the last colour; default: percentiles 1 and 99.

    Returns
    -------
    str
        Lines of equal width, the last one a legend; no trailing newline.
    """
    if values.size == 0:
        return "(no pairs)"
    bounds = limits or value_limits(values)
    width = max(4, min(terminal.columns, _MOST_CHARACTERS))
    cells = shrink(values, width)
    times = max(1, min(width, 64) // max(cells.shape))
    cells = cells.repeat(times, 0).repeat(times, 1)
    if terminal.colour and terminal.blocks:
        lines = _colour_lines(cells, bounds)
    else:
        lines = _draw_shades(cells, bounds, _SHADES if terminal.blocks else _ASCII, times)
    return "\n".join([*lines, _legend(values, bounds, terminal)])


def _colour_lines(cells: NDArray[np.float64], bounds: tuple[float, float]) -> list[str]:
    painted = value_colours(cells, bounds)
    painted[~np.isfinite(cells)] = _UNKNOWN
    lines = []
    for row in range(0, len(cells), 2):
        upper = painted[row]
        lower = painted[row + 1] if row + 1 < len(cells) else None
        marks = (_half_block(upper[c], None if lower is None else lower[c]) for c in range(len(upper)))
        lines.append("".join(marks) + _RESET)
    return lines


def _half_block(upper: NDArray[np.uint8], lower: NDArray[np.uint8] | None) -> str:
    front = "\x1b[38;2;{};{};{}m".format(*upper)
    back = "\x1b[49m" if lower is None else "\x1b[48;2;{};{};{}m".format(*lower)
    return f"{front}{back}▀"


def _draw_shades(cells: NDArray[np.float64], bounds: tuple[float, float], shades: str, times: int) -> list[str]:
    """Write a line for every two rows: a character is about twice as high as wide."""
    halved = _mean_of_row_pairs(cells)
    low, high = bounds
    share = np.clip((np.nan_to_num(halved, nan=low) - low) / (high - low), 0.0, 1.0)
    drawn = np.array(list(shades))[np.rint(share * (len(shades) - 1)).astype(int)]
    row, column = np.arange(len(halved))[:, None], np.arange(halved.shape[1])[None, :]
    first, last = 2 * row // times, (2 * row + 1) // times
    diagonal = (column // times >= first) & (column // times <= last)
    drawn = np.where(np.isfinite(halved), drawn, np.where(diagonal, _DIAGONAL, "?"))
    return ["".join(line) for line in drawn]


def _mean_of_row_pairs(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    padded = np.vstack([cells, np.full((len(cells) % 2, cells.shape[1]), np.nan)])
    pairs = padded.reshape(-1, 2, cells.shape[1])
    known = np.isfinite(pairs)
    means = np.full((len(pairs), cells.shape[1]), np.nan)
    counts = known.sum(axis=1)
    np.divide(np.where(known, pairs, 0.0).sum(axis=1), counts, out=means, where=counts > 0)
    return means


def _legend(values: NDArray[np.floating], bounds: tuple[float, float], terminal: Terminal) -> str:
    if terminal.colour and terminal.blocks:
        ramp = colours(np.linspace(0, 1, 24))
        bar = "".join("\x1b[48;2;{};{};{}m ".format(*c) for c in ramp) + _RESET
        unknown = "grey"
    else:
        bar = "".join(3 * shade for shade in (_SHADES if terminal.blocks else _ASCII))
        unknown = "?"
    text = f"{format_number(bounds[0])} |{bar}| {format_number(bounds[1])}"
    off_diagonal = ~np.isfinite(values)
    if values.shape[0] == values.shape[1]:
        np.fill_diagonal(off_diagonal, False)
    return text + (f"   {unknown}: not known" if off_diagonal.any() else "")
