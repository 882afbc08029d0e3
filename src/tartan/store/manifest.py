"""The manifest: what a run is, written once, and how two of them differ.

``manifest.json`` is the last file that the creation of a run writes and the first that opening one reads: a
folder without it holds no run. It carries a format version and a checksum of its own text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tartan.base.files import read_regular
from tartan.base.format import name_some
from tartan.base.json_input import MOST_JSON_BYTES, parse_json
from tartan.base.keys import row_keys
from tartan.errors import ConfigError, CorruptResultError, RunNotFoundError, StoreError

if TYPE_CHECKING:
    from tartan.store.items import ItemTable

# By format: 2 has versions.jsonl, without which what was removed would be read.
FORMAT_VERSION = 2
FILE_NAME = "manifest.json"
#: Names in the optional entry "features" that this Tartan understands (docs/spec/run-folder.md).
LISTED = "listed-scores"
FINISHED_TILES = "finished-tiles"
FEATURES: frozenset[str] = frozenset({LISTED, FINISHED_TILES})
#: What the entries of which a kind is asked for may be; a manifest that names another is of a newer Tartan.
KINDS = {"workload": ("all", "rectangle", "candidates", "triples"), "reduce": ("top-k", "threshold")}


@dataclass
class Manifest:
    """Description of a run.

    Attributes
    ----------
    application : dict
        name, kind, source, source_hash, parameters, outputs {name: dtype}, symmetric, directed, diagonal, releases_gil,
        ragged, item, and optionally analysed (the output that analyses take), similarity (True: large scores are near;
        False: small ones) and meaning (by output, what the application says of its scores: distance, why, cut, cut_why,
        linkage, tree, groups).
    workload : dict
        ``{"kind": "all"}``, ``{"kind": "rectangle", "n_left": a}`` or
        ``{"kind": "candidates", "file": "candidates.npy"}``, with ``"scores": "list"`` where scores lie in a list;
        ``{"kind": "triples"}`` compares three items at a time.
    n_items : int
    generations : list of int
        Number of items after the creation and after each extension; the last is ``n_items``.
    grid : dict
        Call shapes: chunk, panel, strip, span. Fixed at creation.
    reduce : dict or None
        None keeps the matrix. ``{"kind": "top-k", "k": k, "largest": bool}`` or ``{"kind": "threshold",
        "threshold": t, "largest": bool}`` keep less; ``"output"`` names the output that decides (the first).
    inputs, options, versions : dict
        Where the items came from, the options of the run, versions of the programs.
    created : str
        ISO 8601 time.
    format : int
        What a reader must understand: 1, or 2 once an item was removed, replaced or renamed (versions.py).
    features : list of str
        What else it must understand that came with time: FINISHED_TILES. LISTED follows from the workload.
    """

    application: dict[str, Any]
    workload: dict[str, Any]
    n_items: int
    grid: dict[str, Any]
    generations: list[int] = field(default_factory=list)
    reduce: dict[str, Any] | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    created: str = ""
    format: int = 1
    features: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.generations = self.generations or [self.n_items]

    @property
    def outputs(self) -> dict[str, np.dtype[Any]]:
        """Named outputs with their dtypes, in order."""
        return {name: np.dtype(text) for name, text in self.application["outputs"].items()}

    @property
    def analysed(self) -> str:
        """The output that analyses take where none is named: what the application says, else the first."""
        return str(self.application.get("analysed") or next(iter(self.outputs)))

    def analysed_by(self, output: str | None) -> str:
        """Return the output that an analysis takes: the one that is named, else that of the rule of what a run keeps,
        else ``analysed``.
        """
        return output or str((self.reduce or {}).get("output") or self.analysed)

    @property
    def arity(self) -> int:
        """How many items are compared at a time: 2, or 3 in a run of triples."""
        return 3 if self.workload["kind"] == "triples" else 2

    @property
    def chunk(self) -> int:
        """Side of a chunk of the result grid, in items."""
        return int(self.grid["chunk"])

    @property
    def is_listed(self) -> bool:
        """Whether the scores of a list of pairs lie in a list (listed.py), not in the chunks of a matrix."""
        return self.workload.get("scores") == "list"

    @property
    def symmetric(self) -> bool:
        """Whether all scores (i, j) are also those of (j, i), so that one is stored; a rectangle has no such mirror."""
        return self.workload["kind"] != "rectangle" and bool(self.application.get("symmetric", True))

    def symmetric_in(self, output: str | None = None) -> bool:
        """Whether the scores of an output (default: the first) are the same both ways, however they are stored.

        A run with directed outputs stores all of them both ways; those that are not directed agree.
        """
        directed: list[str] = self.application.get("directed") or []
        name = next(iter(self.outputs)) if output is None else output
        both = bool(directed) and name not in directed and self.workload["kind"] != "rectangle"
        return self.symmetric or both

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix: (n, n), or (n_left, n_right) for A x B."""
        if self.workload["kind"] != "rectangle":
            return self.n_items, self.n_items
        n_left = int(self.workload["n_left"])
        return n_left, self.n_items - n_left

    @property
    def larger_is_nearer(self) -> bool:
        """Whether the application says that its scores are similarities."""
        return bool(self.application.get("similarity", False))

    def meaning(self, output: str | None = None) -> dict[str, Any]:
        """Return what the application says of the scores of an output (default: the first); else empty."""
        said: dict[str, Any] = self.application.get("meaning") or {}
        return dict(said.get(next(iter(self.outputs)) if output is None else output) or {})

    def name_score(self, output: str | None = None) -> str:
        """Return what a score of an output (default: the first) is, with its unit: for scales of pictures."""
        name = next(iter(self.outputs)) if output is None else output
        return str(self.meaning(name).get("unit") or ("score" if name == "scores" else name))

    @property
    def notes(self) -> list[str]:
        """What the application says of the files of the run, in a line each."""
        return [str(note) for note in self.application.get("notes") or ()]

    @property
    def self_score(self) -> float | None:
        """Score of an item with itself where that is known without computing it: 0 for declared distances."""
        return 0.0 if self.application.get("similarity") is False else None

    def to_json(self) -> str:
        """Return the text of manifest.json; raises ConfigError if it would be too long to be read again."""
        body: dict[str, Any] = {"format": self.format, **asdict(self)}
        features = body.pop("features") + [LISTED] * self.is_listed  # older versions would look for a matrix
        if features:
            body["features"] = features
        body["checksum"] = _checksum(body)
        text = json.dumps(body, indent=1, default=plain) + "\n"
        if len(text) > MOST_JSON_BYTES:
            raise ConfigError(
                f"the description of the run has {len(text):,} characters, and may have {MOST_JSON_BYTES:,}; name the "
                "items by a folder or a pattern instead of one by one"
            )
        return text

    @classmethod
    def from_json(cls, text: str, path: Path) -> Manifest:
        """Read the text of manifest.json; ``path`` is for messages.

        Raises
        ------
        StoreError
            If a newer Tartan wrote it.
        CorruptResultError
            If it is not a manifest, or does not match its checksum.
        """
        body = _parse(text, path)
        if body.pop("checksum", None) != _checksum(body):
            raise _corrupt(path, "does not match its checksum")
        _refuse_unknown(body, path)
        features = [name for name in body.pop("features", []) if name != LISTED]
        known = {f.name for f in fields(cls)} - {"features"}
        if set(body) != known:
            raise _corrupt(path, f"has unknown or missing entries: {sorted(set(body) ^ known)}")
        from tartan.store.manifest_schema import problem_of

        if (problem := problem_of(body)) is not None:
            raise _corrupt(path, f"does not describe a run: {problem}")
        return cls(**body, features=features)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the manifest of a run folder; raises RunNotFoundError where there is none, else as from_json."""
        path = folder / FILE_NAME
        try:
            return cls.from_json(read_regular(path, MOST_JSON_BYTES).decode("utf-8", errors="replace"), path)
        except (FileNotFoundError, NotADirectoryError):
            raise RunNotFoundError(_explain_absence(folder), context={"path": str(folder)}) from None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}", context={"path": str(path)}) from error


def _explain_absence(folder: Path) -> str:
    """Say what lies at ``folder`` instead of a run."""
    if folder.is_dir():
        return f"{folder} is not a run: it has no {FILE_NAME}"
    if folder.exists():
        return f"{folder} is a file, and a run is a folder, that which `tartan run` was given as -o"
    return f"there is no folder {folder}"


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        body = parse_json(text)
    except ValueError as error:
        raise _corrupt(path, f"is not JSON ({error})") from error
    if not isinstance(body, dict) or not isinstance(version := body.get("format"), int):
        raise _corrupt(path, "has no format version")
    if version > FORMAT_VERSION:
        raise StoreError(
            f"{path} has format {version}, this Tartan reads up to {FORMAT_VERSION}; use a newer Tartan",
            code="newer-format",
            context={"path": str(path), "format": version},
        )
    return body


def _refuse_unknown(body: dict[str, Any], path: Path) -> None:
    """Refuse what only a newer Tartan writes, by its name."""
    features = body.get("features", [])
    if not isinstance(features, list) or not all(isinstance(name, str) for name in features):
        raise _corrupt(path, "has features that are not a list of names")
    unknown = [f"feature {name[:99]!r}" for name in sorted(set(features) - FEATURES)]
    for entry, kinds in KINDS.items():
        found = body.get(entry)
        kind = found.get("kind") if isinstance(found, dict) else None
        if isinstance(kind, str) and kind not in kinds:
            unknown.append(f"{entry} {kind[:99]!r}")
    if unknown:
        raise StoreError(
            f"{path} has what this Tartan does not know: {name_some(unknown)}; use a newer Tartan",
            code="newer-format",
            context={"path": str(path), "unknown": unknown},
        )


def _corrupt(path: Path, what: str) -> CorruptResultError:
    return CorruptResultError(
        f"{path} {what}; restore it from a copy, or start a new run in another folder",
        context={"path": str(path)},
    )


def _checksum(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, default=plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plain(value: Any) -> Any:
    """Accept what options and parameters hold besides JSON: NumPy numbers, paths, sets, dataclasses."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def refuse_too_many(n_items: int, arity: int) -> None:
    """Refuse more items than a run can have, of which so many are compared at a time."""
    from tartan.store.manifest_schema import MOST_ITEMS

    if n_items > (most := MOST_ITEMS[arity]):
        raise ConfigError(
            f"{n_items:,} items are more than the {most:,} that a run can have; divide them into several runs"
        )


