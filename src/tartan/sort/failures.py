"""Turn failures of the engine into errors of Tartan: what failed, with which value, and the way out."""

from __future__ import annotations

from typing import Any

from tartan._native import SortFailure
from tartan.errors import (
    ConfigError,
    CorruptRunFileError,
    DiskFullError,
    InputChangedError,
    InternalError,
    ResourceError,
    RunCancelledError,
    SortError,
    TartanError,
)

_AGAIN = "run the same command again to resume from the run files that are whole"
_DAMAGED = "a run file is damaged{where}: {failure}; check the disk of the temporary folder, then {again}"

#: For each kind of failure the error and its message.
_ERRORS: dict[str, tuple[type[TartanError], str]] = {
    "cancelled": (RunCancelledError, "the sort was stopped; {again}"),
    "no_space": (
        DiskFullError,
        "no space left on the disk{where}; free some space or name more temporary folders, then {again}",
    ),
    "source_changed": (
        InputChangedError,
        "{failure.path} was changed while it was read ({failure}); keep it unchanged and sort it again",
    ),
    "folder_lost": (SortError, "a temporary folder is gone{where}; restore it, then {again}"),
    "read": (SortError, "cannot read{where}: {failure}; check the disk, then {again}"),
    "write": (SortError, "cannot write{where}: {failure}; check the disk, then {again}"),
    "corrupt_run": (CorruptRunFileError, _DAMAGED),
    "foreign_run": (CorruptRunFileError, _DAMAGED),
    "memory": (ResourceError, "memory cannot be allocated: {failure}; give the sort less of it"),
    "key": (ConfigError, "the key cannot be used: {failure}"),
    "direct_refused": (SortError, "the file system{where} refuses direct I/O; use direct='auto'"),
}
_BY_KIND = (SortError, ResourceError)  # whose code is the kind of the failure


def error_of(failure: SortFailure, *, signal: int | None = None) -> TartanError:
    """Return the error of Tartan for a failure of the engine.

    Parameters
    ----------
    failure : SortFailure
    signal : int, optional
        Signal that stopped the sort, if one did.
    """
    unknown = (InternalError, "{failure.kind}: {failure} (a defect of Tartan; please report it)")
    kind, message = _ERRORS.get(failure.kind, unknown)
    where = f" ({failure.path})" if failure.path else ""
    context: dict[str, Any] = {"path": failure.path, "offset": failure.offset, "errno": failure.errno}
    if kind is RunCancelledError:
        context = {} if signal is None else {"signal": signal}
    return kind(
        message.format(failure=failure, where=where, again=_AGAIN),
        code=failure.kind.replace("_", "-") if kind in _BY_KIND else None,
        context=context,
        retryable=kind in (RunCancelledError, DiskFullError),
    )
