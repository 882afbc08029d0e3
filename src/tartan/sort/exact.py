"""Numbers that are written as text, compared exactly: whole ones, decimals and exponents of any length.

The values of a column decide how it is compared, all blocks and files of it alike: as int64, or as float64 where that
is exact, or by a key that orders as the numbers do. Nothing is ever rounded.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tartan._native import read_decimals, survey_decimals

_NUMBER = r"^[+-]?(?P<whole>[0-9]*)\.?(?P<part>[0-9]*)(?:[eE](?:\+|(?P<down>-))?0*(?P<power>[0-9]{1,15}))?$"
_INFINITE = r"(?i)^[+-]?inf(?:inity)?$"
_NAN = r"(?i)^[+-]?nan$"
# Two decimals of 15 digits never round to one float64 (DBL_DIG), as long as they are normal numbers.
# By arithmetic: DBL_DIG of IEEE 754, as said above.
_FLOAT_DIGITS = 15
# By arithmetic: float64 has normal numbers from 1e-307 to 1e308; 15 digits more to each side stay there.
_FLOAT_POWER = 290
# Added to exponents, which have 15 digits at most: sums are exact in float64, and their sign is that of the number.
# By arithmetic: see above; 10**15 is below 2**50.
_MIDDLE = 2.0**51
_TEXT = pa.large_string()


@dataclass(frozen=True)
class NumberFacts:
    """What a column of numbers holds.

    Attributes
    ----------
    all_whole : bool
        Whether int64 holds every value.
    all_short : bool
        Whether unlike values are unlike float64, too.
    n_digits : int
        Most digits of a value, without zeros in front and behind.
    """

    all_whole: bool = True
    all_short: bool = True
    n_digits: int = 0

    def __or__(self, other: NumberFacts) -> NumberFacts:
        """Return what two columns hold together."""
        return NumberFacts(
            self.all_whole and other.all_whole,
            self.all_short and other.all_short,
            max(self.n_digits, other.n_digits),
        )

    @property
    def kind(self) -> pa.DataType:
        """Type that is compared: int64, float64, or bytes of digits behind a float64."""
        if self.all_whole:
            return pa.int64()
        return pa.float64() if self.all_short else pa.binary(max(1, -(-self.n_digits // 2)))


def facts_of(column: pa.Array) -> NumberFacts | None:
    """Return what numbers a column of text holds; None if a value is none. Empty values count as missing.

    A number is written in decimal digits, with a sign, a point and an exponent of up to 15 digits if wanted, or is
    ``inf``, ``infinity`` or ``nan`` in any case. White space around it is ignored.
    """
    plain = survey_decimals(*buffers_of(column))
    if plain is not None:
        all_whole, largest, n_digits = plain
        if all_whole:
            return NumberFacts(all_short=largest < 10**_FLOAT_DIGITS, n_digits=len(str(largest)))
        return NumberFacts(False, n_digits <= _FLOAT_DIGITS, n_digits)
    texts = _trim(column)
    if texts is None:
        return None
    whole = _whole(texts)
    if whole is not None:
        largest = max((abs(value) for value in pc.min_max(whole).as_py().values() if value is not None), default=0)
        return NumberFacts(all_short=largest < 10**_FLOAT_DIGITS, n_digits=len(str(largest)))
    parsed = _Parsed(texts)
    if not parsed.is_number.all():
        return None
    n_digits = int(parsed.lengths.max(initial=0))
    far = np.abs(parsed.power[parsed.lengths > 0]).max(initial=0)
    return NumberFacts(False, n_digits <= _FLOAT_DIGITS and bool(far <= _FLOAT_POWER), n_digits)


def buffers_of(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets of large_binary, (n + 1,), and the bytes that they lie in; a value that is null is empty."""
    if column.null_count:
        column = pc.fill_null(column, b"")
    offsets = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, 8 * column.offset)
    data = column.buffers()[2]
    return offsets, np.frombuffer(data if data is not None else b"", np.uint8)


def first_text(column: pa.Array) -> tuple[int, str]:
    """Return row and value of the first text that is not a number."""
    for row in range(len(column)):
        if facts_of(column.slice(row, 1)) is None:
            return row, column[row].as_py().decode("utf-8", "replace")[:40]
    raise AssertionError("all values are numbers")


def keys_of(column: pa.Array, kind: pa.DataType, *, total_order: bool) -> list[pa.Array]:
    """Return the columns by which numbers are compared, the most significant first; a missing value is null.

    Parameters
    ----------
    column : pyarrow.Array
        Texts that are numbers.
    kind : pyarrow.DataType
        As ``NumberFacts`` says for all blocks of the column.
    total_order : bool
        Whether -0 comes before 0.
    """
    if pa.types.is_int64(kind) or pa.types.is_float64(kind):
        plain = read_decimals(*buffers_of(column), pa.types.is_int64(kind))
        if plain is not None:
            missing = pc.fill_null(pc.equal(pc.binary_length(column), 0), True).to_numpy(zero_copy_only=False)
            return [pa.array(plain, mask=missing if missing.any() else None)]
    texts = _trim(column)
    assert texts is not None, "the column holds numbers"
    if pa.types.is_int64(kind):
        return [texts.cast(kind)]
    if pa.types.is_float64(kind):
        return [_floats(texts.cast(kind).to_numpy(zero_copy_only=False), texts, total_order)]
    parsed = _Parsed(texts)
    return [_floats(parsed.magnitudes(), texts, total_order), parsed.digits_in(kind.byte_width)]


