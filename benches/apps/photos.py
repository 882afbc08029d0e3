"""How well photos of real strength are given to their cameras: unknown cameras by clusters, known ones by fingerprints.

For each seed 10 flat and 4 natural photos of each of four cameras of one model are simulated, 6 megapixels, with
patterns as strong as those of real photos. `tartan cluster` groups all of them, knowing nothing. `tartan forensics
cameras` gets the flat photos as known, and the natural ones as questioned.

    tartan bench photos seeds=20 first=0 size=2000x3008 shift=none keep=FOLDER

prints a JSON object for each seed, then the bars: each camera whole in at least 19 of 20 seeds, no group of two cameras
in any, at least 98 % of the natural photos named, at a false-alarm rate of 10^-6, and none given to another camera.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from benches.shared._measure import not_held, options_of, print_table
from tartan.analytics import cluster
from tartan.apps.forensics.app import Forensics
from tartan.apps.forensics.simulate import simulate
from tartan.cli.main import main as tartan_main

CAMERAS, FLATS, NATURAL = 4, 10, 4


def group_photos(folder: Path, cameras: dict[str, str], flat: set[str], kept: Path | None) -> dict[str, Any]:
    """Cluster all photos without a number; return how it went, and the NCC of pairs."""
    run = tartan.allpairs(Forensics(score="pce"), str(folder / "*.jpg"), folder / "all.tartan", quiet=True)
    names = [Path(key).name for key in run.keys]
    owners = np.array([cameras[name] for name in names])
    labels = np.asarray(cluster(run).labels)
    ncc, scores = run.matrix("ncc"), run.matrix("scores")
    is_flat = np.array([name in flat for name in names])
    if kept is not None:
        np.savez(kept, ncc=ncc, scores=scores, owners=owners, flat=is_flat, labels=labels)
    whole = [len(set(labels[owners == owner])) == 1 for owner in np.unique(owners)]
    mixed = [label for label in np.unique(labels) if len(set(owners[labels == label])) > 1]
    upper = np.triu(np.ones(ncc.shape, bool), 1)
    same = owners[:, None] == owners
    kinds = {"flat, flat": is_flat[:, None] & is_flat, "natural, natural": ~is_flat[:, None] & ~is_flat}
    kinds["flat, natural"] = ~kinds["flat, flat"] & ~kinds["natural, natural"]
    found: dict[str, Any] = {"n_groups": len(set(labels)), "whole": sum(whole), "n_mixed": len(mixed)}
    for name, kind in kinds.items():
        found[f"ncc {name}, one camera"] = spread(ncc[kind & same & upper])
        found[f"ncc {name}, two cameras"] = spread(ncc[kind & ~same & upper])
    return found


def spread(values: np.ndarray) -> list[float]:
    """Return the least, the deciles and median, and the largest of some values."""
    return [round(float(v), 5) for v in np.quantile(values, [0, 0.1, 0.5, 0.9, 1])]


def judge_photos(
    folder: Path, cameras: dict[str, str], flat: set[str], shift: str, kept: Path | None
) -> dict[str, Any]:
    """Ask which known camera took each natural photo; return how it went."""
    for name, camera in cameras.items():
        target = folder / ("known/" + camera if name in flat else "questioned")
        target.mkdir(parents=True, exist_ok=True)
        (folder / name).rename(target / name)
    text = io.StringIO()
    known = sorted(map(str, (folder / "known").iterdir()))
    line = [
        "forensics",
        "cameras",
        *known,
        "--questioned",
        str(folder / "questioned"),
        "-o",
        str(folder / "known.tartan"),
    ]
    with contextlib.redirect_stdout(text):
        status = tartan_main([*line, "--set", f"shift={shift}", "--json", "--quiet"])
    assert status == 0, status
    about = json.loads(text.getvalue())
    if kept is not None:
        run = tartan.open(folder / "known.tartan")
        np.savez(kept, scores=run.matrix("scores"), keys=np.array(run.keys), same=about["calibration"]["same"])
    judged = list(about["photos"])
    right = [photo for photo in judged if photo["camera"] == cameras[Path(photo["photo"]).name]]
    wrong = [photo for photo in judged if photo["camera"] is not None and photo not in right]
    missed = [round(photo["pce"], 1) for photo in judged if photo["camera"] is None]
    return {"n_judged": len(judged), "named": len(right), "wrong": len(wrong), "missed_pce": missed}


def main(words: list[str]) -> dict[str, Any]:
    """Measure; say which bars are not held."""
    options = options_of(words, seeds=20, first=0, size="2000x3008", shift="none", keep="")
    found = []
    for seed in range(options.first, options.first + options.seeds):
        with tempfile.TemporaryDirectory(prefix="photos.") as name:
            folder, share = Path(name), FLATS / (FLATS + NATURAL)
            truth = simulate(folder, CAMERAS * (FLATS + NATURAL), seed, cameras=CAMERAS, size=options.size, flats=share)
            about = json.loads(truth.read_text())
            cameras, flat = about["cameras"], set(about["flat"])
            kept = Path(options.keep) / f"{seed}.npz" if options.keep else None
            known = None if kept is None else kept.with_suffix(".known.npz")
            found.append({"seed": seed, **group_photos(folder, cameras, flat, kept)})
            found[-1] |= judge_photos(folder, cameras, flat, options.shift, known)
        print(json.dumps(found[-1]), flush=True)
    whole = sum(one["whole"] == CAMERAS for one in found)
    mixed = sum(one["n_mixed"] > 0 for one in found)
    named = sum(one["named"] for one in found) / sum(one["n_judged"] for one in found)
    wrong = sum(one["wrong"] for one in found)
    print_table("seeds", [[len(found), whole, mixed, named, wrong]], ["seeds", "all whole", "mixed", "named", "wrong"])
    failed = []
    if whole < 0.95 * len(found):
        failed.append(f"every camera whole in {whole} of {len(found)} seeds")
    if mixed:
        failed.append(f"a group of two cameras in {mixed} seeds")
    if named < 0.98:
        failed.append(f"named: {named:.3f}")
    if wrong:
        failed.append(f"given to another camera: {wrong}")
    not_held(failed)
    return {"seeds": found, "failed": failed}


if __name__ == "__main__":
    main(sys.argv[1:])
