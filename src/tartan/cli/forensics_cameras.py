"""``tartan forensics cameras``: say which of some known cameras took each of the questioned photos."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.confined import ConfinedFolder
from tartan.base.format import in_one_line, show_value
from tartan.cli.shared.inputs import read_inputs
from tartan.cli.shared.options import add_execution_options, add_settings, execution_options, read_setting_texts
from tartan.cli.shared.output import list_failures, print_json, put, say, say_notices
from tartan.cli.shared.outputs import require_no_file
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.apps.forensics.decisions import Calibration, Judgement
    from tartan.apps.forensics.known import PhotoFile

_VALIDATION = "validation"
"""The folder in the run folder where photos are compared with the other half of their camera's."""
_PAGE = "cameras.html"
# By judgement: no decision asks for less, and 8-byte numbers hold what is left of it for each camera and place.
_LEAST_CHANCE = 1e-100
# By judgement: a screen of lines.
_MAX_LISTED = 40


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add(
        "known",
        metavar="KNOWN",
        nargs="+",
        help="photos of known cameras, one folder each, as cameras/* names them; or photos, see --group",
    )
    add("--questioned", metavar="PHOTO", nargs="+", required=True, help="photos, or folders of them, to be judged")
    add("--group", metavar="TABLE", help="whose photo each KNOWN file is: a table with the columns file and group")
    add("-o", "--out", metavar="RUN", required=True, help="folder of the result; the page is RUN/cameras.html")
    add("--overwrite", action="store_true", help="compute afresh in place of a run that is at RUN")
    add(
        "--false-alarm",
        type=float,
        default=1e-6,
        metavar="P",
        help="chance that a photo of no known camera is taken for one of them; default: 1e-6",
    )
    add_settings(parser, "crop=HxW, shift=none (do not look for crops; ten times faster), max_megapixels=N")
    add_execution_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Compare and judge; return the exit status."""
    import tartan
    from tartan.apps.forensics.fingerprints import Cameras
    from tartan.apps.forensics.known import choose_frame, find_alike, judge_photos, read_photo
    from tartan.apps.forensics.prnu import read_size
    from tartan.sources.groups import FOLDERS, open_groups
    from tartan.sources.items import open_source
    from tartan.view.cameras_report import write_cameras_report
    from tartan.workers.shipping import build

    out = Path(args.out)
    require_no_file(out, "a run is a folder", f"name it {out.with_suffix('.tartan')}")
    if not _LEAST_CHANCE <= args.false_alarm < 0.5:
        raise ConfigError(
            f"--false-alarm: {args.false_alarm:g} is not a small chance, or too small a one; give one such as 1e-6",
            context={"option": "--false-alarm"},
        )
    suffixes = Cameras.item_suffixes
    known = open_groups(read_inputs(args.known), args.group or FOLDERS, suffixes)
    cameras = {key: [path for _, path in files] for key, files in known.describe()["groups"].items()}
    questioned = open_source(read_inputs(args.questioned), suffixes=suffixes)
    others = list(getattr(questioned, "paths", ()))
    _refuse_both(cameras, others)
    settings = read_setting_texts(args)
    if "frame" not in settings and "crop" not in settings and (frame := choose_frame(cameras, others)) is not None:
        settings["frame"] = frame
    app = build(Cameras, settings, "cameras")
    options = execution_options(args) | ({"overwrite": True} if args.overwrite else {})
    references = [path for paths in cameras.values() for path in paths]
    for name in (_PAGE, _VALIDATION):
        ConfinedFolder(out).refuse_links(out / name)
    if args.overwrite:
        _clear(out)
    with say_notices():
        run = tartan.allpairs(app, known, out, against=[*others, *references], **options)
        same = _compare_halves(build(Cameras, {**settings, "shift": "none"}, "cameras"), cameras, out, options)
    owners = [None] * len(others) + [at for at, paths in enumerate(cameras.values()) for _ in paths]
    files = [
        read_photo(key, path, owner, app.max_megapixels)
        for key, path, owner in zip(list(run.keys)[len(cameras) :], [*others, *references], owners, strict=True)
    ]
    scores = {name: run.matrix(name) for name in run.outputs}
    whole = read_size(run.manifest.application["item"]["shape"])
    calibration, judged = judge_photos(scores, files, same, frame=whole, false_alarm=args.false_alarm)
    about = _describe(run, list(cameras), files, calibration, judged, app.parameters())
    alike = find_alike(scores["scores"], files, args.false_alarm)
    about["notes"] += _list_alike(list(cameras), alike, calibration.cut)
    write_cameras_report(out / _PAGE, about)
    if args.json:
        print_json(about)
    else:
        _report(args, run, about)
    return 3 if run.failures else 0


def _clear(out: Path) -> None:
    """Remove the page and the validation of an earlier case, so that nothing but its run is there to be replaced."""
    from tartan.base.lock import FolderLock
    from tartan.store import manifest
    from tartan.store.removal import foreign_names, require_removable

    if not (out / manifest.FILE_NAME).exists() or set(foreign_names(out)) - {_PAGE, _VALIDATION}:
        return  # refused, with what else is there, when the run is to be replaced
    if manifest.Manifest.load(out).application["name"] != "cameras":
        return
    confined, validation = ConfinedFolder(out), out / _VALIDATION
    with FolderLock(out):
        if (validation / manifest.FILE_NAME).exists():
            require_removable(validation)
            with FolderLock(validation):
                confined.remove_tree(validation)
        confined.remove(out / _PAGE, missing_ok=True)


def _refuse_both(cameras: Mapping[str, Sequence[str]], questioned: Sequence[str]) -> None:
    """Refuse a photo that is questioned and one of a known camera."""
    from tartan.sources.paths import absolute

    owner = {path: name for name, paths in cameras.items() for path in paths}
    both = next((path for path in questioned if absolute(path) in owner), None)
    if both is not None:
        raise ConfigError(
            f"photo {both!r} is questioned, and one of the camera {owner[absolute(both)]!r} too; leave it in one",
            code="duplicate-item",
            context={"input": both},
        )


def _compare_halves(app: Any, cameras: Mapping[str, Sequence[str]], out: Path, options: Mapping[str, Any]) -> Any:
    """Return the PCE of photos with the other half of their camera's."""
    import numpy as np

    import tartan
    from tartan.apps.forensics.known import drop_copies, halve
    from tartan.sources.files import FileSource
    from tartan.sources.groups import FOLDERS, GroupSource, group_location
    from tartan.sources.paths import Location

    halves = halve(drop_copies(cameras))
    if halves is None:
        return np.empty(0)
    groups = [group_location(name, [Location(path) for path in paths]) for name, paths in halves.groups.items()]
    run = tartan.allpairs(
        app,
        GroupSource(groups, halves.photos, FOLDERS),
        out / _VALIDATION,
        against=FileSource([Location(path) for path in halves.photos], halves.photos),
        pairs=halves.pairs,
        **options,
    )
    return np.concatenate([batch.column("scores").to_numpy(zero_copy_only=False) for batch in run.pairs()] or [[]])


