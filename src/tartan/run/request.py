"""What a run is asked for: its options checked, its application and items opened, its manifest written out.

Nothing here opens a device, starts a worker or writes a file.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tartan.application import (
    Application,
    analysed_output,
    as_application,
    defines,
    directed_outputs,
    output_dtypes,
    stored_once,
)
from tartan.base.checks import FINITE, number, whole
from tartan.base.keys import are_numbers
from tartan.base.machine import package_version, tartan_version
from tartan.base.notices import RunNotice
from tartan.core.pairs.workload import AllPairs, Candidates, Rectangle, Workload
from tartan.errors import ConfigError, ItemError
from tartan.options import RunOptions
from tartan.run.inputs import Texts, open_items, require_items
from tartan.sources.items import Source, join_sources, local_files
from tartan.sources.rows.unpacked import prepare_rows
from tartan.store.items import ItemTable
from tartan.store.manifest import Manifest
from tartan.store.pairs import digest
from tartan.store.view import require_real
from tartan.workers.shipping import NamedApplication, Registry, describe_application


@dataclass(frozen=True)
class Request:
    """What is to be computed, and how.

    Attributes
    ----------
    app : Application
    described : dict
        Where the application comes from, as ``load_application`` and ``describe_application`` return it.
    source : Source
        All items; of A x B those of A come first.
    options : RunOptions
    workload : dict
        As in the manifest.
    candidates : Candidates, optional
        The pairs of a candidate list.
    reduce : dict or None
        What is kept instead of the matrix, as in the manifest.
    notes : list of str
        What the application says of the files, once it has looked at them.
    """

    app: Application
    described: dict[str, Any]
    source: Source
    options: RunOptions
    workload: dict[str, Any] = field(default_factory=lambda: {"kind": "all"})
    candidates: Candidates | None = None
    reduce: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    def manifest(self) -> Manifest:
        """Describe the run that is asked for; its grid is still empty."""
        app, options, directed = self.app, self.options, directed_outputs(self.app)
        analysed = analysed_output(app)
        application = (
            self.described
            | {
                "outputs": {name: dtype.str for name, dtype in output_dtypes(app).items()},
                "symmetric": stored_once(app),
                "diagonal": app.diagonal,
                "releases_gil": app.releases_gil,
                "similarity": app.similarity,
                "ragged": app.ragged,
                "item": None,
            }
            | ({"directed": directed} if directed else {})
            | ({"analysed": analysed} if analysed is not None else {})
            | ({"notes": list(self.notes)} if self.notes else {})
        )
        return Manifest(
            application=application,
            workload=self.workload,
            n_items=self.source.n_items,
            grid={},
            reduce=self.reduce,
            inputs=self.inputs(),
            options={"tile": options.tile, "order": options.order, "device": list(options.device)},
            versions={"tartan": tartan_version(), **{n: package_version(n) for n in ("numpy", "zarr")}},
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )

    def inputs(self) -> dict[str, Any]:
        """Return the manifest's record of where the items come from."""
        return dict(self.source.describe())

    def items(self) -> ItemTable | None:
        """Return the keys and fingerprints of the items; None for rows without names."""
        source = self.source
        if source.kind == "array" and are_numbers(source.keys):
            return None
        keys, stamps = list(source.keys), source.fingerprints()
        notes = [*map(self.app.recall_item, keys)] if defines(self.app, "recall_item") else None
        notes = notes if notes and any(note is not None for note in notes) else None
        sizes, mtimes, ctimes, identities = (None,) * 4 if stamps is None else stamps
        return ItemTable(keys, sizes, mtimes, ctimes=ctimes, identities=identities, notes=notes)

    def check_files(self) -> None:
        """Read the names of rows, unpack rows of tables, and let the application refuse files by their first bytes.

        What people should know of the files is said as notices, and kept for the manifest.

        Raises
        ------
        ConfigError
            If it does, or a row or a name is none.
        """
        len(self.source.keys)
        prepare_rows(self.source)
        for note in self.look_at_files():
            warnings.warn(note, RunNotice, stacklevel=2)

    def look_at_files(self) -> list[str]:
        """Let the application look at the files, and choose by them what it leaves open; return what it notes."""
        if type(self.app).check_files is not Application.check_files:
            self.notes[:] = self.app.check_files(local_files(self.source)) or []
            chosen = self.app.parameters()
            self._refuse_choice(chosen)
            if "parameters" in self.described:
                self.described["parameters"] = chosen
        return self.notes

    def _refuse_choice(self, chosen: Mapping[str, Any]) -> None:
        """Refuse a threshold of scores where the application has just chosen what these are."""
        known = self.described.get("parameters", chosen)
        news = [f"{name}={value}" for name, value in chosen.items() if known.get(name) != value]
        if news and self.reduce is not None and self.reduce["kind"] == "threshold":
            raise ConfigError(
                f"--threshold {self.reduce['threshold']:g}: the files ask for {' '.join(news)}, and scores mean "
                f"something else then; say which you mean, as by --set {' '.join(news)}",
                context={"option": "--threshold"},
            )

    def digests(self, items: Sequence[int]) -> list[str]:
        """Return the SHA-256 of some files; "" where one cannot be read."""
        import hashlib

        digests = []
        for index in items:
            try:
                digests.append(hashlib.sha256(self.source.read(index)).hexdigest())
            except ItemError:
                digests.append("")
        return digests

    @property
    def arity(self) -> int:
        """Items that are compared at a time."""
        return 3 if self.workload["kind"] == "triples" else 2

    def pairs(self) -> Workload:
        """Return which pairs are wanted."""
        n = self.source.n_items
        if self.workload["kind"] == "rectangle":
            return Rectangle(int(self.workload["n_left"]), n)
        if self.candidates is not None:
            return self.candidates
        return AllPairs(n, self.app.diagonal)


