"""Run the demonstration: simulate photos of several cameras, compare all, find which share a camera, show it.

Everything stays in one folder, and another run there reuses it. The program does not look at the truth before it has
its answer: photos are grouped by the scores alone.
"""

from __future__ import annotations

import json as json_format
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from tartan.base.outputs import require_writable_folder
from tartan.errors import ConfigError, TartanError
from tartan.view.agreement import Agreement, agreement

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
    """Simulate photos, compare all of them, and show which share a camera.

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
    setup = _checked(_Setup(n_photos, n_cameras, seed))
    tell = _Teller(None if quiet else sys.stderr)
    camera_of = _photos(folder, setup, tell)
    run = _compared(folder, tell, quiet)
    truth = [camera_of[Path(key).name] for key in run.keys]
    matrix = np.asarray(run.matrix(), dtype=np.float64)
    found, threshold = _grouped(run, folder, matrix)
    match = agreement(found, truth)
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


def _checked(setup: _Setup) -> _Setup:
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
        simulate(photos, setup.n_photos, setup.seed, cameras=setup.n_cameras)
    truth = json_format.loads((photos / "truth.json").read_text(encoding="utf-8"))
    return {str(name): str(camera) for name, camera in truth["cameras"].items()}


def _refuse_other_setup(marker: Path, setup: _Setup) -> None:
    there = json_format.loads(marker.read_text(encoding="utf-8"))
    if there != asdict(setup):
        raise ConfigError(
            f"{marker.parent} holds a demonstration with {there}; delete the folder or name another one",
            context={"path": str(marker.parent), "there": there},
        )


def _compared(folder: Path, tell: _Teller, quiet: bool) -> Any:
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


def _grouped(run: Any, folder: Path, matrix: NDArray[np.float64]) -> tuple[list[str], float]:
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
    turning = _mapped(run, folder, found, title, tell)
    report = write_report(
        run, folder / "report.html", title=title, clusters=found, truth=truth, picture_of=thumbnails_of(photos).get
    )
    return {"run": str(run.path), "matrix": str(picture), "report": str(report), "map": turning}


def _mapped(run: Any, folder: Path, found: Sequence[str], title: str, tell: _Teller) -> str | None:
    """Keep a flat map, which the report shows, and write a page to turn a map of three dimensions in."""
    from tartan.view.scene import scene
    from tartan.view.scene_page import write_scene_page

    try:
        run.embed("damds", 2, keep=True, random_state=0)
        space = run.embed("damds", 3, random_state=0)
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
    from tartan.view.terminal import matrix_text, terminal_of

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
