"""A run that knows its numbers, and a Python interface that notes its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tartan.application import Application
from tartan.core.pairs.ledger import Failure
from tartan.errors import RunNotFoundError
from tartan.workers.shipping import NamedApplication

FULL_STATS = {
    "loads": 24, "load_factor": 2.4, "load_factor_bound": 2.0, "bytes_per_level": {"host": 4_000_000},
    "seconds_per_stage": {"parse": 1.5, "compare": 0.25}, "wall_seconds": 12.0, "system_efficiency": 0.975,
}  # fmt: skip


@dataclass
class FakeRun:
    """A run of ten items."""

    path: Path = Path("x.tartan")
    n_items: int = 10
    n_pairs: int = 45
    n_pairs_done: int = 45
    n_pairs_failed: int = 0
    found_finished: bool = False
    stats: dict[str, Any] = field(default_factory=lambda: dict(FULL_STATS))
    failures: list[Failure] = field(default_factory=list)
    keys: list[str] = field(default_factory=lambda: [f"{i}.fa" for i in range(10)])
    map: Any = None
    folder: Any = field(default_factory=lambda: SimpleNamespace(version=None, path="r"))
    parts: list[Any] = field(default_factory=list)
    manifest: Any = field(
        default_factory=lambda: SimpleNamespace(
            application={"name": "vectors", "parameters": {"metric": "cosine"}},
            created="",
            workload={"kind": "all"},
            inputs={},
            grid={"chunk": 32, "strip": 32, "span": 4},
            chunk=32,
            n_items=10,
            arity=2,
            notes=["a note of the files"],
            reduce=None,
        )
    )

    @property
    def n_pairs_left(self) -> int:
        return max(0, self.n_pairs - self.n_pairs_done - self.n_pairs_failed)

    @property
    def finished(self) -> bool:
        return self.n_pairs_left == 0


class FakeApi:
    """Stands for ``tartan.allpairs`` and its companions."""

    def __init__(self) -> None:
        self.run = FakeRun()
        self.opened: Any = RunNotFoundError("x.tartan is not a run")
        self.raises: BaseException | None = None
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.loaded: tuple[str, dict[str, Any]] | None = None
        self.application = Application()

    def call(self, name: str) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            self.calls.append((name, args, options))
            if self.raises is not None:
                raise self.raises
            return self.run

        return called

    def open(self, path: Any, version: int | None = None) -> Any:
        if isinstance(self.opened, BaseException):
            raise self.opened
        return self.opened

    def load_application(
        self, spec: str, parameters: dict[str, Any], registry: Any, arity: int = 2
    ) -> NamedApplication:
        self.loaded = (spec, dict(parameters))
        return NamedApplication(self.application, {"source": spec})

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of the only call."""
        ((_, _, options),) = self.calls
        return options
