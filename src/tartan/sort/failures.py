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


def error_of(failure: SortFailure, *, signal: int | None = None) -> TartanError:
    """Return the error of Tartan for a failure of the engine.

    Parameters
    ----------
    failure : SortFailure
    signal : int, optional
        Signal that stopped the sort, if one did.
    """
    context: dict[str, Any] = {"path": failure.path, "offset": failure.offset, "errno": failure.errno}
    where = f" ({failure.path})" if failure.path else ""
    match failure.kind:
        case "cancelled":
            about = {} if signal is None else {"signal": signal}
            return RunCancelledError(f"the sort was stopped; {_AGAIN}", context=about, retryable=True)
        case "no_space":
            return DiskFullError(
                f"no space left on the disk{where}; free some space or name more temporary folders, then {_AGAIN}",
                context=context,
                retryable=True,
            )
        case "source_changed":
            return InputChangedError(
                f"{failure.path} was changed while it was read ({failure}); keep it unchanged and sort it again",
                context=context,
            )
        case "folder_lost":
            return SortError(
                f"a temporary folder is gone{where}; restore it, then {_AGAIN}", code="folder-lost", context=context
            )
        case "read":
            return SortError(
                f"cannot read{where}: {failure}; check the disk, then {_AGAIN}", code="read", context=context
            )
        case "write":
            return SortError(
                f"cannot write{where}: {failure}; check the disk, then {_AGAIN}", code="write", context=context
            )
        case "corrupt_run" | "foreign_run":
            return CorruptRunFileError(
                f"a run file is damaged{where}: {failure}; check the disk of the temporary folder, then {_AGAIN}",
                context=context,
            )
        case "memory":
            return ResourceError(
                f"memory cannot be allocated: {failure}; give the sort less of it", code="memory", context=context
            )
        case "key":
            return ConfigError(f"the key cannot be used: {failure}", context=context)
        case "direct_refused":
            return SortError(
                f"the file system{where} refuses direct I/O; use direct='auto'",
                code="direct-refused",
                context=context,
            )
    return InternalError(f"{failure.kind}: {failure} (a defect of Tartan; please report it)", context=context)