def _trim(column: pa.Array) -> pa.Array | None:
    """Return texts without white space around them, and null for empty ones; None if one is not UTF-8."""
    try:
        texts = pc.utf8_trim_whitespace(column.cast(_TEXT))
    except pa.ArrowInvalid:
        return None
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, _TEXT), texts)


def _whole(texts: pa.Array) -> pa.Array | None:
    """Return texts as int64, if all are such numbers; hexadecimal ones, which Arrow reads too, and -0 are not."""
    with contextlib.suppress(pa.ArrowInvalid):
        found = texts.cast(pa.int64())
        zeros = texts.filter(pc.equal(found, 0))
        odd = pc.or_(pc.match_substring(texts, "x", ignore_case=True), False)
        if not pc.any(odd).as_py() and not pc.any(pc.starts_with(zeros, "-")).as_py():
            return found
    return None


def _floats(values: np.ndarray, texts: pa.Array, total_order: bool) -> pa.Array:
    """Return keys in which there is one NaN and, unless the order is total, one zero."""
    # NaNs have many bit patterns; -0.0 + 0.0 is 0.0, and all else stays what it is.
    canonical = np.where(np.isnan(values), np.nan, values if total_order else values + 0.0)
    return pa.array(canonical, mask=texts.is_null().to_numpy(zero_copy_only=False))


class _Parsed:
    """Texts taken apart: a number is ``0.DIGITS`` times ten to its power.

    Attributes
    ----------
    is_number : numpy.ndarray of bool, (n,)
        Also where the value is missing.
    power, lengths : numpy.ndarray of int64, (n,)
        Exponents, and numbers of digits without zeros in front and behind.
    """

    def __init__(self, texts: pa.Array) -> None:
        filled = pc.fill_null(texts, "0")
        found = pc.extract_regex(filled, _NUMBER)
        part = {field.name: pc.fill_null(values, "") for field, values in zip(found.type, found.flatten(), strict=True)}
        joined = pc.binary_join_element_wise(part["whole"], part["part"], pa.scalar("", _TEXT))
        digits = pc.ascii_ltrim(joined, "0")
        zeros = _lengths(joined) - _lengths(digits)
        powers = _numbers_of(part["power"])
        self.power = np.where(_true(pc.equal(part["down"], "-")), -powers, powers) + _lengths(part["whole"]) - zeros
        self._digits = pc.ascii_rtrim(digits, "0")
        self.lengths = _lengths(self._digits)
        self._negative = _true(pc.starts_with(filled, "-"))
        self._infinite = _true(pc.match_substring_regex(filled, _INFINITE))
        self._nan = _true(pc.match_substring_regex(filled, _NAN))
        self.is_number = (_lengths(joined) > 0) | self._infinite | self._nan

    def magnitudes(self) -> np.ndarray:
        """Return float64 that order numbers by sign and power alone: zeros, infinities and NaN are themselves."""
        found = np.where(self.lengths > 0, _MIDDLE + self.power, 0.0)
        found[self._infinite] = np.inf
        found[self._nan] = np.nan
        return np.where(self._negative, -found, found)

    def digits_in(self, width: int) -> pa.Array:
        """Return the digits, two in a byte, which order numbers of one sign and power."""
        padded = np.zeros((len(self.lengths), 2 * width), np.uint8)
        padded[np.arange(2 * width) < self.lengths[:, None]] = _read_content(self._digits) - ord("0")
        packed = padded[:, ::2] * 10 + padded[:, 1::2]
        below = self._negative & (self.lengths > 0)
        packed[below] = 255 - packed[below]
        return pa.Array.from_buffers(pa.binary(width), len(packed), [None, pa.py_buffer(packed)])


def _read_content(texts: pa.Array) -> np.ndarray:
    """Return the bytes of all texts, one after the other."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, 8 * texts.offset)
    data = texts.buffers()[2]
    whole = np.frombuffer(data if data is not None else b"", np.uint8)
    return whole[offsets[0] : offsets[-1]]


def _numbers_of(texts: pa.Array) -> np.ndarray:
    return _values(pc.if_else(pc.equal(texts, ""), "0", texts).cast(pa.int64()))


def _lengths(texts: pa.Array) -> np.ndarray:
    return _values(pc.binary_length(texts)).astype(np.int64)


def _true(flags: pa.Array) -> np.ndarray:
    return _values(flags).astype(bool)


def _values(array: pa.Array) -> np.ndarray:
    values: np.ndarray = array.to_numpy(zero_copy_only=False)
    return values