@dataclass(frozen=True)
class Difference:
    """One way in which a new request is not the run that a folder holds.

    Attributes
    ----------
    kind : {"option", "input"}
        What was said on the command line, or what it was applied to (items, source text).
    message : str
        One line for people.
    """

    kind: Literal["option", "input"]
    message: str

    def __str__(self) -> str:
        return self.message


def compare(
    old: Manifest,
    new: Manifest,
    old_items: ItemTable | None = None,
    new_items: ItemTable | None = None,
) -> list[Difference]:
    """List everything by which the new request would compute other scores than the old run, but for changed items.

    Options that change no score (caches, workers, order) are not compared. The chunk side counts only when
    the request names one (``options["tile"]``).
    """
    old, new = (Manifest(**json.loads(json.dumps(asdict(m), default=plain))) for m in (old, new))
    found = _application_differences(old.application, new.application)
    found += _option_differences(old, new)
    if new.n_items != old.n_items:
        found += _count_differences(old, new.n_items, old_items, new_items)
    elif old_items is not None or new_items is not None:
        n_left = old.workload.get("n_left")
        before, now = (row_keys(old.n_items, n_left) if one is None else one.keys for one in (old_items, new_items))
        found += _key_differences(before, now, old.n_items if n_left is None else n_left)
    if old.inputs.get("kind") != new.inputs.get("kind"):
        kinds = old.inputs.get("kind"), new.inputs.get("kind")
        found.append(Difference("input", f"kind of input: the run has {kinds[0]}, now it is {kinds[1]}"))
    elif new.n_items == old.n_items:
        found += _row_differences(old.inputs, new.inputs)
    return found


