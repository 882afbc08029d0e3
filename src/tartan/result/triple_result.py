"""A run of triples as its user sees it, finished or not: what it keeps, its numbers and its failures."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tartan.base.checks import path_of
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR
from tartan.errors import ConfigError
from tartan.result.run import AnyRun, Run
from tartan.store.bars import BarRule
from tartan.store.version_view import open_version

if TYPE_CHECKING:
    import pyarrow as pa


class TripleRun(AnyRun):
    """The result of a run of triples.

    Parameters
    ----------
    folder : RunFolder or path

    Raises
    ------
    RunNotFoundError
        If there is no run at the path.

    Notes
    -----
    It keeps no pairs and no matrix; what only a ``Run`` has is refused with a ConfigError.
    """

    arity = 3

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not hasattr(Run, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise ConfigError(
            f"{self.path} is a run of triples, and {name} is of runs of pairs; triples() and `tartan export` have what "
            "it keeps",
            code="other-arity",
        )

    @property
    def rule(self) -> BarRule:
        """What is kept."""
        assert self.folder.cubes is not None
        return self.folder.cubes.rule

    @property
    def n_triples(self) -> int:
        """Number of triples i < j < k."""
        return self.folder.wanted.n_scores

    @property
    def n_triples_done(self) -> int:
        """Number of triples that were compared. Read anew each time: the run may not be finished."""
        return int(self.folder.counts()[DONE])

    @property
    def n_triples_failed(self) -> int:
        """Number of triples without a score, because they or one of their items failed."""
        return int(self.folder.counts()[[FAILED_ITEM, FAILED_PAIR]].sum())

    @property
    def n_triples_left(self) -> int:
        """Number of triples that are still to be compared. Read anew each time."""
        return self.folder.n_left

    @property
    def stats(self) -> dict[str, Any]:
        """Loads, times and bytes of the run; empty before they are written."""
        found = {name: value for name, value in super().stats.items() if name != "sizing"}
        if "pairs_computed" in found:
            found["triples_computed"] = found.pop("pairs_computed")
            found["loads_bound"] = found["load_factor_bound"] * self.n_items
        return found

    def triples(
        self, output: str | None = None, *, ascending: bool | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """Stream the triples that the run keeps: i, j, k, key_i, key_j, key_k, score.

        Parameters
        ----------
        output : str, optional
            With several outputs there is a column for each, unless one is named.
        ascending : bool, optional
            Sort by scores, in memory: small ones first, or large ones. Equal ones are in the order of i, j, k.
            Default: in a top-k run the order of i, j, k, else that of the chunks.
        limit : int, optional
            At most this many triples, the best ones of all.

        Notes
        -----
        A top-k run keeps each triple that is among the k best of one of its items, once. The k best of all are the
        first k of them in the order of their scores.
        """
        from tartan.store.tables import row_reader

        if limit is not None:
            if limit < 1:
                raise ConfigError(f"limit is {limit}; it must be 1 or more")
            ascending = not self.rule.largest if ascending is None else ascending
        return row_reader(self.folder, output, ascending=ascending, limit=limit)

    def export(
        self,
        path: str | Path,
        format: str | None = None,  # noqa: A002
        *,
        sort: bool = False,
        count: int | None = None,
        ascending: bool | None = None,
        **options: Any,
    ) -> Path:
        """Write the triples that the run keeps as Parquet, CSV or TSV.

        Parameters
        ----------
        path : path
            Its suffix chooses the format.
        format : {"parquet", "csv", "tsv"}, optional
        sort : bool
            In the order of the scores, the best first.
        count : int, optional
            The best so many of all, in that order.
        ascending : bool, optional
            Whether small scores come first; default: the best do.
        **options
            ``output``, ``names`` ("full" or "stem") and ``overwrite``, as for runs of pairs.

        Raises
        ------
        ConfigError
            If the format or an option is for matrices, or the file exists.
        """
        from tartan.base.outputs import require_writable
        from tartan.base.signatures import require_options
        from tartan.result.run import Run
        from tartan.store.export import ExportOptions, export_triples

        require_options("export", options, Run.export)
        known = {"output", "names", "overwrite", "pairs", "diagonal", "missing", "clip"}
        options = {name: value for name, value in options.items() if value is not None}
        unknown = sorted(options.keys() - known)
        if unknown:
            raise ConfigError(f"{unknown[0]} is for runs of pairs; this one keeps triples")
        if count is not None and count < 1:
            raise ConfigError(f"count is {count}; it must be 1 or more")
        if ascending is None and (sort or count is not None):
            ascending = not self.rule.largest
        chosen, path = ExportOptions(**options), path_of("path", path)
        require_writable(path, overwrite=chosen.overwrite)
        return export_triples(self.folder, path, format, chosen, ascending=ascending, limit=count)

    def __repr__(self) -> str:
        facts = f"{self.n_items:,} items, {self.n_triples - self.n_triples_left:,} of {self.n_triples:,} triples"
        return f"<TripleRun {self.path.name}: {self.manifest.application.get('name')}, {facts}>"

    def _repr_png_(self) -> None:
        """Show no picture: there is no matrix."""

    def _repr_html_(self) -> str:
        return f"<code>{escape(repr(self))}</code>"


def open_result(path: str | Path, version: int | None = None) -> Run | TripleRun:
    """Open a version of a run of pairs or of triples, whichever it is; default: the newest."""
    folder = open_version(path, version, arity=None)
    return Run(folder) if folder.cubes is None else TripleRun(folder)
