"""Proteomes with known truth: proteins that evolve along a random tree, written as gzip FASTA."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

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

    Returns
    -------
    Path
        ``truth.json``: the options and ``newick``, the rooted tree whose leaves are file names and whose branch lengths
        are changes a site.

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
    _check(n, seed, n_proteins, protein_length, depth)
    folder.mkdir(parents=True, exist_ok=True)
    nodes = _random_tree(n, depth, np.random.default_rng([seed, 0]))
    _evolve(folder, nodes, n_proteins, protein_length, seed)
    truth = {
        "application": "phylogeny",
        "n": n,
        "seed": seed,
        "n_proteins": n_proteins,
        "protein_length": protein_length,
        "depth": depth,
        "newick": _newick(nodes),
    }
    path = folder / "truth.json"
    _write(path, (json.dumps(truth, indent=1) + "\n").encode())
    return path


def _check(n: int, seed: int, n_proteins: int, protein_length: int, depth: float) -> None:
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


def _random_tree(n: int, depth: float, rng: np.random.Generator) -> list[_Branch]:
    """Grow a tree with n leaves; parents come before children, the root is node 0."""
    nodes = [_Branch(-1, 0.0)]
    leaves = [0]
    while len(leaves) < n:
        at = int(rng.integers(len(leaves)))
        parent = leaves[at]
        children = (len(nodes), len(nodes) + 1)
        nodes[parent].children = children
        nodes += [_Branch(parent, float(length)) for length in 0.1 + rng.gamma(2.0, 0.45, 2)]
        leaves[at : at + 1] = children
    width = max(4, len(str(n - 1)))
    for index, leaf in enumerate(sorted(leaves)):
        nodes[leaf].name = f"species-{index:0{width}}.faa.gz"
    heights = [0.0] * len(nodes)
    for index, node in enumerate(nodes[1:], 1):
        heights[index] = heights[node.parent] + node.length
    scale = depth / (max(heights) or 1.0)
    for node in nodes:
        node.length *= scale
    return nodes


def _evolve(folder: Path, nodes: list[_Branch], n_proteins: int, protein_length: int, seed: int) -> None:
    """Walk down from the ancestor; write what arrives at the leaves. Holds two proteomes a level at most."""
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
        else:
            _write(folder / node.name, gzip.compress(_fasta(letters, lengths), 1, mtime=0))


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


def _newick(nodes: list[_Branch]) -> str:
    """Write the tree; names need no quotes."""
    texts: list[str] = [node.name for node in nodes]
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