def leaves(inputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what was given at once: at the start, on the other side, by each extension."""
    if "parts" not in inputs:
        yield inputs
        return
    for part in inputs["parts"]:
        yield from leaves(part)


def ends_of_leaves(manifest: Manifest) -> list[int]:
    """Return where the items of each leaf of the inputs begin, and the end of the last."""
    if manifest.workload["kind"] == "rectangle":
        return [0, int(manifest.workload["n_left"]), manifest.n_items]
    return [0, *manifest.generations]


def refuse_differences(
    differences: Sequence[Difference], folder: Path, *, starts: bool = False, empty: bool = False
) -> None:
    """Raise when there are differences.

    Parameters
    ----------
    differences : sequence of Difference
    folder : Path
        Of the run.
    starts : bool
        Whether a run was to be started there.
    empty : bool
        Whether the run has no computed pair: the command that started it takes its place then.

    Raises
    ------
    ConfigError
        If an option or parameter differs.
    StoreError
        If only inputs or the application's source differ.
    """
    if not differences:
        return
    lines = "\n".join(f"  - {difference}" for difference in differences)
    if starts:
        ways_out = (
            "Give another output folder, ask for exactly what the run was started with, or compute afresh in its place "
            "with `overwrite=True`."
        )
    elif empty:
        ways_out = "None of its pairs is computed: give the command that started it again, and it starts afresh."
    else:
        ways_out = "Bring back what the run was started with, or start another run."
    message = f"{folder} holds another run, and its results are not mixed with new ones:\n{lines}\n{ways_out}"
    error = ConfigError if any(d.kind == "option" for d in differences) else StoreError
    raise error(
        message,
        code="other-run",
        context={"path": str(folder), "differences": [str(d) for d in differences]},
    )


def code_differences(old: dict[str, Any], new: dict[str, Any]) -> list[Difference]:
    """List how the code of two applications differs: by its name, or by its source."""
    if old.get("name") != new.get("name"):
        return [Difference("option", _was("application", old.get("name"), new.get("name")))]
    if old.get("source_hash") != new.get("source_hash"):
        return [Difference("input", f"the source of application {old.get('name')!r} has changed")]
    return []


def _application_differences(old: dict[str, Any], new: dict[str, Any]) -> list[Difference]:
    found = code_differences(old, new)
    before, after = old.get("parameters") or {}, new.get("parameters") or {}
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            found.append(Difference("option", _was(f"parameter {name}", before.get(name), after.get(name))))
    for name in ("outputs", "symmetric", "directed", "diagonal"):
        if old.get(name) != new.get(name):
            found.append(Difference("option", _was(f"application's {name}", old.get(name), new.get(name))))
    return found


def _option_differences(old: Manifest, new: Manifest) -> list[Difference]:
    found = []
    tile = new.options.get("tile")
    if tile is not None and min(int(tile), old.generations[0]) != old.chunk:
        found.append(Difference("option", _was("tile", old.chunk, tile)))
    for name in ("workload", "reduce"):
        before, after = getattr(old, name), getattr(new, name)
        if name == "workload" and "scores" not in after:  # where they lie changes none
            before = {entry: value for entry, value in before.items() if entry != "scores"}
        if before != after:
            found.append(Difference("option", _was(name, before, after)))
    return found


def _was(what: str, before: Any, after: Any) -> str:
    return f"{what}: the run has {before!r}, now it is {after!r}"


def _count_differences(
    old: Manifest, after: int, old_items: ItemTable | None, new_items: ItemTable | None
) -> list[Difference]:
    text = f"number of items: the run has {old.n_items}, now there are {after}"
    before = None if old_items is None else old_items.keys
    now = None if new_items is None else new_items.keys
    if after in old.generations and (before is None or now is None or list(now) == list(before[:after])):
        return [Difference("input", f"{text}; it has grown by `tartan add`: use `tartan resume`")]
    if after > old.n_items and old.workload["kind"] == "all":
        text += "; use `tartan add` for new items"
    if before is None or now is None:
        return [Difference("input", text)]
    there = set(now)
    gone = [key for key in before if key not in there]
    if not 0 < len(gone) < len(before):  # none, or all are called otherwise now
        return [Difference("input", text)]
    return [Difference("input", text), Difference("input", f"items that are gone: {name_some(gone)}")]


def _row_differences(old: dict[str, Any], new: dict[str, Any]) -> list[Difference]:
    """Tell arrays whose rows have another form."""
    for before, after in zip(leaves(old), leaves(new), strict=False):
        forms = [(one.get("dtype"), (one.get("shape") or [])[1:]) for one in (before, after)]
        if before.get("shape") and after.get("shape") and forms[0] != forms[1]:
            said = [f"{np.dtype(dtype)} of shape {tuple(shape)}" for dtype, shape in forms]
            return [Difference("input", f"rows: the run has {said[0]}, now they are {said[1]}")]
    return []


def _key_differences(old: Sequence[str], new: Sequence[str], n_left: int) -> list[Difference]:
    pairs = zip(old, new, strict=True)
    keys = [k for at, (other, k) in enumerate(pairs) if k != other and not _was_named(other, k, at, n_left)]
    return [Difference("input", f"other items: {name_some(keys)}")] if keys else []


def _was_named(old: str, new: str, at: int, n_left: int) -> bool:
    """Whether an earlier version called an item of the second set so, because one of the first had its name."""
    return at >= n_left and (old.endswith(f"/{new}") or old.startswith(f"{new}#") or old == str(at))
