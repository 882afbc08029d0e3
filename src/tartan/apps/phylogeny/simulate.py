"""Proteomes with known truth: proteins that evolve along a random tree, written as gzip FASTA."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError

_LETTERS = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", np.uint8)
# Per cent of each letter in known proteins (UniProtKB/Swiss-Prot, release statistics), in the order of _LETTERS.
_PER_CENT = (
    8.25, 1.38, 5.46, 6.72, 3.86, 7.07, 2.27, 5.91, 5.80, 9.65,
    2.41, 4.06, 4.74, 3.93, 5.53, 6.63, 5.35, 6.86, 1.10, 2.92,
)  # fmt: skip
_FREQUENCIES = np.array(_PER_CENT) / sum(_PER_CENT)
# Events per expected change: an event draws a letter anew, and may draw the one that was there.
_EVENTS = 1 / (1 - float(np.square(_FREQUENCIES).sum()))
_LINE = 70
_SHORTEST = 30


@dataclass
class _Branch:
    """A branch of the tree with the node at its end; ``length`` in changes a site."""

    parent: int
    length: float
    children: tuple[int, ...] = ()
    name: str = ""


def simulate(
    folder: Path,
    n: int,
    seed: int,
    *,
    n_proteins: int = 300,
    protein_length: int = 300,
    depth: float = 0.15,
    hard: bool = False,
) -> Path:
    """Write n proteomes that evolved from one ancestor along a random tree, and the tree.

    Parameters
    ----------
    folder : Path
        Gets ``species-0000.faa.gz`` and so on, and ``truth.json``; made when absent.
    n : int
        Number of proteomes.
    seed : int
        The same arguments give the same files.
    n_proteins, protein_length : int
        Proteins of each proteome, and their mean length in letters.
    depth : float
        Changes a site from the ancestor to the most distant proteome. Distances of composition vectors saturate: above
        0.2 neighbour joining finds less and less of the tree.
    hard : bool
        Difficult files, see ``DifficultProteomes``: three in front that cannot be read, proteomes that are there twice,
        in fragments, contaminated or incomplete, and other ways of writing. Takes 8 proteomes or more.

    Returns
    -------
    Path
        ``truth.json``: the options and ``newick``, the rooted tree whose leaves are file names and whose branch lengths
        are changes a site. With ``hard`` also, by file name, ``bad``, why a file is none, which is not a leaf;
        ``duplicates``, the file with the same proteins; ``fragments`` and ``contaminated``, how many proteins were cut
        in two or are foreign; and ``incomplete``, how many are left.

    Raises
    ------
    ConfigError
        If a number is out of range.

    Notes
    -----
    The tree grows by splitting a random leaf (Yule); branches have random lengths, none below a tenth of the mean.
    Sites change independently of each other; the new letter is drawn from the frequencies of known proteins.

    Examples
    --------
    >>> import tempfile
    >>> truth = simulate(Path(tempfile.mkdtemp()), 4, 1, n_proteins=5)
    >>> json.loads(truth.read_text())["n"], len(list(truth.parent.glob("*.faa.gz")))
    (4, 4)
    """
    _check(n, seed, n_proteins, protein_length, depth, hard)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"species-{index:0{max(4, len(str(n - 1)))}}.faa.gz" for index in range(n)]
    difficult = DifficultProteomes(seed, names) if hard else None
    leaves = names if difficult is None else difficult.originals
    nodes = _random_tree(leaves, depth, np.random.default_rng([seed, 0]))
    ways = _evolve(folder, nodes, n_proteins, protein_length, seed, difficult)
    truth: dict[str, Any] = {
        "application": "phylogeny",
        "n": n,
        "seed": seed,
        "n_proteins": n_proteins,
        "protein_length": protein_length,
        "depth": depth,
        "newick": _newick(nodes, {} if difficult is None else difficult.copies),
    }
    if difficult is not None:
        truth |= {"hard": True, **difficult.truth(), **ways}
    path = folder / "truth.json"
    _write(path, (json.dumps(truth, indent=1) + "\n").encode())
    return path


def _check(n: int, seed: int, n_proteins: int, protein_length: int, depth: float, hard: bool) -> None:
    if hard and n < LEAST_ITEMS:
        raise ConfigError(f"n: {n} must be {LEAST_ITEMS} or more with hard=True", context={"option": "n"})
    least = {
        "n": (n, 1),
        "seed": (seed, 0),
        "n_proteins": (n_proteins, 1),
        "protein_length": (protein_length, _SHORTEST),
    }
    for name, (value, smallest) in least.items():
        if value < smallest:
            raise ConfigError(f"{name}: {value} must be {smallest} or more", context={"option": name})
    if not 0 < depth <= 10:
        raise ConfigError(f"depth: {depth} must be above 0 and at most 10", context={"option": "depth"})


def _random_tree(names: Sequence[str], depth: float, rng: np.random.Generator) -> list[_Branch]:
    """Grow a tree with leaves of these names; parents come before children, the root is node 0."""
    nodes = [_Branch(-1, 0.0)]
    leaves = [0]
    while len(leaves) < len(names):
        at = int(rng.integers(len(leaves)))
        parent = leaves[at]
        children = (len(nodes), len(nodes) + 1)
        nodes[parent].children = children
        nodes += [_Branch(parent, float(length)) for length in 0.1 + rng.gamma(2.0, 0.45, 2)]
        leaves[at : at + 1] = children
    for name, leaf in zip(names, sorted(leaves), strict=True):
        nodes[leaf].name = name
    heights = [0.0] * len(nodes)
    for index, node in enumerate(nodes[1:], 1):
        heights[index] = heights[node.parent] + node.length
    scale = depth / (max(heights) or 1.0)
    for node in nodes:
        node.length *= scale
    return nodes


def _evolve(
    folder: Path,
    nodes: list[_Branch],
    n_proteins: int,
    protein_length: int,
    seed: int,
    difficult: DifficultProteomes | None,
) -> Ways:
    """Walk down from the ancestor; write what arrives at the leaves. Holds two proteomes a level at most."""
    ways: Ways = {}
    rng = np.random.default_rng([seed, 1])
    lengths = np.maximum(_SHORTEST, rng.gamma(4.0, protein_length / 4.0, n_proteins).round()).astype(np.int64)
    ancestor = _draw(int(lengths.sum()), rng)
    waiting = [(0, ancestor)]
    while waiting:
        index, above = waiting.pop()
        node = nodes[index]
        rng = np.random.default_rng([seed, 2, index])
        letters = above.copy()
        # Several events at one site count one by one, as they would in time.
        sites = rng.integers(letters.size, size=rng.poisson(node.length * _EVENTS * letters.size))
        letters[sites] = _draw(sites.size, rng)
        if node.children:
            waiting += [(child, letters) for child in node.children]
        elif difficult is None:
            _write(folder / node.name, gzip.compress(_fasta(letters, lengths), 1, mtime=0))
        else:
            foreign = _draw(letters.size, np.random.default_rng([seed, 3, index]))
            files, way = difficult.files(node.name, letters.tobytes(), lengths.tolist(), foreign.tobytes())
            for name, content in files.items():
                _write(folder / name, content)
            for kind, count in way.items():
                ways.setdefault(kind, {})[node.name] = count
    return ways


def _draw(size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    places = np.searchsorted(_FREQUENCIES.cumsum()[:-1], rng.random(size, dtype=np.float32))
    return _LETTERS[places]


def _fasta(letters: NDArray[np.uint8], lengths: NDArray[np.int64]) -> bytes:
    text = letters.tobytes()
    parts = []
    start = 0
    for number, length in enumerate(lengths.tolist()):
        parts.append(b">protein-%d" % number)
        parts += [text[at : min(at + _LINE, start + length)] for at in range(start, start + length, _LINE)]
        start += length
    return b"\n".join(parts) + b"\n"


def _newick(nodes: list[_Branch], copies: dict[str, str]) -> str:
    """Write the tree, copies beside their originals; names need no quotes."""
    twice = {original: copy for copy, original in copies.items()}
    texts = [f"({node.name}:0,{twice[node.name]}:0)" if node.name in twice else node.name for node in nodes]
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        if node.children:
            inner = ",".join(f"{texts[child]}:{nodes[child].length:.6g}" for child in node.children)
            texts[index] = f"({inner})"
    return texts[0] + ";"


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


# What makes simulated proteomes difficult, and the truth about it.
#
# The first three files cannot be read (``bad``). Of the other ones the last fifth are copies: the same proteins in
# another order, under other names, in lines of another length. By turns, proteomes are as they are, in fragments (every
# third protein is cut in two), contaminated (one foreign protein for every twenty), or incomplete (a third of the
# proteins is left). Their texts have lower case, Windows line ends, a stop behind each protein, or gzip in two members.

LEAST_ITEMS = 8

#: Kind of difficulty, and of each file how many proteins it concerns.
Ways = dict[str, dict[str, int]]

_LINES = (70, 60, 1_000_000)


@dataclass(frozen=True)
class DifficultProteomes:
    """Difficult files of one seed, ``names`` in order."""

    seed: int
    names: Sequence[str]

    @property
    def bad(self) -> dict[str, str]:
        """Files in front that are none, and why."""
        return dict(zip(self.names, ("empty", "truncated gzip", "DNA"), strict=False))

    @property
    def originals(self) -> list[str]:
        """The leaves of the tree without copies."""
        rest = self.names[len(self.bad) :]
        return list(rest[: len(rest) - len(rest) // 5])

    @property
    def copies(self) -> dict[str, str]:
        """The other ones, and the files of which they are copies, each of another one."""
        copies = self.names[len(self.bad) + len(self.originals) :]
        drawn = np.random.default_rng([self.seed, 4]).permutation(len(self.originals))[: len(copies)]
        return {copy: self.originals[place] for copy, place in zip(copies, drawn.tolist(), strict=True)}

    def truth(self) -> dict[str, Any]:
        """Return the files that are none, and the copies."""
        return {"bad": self.bad, "duplicates": self.copies}

    def files(
        self, name: str, letters: bytes, lengths: Sequence[int], foreign: bytes
    ) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return the files that are made of one proteome, by name, and what was done to it.

        With the first of all come the files that are none.
        """
        place = self.originals.index(name)
        ends = np.cumsum(lengths).tolist()
        proteins = [letters[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        proteins, way = self._change(place, proteins, foreign)
        files = {name: _text(proteins, place)}
        for copy in (copy for copy, original in self.copies.items() if original == name):
            order = np.random.default_rng([self.seed, 5, place]).permutation(len(proteins))
            files[copy] = _text([proteins[at] for at in order.tolist()], place + 1)
        if place == 0:
            files |= self._make_unreadable(files[name], sum(lengths))
        return files, way

    def _change(self, place: int, proteins: list[bytes], foreign: bytes) -> tuple[list[bytes], dict[str, int]]:
        """Return the proteins of a file, and how many of them are changed."""
        match place % 4:
            case 1:
                halves = [(one[: len(one) // 2], one[len(one) // 2 :]) for one in proteins[::3]]
                whole = [one for at, one in enumerate(proteins) if at % 3]
                return [*(half for pair in reversed(halves) for half in pair), *whole], {"fragments": len(halves)}
            case 2:
                count = max(1, len(proteins) // 20)
                length = len(foreign) // len(proteins)
                return [*(foreign[at * length :][:length] for at in range(count)), *proteins], {"contaminated": count}
            case 3:
                kept = proteins[:: 1 if len(proteins) < 3 else 3]
                return kept, {"incomplete": len(kept)}
        return proteins, {}

    def _make_unreadable(self, packed: bytes, size: int) -> dict[str, bytes]:
        """Return the files that cannot be read."""
        empty, truncated, dna = self.bad
        letters = np.random.default_rng([self.seed, 6]).choice(np.frombuffer(b"ACGT", np.uint8), size)
        return {
            empty: gzip.compress(b"", mtime=0),
            truncated: packed[: len(packed) * 2 // 3],
            dna: gzip.compress(b">contig-0\n" + letters.tobytes() + b"\n", 1, mtime=0),
        }


def _text(proteins: Sequence[bytes], way: int) -> bytes:
    """Return a FASTA file in gzip, written in one of several ways."""
    line = _LINES[way % len(_LINES)]
    end = b"\r\n" if way % 2 else b"\n"
    records = []
    for number, protein in enumerate(proteins):
        letters = (protein.lower() if way % 3 == 1 else protein) + b"*" * (way % 4 == 2)
        lines = [letters[at : at + line] for at in range(0, len(letters), line)]
        records.append(end.join([b">gene_%d [way %d]" % (number, way), *lines]) + end)
    half = len(records) // 2
    parts = (records[:half], records[half:]) if way % 5 == 3 else (records,)
    return b"".join(gzip.compress(b"".join(part), 1, mtime=0) for part in parts)