def _describe(
    run: Any,
    cameras: Sequence[str],
    files: Sequence[PhotoFile],
    calibration: Calibration,
    judged: Sequence[Judgement | None],
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """Return all that the page and ``--json`` say; the same inputs give the same."""
    import math

    from tartan.base.machine import tartan_version

    alone = {failure.i: failure.reason for failure in run.failures if failure.j is None}
    failed = {file.key: alone[at] for at, file in enumerate(files, len(cameras)) if at in alone}
    known_hashes = {file.sha256: file for file in files if file.camera is not None and file.sha256}
    photos = []
    for file, said in zip(files, judged, strict=True):
        if file.camera is not None:
            continue
        entry: dict[str, Any] = {"photo": file.key, "camera": None}
        if said is None:
            entry |= {"failed": failed.get(file.key, "it was not compared")}
        else:
            entry |= {
                "camera": None if said.camera is None else cameras[said.camera],
                "best": cameras[said.best],
                "pce": said.pce,
                "peak": said.peak,
                "row": said.row,
                "column": said.column,
                "ncc": said.ncc,
                "llr": said.llr,
                "false_alarm": said.false_alarm,
            }
        same = known_hashes.get(file.sha256)
        if same is not None and same.camera is not None:
            entry["equals"] = f"{same.key} of {cameras[same.camera]}"
        photos.append(entry)
    return {
        "path": str(run.path),
        "version": tartan_version(),
        "parameters": dict(parameters),
        "cameras": [
            {"name": name, "photos": [file.key for file in files if file.camera == at]}
            | ({"failed": alone[at]} if at in alone else {})
            for at, name in enumerate(cameras)
        ],
        "notes": _list_doubts(cameras, files, alone, len(calibration.foreign)),
        "photos": photos,
        "failed": failed,
        "calibration": {
            "false_alarm": calibration.false_alarm,
            "cut": calibration.cut,
            "cut_of_peaks": None if math.isinf(calibration.cut_of_peaks) else calibration.cut_of_peaks,
            "middle": calibration.middle,
            "spread": calibration.spread,
            "spread_of_peaks": calibration.spread_of_peaks,
            "n_places": calibration.n_places,
            "n_foreign": len(calibration.foreign),
            "n_foreign_above": calibration.n_foreign_above,
            "upper_limit": calibration.upper_limit,
            "n_same": len(calibration.same),
            "n_same_below": calibration.n_same_below,
            "llr_limit": calibration.llr_limit,
            "foreign": sorted((calibration.foreign * abs(calibration.foreign)).tolist()),
            "same": sorted((calibration.same * abs(calibration.same)).tolist()),
        },
        "files": [
            {
                "key": file.key,
                "camera": None if file.camera is None else cameras[file.camera],
                "sha256": file.sha256,
                "bytes": file.n_bytes,
                **{"camera_named" if name == "camera" else name: value for name, value in file.facts.items()},
            }
            for file in files
        ],
    }


def _list_doubts(
    cameras: Sequence[str], files: Sequence[PhotoFile], failed: Mapping[int, str], n_foreign: int
) -> list[str]:
    """Return what speaks against the decisions: cameras that were not compared, photos of two cameras, too few."""
    found = [
        f"camera {show_value(cameras[at])} could not be compared with any photo, so "
        f'"none of them" may still mean this camera: {why}'
        for at, why in failed.items()
        if at < len(cameras)
    ]
    first: dict[str, PhotoFile] = {}
    for file in files:
        if file.camera is None or not file.sha256:
            continue
        other = first.setdefault(file.sha256, file)
        if other.camera is not None and other.camera != file.camera:
            names = [f"{show_value(one.key)} of {show_value(cameras[one.camera or 0])}" for one in (other, file)]
            found.append(
                f"{' and '.join(names)} are one photo, byte by byte: the fingerprint of one of the two cameras is wrong"
            )
    if not n_foreign:
        found.append(
            "nothing is known of photos of other cameras: the cut is one of other cases, and no likelihood ratio can "
            "be given; name photos of a second camera among the known ones"
        )
    return found


def _list_alike(cameras: Sequence[str], alike: Sequence[tuple[int, int, int]], cut: float) -> list[str]:
    """Return a note of each camera whose photos show the fingerprint of another one."""
    return [
        f"photos of {show_value(cameras[camera])} that look like those of {show_value(cameras[other])}: {count:,}; if "
        f"these are one camera, name it once; they raise the cut, which is at a PCE of {cut:.0f}"
        for camera, other, count in alike
    ]


def _report(args: argparse.Namespace, run: Any, about: Mapping[str, Any]) -> None:
    """Print the table of decisions, and what they rest on."""
    from tartan.view.cameras_report import format_chance

    for who, why in list_failures(run, _MAX_LISTED):
        say(f"  {who} {why}")
    for doubt in about["notes"]:
        say(f"tartan: warning: {doubt}")
    rows: list[tuple[str, ...]] = [("photo", "camera", "PCE", "at its best place", "log10 LR", "false alarm")]
    for entry in about["photos"][:_MAX_LISTED]:
        if "failed" in entry:
            rows.append((entry["photo"], "failed", "", "", "", ""))
            continue
        camera = entry["camera"] or f"none (nearest: {entry['best']})"
        camera += f", equals {entry['equals']}" if "equals" in entry else ""
        place = f"{entry['peak']:.1f}, {entry['row']} down, {entry['column']} right"
        rows.append(
            (
                entry["photo"], camera, f"{entry['pce']:.1f}", place,
                f"{'>= ' if entry['llr'] >= about['calibration']['llr_limit'] else ''}{entry['llr']:.1f}",
                format_chance(entry["false_alarm"]),
            )
        )  # fmt: skip
    rows = [tuple(map(in_one_line, row)) for row in rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    put("\n".join("  ".join(cell.ljust(wide) for cell, wide in zip(row, widths)).rstrip() for row in rows))
    if len(about["photos"]) > _MAX_LISTED:
        say(f"and {len(about['photos']) - _MAX_LISTED:,} more photos; the page and --json list all")
    said = about["calibration"]
    say(
        f"A photo is attributed to a camera from a PCE of {said['cut']:.0f} on"
        + (f" ({said['cut_of_peaks']:.0f} where it was cropped or shifted)" if said["cut_of_peaks"] is not None else "")
        + f": the chance that a photo of none of these cameras reaches it is {said['false_alarm']:g}. Of "
        f"{said['n_foreign']:,} comparisons of known photos with other cameras, {said['n_foreign_above']} reach it (a "
        f"rate below {said['upper_limit']:.2g} at 95 % confidence); of {said['n_same']:,} with the other half of the "
        f"photos of their own camera, {said['n_same_below']} do not."
    )
    if not args.quiet:
        say(f"tartan: the page is {Path(args.out) / _PAGE}")
