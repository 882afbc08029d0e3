"""The commands of the program, by group: the page that ``tartan`` prints, and what there is instead of a wrong word.

A command belongs to the group that lists it; ``main`` knows no other ones, and a test finds files that are in none. The
lines here are all that is said of a command before its file is imported, so that ``tartan --help`` imports none.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tartan.errors import ConfigError


class Command(NamedTuple):
    """One command.

    Attributes
    ----------
    name : str
        The words after ``tartan``; two for a command of one application.
    brief : str
        What it does, in a line of the page of all commands.
    about : str
        What it does, on its own page; default: ``brief``.
    prints : bool
        Whether its result is what it prints, which ``-o`` writes into a file.
    logged : bool
        Whether it computes or serves, and says what an operator must know: it has the options of logs.
    """

    name: str
    brief: str
    about: str = ""
    prints: bool = False
    logged: bool = False


GROUPS: dict[str, tuple[Command, ...]] = {
    "run": (
        Command("run", "compare all pairs of the inputs; run it again to resume", logged=True),
        Command("resume", "compute what is missing in a run", logged=True),
        Command("add", "add items to a run; no old pair is computed again", logged=True),
        Command(
            "remove", "take items out of a run; nothing is computed", "take items out of a run: no answer has them "
            "any more, and nothing is computed",
        ),
        Command(
            "replace", "put another file in the place of an item", "put another file in the place of an item of a run; "
            "only its pairs are computed", logged=True,
        ),
        Command("rename", "give an item of a run another name"),
        Command("info", "what a run is, how far it is, what it cost", "show what a run is, how far it is and what it "
                "cost", prints=True),
        Command("log", "versions of a run: added, removed, replaced, renamed", "list the versions of a run: items "
                "added, removed, replaced, renamed", prints=True),
        Command("attach", "follow a run; go on with it if its process dies", "follow a run that another process "
                "computes; go on with it if that process dies", logged=True),
        Command("expire", "forget old versions, free what they alone needed", "forget old versions of a run, and free "
                "what they alone needed"),
    ),
    "look": (
        Command("report", "one HTML page: groups or tree, matrix, map, failures, cost", "write a run as one HTML page: "
                "its groups or tree, matrix, map, scores, failures and cost"),
        Command("view", "a run in the browser, also while it is computed", "look at a run in a browser, also while it "
                "is computed", logged=True),
        Command("show", "two items: the decision, scores, facts of both", "show two items of a run: the decision, "
                "their scores, facts of both, and how near each is to the other", prints=True),
    ),
    "analyse": (
        Command("cluster", "groups: by the application's cut, or as many as fit best", "cluster items: by the cut that "
                "the application declares, into a given number of clusters, or into the number that fits best",
                logged=True),
        Command("tree", "a tree: Newick, a drawing, a picture", "build a tree: Newick on stdout or in a file, a "
                "drawing, a picture", logged=True),
        Command("embed", "a map: coordinates, a picture, a page to turn it in", "draw a map: coordinates, a picture, "
                "and a page to turn it in", logged=True),
        Command("neighbors", "the nearest items of each item", "list the nearest items of each item", logged=True),
        Command("outliers", "items that are far from all others", "list the items that are far from all others",
                logged=True),
        Command("align", "lay one map onto another", "lay a map onto another: scale, rotation, reflection, "
                "translation"),
    ),
    "data": (
        Command("export", "scores as npy, PHYLIP, CSV, Parquet, int16, float32", "write the result as npy, PHYLIP, "
                "CSV, Parquet, int16 or float32"),
        Command("names", "put the names of a table into a tree"),
        Command("sort", "sort files larger than memory: numbers, CSV, Parquet", "sort files of numbers or records, "
                "larger than memory; run it again to resume", logged=True),
        Command("simulate", "inputs whose truth is known, to try Tartan on", "write inputs with known truth: photos, "
                "particles, proteomes, vectors or LC-MS peaks"),
    ),
    "more": (
        Command("apps", "applications, settings", "list the applications, or the settings of one", prints=True),
        Command("demo", "photos to report", "simulate photos of several cameras, compare all of them and write a "
                "report"),
        Command("doctor", "what this machine has", "show what was found on this machine, and what to mend",
                prints=True),
        Command("plan", "predict time and loads", "predict time, loads and efficiency of a run before it is started",
                prints=True),
        Command("blocks", "matrices beyond memory", "multiply, factor or convolve arrays by block tasks, or rank "
                "pages; larger than memory, on several ranks", logged=True),
        Command("ranks", "scripts on several ranks", "run a script on several ranks that send each other messages",
                logged=True),
        Command("forensics cameras", "who took these", "say which of some known cameras took each of some photos",
                logged=True),
        Command("microscopy fuse", "one from many", "lay all particles of a run of microscopy onto each other: fused "
                "points, poses, a picture, the resolution", logged=True),
        Command("lcms cluster", "peaks to peptides", "cluster LC-MS peaks: one cluster is one peptide", logged=True),
        Command("cluster-certs", "for several hosts", "write certificates for a cluster of several machines"),
        Command("completion", "bash, zsh, fish", "print what makes a shell complete commands, or the manual page"),
        Command("bench", "benchmarks", "run a benchmark, or list what there is"),
    ),
}  # fmt: skip
COMMANDS = {command.name: command for group in GROUPS.values() for command in group}
#: What a first word stands for whose commands have two words.
FAMILIES = {
    "forensics": "commands for photos",
    "microscopy": "commands for particles of localisation microscopy",
    "lcms": "commands for peaks of liquid chromatography and mass spectrometry",
}
#: Names that commands once had.
MOVED = {"fuse": "microscopy fuse", "lcms": "lcms cluster"}
EXAMPLES = (
    "tartan run forensics photos/ -o photos.tartan",
    "tartan report photos.tartan -o photos.html",
    "tartan cluster photos.tartan --picture groups.png",
    "tartan run phylogeny *.faa -o p.tartan && tartan tree p.tartan --draw",
    "tartan run vectors x.npy -o near.tartan --top-k 10",
)
# By judgement: a look; names of commands of one word are no longer than the second.
_LABEL, _NAME = 10, 11


def show_overview() -> str:
    """Return the page of all commands, which fits a terminal of 80 x 40."""
    lines = ["usage: tartan COMMAND ...    (tartan help COMMAND: its options; -V: the version)"]
    for name, group in GROUPS.items():
        lines += _label(name, _in_two_columns(group) if name == "more" else _in_lines(group, _NAME))
    lines += _label("examples", EXAMPLES)
    lines.append("exit status: 0 done, 3 done but for failed items or pairs, 1 failed, 2 misuse")
    return "\n".join(lines) + "\n"


def _in_lines(group: Sequence[Command], wide: int) -> list[str]:
    return [f"{command.name:{wide}}{command.brief}" for command in group]


def _in_two_columns(group: Sequence[Command]) -> list[str]:
    half = (len(group) + 1) // 2
    columns = [_in_lines(part, max(len(one.name) for one in part) + 2) for part in (group[:half], group[half:])]
    wide = max(map(len, columns[0])) + 2
    return [f"{a:{wide}}{b}".rstrip() for a, b in itertools.zip_longest(*columns, fillvalue="")]


def _label(label: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield f"{label:{_LABEL}}{line}"
        label = ""


def name_command(words: Sequence[str]) -> str:
    """Return the name of the command that a command line begins with; empty where it begins with an option.

    A family alone, or followed by an option, is the name of the family.

    Raises
    ------
    ConfigError
        If there is no such command: the message has the nearest one, or the name that it has now.
    """
    if not words or words[0].startswith("-"):
        return ""
    first, second = words[0], words[1] if len(words) > 1 else ""
    if first in COMMANDS:
        return first
    if first in FAMILIES:
        both = f"{first} {second}"
        if both in COMMANDS:
            return both
        if not second or second in ("-h", "--help"):
            return first
    if first in MOVED:
        raise ConfigError(f"`tartan {first}` is now `tartan {MOVED[first]}`")
    if first in FAMILIES:
        known = [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{first} ")]
        raise ConfigError(
            f"{first} has no command {second!r}{guess_meant(second, known)} (it has {', '.join(known)}; "
            f"`tartan run {first}` compares files)"
        )
    known = [*dict.fromkeys(name.partition(" ")[0] for name in COMMANDS), "help"]
    raise ConfigError(f"there is no command {first!r}{guess_meant(first, known)} (tartan --help lists them)")


def guess_meant(word: str, known: Iterable[str]) -> str:
    """Return the known word that is most like this one, as a question; empty where none is."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
