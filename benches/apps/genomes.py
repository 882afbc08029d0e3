"""Sketching and comparing genomes against mash and sourmash, and ANI against what is known, in one run.

- ``sketching``: FASTA to a sketch, by processor time on one core, against ``mash sketch`` and ``sourmash sketch dna``;
- ``comparing``: genomes in families of ten, of which 3 % of the letters differ, sketches of some 5,000 hashes, from
  sketches to a result on disk with all cores; peers get ``peers=`` of the genomes, and pairs a second are compared;
- ``truth``: ANI of simulated genomes at known rates, one of the two complete or 70 %, turned round and in parts: the
  share of pairs within two stated errors, and the stated error over the root mean square of the true one;
- ``incomplete``: both of the two 70 %, each its own: how far ANI is below what is known;
- ``species``: genomes of species that are 6 to 12 % apart in their genus, strains up to 4.8 %: the adjusted Rand index
  of ``tartan cluster`` where all are at least 90 % complete, and where they are 50 to 100 % so, with a table that says
  it and without;
- ``many``, only where it is named: ``many=85000`` sketches of 50 to 10^6 hashes in families, pairs with an ANI of 0.9
  and more, on the disk of ``folder=``; then the same, killed twice.

Peers are commands, and are left out where they are not installed.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from benches.apps._genomes_many import measure_many
from benches.shared._measure import options_of
from tartan.apps.genomes import Genomes
from tartan.apps.genomes.signatures import write_signatures

LETTERS = np.frombuffer(b"ACGT", np.uint8)
FAMILY = 10
RATES = (0.001, 0.01, 0.05, 0.1, 0.15)
#: One hash in so many of 60,000 letters makes sketches of 5,000.
DENSE = 12
ROUNDS = 3


def draw(n_letters: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 4, n_letters, np.uint8)


def mutate(codes: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    changed = rng.random(codes.size) < rate
    return np.where(changed, (codes + rng.integers(1, 4, codes.size, np.uint8)) % 4, codes)


def fasta(*contigs: np.ndarray) -> bytes:
    lines = []
    for number, contig in enumerate(contigs):
        text = LETTERS[contig].tobytes()
        lines += [b">%d" % number, *(text[at : at + 80] for at in range(0, len(text), 80))]
    return b"\n".join(lines) + b"\n"


def child_seconds(*words: str | Path) -> float:
    """Return the processor time of a command."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    subprocess.run(list(map(str, words)), check=True, capture_output=True)
    return used() - before


def wall_seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def run_command(*words: str | Path) -> None:
    subprocess.run(list(map(str, words)), check=True, capture_output=True)


def measure_sketching(folder: Path) -> dict[str, float]:
    text = fasta(draw(40_000_000, np.random.default_rng(1)))
    (folder / "whole.fna").write_bytes(text)
    app = Genomes()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        app.parse("whole", text)
        times.append(time.process_time() - start)
    ours = min(times)
    found = {"megabytes_a_second": len(text) / ours / 1e6}
    for name, words in {
        "mash": ["mash", "sketch", "-k", "31", "-s", "5000", "-o", folder / "m", folder / "whole.fna"],
        "sourmash": ["sourmash", "sketch", "dna", "-p", "k=31,scaled=1000", "-o", folder / "s.sig", "-f",
                     folder / "whole.fna"],
    }.items():  # fmt: skip
        if shutil.which(name):
            idle = child_seconds(name, "--version")
            found[f"times_{name}"] = min(child_seconds(*words) - idle for _ in range(ROUNDS)) / ours
    return found


