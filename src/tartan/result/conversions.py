"""A run as what other libraries work with. Each library is imported when it is asked for.

Nothing here is computed anew: scores are those that the run keeps, pairs that failed are missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.base.format import format_bytes
from tartan.base.machine import memory
from tartan.errors import ConfigError, ResourceError
from tartan.store.folder import RunFolder
from tartan.store.maps import map_of
from tartan.store.reduced import Parts
from tartan.store.tables import pair_rows
from tartan.store.view import output_name, require_real

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import anndata
    import networkx
    import pandas
    import scipy.sparse
    import xarray

# By judgement: a dictionary of two entries and its boxes.
_EDGE_BYTES = 500  # of a graph of dictionaries
# By arithmetic: two int64 and a float64, twice.
_PAIR_BYTES = 48  # of a sparse matrix while it is made


class Conversions:
    """Converts the scores of a run, as the methods of ``tartan.Run`` of the same names say.

    Parameters
    ----------
    folder : RunFolder
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def to_pandas(self, output: str | None = None, *, pairs: bool | None = None) -> pandas.DataFrame:
        """Return the matrix or the pairs as a data frame of pandas."""
        library = _library("pandas")
        if self._reduced if pairs is None else pairs:
            from tartan.store.tables import row_reader

            _require_memory(self._n_known * 4 * _PAIR_BYTES, "pairs()")
            with row_reader(self.folder, output) as reader:
                frame: pandas.DataFrame = reader.read_all().to_pandas()
        else:
            rows, columns = self._sides()
            frame = library.DataFrame(self.matrix(output), index=rows, columns=columns, copy=False)
        return frame

    def to_xarray(self, output: str | None = None) -> xarray.DataArray:
        """Return the matrix as an array of xarray, with dimensions ``i`` and ``j`` whose coordinates are the keys."""
        library = _library("xarray")
        rows, columns = self._sides()
        about = self.folder.manifest.application
        found: xarray.DataArray = library.DataArray(
            self.matrix(output),
            dims=("i", "j"),
            coords={"i": list(rows), "j": list(columns)},
            name=output_name(self.folder, output),
            attrs={"application": str(about.get("name")), "run": str(self.folder.path)},
        )
        return found

    def to_sparse(self, output: str | None = None) -> scipy.sparse.csr_array:
        """Return the scores that are known as a sparse matrix of SciPy in CSR form."""
        from scipy.sparse import coo_array

        _require_memory(2 * self._n_known * _PAIR_BYTES, "pairs()")
        name = self._real(output)
        i, j, scores = self._triples(name)
        if self.folder.manifest.symmetric and not self._of_each_item:
            apart = i != j
            i, j = np.concatenate([i, j[apart]]), np.concatenate([j, i[apart]])
            scores = np.concatenate([scores, scores[apart]])
        shape = self.folder.manifest.shape
        return coo_array((scores, (i, j - self._first_column)), shape=shape).tocsr()

    def to_networkx(self, output: str | None = None) -> networkx.Graph:
        """Return the pairs that are known as a graph of networkx."""
        networkx = _library("networkx")
        _require_memory(self._n_known * _EDGE_BYTES, "pairs()")
        manifest = self.folder.manifest
        rectangle = manifest.workload["kind"] == "rectangle"
        nodes: list[Any] = list(self.folder.keys)
        if rectangle:
            n_left = manifest.shape[0]
            nodes = [("A" if index < n_left else "B", key) for index, key in enumerate(nodes)]
        graph = networkx.Graph() if manifest.symmetric or rectangle else networkx.DiGraph()
        graph.add_nodes_from(nodes)
        for i, j, scores in self._bands(self._real(output)):
            ends = ((nodes[a], nodes[b], s) for a, b, s in zip(i.tolist(), j.tolist(), scores.tolist()))
            graph.add_weighted_edges_from(ends)
        return graph

    def to_anndata(self) -> anndata.AnnData:
        """Return a run as an AnnData object: items are observations, scores are in ``obsp`` by their outputs."""
        pandas, anndata = _library("pandas"), _library("anndata")
        rows, columns = self._sides()
        failed = np.zeros(self.folder.manifest.n_items, bool)
        failed[[failure.i for failure in self.folder.failures() if failure.j is None]] = True
        obs = pandas.DataFrame({"failed": failed[: len(rows)]}, index=pandas.Index(list(rows)).astype(str))
        scores = {name: self._pairwise(name) for name in self.folder.manifest.outputs}
        about = {"application": str(self.folder.manifest.application.get("name")), "run": str(self.folder.path)}
        if not self._square:
            var = pandas.DataFrame(index=pandas.Index(list(columns)).astype(str))
            return anndata.AnnData(obs=obs, var=var, layers=scores, uns={"tartan": about})
        found = anndata.AnnData(obs=obs, obsp=scores, uns={"tartan": about})
        points = self._map_points()
        if points is not None:
            found.obsm["X_tartan"] = points
        return found

    @property
    def _reduced(self) -> bool:
        return self.folder.manifest.reduce is not None

    @property
    def _of_each_item(self) -> bool:
        """Whether the run keeps the best pairs of each item, so that (i, j) does not mean (j, i)."""
        rule = self.folder.manifest.reduce
        return rule is not None and rule["kind"] == "top-k"

    @property
    def _square(self) -> bool:
        return bool(self.folder.manifest.workload["kind"] != "rectangle")

    @property
    def _first_column(self) -> int:
        return self.folder.manifest.n_items - self.folder.manifest.shape[1]

    @property
    def _n_known(self) -> int:
        """Return how many pairs the run keeps, at most."""
        results = self.folder.results
        if isinstance(results, Parts):
            return sum(results.n_rows(*chunk) for chunk in self.folder.committed())
        return self.folder.n_known()

    def _sides(self) -> tuple[Sequence[str], Sequence[str]]:
        keys, left = self.folder.keys, self.folder.manifest.shape[0]
        return (keys, keys) if self._square else (keys[:left], keys[left:])

    def matrix(self, output: str | None) -> np.ndarray:
        """Return the matrix, if it fits into memory."""
        view = self.folder.view(output, np.nan)
        _require_memory(view.dtype.itemsize * view.shape[0] * view.shape[1], "view().bands() or pairs()")
        return view.matrix()

    def _pairwise(self, name: str) -> Any:
        return self.to_sparse(name) if self._reduced else self.matrix(name)

    def _real(self, output: str | None) -> str:
        name = output_name(self.folder, output)
        require_real(name, self.folder.manifest.outputs[name], "this needs")
        return name

    def _bands(self, name: str) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for rows, done in pair_rows(self.folder, [name]):
            kept = slice(None) if done is None else done
            yield rows["i"][kept], rows["j"][kept], rows[name][kept]

    def _triples(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        bands = list(self._bands(name))
        empty = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, self.folder.manifest.outputs[name])
        i, j, scores = (np.concatenate(column) for column in zip(empty, *bands))
        return i, j, scores

    def _map_points(self) -> np.ndarray | None:
        found = map_of(self.folder)
        if found is None:
            return None
        points = np.full((self.folder.manifest.n_items, found.points.shape[1]), np.nan)
        points[: len(found)] = found.points
        return points


def _library(name: str) -> Any:
    """Import a library that Tartan itself does not need."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"this needs {name}, which is not installed: pip install {name}",
            code="missing-library",
            context={"library": name},
        ) from error


def _require_memory(n_bytes: int, instead: str) -> None:
    available = memory().available_bytes
    if n_bytes > available:
        raise ResourceError(
            f"this takes {format_bytes(n_bytes)} of memory, and {format_bytes(available)} are available; read the run "
            f"piece by piece: {instead}",
            context={"needed_bytes": n_bytes, "available_bytes": available},
        )
