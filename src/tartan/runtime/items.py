"""From the bytes of an item to what compare gets: the functions that parse and preprocess, on any worker.

An item that fails becomes an ``ItemFailure``, never an exception: the run continues without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan.application import Application, prepares_blocks
from tartan.base.bundle import is_bundle, unpack_files
from tartan.base.format import reason_of, traceback_of
from tartan.errors import ConfigError, ResourceError, TartanError
from tartan.runtime.writable import REFUSALS, way_out


@dataclass(frozen=True)
class ItemFailure:
    """Why an item failed, in which stage."""

    stage: str
    reason: str
    traceback: str = ""


@dataclass(frozen=True)
class ParsedItem:
    """An item that was parsed elsewhere, in the place of what was read of it."""

    item: Any


@dataclass(frozen=True)
class ItemForm:
    """Dtype and shape that all items of a run have in one state (parsed, or ready to compare)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"

    @property
    def nbytes(self) -> int:
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))

    @classmethod
    def of(cls, item: np.ndarray) -> ItemForm:
        return cls(item.dtype, item.shape)

    def mismatch(self, item: Any) -> str | None:
        """Say how an item differs from this form, or None."""
        if not isinstance(item, np.ndarray) or item.dtype != self.dtype or item.shape != self.shape:
            have = f"{item.dtype} {item.shape}" if isinstance(item, np.ndarray) else type(item).__name__
            return (
                f"is {have} where the items of this run are {self.dtype} {self.shape}; "
                "bring all items to one size, or, in an application of your own, declare ragged = True"
            )
        return None


def takes_rows(app: Application) -> bool:
    """Whether rows of an array can go to the application a block at a time: nothing looks at single items."""
    kind = type(app)
    describes = kind.describe_failure is not Application.describe_failure and not _checks_blocks(app)
    if prepares_blocks(app):
        return not describes
    alone = kind.parse is not Application.parse or kind.preprocess is not Application.preprocess
    return not (alone or describes)


def ready_item(
    app: Application, key: str, payload: Any, form: ItemForm | None, parsed_form: ItemForm | None
) -> tuple[Any, float, float]:
    """Parse one item, and preprocess it unless a device will.

    Parameters
    ----------
    payload : object
        What was read; an ItemFailure stays what it is, and a ParsedItem is not parsed again.
    form : ItemForm or None
        Form of ready items; None where they differ.
    parsed_form : ItemForm or None
        Form of parsed items that a device will preprocess.

    Returns
    -------
    item : object or ItemFailure
    parse_seconds, preprocess_seconds : float
    """
    start = time.perf_counter()
    item = parse_item(app, key, payload)
    if isinstance(item, np.ndarray) and _checks_blocks(app) and type(app).parse is Application.parse:
        row = item
        item = _guard("preprocess", key, lambda row: check_rows(app, row[None], [key]).get(0, row), row)
    between = time.perf_counter()
    if parsed_form is None and not isinstance(item, ItemFailure):
        item = prepare_item(app, key, item, np, form is not None)
    end = time.perf_counter()
    stage = "preprocess" if parsed_form is None else "parse"
    return _of_form(item, parsed_form or form, key, stage), between - start, end - between


def _of_form(item: Any, form: ItemForm | None, key: str, stage: str) -> Any:
    if isinstance(item, ItemFailure) or form is None:
        return item
    item = item if isinstance(item, np.ndarray) else np.asarray(item)
    mismatch = form.mismatch(item)
    return item if mismatch is None else ItemFailure(stage, f"{key}: {mismatch}")


def parse_data(app: Application, key: str, data: Any) -> Any:
    """Parse what was read of an item: the content of a file, the files of a group, or any object."""
    return app.group(key, unpack_files(data)) if is_bundle(data) else app.parse(key, data)


def parse_item(app: Application, key: str, data: Any) -> Any:
    """Parse one item; return it or an ItemFailure, which stays what it is."""
    if isinstance(data, ItemFailure):
        return data
    if isinstance(data, ParsedItem):
        return data.item
    return _guard("parse", key, lambda data: parse_data(app, key, data), data)


def prepare_item(app: Application, key: str, item: Any, xp: Any, asarray: bool) -> Any:
    """Preprocess one parsed item; return it or an ItemFailure.

    Parameters
    ----------
    asarray : bool
        Items are arrays of one form: plain numbers and lists become arrays.
    """

    def prepare(item: Any) -> Any:
        if prepares_blocks(app) and isinstance(item, np.ndarray):
            return app.preprocess_block(item[None], xp)[0]
        done = app.preprocess(item, xp)
        return np.asarray(done) if asarray and not hasattr(done, "dtype") else done

    done = _guard("preprocess", key, prepare, item, on_device=xp is not np)
    if isinstance(done, ItemFailure):
        return done
    reason = _guard("preprocess", key, app.describe_failure, done, on_device=xp is not np)
    if isinstance(reason, ItemFailure):
        return reason
    return done if reason is None else ItemFailure("preprocess", f"{key}: {reason}")


def check_rows(app: Application, rows: np.ndarray, keys: Sequence[str]) -> dict[int, ItemFailure]:
    """Return the raw rows (m, ...) that cannot be compared, by position.

    Raises
    ------
    ConfigError
        If the application does not answer for each row.
    """
    reasons = app.check_block(rows)
    if reasons is None:
        return {}
    if len(reasons) != len(rows):
        raise ConfigError(f"{type(app).__name__}.check_block gave {len(reasons)} answers for {len(rows)} rows")
    return {row: ItemFailure("preprocess", f"{keys[row]}: {reason}") for row, reason in enumerate(reasons) if reason}


def _checks_blocks(app: Application) -> bool:
    return type(app).check_block is not Application.check_block


def prepare_rows(app: Application, rows: Any, xp: Any) -> Any:
    """Preprocess a block of rows at once."""
    if not prepares_blocks(app):
        return rows
    with np.errstate(all="ignore"):
        try:
            return app.preprocess_block(rows, xp)
        except REFUSALS as error:
            remedy = way_out(error, lambda rows: app.preprocess_block(rows, xp), rows)
            if not remedy:
                raise
            raise ConfigError(f"{type(app).__name__}.preprocess_block: {reason_of(error)}{remedy}") from error


def _guard(stage: str, key: str, call: Callable[[Any], Any], item: Any, *, on_device: bool = False) -> Any:
    try:
        return call(item)
    except ResourceError:
        raise
    except MemoryError as error:
        if on_device:  # which gives back what it has cached and tries again, or takes fewer items
            raise
        return ItemFailure(stage, f"{key}: {reason_of(error)}", traceback_of(error))
    except TartanError as error:
        return ItemFailure(stage, str(error))
    except REFUSALS as error:
        return ItemFailure(stage, f"{key}: {reason_of(error) + way_out(error, call, item)}", traceback_of(error))
    except BaseException as error:  # also what sys.exit raises
        return ItemFailure(stage, f"{key}: {reason_of(error)}", traceback_of(error))
