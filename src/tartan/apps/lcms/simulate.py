"""LC-MS peaks with known truth: each cluster is one peptide seen in several experiments, the rest is noise.

The text has the nine columns of LC-MS tables: index, m/z, retention time, charge, peptide, its number, the clusters of
two other programs (here: the truth, spoilt in known ways), experiment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError

_EXPERIMENTS = 20
_MZ, _RT = (350.0, 1650.0), (10.0, 110.0)
# Points of a peptide: two, and as many more as this gamma-Poisson mixture gives, so that a few peptides are everywhere.
_SHAPE, _MEAN = 1.5, 6.0
# Of difficult peaks: one of so many is a copy, digits of m/z, seconds of the unit of retention times.
_EVERY, _MZ_DIGITS, _SECONDS, _LEAST_HARD = 5, 3, 60.0, 8
_NAMES = ("index", "m/z", "RT", "charge", "peptide", "peptideId", "mclust", "medea", "experiment")


@dataclass(frozen=True)
class _Drawn:
    mz: NDArray[np.float64]
    rt: NDArray[np.float64]
    labels: NDArray[np.int64]
    experiments: NDArray[np.int64]


# Each is a fact of the simulated data: hence more than eight parameters.
def simulate(
    folder: Path,
    n: int,
    seed: int,
    *,
    noise: float = 0.1,
    sigma_mz: float = 5.98e-6,
    sigma_rt: float = 2.35,
    charge: int = 2,
    others: int = 0,
    identified: float = 0.1,
    hard: bool = False,
) -> Path:
    """Write n peaks of one charge, and the peptide of each.

    Parameters
    ----------
    folder : Path
        Gets ``peaks.txt``, nine columns of text, and ``truth.json``; made when absent.
    n : int
        Peaks of the charge, noise included. A peptide has 8 of them on average, at least 2.
    seed : int
        The same arguments give the same files.
    noise : float
        Share of peaks that belong to no peptide, below 1.
    sigma_mz, sigma_rt : float
        Standard deviations of a peptide's peaks: of m/z as a fraction of m/z, of retention time in its own unit.
    charge : int
        The fourth column of these peaks.
    others : int
        Peaks of the next charge between them, which a reader must leave out.
    identified : float
        Share of peptides whose number stands in the sixth column; the others have -1 there.
    hard : bool
        Difficult peaks: every fifth is a copy of an earlier one, coordinates are rounded so that many tie, retention
        times are seconds (60 times as much, ``sigma_rt`` too), every other peptide is a chain whose m/z grows with
        time, and the text has a byte order mark, a line of names, Windows line ends and empty lines. Takes 8 peaks or
        more.

    Returns
    -------
    Path
        ``truth.json``: the options, the number of peptides, and labels: the peptide of each peak of the charge in the
        order of the file, -1 for noise. With ``hard`` also ``unit``, the length of what is 1 in retention times
        otherwise, and ``duplicates``, the earlier peak that one equals, both in that order.

    Raises
    ------
    ConfigError
        If an option is out of its range.

    Notes
    -----
    m/z and retention time of peptides follow beta distributions, so that the middle is more crowded than the ends. The
    seventh column is the truth where one peptide in ten lies in two clusters, the eighth the truth where peptides
    2 i and 2 i + 1 are one cluster for one i in ten; both have 0 for noise.

    Examples
    --------
    >>> import tempfile
    >>> truth = simulate(Path(tempfile.mkdtemp()), 1000, 1)
    >>> json.loads(truth.read_text())["peptides"]
    112
    """
    _check(n, seed, noise, sigma_mz, sigma_rt, charge, others, identified)
    if hard and n < _LEAST_HARD:
        raise ConfigError(f"n: {n} must be {_LEAST_HARD} or more with hard=True", context={"option": "n"})
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, n])
    peaks = _draw(rng, n, noise, sigma_mz, sigma_rt)
    extra = _draw(rng, others, noise, sigma_mz, sigma_rt)
    about: dict[str, Any] = {"n": n, "seed": seed, "noise": noise, "sigma_mz": sigma_mz, "sigma_rt": sigma_rt}
    if hard:
        peaks, duplicates = _difficult(seed, peaks, sigma_mz, sigma_rt)
        about |= {"hard": True, "unit": _SECONDS, "sigma_rt": sigma_rt * _SECONDS, "duplicates": duplicates}
    text = _table(rng, peaks, extra, charge, identified)
    (folder / "peaks.txt").write_bytes((_write_like_spreadsheet(text) if hard else text).encode())
    about |= {
        "charge": charge,
        "others": others,
        "identified": identified,
        "peptides": int(peaks.labels.max(initial=-1)) + 1,
    }
    path = folder / "truth.json"
    path.write_text(json.dumps(about | {"labels": peaks.labels.tolist()}) + "\n", encoding="ascii")
    return path


def _check(
    n: int, seed: int, noise: float, sigma_mz: float, sigma_rt: float, charge: int, others: int, identified: float
) -> None:
    for name, value, least in (("n", n, 1), ("seed", seed, 0), ("charge", charge, 1), ("others", others, 0)):
        if value < least:
            raise ConfigError(f"{name}: {value} must be {least} or more", context={"option": name})
    for name, share, largest in (
        ("noise", noise, 0.999),
        ("identified", identified, 1.0),
        ("sigma_mz", sigma_mz, 0.01),
    ):
        if not 0 <= share <= largest:
            raise ConfigError(f"{name}: {share} must be between 0 and {largest}", context={"option": name})
    if not 0 <= sigma_rt <= _RT[1]:
        raise ConfigError(f"sigma_rt: {sigma_rt} must be between 0 and {_RT[1]:g}", context={"option": "sigma_rt"})


def _draw(rng: np.random.Generator, n: int, noise: float, sigma_mz: float, sigma_rt: float) -> _Drawn:
    """Draw peptides until there are enough peaks, then noise, and mix them."""
    real = n - round(n * noise)
    sizes = 2 + rng.poisson(rng.gamma(_SHAPE, _MEAN / _SHAPE, real // 2 + 1))
    owner = np.repeat(np.arange(len(sizes)), sizes)[:real]
    mz, rt = _places(rng, len(sizes))
    noisy_mz, noisy_rt = _places(rng, n - real)
    all_mz = np.concatenate([mz[owner] * (1 + rng.normal(0, sigma_mz, real)), noisy_mz])
    all_rt = np.concatenate([rt[owner] + rng.normal(0, sigma_rt, real), noisy_rt])
    labels = np.concatenate([owner, np.full(n - real, -1)])
    mixed = rng.permutation(n)
    return _Drawn(all_mz[mixed], all_rt[mixed], labels[mixed], rng.integers(_EXPERIMENTS, size=n))


def _places(rng: np.random.Generator, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mz = _MZ[0] + (_MZ[1] - _MZ[0]) * rng.beta(1.5, 2.5, n)
    rt = _RT[0] + (_RT[1] - _RT[0]) * rng.beta(1.2, 1.2, n)
    return mz, rt


def _difficult(seed: int, peaks: _Drawn, sigma_mz: float, sigma_rt: float) -> tuple[_Drawn, dict[int, int]]:
    """Return peaks made difficult, and of which earlier one each copy is one."""
    rng = np.random.default_rng([seed, 1])
    chained = (peaks.labels >= 0) & (peaks.labels % 2 == 1)
    steps = np.where(chained, rng.uniform(-2, 2, len(peaks.mz)), 0.0)
    mz = (peaks.mz * (1 + steps * sigma_mz)).round(_MZ_DIGITS)
    rt = ((peaks.rt + steps * sigma_rt) * _SECONDS).round()
    source = np.arange(len(mz))
    copies = source[_EVERY - 1 :: _EVERY]
    source[copies] -= 1 + (rng.random(len(copies)) * (_EVERY - 1)).astype(np.int64)
    made = _Drawn(mz[source], rt[source], peaks.labels[source], peaks.experiments)
    return made, dict(zip(copies.tolist(), source[copies].tolist(), strict=True))


def _write_like_spreadsheet(text: str) -> str:
    """Write a table as spreadsheets do."""
    lines = ["\ufeff" + "\t".join(_NAMES), *text.splitlines()]
    return "".join(f"{line}\r\n" + "\r\n" * (number % 7 == 0) for number, line in enumerate(lines))


def _table(rng: np.random.Generator, peaks: _Drawn, extra: _Drawn, charge: int, identified: float) -> str:
    known = rng.random(peaks.labels.max(initial=-1) + 2) < identified
    lines = [*_lines(peaks, charge, known), *_lines(extra, charge + 1, known[:0])]
    # Peaks of the charge keep their order: the others fall between them.
    places = np.sort(rng.permutation(len(lines))[: len(extra.mz)])
    order = np.insert(np.arange(len(peaks.mz)), places - np.arange(len(places)), len(peaks.mz) + np.arange(len(places)))
    return "".join(f"{row}\t{lines[at]}\n" for row, at in enumerate(order.tolist()))


def _lines(peaks: _Drawn, charge: int, known: NDArray[np.bool_]) -> list[str]:
    halves = np.arange(len(peaks.labels)) % 2
    columns = (peaks.mz.tolist(), peaks.rt.tolist(), peaks.labels.tolist(), halves.tolist(), peaks.experiments.tolist())
    return [_write_line(*row, charge, known) for row in zip(*columns)]


def _write_line(
    mz: float, rt: float, label: int, half: int, experiment: int, charge: int, known: NDArray[np.bool_]
) -> str:
    golden = label if 0 <= label < len(known) and known[label] else -1
    divided = 2 * label + 1 + (half if label % 10 == 0 else 0)
    merged = label + 1 - (label % 2 if label // 2 % 10 == 0 else 0)
    mclust, medea = (divided, merged) if label >= 0 else (0, 0)
    name = f"PEP{golden}" if golden >= 0 else "-"
    return f"{mz:.6f}\t{rt:.5f}\t{charge}\t{name}\t{golden}\t{mclust}\t{medea}\t{experiment}"
