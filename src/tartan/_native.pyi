from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CHISQ_MAX_DIMENSION",
    "COMM_CONSTANTS",
    "COMM_INLINE",
    "HAS_PRODUCTS",
    "LEAST_SCREENED",
    "MOST_POSITIONS",
    "REFINE_BELOW",
    "SMACOF_GROUP",
    "BitScreen",
    "CommArena",
    "CommFailure",
    "CommGroup",
    "CommMemory",
    "CommProxy",
    "CommRank",
    "CommSlots",
    "RunningBest",
    "Screen",
    "SmacofPass",
    "SortFailure",
    "SortJob",
    "SortPieces",
    "SortRange",
    "SpanningForest",
    "__version__",
    "bits_beyond",
    "bray_curtis_tile",
    "canberra_tile",
    "chebyshev_tile",
    "chisq_density",
    "chisq_derivatives",
    "chisq_product",
    "chisq_survey",
    "composition_distances",
    "composition_vector",
    "copy_file",
    "cosine_tile",
    "count_pairs",
    "cut_rows",
    "decode_pairs",
    "dendrogram",
    "encode_pairs",
    "euclidean_tile",
    "find_end_of_rows",
    "finish_cosine",
    "finish_euclidean",
    "first_of_groups",
    "hamming_bits_tile",
    "hamming_tile",
    "hash_shingles",
    "hash_texts",
    "inner_tile",
    "jaccard_bits_tile",
    "jensen_shannon_tile",
    "join_pieces",
    "link_rows",
    "manhattan_tile",
    "microscopy_evaluate",
    "microscopy_prepare",
    "microscopy_register",
    "microscopy_square",
    "microscopy_thin",
    "minkowski_tile",
    "nan_euclidean_tile",
    "neighbor_joining",
    "parse_hashes",
    "place_texts",
    "product_tile",
    "pwc_among",
    "pwc_assign",
    "pwc_below",
    "pwc_costs",
    "pwc_measure",
    "pwc_nearest",
    "pwc_pack",
    "pwc_padded",
    "pwc_product",
    "pwc_relabel",
    "pwc_scratch_len",
    "pwc_sum_up",
    "pwc_sweep",
    "read_decimals",
    "read_first_row",
    "rows_beyond",
    "run_facts",
    "score_listed",
    "score_sketches",
    "scores_beyond",
    "shared_counts",
    "shared_products",
    "sketch_dna",
    "sort_keys",
    "sort_overhead",
    "sparse_cosine_tile",
    "sparse_jaccard_tile",
    "split_rows",
    "sponge_assign",
    "sponge_label",
    "sponge_lists",
    "sponge_moments",
    "sponge_sum",
    "survey_decimals",
    "survey_square",
    "verify_run",
]

__version__: str

CHISQ_MAX_DIMENSION: int
HAS_PRODUCTS: bool
LEAST_SCREENED: int
MOST_POSITIONS: int
REFINE_BELOW: float
SMACOF_GROUP: int

@final
class SmacofPass:
    def __new__(
        cls,
        n: int,
        dim: int,
        wide: bool,
        point_weights: NDArray[np.float64] | None = None,
        *,
        level: str | None = None,
    ) -> SmacofPass: ...
    def place(self, points: NDArray[np.float64]) -> None: ...
    def triangle(
        self, delta: NDArray[Any], rule: object, start: int, stop: int, weights: NDArray[Any] | None = None
    ) -> None: ...
    @property
    def shares(self) -> tuple[int, int]: ...
    def keep(self, first: int, last: int) -> None: ...
    def partial(self, out: NDArray[np.float64]) -> None: ...
    def finish(self, sums: NDArray[np.float64], partials: NDArray[np.float64] | None = None) -> float: ...
    def rows(
        self,
        delta: NDArray[Any],
        rule: object,
        at: int | NDArray[np.float64],
        sums: NDArray[np.float64],
        losses: NDArray[np.float64],
        weights: NDArray[Any] | None = None,
    ) -> None: ...