def request(
    app: Any,
    items: Any,
    options: RunOptions,
    *,
    keys: Any = None,
    against: Any = None,
    pairs: Any = None,
    reduce: Mapping[str, Any] | None = None,
    group: str | None = None,
    registry: Registry | None = None,
) -> Request:
    """Check what ``tartan.allpairs`` was given.

    Parameters
    ----------
    app, items, keys, against, pairs, reduce, group
        As in ``tartan.allpairs``, and more than eight for that reason. The command line gives a ``NamedApplication``;
        texts are then names of files.
    options : RunOptions
    registry : Registry, optional
        The built-in applications.

    Raises
    ------
    ConfigError
        If the application, an input or a parameter is wrong.
    """
    application, described, texts = find_application(app, registry)
    source = open_items(application, items, keys, texts=texts, group=group)
    workload: dict[str, Any] = {"kind": "all"}
    candidates = None
    if against is not None:
        workload = {"kind": "rectangle", "n_left": source.n_items}
        source = join_sources(
            source, open_items(application, against, texts=texts), allow_repeats=True, sides=pairs is None
        )
    if pairs is not None:
        candidates = Candidates(source.n_items, _indices(pairs))
        workload = {"kind": "candidates", "file": "candidates.npy", "digest": digest(candidates)}
    if workload["kind"] != "rectangle" and not application.diagonal:
        require_items(application, source, items, 2)
    kept = None if reduce is None else reduction(reduce, output_dtypes(application), bool(application.similarity))
    if kept is not None and (analysed := analysed_output(application)) is not None:
        kept = {"output": analysed} | kept
    return Request(application, described, source, options, workload, candidates, kept)


def find_application(app: Any, registry: Registry | None, arity: int = 2) -> tuple[Application, dict[str, Any], Texts]:
    """Return an application, where it comes from, and what a list of texts means to who gave it."""
    if isinstance(app, NamedApplication):
        return *app, "files"
    application = as_application(app, arity)
    return application, describe_application(application, registry), "look"


def reduction(reduce: Any, dtypes: Mapping[str, np.dtype[Any]], largest: bool) -> dict[str, Any]:
    """Check what a run is to keep; return it with every entry that counts.

    ``largest`` holds where nothing says whether large scores are the best.
    """
    outputs = tuple(dtypes)
    example = 'write {"kind": "top-k", "k": 10, "largest": True} or {"kind": "threshold", "threshold": 0.3}'
    rule = dict(reduce) if isinstance(reduce, Mapping) else {}
    limit = {"top-k": "k", "threshold": "threshold"}.get(rule.get("kind", ""))
    unknown = set(rule) - {"kind", limit, "largest", "output"}
    if limit is None or limit not in rule or unknown:
        raise ConfigError(f"reduce: {reduce!r} is not understood; {example}", context={"option": "reduce"})
    if rule.get("output", outputs[0]) not in outputs:
        raise ConfigError(f"reduce: there is no output {rule['output']!r}, only {', '.join(outputs)}")
    for name, dtype in dtypes.items():
        if dtype.kind == "c":
            require_real(name, dtype, "what is kept is chosen by its order and needs")
    if limit == "k":
        rule["k"] = whole("k", rule["k"], 1, option="--k")
    else:
        rule["threshold"] = number("threshold", rule["threshold"], FINITE, option="--threshold")
    asked = rule.get("largest")
    return rule | {"largest": largest if asked is None else bool(asked)}


def _indices(pairs: Any) -> np.ndarray:
    """Read pairs of indices: int64 (m, 2)."""
    given = np.asarray(pairs)
    if given.size and (given.dtype.kind not in "iu" or given.ndim != 2 or given.shape[1] != 2):
        raise ConfigError(
            f"pairs: {given.dtype} {given.shape} is not a list of pairs; give whole numbers of shape (m, 2)",
            context={"option": "pairs"},
        )
    return given.astype(np.int64).reshape(-1, 2)
