"""The errors of Tartan, one tree::

    TartanError(message, *, code, context, retryable)
    ├── ConfigError(ValueError)      an option, a parameter or an input list is wrong; nothing was started
    ├── ItemError                    one item cannot be read, parsed or preprocessed
    ├── CompareError                 one comparison raised or returned what it must not
    ├── SubtaskError                 a subtask of a block task raised, died, or did not keep to its subscriptions
    ├── ResourceError                something ran out
    │   ├── DeviceMemoryError
    │   └── DiskFullError
    ├── DeviceError                  a device failed or is not there
    ├── ClusterError
    │   ├── TransportError
    │   ├── RankLostError
    │   └── DeadlockError            all ranks wait for each other, or call different collectives
    ├── StoreError                   the run folder
    │   ├── RunNotFoundError
    │   └── CorruptResultError
    ├── SortError                    a disk-to-disk sort stopped; it can be resumed
    │   ├── InputChangedError        what is sorted was changed meanwhile
    │   └── CorruptRunFileError      a temporary file of a sort does not match its checksum
    ├── RunFailedError               a run stopped because too much failed; it can be resumed
    ├── RunCancelledError            a run stopped on request (Ctrl-C raises KeyboardInterrupt); it can be resumed
    └── InternalError                a defect of Tartan itself

A message says what is wrong, with which value, and the way out. Code that reacts to an error tests its class
or its ``code``, never its text.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ClusterError",
    "CompareError",
    "ConfigError",
    "CorruptResultError",
    "CorruptRunFileError",
    "DeadlockError",
    "DeviceError",
    "DeviceMemoryError",
    "DiskFullError",
    "InputChangedError",
    "InternalError",
    "ItemError",
    "RankLostError",
    "ResourceError",
    "RunCancelledError",
    "RunFailedError",
    "RunNotFoundError",
    "SortError",
    "StoreError",
    "SubtaskError",
    "TartanError",
    "TransportError",
]


#: Codes of what the same words meet again, until they, or the folder that they name, are changed.
_WRONG_USE = frozenset(
    {"exists", "foreign-folder", "keeps-too-much", "newer-format", "not-trusted", "other-run", "run-not-found"}
)


class TartanError(Exception):
    """Base of every error that Tartan raises on purpose.

    Parameters
    ----------
    message : str
        What is wrong, with which value, and the way out.
    code : str, optional
        Stable name of the condition, for programs. Defaults to the class's ``default_code``.
    context : dict, optional
        Values that belong to the message (key, path, option), for programs.
    retryable : bool
        Whether the same call may succeed later without a change.
    """

    default_code = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        context: dict[str, Any] | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.context = dict(context or {})
        self.retryable = retryable

    @property
    def exit_status(self) -> int:
        """Exit status of a command: 2 where the same words fail until they, or what they name, are changed; else 1."""
        return 2 if isinstance(self, ConfigError) or self.code in _WRONG_USE else 1

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), str(self), self.code, self.context, self.retryable))


def _rebuild(cls: type[TartanError], message: str, code: str, context: dict[str, Any], retryable: bool) -> TartanError:
    return cls(message, code=code, context=context, retryable=retryable)


class ConfigError(TartanError, ValueError):
    """An option, a parameter or an input list is wrong; nothing was started."""

    default_code = "config"


class ItemError(TartanError):
    """One item cannot be read, parsed or preprocessed."""

    default_code = "item"


class CompareError(TartanError):
    """One comparison raised or returned what it must not."""

    default_code = "compare"


class SubtaskError(TartanError):
    """A subtask of a block task raised, died, or did not keep to its subscriptions; the session can be used further."""

    default_code = "subtask"


class ResourceError(TartanError):
    """Memory, disk or slots ran out."""

    default_code = "resource"


class DeviceMemoryError(ResourceError):
    """The memory of a device ran out."""

    default_code = "device-memory"


class DiskFullError(ResourceError):
    """The file system of the run folder is full; the run can be resumed when there is space again."""

    default_code = "disk-full"


class DeviceError(TartanError):
    """A device failed or is not there."""

    default_code = "device"


class ClusterError(TartanError):
    """Several ranks cannot work together."""

    default_code = "cluster"


class TransportError(ClusterError):
    """A message could not be delivered."""

    default_code = "transport"


class RankLostError(ClusterError):
    """A rank is gone."""

    default_code = "rank-lost"


class DeadlockError(ClusterError):
    """All ranks wait and nothing is under way, or the ranks call different collectives."""

    default_code = "deadlock"


class StoreError(TartanError):
    """A run folder cannot be used as asked."""

    default_code = "store"


class RunNotFoundError(StoreError):
    """There is no run where one was expected."""

    default_code = "run-not-found"


class CorruptResultError(StoreError):
    """A stored result does not match its checksum."""

    default_code = "corrupt-result"


class SortError(TartanError):
    """A disk-to-disk sort stopped; the same call resumes from the run files that are whole."""

    default_code = "sort"


class InputChangedError(SortError):
    """A file was changed while it was sorted."""

    default_code = "input-changed"


class CorruptRunFileError(SortError):
    """A temporary file of a sort is damaged, or not of this sort."""

    default_code = "corrupt-run-file"


class RunFailedError(TartanError):
    """A run stopped because too much of it failed; it can be resumed."""

    default_code = "run-failed"


class RunCancelledError(TartanError):
    """A run stopped on request, such as SIGTERM; it can be resumed. After Ctrl-C calls raise KeyboardInterrupt."""

    default_code = "cancelled"


class InternalError(TartanError):
    """A defect of Tartan itself."""

    default_code = "internal"
