"""Print values as text, and find the type of a column of text that prints every value of it as it stands.

A type that would print 7 for ``007``, or 1.5 for ``1.50``, is none. ``TRUE``, ``+1``, ``NaN`` and times stay text.
Floats are printed with the fewest digits that read back exactly, in one of two ways: as Python does (``1.0``,
``1e-05``) or, where the field says ``short``, as Arrow does (``1``, ``0.00001``) but plain below 1e15.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tartan.errors import ConfigError

_TEXT = pa.large_string()
_SHORT = {b"tartan.floats": b"short"}
# By convention of repr(float): exponents below 1e-4 and from 1e16. Arrow prints them from 1e10
# on, which few writers of tables do (10000000000.5): short floats are plain up to the 15 digits that all doubles have.
_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e15
# Years from 1 to 9999: others are out of the range of many programs, or read as texts.
_FOUND = r"^((000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})-\d\d-\d\d|\d\d:\d\d:\d\d)"


class TextType(NamedTuple):
    """A type that prints its values as a column of text has them.

    Attributes
    ----------
    kind : pyarrow.DataType
    short : bool
        Whether floats are printed without a point where they are whole.
    """

    kind: pa.DataType
    short: bool = False

    def field(self, name: str) -> pa.Field:
        """Return the field of a column of this type."""
        return pa.field(name, self.kind, metadata=_SHORT if self.short else None)


def find_exact_types(column: pa.Array, known: tuple[TextType, ...] | None) -> tuple[TextType, ...] | None:
    """Return the types that print every value of a column as it stands, the preferred one first; () if it is text.

    Parameters
    ----------
    column : pyarrow.Array
        Texts; null where there is no value.
    known : tuple of TextType or None
        Types of the rows before; None if they had no value.

    Raises
    ------
    pyarrow.ArrowInvalid
        If a text is not UTF-8.
    """
    texts = column.cast(_TEXT).drop_null()
    if known == () or not len(texts):
        return known
    candidates = _candidates(texts[0].as_py()) if known is None else known
    return tuple(candidate for candidate in candidates if _prints(texts, candidate))


def common_type(found: list[tuple[TextType, ...] | None]) -> TextType:
    """Return the type of a column of several files: the first that all have; text if there is none, or no value."""
    known = [types for types in found if types is not None]
    shared = [one for one in known[0] if all(one in types for types in known)] if known else []
    return shared[0] if shared else TextType(pa.string())


def parse_texts(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts as values of their type."""
    return column.cast(_TEXT).cast(kind)


def _candidates(text: str) -> tuple[TextType, ...]:
    """Return the types that a column with this value may have."""
    scale = len(text.partition(".")[2])
    decimals = [pa.decimal128(digits, scale) for digits in (18, 38) if scale <= digits]
    floats = (TextType(pa.float64()), TextType(pa.float64(), short=True))
    others = (TextType(kind) for kind in (*decimals, pa.date32(), pa.bool_()))
    return (TextType(pa.int64()), *floats, *others)


def _prints(texts: pa.Array, candidate: TextType) -> bool:
    try:
        values = texts.cast(candidate.kind)
    except pa.ArrowInvalid:
        return False
    if pa.types.is_floating(values.type) and not pc.all(pc.is_finite(values)).as_py():
        return False
    return (
        bool(print_values(values, short=candidate.short).equals(texts))
        and first_out_of_range(texts, values.type) is None
    )


def is_short(field: pa.Field) -> bool:
    """Tell whether a column of floats is printed without a point where they are whole."""
    return (field.metadata or {}).items() >= _SHORT.items()


def print_values(column: pa.Array, *, short: bool = False) -> pa.Array:
    """Return values as texts (large_string) that read back exactly; null stays null, times with a zone become UTC."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return print_values(column.storage)
    if pa.types.is_dictionary(kind):
        return print_values(column.dictionary, short=short).take(column.indices)
    if pa.types.is_floating(kind):
        return _print_floats(column, short)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    texts = column.cast(_TEXT)
    return _replace(texts, pc.match_substring(texts, "E"), column) if pa.types.is_decimal(kind) else texts


def _print_floats(column: pa.Array, short: bool) -> pa.Array:
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    texts = column.cast(_TEXT)
    size = pc.abs(column)
    exponents = pc.match_substring(texts, "e")
    if short:
        plain = pc.and_(pc.greater(size, 1), pc.less(size, _MOST_PLAIN))
        return pc.replace_substring_regex(_replace(texts, pc.and_(exponents, plain), column), r"\.0$", "")
    tiny = pc.and_(pc.less(size, _LEAST_PLAIN), pc.greater(size, 0))
    texts = _replace(texts, pc.or_(tiny, exponents), column)
    whole = pc.match_substring_regex(texts, "^-?[0-9]+$")
    return pc.if_else(whole, pc.binary_join_element_wise(texts, pa.scalar(".0", _TEXT), pa.scalar("", _TEXT)), texts)


def _replace(texts: pa.Array, where: pa.Array, values: pa.Array) -> pa.Array:
    """Return texts of which some, few ones, are printed by Python: decimals without exponents, floats with them."""
    where = pc.fill_null(where, False)
    if not pc.any(where).as_py():
        return texts
    some = values.filter(where)
    new = (
        [f"{value:f}" for value in some.to_pylist()] if pa.types.is_decimal(values.type) else map(str, some.to_numpy())
    )
    return pc.replace_with_mask(texts, where, pa.array(list(new), _TEXT))


def refuse_unprintable_type(field: pa.Field, what: str) -> None:
    """Refuse a column whose values have no text that reads back as the same.

    Raises
    ------
    ConfigError
    """
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    known = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_boolean, pa.types.is_integer,
        pa.types.is_floating, pa.types.is_decimal, pa.types.is_date, pa.types.is_time, pa.types.is_timestamp,
        pa.types.is_null,
    )  # fmt: skip
    is_own = isinstance(field.type, pa.BaseExtensionType)
    if not any(is_kind(kind) for is_kind in (known[:3] if is_own else known)):
        raise ConfigError(
            f"column {field.name!r} is {field.type}, which {what} has no text for; leave it out with `columns=`, or "
            "cast it first",
            context={"column": field.name, "type": str(field.type)},
        )


def first_out_of_range(texts: pa.Array, kind: pa.DataType) -> int | None:
    """Return the row of the first date or time that has no text, such as of the year 10,000; None if all have."""
    if not pa.types.is_temporal(kind):
        return None
    found = pc.index(pc.match_substring_regex(texts, _FOUND), False).as_py()
    return None if found < 0 else int(found)