def make_families(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [
        mutate(ancestor, 0.03, rng) for ancestor in (draw(60_000, rng) for _ in range(n // FAMILY)) for _ in range(10)
    ]


def measure_comparing(folder: Path, n: int, n_peers: int) -> dict[str, float]:
    app = Genomes(scaled=DENSE)
    genomes = [fasta(genome) for genome in make_families(n)]
    sketches = [app.parse(str(number), text) for number, text in enumerate(genomes)]
    times = []
    for number in range(ROUNDS):
        out = folder / f"{number}.tartan"
        times.append(wall_seconds(lambda out=out: tartan.allpairs(app, sketches, out)))  # type: ignore[misc]
    rate = n * (n - 1) / 2 / min(times)
    shared = tartan.open(out).matrix("shared")
    for i, j in ((0, 1), (0, n - 1), (n // 2, n // 2 + 3)):
        assert shared[i, j] == len(set(sketches[i].tolist()) & set(sketches[j].tolist()))
    found = {"items": n, "hashes_an_item": float(np.mean([len(one) for one in sketches])), "pairs_a_second": rate}
    n_pairs = n_peers * (n_peers - 1) / 2
    threads = str(os.cpu_count())
    if shutil.which("mash"):
        paths = [folder / f"{number}.fna" for number in range(n_peers)]
        for path, text in zip(paths, genomes):
            path.write_bytes(text)
        (folder / "list").write_text("\n".join(map(str, paths)))
        run_command(
            "mash", "sketch", "-p", threads, "-k", "31", "-s", "5000", "-o", folder / "all", "-l", folder / "list"
        )
        mash = wall_seconds(lambda: run_command("mash", "triangle", "-p", threads, folder / "all.msh"))
        found["times_mash_triangle"] = rate / (n_pairs / mash)
    if shutil.which("sourmash"):
        sigs = folder / "all.sig"
        named = [(str(number), sketch) for number, sketch in enumerate(sketches[:n_peers])]
        sigs.write_bytes(write_signatures(named, 31, DENSE))
        words = ("sourmash", "compare", "-q", "-p", threads, "-k", "31", sigs, "-o", folder / "theirs.npy")
        found["times_sourmash_compare"] = rate / (n_pairs / wall_seconds(lambda: run_command(*words)))
        theirs = np.load(folder / "theirs.npy")
        ours = tartan.open(out).matrix("jaccard")[:n_peers, :n_peers]
        found["largest_difference_to_sourmash"] = float(np.abs(ours - theirs)[~np.eye(n_peers, dtype=bool)].max())
        pairwise = ("sourmash", "scripts", "pairwise", sigs, "-o", folder / "p.csv", "-k", "31", "-s", str(DENSE),
                    "-c", threads, "-t", "0")  # fmt: skip
        if subprocess.run((*pairwise[:3], "--help"), capture_output=True, check=False).returncode == 0:
            found["times_branchwater_pairwise"] = rate / (n_pairs / wall_seconds(lambda: run_command(*pairwise)))
    return found


def sketch_part(app: Genomes, codes: np.ndarray, share: float, rng: np.random.Generator) -> Any:
    """Sketch a share of a genome: contigs in random order, every second one turned round."""
    contigs = np.array_split(codes, 40)
    kept = rng.permutation(40)[: round(40 * share)]
    return app.parse("part", fasta(*(3 - contigs[at][::-1] if at % 2 else contigs[at] for at in kept)))


def measure_truth(n_letters: int, n_pairs: int, *shares: tuple[float, float]) -> dict[str, float]:
    """Return the share within two errors, stated over true errors, and the mean difference, at each rate.

    ``shares`` are those of the two genomes that are there, by turns.
    """
    app = Genomes()
    found: dict[str, float] = {}
    for rate in RATES:
        rng = np.random.default_rng([4, round(rate * 1e4), len(shares)])
        differences, stated = [], []
        for number in range(n_pairs):
            ancestor = draw(n_letters, rng)
            other = mutate(ancestor, rate, rng)
            own = shares[number % len(shares)]
            a, b = sketch_part(app, ancestor, own[0], rng), sketch_part(app, other, own[1], rng)
            scores = app.compare([a], [b], np)
            if scores["shared"][0, 0] < 30:
                continue
            differences.append(float(scores["ani"][0, 0]) - float((ancestor == other).mean()))
            stated.append(float(scores["ani_error"][0, 0]))
        if differences:
            true = np.abs(differences)
            found[f"within_two_errors_at_{rate}"] = float(np.mean(true <= 2 * np.array(stated)))
            found[f"stated_over_true_at_{rate}"] = float(np.mean(stated) / np.sqrt(np.mean(true**2)))
            found[f"stated_at_{rate}"] = float(np.mean(stated))
            found[f"mean_difference_at_{rate}"] = float(np.mean(differences))
    return found


def measure_species(folder: Path, n: int) -> dict[str, float]:
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng(6)
    n_species = max(2, round(0.15 * n))
    n_letters, found = 300_000, {}
    genera = [draw(n_letters, rng) for _ in range(max(1, n_species // 5))]
    species = [mutate(genera[one % len(genera)], rng.uniform(0.031, 0.065), rng) for one in range(n_species)]
    truth = [*range(n_species), *rng.integers(0, n_species, n - n_species).tolist()]
    strains = [mutate(species[one], rng.uniform(0.001, 0.024), rng) for one in truth]
    for name, least, tells in (("from_90", 0.9, False), ("from_50_with_table", 0.5, True), ("from_50", 0.5, False)):
        shares = rng.integers(round(40 * least), 41, n) / 40  # of 40 contigs each
        lines = [f"g{number},{100 * share:g}" for number, share in enumerate(shares)]
        (folder / "quality.csv").write_text("\n".join(["name,Completeness", *lines]))
        app = Genomes(scaled=300, completeness=folder / "quality.csv" if tells else None)
        plain = Genomes(scaled=300)
        items = {f"g{one}": sketch_part(plain, strains[one], shares[one], rng) for one in range(n)}
        run = tartan.allpairs(app, items, folder / f"{name}.tartan", quiet=True)
        labels = np.asarray(run.cluster())
        found[f"rand_{name}"] = float(adjusted_rand_score(truth, labels))
        found[f"groups_{name}"] = float(labels.max() + 1)
    return found | {"species": float(n_species)}


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Measure, print a table, return the numbers."""
    options = options_of(arguments, items=5000, peers=1000, pairs=40, letters=3_000_000, genomes=2000, parts="all",
                         many=85_000, folder="")  # fmt: skip
    parts = {
        "sketching": measure_sketching,
        "comparing": lambda folder: measure_comparing(folder, options.items, options.peers),
        "truth": lambda folder: measure_truth(options.letters, options.pairs, (1.0, 1.0), (1.0, 0.7)),
        "incomplete": lambda folder: measure_truth(options.letters, options.pairs // 2, (0.7, 0.7)),
        "species": lambda folder: measure_species(folder, options.genomes),
    }
    chosen = list(parts) if options.parts == "all" else options.parts.split(",")
    parts["many"] = lambda folder: measure_many(folder, options.many)
    results: dict[str, Any] = {}
    for name in chosen:
        with tempfile.TemporaryDirectory(dir=options.folder or None) as scratch:
            results[name] = parts[name](Path(scratch))
        print(f"{name}:")
        for key, value in results[name].items():
            print(f"  {key:36}{value:14.4g}", flush=True)
    return results


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