def manhattan_tile(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None: ...
def chebyshev_tile(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None: ...
def bray_curtis_tile(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None: ...
def canberra_tile(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None: ...
def nan_euclidean_tile(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None: ...
def jensen_shannon_tile(left: NDArray[np.float64], right: NDArray[np.float64], out: NDArray[Any]) -> None: ...
def minkowski_tile(left: NDArray[Any], right: NDArray[Any], power: float, out: NDArray[Any]) -> None: ...
def euclidean_tile(left: NDArray[Any], right: NDArray[Any], root: bool, out: NDArray[Any]) -> None: ...
def hamming_tile(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None: ...
def hamming_bits_tile(left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[Any]) -> None: ...
def jaccard_bits_tile(left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[Any]) -> None: ...
def cosine_tile(
    left: NDArray[Any], right: NDArray[Any], out: NDArray[Any], codes: NDArray[np.uint8] | None = None
) -> bool: ...
def sparse_cosine_tile(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None: ...
def sparse_jaccard_tile(left: NDArray[np.uint32], right: NDArray[np.uint32], out: NDArray[Any]) -> None: ...
def inner_tile(
    left: NDArray[Any], right: NDArray[Any], out: NDArray[Any], codes: NDArray[np.uint8] | None = None
) -> bool: ...
def product_tile(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None: ...
def score_listed(
    kernel: str,
    left: NDArray[Any],
    right: NDArray[Any],
    places: tuple[NDArray[np.int64], NDArray[np.int64]],
    out: NDArray[Any],
) -> None: ...
def finish_cosine(left: NDArray[Any], right: NDArray[Any], products: NDArray[Any]) -> None: ...
def finish_euclidean(left: NDArray[Any], right: NDArray[Any], root: bool, products: NDArray[Any]) -> None: ...

@final
class RunningBest:
    def __new__(cls, first: int, n_items: int, k: int, single: bool) -> RunningBest: ...
    def choose(
        self,
        scores: NDArray[Any],
        codes: NDArray[np.uint8] | None,
        corner: tuple[int, int],
        largest: bool,
        columns: RunningBest | None = None,
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], tuple[NDArray[np.int64], NDArray[np.int64]]]: ...
    def choose_rows(
        self,
        left: NDArray[Any],
        right: NDArray[Any],
        codes: NDArray[np.uint8] | None,
        corner: tuple[int, int],
        largest: bool,
        columns: RunningBest | None = None,
        *,
        metric: str = "cosine",
        screen: Screen | None = None,
    ) -> bool: ...
    def choose_bits(
        self,
        left: NDArray[np.uint64],
        right: NDArray[np.uint64],
        codes: NDArray[np.uint8] | None,
        corner: tuple[int, int],
        columns: RunningBest | None = None,
        *,
        metric: str,
        screen: BitScreen,
    ) -> bool: ...
    def pairs(
        self, items: tuple[int, int], ids: tuple[int, int], largest: bool
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[Any]]: ...
    def holds(self, items: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.bool_]: ...

def scores_beyond(
    scores: NDArray[Any],
    codes: NDArray[np.uint8] | None,
    corner: tuple[int, int],
    largest: bool,
    limit: float,
    skip_self: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...

@final
class Screen:
    def __new__(
        cls,
        n_items: int,
        width: int,
        most_bytes: int,
        *,
        level: str = "",
        trust: float = 1.0,
        axes: NDArray[np.float64] | None = None,
    ) -> Screen: ...
    @property
    def n_axes(self) -> int: ...
    @property
    def level(self) -> str: ...
    @staticmethod
    def levels() -> list[str]: ...
    def decided(self) -> tuple[int, int, int, float]: ...

@final
class BitScreen:
    def __new__(cls, n_items: int, most_bytes: int, *, level: str = "", trust: float = 1.0) -> BitScreen: ...
    @property
    def level(self) -> str: ...
    @staticmethod
    def levels() -> list[str]: ...
    def decided(self) -> tuple[int, int]: ...

def bits_beyond(
    left: NDArray[np.uint64],
    right: NDArray[np.uint64],
    codes: NDArray[np.uint8] | None,
    corner: tuple[int, int],
    limit: float,
    *,
    metric: str,
    single: bool,
    screen: BitScreen,
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[Any]] | None: ...
def rows_beyond(
    left: NDArray[Any],
    right: NDArray[Any],
    codes: NDArray[np.uint8] | None,
    corner: tuple[int, int],
    largest: bool,
    limit: float,
    *,
    metric: str = "cosine",
    screen: Screen | None = None,
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[Any]] | None: ...
def first_of_groups(
    groups: NDArray[np.int64], ids: NDArray[np.int64], scores: NDArray[Any], k: int, largest: bool
) -> NDArray[np.int64]: ...
def composition_vector(
    data: bytes,
    k: int,
    *,
    map_unknown: bool = False,
    max_bytes: int = ...,
    max_ratio: int = 200,
    memory_bytes: int = ...,
) -> tuple[NDArray[Any], ...]: ...
def composition_distances(
    left: list[tuple[NDArray[Any], ...]], right: list[tuple[NDArray[Any], ...]], k: int
) -> NDArray[np.float64]: ...
def survey_square(
    upper: NDArray[Any], lower: NDArray[Any] | None, on_diagonal: bool, swapped: bool, missing_allowed: bool
) -> tuple[
    tuple[int, int, int],
    tuple[float, float, float, float],
    tuple[float, int, int],
    tuple[float, int],
    tuple[int, int] | None,
]: ...
def read_first_row(
    text: bytes, separator: int, quoted: bool
) -> tuple[int, int, list[bytes] | None, tuple[str, int, int, int] | None]: ...
def find_end_of_rows(text: bytes, separator: int, quoted: bool) -> int: ...
def split_rows(
    text: bytes,
    separator: int,
    quoted: bool,
    *,
    width: int,
    columns: Sequence[int],
    nulls: bool = False,
    line: tuple[Sequence[int], int, bool] | None = None,
) -> tuple[
    int,
    int,
    list[tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8], int]],
    tuple[str, int, int, int] | None,
]: ...
def cut_rows(
    keys: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    key_bytes: int,
    piece_bytes: int,
) -> NDArray[np.uint8]: ...
def join_pieces(
    records: NDArray[np.uint8], key_bytes: int, piece_bytes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]: ...
def place_texts(
    records: NDArray[np.uint8],
    record_bytes: int,
    field: tuple[int, int],
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
) -> None: ...
def survey_decimals(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> tuple[bool, int, int] | None: ...
def read_decimals(offsets: NDArray[np.int64], data: NDArray[np.uint8], whole: bool) -> NDArray[Any] | None: ...
def sort_keys(array: NDArray[Any], path: str, threads: int) -> None: ...
def link_rows(
    rows: NDArray[Any] | tuple[int, int, int, str],
    method: str,
    *,
    scale: float = 1.0,
    level: float | None = None,
    kept: int | None = None,
    log: tuple[int, int] | None = None,
    report: Callable[[int], object] | None = None,
) -> NDArray[np.float64]: ...
def dendrogram(
    n: int, i: NDArray[np.int64], j: NDArray[np.int64], distances: NDArray[np.float64]
) -> NDArray[np.float64]: ...
def neighbor_joining(
    distances: NDArray[Any], report: Callable[[int], object] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]: ...
def microscopy_register(
    left: list[NDArray[np.float64]],
    right: list[NDArray[np.float64]],
    wanted: NDArray[np.bool_] | None = None,
    *,
    symmetry: int = 1,
    level: str | None = None,
) -> NDArray[np.float64]: ...
def microscopy_square(
    radii: tuple[float, float], variances: tuple[float, float], symmetry: int
) -> tuple[int, float, NDArray[np.float64]]: ...
def microscopy_evaluate(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    motions: NDArray[np.float64],
    *,
    scale: float | None = None,
    level: str | None = None,
) -> NDArray[np.float64]: ...
def microscopy_prepare(
    points: NDArray[np.float64],
) -> tuple[list[float], int, NDArray[np.float64], NDArray[np.float64]]: ...
def microscopy_thin(points: NDArray[np.float64], most: int) -> NDArray[np.uint64]: ...
def pwc_padded(n: int) -> int: ...
def pwc_scratch_len(n: int, k: int) -> int: ...
def pwc_pack(columns: NDArray[np.float64], packed: NDArray[Any]) -> None: ...
def pwc_product(
    rows: NDArray[Any],
    swapped: bool,
    packed: NDArray[Any],
    out: NDArray[np.float64],
    mass: NDArray[np.float64] | None = None,
) -> None: ...
def pwc_costs(
    product: NDArray[np.float64],
    mass: NDArray[np.float64] | None,
    members: NDArray[np.float64],
    scale: float,
    unknown: float,
    eps: NDArray[np.float64],
    sizes: NDArray[np.float64],
    inner: NDArray[np.float64],
    change: NDArray[np.float64],
    scratch: NDArray[np.float64],
) -> None: ...
def pwc_assign(
    eps: NDArray[np.float64],
    prior: NDArray[np.float64],
    copies: NDArray[np.float64],
    width: int,
    temperature: float,
    members: NDArray[np.float64],
) -> None: ...
def pwc_nearest(rows: NDArray[Any], first: int, least: NDArray[np.float64]) -> None: ...
def pwc_below(
    rows: NDArray[Any], first: int, limit: float, most: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]] | None: ...
def pwc_measure(
    products: NDArray[np.float64],
    mass: NDArray[np.float64] | None,
    members: NDArray[np.float64],
    level: float,
    starts: NDArray[np.int32],
    columns: NDArray[np.int32],
    gaps: NDArray[np.float64],
) -> None: ...
def pwc_sum_up(
    stored: NDArray[Any],
    measure: tuple[bool, float, float],
    labels: NDArray[np.int64],
    to_clusters: NDArray[np.float64],
    totals: NDArray[np.float64],
) -> None: ...
def pwc_relabel(
    stored: NDArray[Any],
    measure: tuple[bool, float, float],
    labels: NDArray[np.int64],
    to_clusters: NDArray[np.float64],
    totals: NDArray[np.float64],
    items: NDArray[np.int64],
    to: int,
) -> None: ...
def pwc_sweep(
    stored: NDArray[Any],
    measure: tuple[bool, float, float],
    labels: NDArray[np.int64],
    to_clusters: NDArray[np.float64],
    totals: NDArray[np.float64],
    least: float,
) -> int: ...
def pwc_among(
    stored: NDArray[Any],
    measure: tuple[bool, float, float],
    items: NDArray[np.int64],
    values: NDArray[np.float64],
) -> None: ...
def encode_pairs(
    scores: NDArray[np.float32], codes: NDArray[np.uint8], row: int, column: int, descending: bool, last: int
) -> NDArray[np.uint64]: ...
def count_pairs(
    scores: NDArray[np.float32], codes: NDArray[np.uint8], descending: bool, counts: NDArray[np.uint64]
) -> None: ...
def decode_pairs(
    words: NDArray[np.uint64], descending: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]: ...

@final
class SpanningForest:
    @property
    def trees(self) -> int: ...
    def __new__(cls, n: int) -> SpanningForest: ...
    def offer(self, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.int64]: ...

_Lists = tuple[int, NDArray[np.uint64], NDArray[np.uint16], NDArray[np.uint64], NDArray[np.uint32]]
_Centres = tuple[NDArray[np.float64], NDArray[np.float64]]
_Step = tuple[float, float, NDArray[np.float64], tuple[float, float] | None]

def sponge_lists(
    points: NDArray[np.float64], centres: _Centres, limits: tuple[int, int, float], chunk: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint16], NDArray[np.uint64], NDArray[np.uint32]]: ...
def sponge_assign(
    points: NDArray[np.float64],
    lists: _Lists,
    centres: _Centres,
    step: _Step,
    memory: NDArray[np.float32],
    sums: NDArray[np.float64],
    totals: NDArray[np.float64],
) -> None: ...
def sponge_moments(
    points: NDArray[np.float64], lists: _Lists, centres: _Centres, step: _Step, sums: NDArray[np.float64]
) -> None: ...
def sponge_label(
    points: NDArray[np.float64],
    lists: _Lists,
    centres: _Centres,
    offsets: NDArray[np.float64],
    labels: NDArray[np.int64],
    energies: NDArray[np.float64],
) -> None: ...
def sponge_sum(chunk_centres: NDArray[np.uint32], sums: NDArray[np.float64], n_centres: int) -> NDArray[np.float64]: ...
def chisq_derivatives(
    objective: Any,
    block: NDArray[Any],
    items: NDArray[np.int64],
    columns: NDArray[np.float64],
    weights: NDArray[np.float64],
    marked: NDArray[np.float64],
    chisq: NDArray[np.float64],
    gradient: NDArray[np.float64],
    blocks: NDArray[np.float64],
) -> None: ...
def chisq_product(
    objective: Any,
    block: NDArray[Any],
    items: NDArray[np.int64],
    columns: NDArray[np.float64],
    weights: NDArray[np.float64],
    vector: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None: ...
def chisq_survey(
    objective: Any,
    block: NDArray[Any],
    items: NDArray[np.int64],
    weights: NDArray[np.float64],
    numbers: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None: ...
def chisq_density(
    objective: Any,
    block: NDArray[Any],
    items: NDArray[np.int64],
    columns: NDArray[np.float64],
    weights: NDArray[np.float64],
    ends: tuple[float, float],
    counts: NDArray[np.int64],
) -> None: ...

class SortFailure(Exception):  # noqa: N818
    kind: str
    path: str | None
    offset: int | None
    errno: int | None

@final
class SortJob:
    def __new__(
        cls,
        *,
        record_bytes: int,
        key: Sequence[tuple[int, str, bool]],
        fingerprint: bytes,
        folders: Sequence[str | PathLike[str]],
        buffer_bytes: int,
        buffers: int,
        threads: int = 2,
        fan_in: int = 256,
        block_bytes: int = 32768,
        ring_bytes: int = 1048576,
        ring_depth: int = 8,
        pack: str = "auto",
        direct: str = "auto",
        io: str = "auto",
    ) -> SortJob: ...
    def sort_files(
        self, sources: Sequence[tuple[str | PathLike[str], int, int]], runs: Sequence[str | PathLike[str]] = ...
    ) -> None: ...
    def make_runs(
        self, sources: Sequence[tuple[str | PathLike[str], int, int]], chunks: Sequence[tuple[int, int]]
    ) -> None: ...
    def push(self, data: NDArray[np.uint8]) -> None: ...
    def adopt(self, runs: Sequence[str | PathLike[str]]) -> None: ...
    def missing(self) -> list[tuple[int, int]]: ...
    def push_runs(self) -> None: ...
    def seek(self, record: int) -> None: ...
    def finish_push(self) -> None: ...
    def write_file(self, path: str | PathLike[str], offset: int = 0, sync: bool = True) -> None: ...
    def open_sorted(self) -> None: ...
    def read_into(self, out: NDArray[np.uint8]) -> int: ...
    def wait(self, timeout_seconds: float) -> bool: ...
    def abort_after(self, *, runs: int = 0, ranges: int = 0) -> None: ...
    def cancel(self) -> None: ...
    def progress(self) -> dict[str, Any]: ...
    def runs(self) -> list[dict[str, Any]]: ...
    def statistics(self) -> dict[str, Any]: ...
    def close(self, keep_runs: bool) -> None: ...
    def __enter__(self) -> SortJob: ...
    def __exit__(self, *_error: object) -> None: ...

@final
class SortPieces:
    def __new__(
        cls, path: str | PathLike[str], *, record_bytes: int, key: Sequence[tuple[int, str, bool]]
    ) -> SortPieces: ...
    def facts(self) -> dict[str, Any]: ...
    def blocks(self, first: int, count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]: ...
    def sample(self, step: int) -> tuple[int, NDArray[np.uint8]]: ...
    def cut(self, keys: NDArray[np.uint8], equal: Sequence[bool]) -> NDArray[np.uint64]: ...
    def read(self, first: int, count: int, out: NDArray[np.uint8]) -> int: ...

@final
class SortRange:
    def __new__(cls, buffer_bytes: int, *, record_bytes: int, key: Sequence[tuple[int, str, bool]]) -> SortRange: ...
    @property
    def capacity(self) -> int: ...
    @property
    def records(self) -> int: ...
    def clear(self) -> None: ...
    def add(
        self,
        stored: NDArray[np.uint8],
        sizes: NDArray[np.uint32],
        checksums: NDArray[np.uint32],
        *,
        block_records: int,
        records: int,
        first: int,
        wanted: tuple[int, int],
    ) -> None: ...
    def end_piece(self) -> None: ...
    def sort(self, threads: int = 1) -> None: ...
    def write(self, descriptor: int, path: str | PathLike[str], offset: int) -> None: ...
    def take(self, first: int, out: NDArray[np.uint8]) -> int: ...

def run_facts(path: str | PathLike[str]) -> dict[str, Any]: ...
def verify_run(path: str | PathLike[str]) -> dict[str, Any]: ...
def copy_file(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    ring_bytes: int = 1048576,
    ring_depth: int = 8,
    direct: str = "auto",
    io: str = "auto",
) -> int: ...
def sort_overhead(
    *,
    record_bytes: int,
    key: Sequence[tuple[int, str, bool]],
    buffer_bytes: int,
    buffers: int,
    threads: int = 2,
    fan_in: int = 256,
    block_bytes: int = 32768,
    ring_bytes: int = 1048576,
    ring_depth: int = 8,
) -> int: ...

COMM_CONSTANTS: dict[str, int]
COMM_INLINE: int

class CommFailure(Exception): ...  # noqa: N818

@final
class CommArena:
    def __new__(cls, ranks: int, members: int, heap_bytes: int, half_bytes: int, streams: bool = True) -> CommArena: ...
    def abort(self, kind: int, reason: str) -> None: ...
    def reason(self) -> tuple[int, str] | None: ...
    def found(self, slot: int, members: Sequence[int]) -> None: ...
    def slots(self, local: int, rank: int, blocks: int, states: int) -> CommSlots: ...
    def share(self) -> tuple[int, int, bytes]: ...
    @staticmethod
    def reads(path: str, n_bytes: int, token: bytes) -> bool: ...
    def end(self, rank: int) -> None: ...
    def view(self, begin: int, n_bytes: int) -> NDArray[np.uint8]: ...
    def take_slot(self) -> int: ...
    def waiting(self, rank: int) -> tuple[int, int, int, int, str]: ...

@final
class CommSlots:
    @property
    def words(self) -> bytes: ...

@final
class CommRank:
    def __new__(cls, arena: CommArena, nodes: Sequence[int], rank: int, has_core: bool) -> CommRank: ...
    def send(
        self, payload: NDArray[np.uint8], description: bytes, kind: int, to: int, tag: int, group: int
    ) -> tuple[int, int, int, int, int, int, bytes]: ...
    def isend(
        self, payload: NDArray[np.uint8], description: bytes, kind: int, to: int, tag: int, group: int
    ) -> int: ...
    def begin_stream(
        self, payload: NDArray[np.uint8], description: bytes, kind: int, to: int, tag: int, group: int
    ) -> int | None: ...
    def end_stream(self) -> None: ...
    def recv(self, source: int, tag: int, group: int, capacity: int) -> tuple[int, int, int, int, int, int, bytes]: ...
    def irecv(self, source: int, tag: int, group: int, capacity: int) -> int: ...
    def wait(self, request: int, now: bool) -> tuple[int, int, int, int, int, int, bytes]: ...
    def wait_any(self, requests: Sequence[int]) -> bool: ...
    def probe(self, source: int, tag: int, group: int, now: bool) -> tuple[int, int, int, int, int, int, bytes]: ...
    def memory(self, source: int, in_parts: bool) -> CommMemory: ...
    def add_near(self, ranks: Sequence[int], path: str, n_bytes: int, token: bytes) -> None: ...
    def drain(self, memory: CommMemory, block: int, begin: int, out: NDArray[np.uint8]) -> None: ...
    def whole(self, memory: CommMemory, block: int, begin: int, n_bytes: int) -> int: ...
    def end(self) -> None: ...

@final
class CommMemory:
    def description(self, block: int) -> tuple[bytes, int]: ...
    def fetch(self, block: int, begin: int, out: NDArray[np.uint8]) -> None: ...
    def give_back(self, block: int) -> None: ...
    def view(self, begin: int, n_bytes: int) -> NDArray[np.uint8]: ...

@final
class CommGroup:
    def __new__(cls, rank: CommRank, group: int, slot: int, mine: int, n_local: int) -> CommGroup: ...
    def exchange(self, signature: bytes, contribution: NDArray[np.uint8]) -> tuple[bool, list[tuple[int, int]]]: ...
    def meet_here(self, signature: bytes) -> None: ...
    def leave(self) -> None: ...
    def room(self, n_bytes: int) -> int | None: ...
    def copy(self, out: NDArray[np.uint8]) -> None: ...
    def view(self, at: int, n_bytes: int) -> NDArray[np.uint8]: ...

@final
class CommProxy:
    def __new__(cls, arena: CommArena, nodes: Sequence[int], me: int, first: int, polls: bool = False) -> CommProxy: ...
    @property
    def outbox_fd(self) -> int: ...
    def take(
        self,
    ) -> tuple[list[tuple[int, bytes, tuple[int, int] | None]], list[tuple[int, int, int, int, int]]]: ...
    def sent(self, block: int) -> None: ...
    def reserve(self, n_bytes: int) -> int: ...
    def deliver(self, head: bytes, block: tuple[int, int] | None = None) -> None: ...
    def members(self, slot: int) -> list[int]: ...
    def pack(self, place: tuple[int, int, int, int, int], members: Sequence[int]) -> NDArray[np.uint8]: ...
    def unpack(
        self, place: tuple[int, int, int, int, int], members: Sequence[int], packed: NDArray[np.uint8]
    ) -> None: ...
    def release(self, slot: int, turn: int) -> None: ...
    def stuck(self) -> int | None: ...

def shared_counts(rows: list[NDArray[np.uint64]], columns: list[NDArray[np.uint64]]) -> NDArray[np.int32]: ...
def shared_products(
    rows: list[NDArray[np.uint64]],
    columns: list[NDArray[np.uint64]],
    row_weights: list[NDArray[np.float64]],
    column_weights: list[NDArray[np.float64]],
) -> NDArray[np.float64]: ...
def hash_texts(texts: Sequence[bytes]) -> NDArray[np.uint64]: ...
def hash_shingles(text: str, n: int, words: bool) -> NDArray[np.uint64]: ...
def sketch_dna(
    data: bytes,
    k: int,
    max_hash: int,
    *,
    max_bytes: int = ...,
    max_ratio: int = 200,
    memory_bytes: int = ...,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]: ...
def parse_hashes(text: bytes) -> NDArray[np.uint64]: ...
def score_sketches(
    shared: NDArray[np.int32], left: NDArray[np.float64], right: NDArray[np.float64], k: int, scaled: float
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]: ...
