"""Tables of localisations: columns of text under a header, as programs of the field write them.

Sources, read in their repositories: ThunderSTORM, ``DLMImportExport.java`` and ``MoleculeDescriptor.java`` (headers
such as ``"x [nm]"``, ``"uncertainty_xy [nm]"``; ``id`` numbers localisations; "Infinity" and "NaN"). SMAP,
``saveLocalizationsCSV.m``, ``export_coordinates.m`` and ``Sitenumbers2loc.m`` (``xnm``, ``ynm``, ``znm``,
``locprecnm``; ``sitenumbers``). DECODE, ``save_csv`` and ``load_csv`` (lines of ``#``, the third with ``xy_unit``;
``x_sig``, ``y_sig``). Picasso, ``docs/table01.csv`` (``lpx``, ``lpy`` and ``group``, in camera pixels; z in nm).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.apps.microscopy.localisations import Localisations, require_flat

# By judgement: a point is tens of characters; a bound against strangers' files.
_MOST_LINE = 1 << 16

_UNIT: Final = re.compile(r"(?:\s*[\[(]\s*|_)(nm|px|um|µm|pixels?)\s*[\])]?$")
_SAME_UNIT: Final = {"µm": "um", "pixel": "px", "pixels": "px"}
#: Names of SMAP, which say their unit without a mark.
_OF_SMAP: Final = {"xnm": ("x", "nm"), "ynm": ("y", "nm"), "znm": ("z", "nm"), "locprecnm": ("locprec", "nm")}
_UNIT_NAMES: Final = {"nm": "nanometres", "px": "pixels", "um": "micrometres"}
#: What names an uncertainty of x and y, each as one or two columns.
_UNCERTAINTY: Final = (("uncertainty",), ("uncertainty_xy",), ("locprec",), ("lpx", "lpy"), ("x_sig", "y_sig"))
_SIGMA: Final = ("sigma",)
_OF_UNCERTAINTIES: Final = ("uncertaint", "precision", "locprec", "lpx", "lpy")
_OF_Z: Final = ("uncertainty_z", "locprecz", "lpz", "z_sig", "zprecision", "precisionz")
#: Columns of ThunderSTORM that say that sigma is the width of the spot.
_OF_SPOTS: Final = ("intensity", "offset", "bkgstd", "chi2")
_PARTICLE: Final = ("particle", "group", "sitenumbers", "siteid", "site")
#: Column that SMAP's plugin Sitenumbers2loc adds: 0 where a localisation lies in no site.
_SITES: Final = "sitenumbers"
_MISSING: Final = ("", "na", "n/a", "null", "none")
_EXPECTED: Final = "expected a header: x,y,sigma"


@dataclass(frozen=True)
class _TableColumn:
    """A column of a table by its place, with the name as it stands and without its unit."""

    place: int
    shown: str
    name: str
    unit: str


@dataclass(frozen=True)
class TableColumns:
    """Which columns of a table are meant.

    Attributes
    ----------
    x, y : int
        Places of coordinates.
    uncertainty : tuple of int
        Places of one or two columns.
    z, particle : int or None
        Places, where the table has them.
    has_outside : bool
        Whether the particle 0 stands for none.
    unit : str
        nm, px or um; "" where no column says it.
    facts : mapping of str to str
        What to say of the choice.
    """

    x: int
    y: int
    uncertainty: tuple[int, ...]
    z: int | None
    particle: int | None
    has_outside: bool
    unit: str
    facts: Mapping[str, str]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Places of all columns of numbers: x, y, the uncertainties, and z where there is one."""
        return (self.x, self.y, *self.uncertainty, *(() if self.z is None else (self.z,)))


def choose_columns(header: Sequence[str]) -> TableColumns:
    """Return which columns of a table are meant.

    Parameters
    ----------
    header : sequence of str
        Names as they stand in the file.

    Raises
    ------
    ValueError
        If one is missing, several could be meant, or their units differ.
    """
    columns = [_column(place, name) for place, name in enumerate(header)]
    x, y = (_only(columns, name) for name in ("x", "y"))
    if x is None or y is None:
        listed = ", ".join(column.shown for column in columns[:6])
        missing = "x" if x is None else "y"
        raise ValueError(f"its first line is {listed[:80]!r}, without a column {missing!r}; {_EXPECTED}")
    chosen = _choose_uncertainty(columns)
    unit = _require_one_unit([x, y, *chosen])
    z, particle = _only(columns, "z"), _choose_particle(columns)
    shown = " and ".join(column.shown for column in chosen)
    plain = len(chosen) == 1 and shown in (*_SIGMA, "uncertainty")  # nothing to say: no other could be meant
    return TableColumns(
        x.place,
        y.place,
        tuple(column.place for column in chosen),
        None if z is None else z.place,
        None if particle is None else particle.place,
        particle is not None and particle.name == _SITES,
        unit,
        {} if plain else {"uncertainties": f"{shown}, root mean square" if len(chosen) > 1 else shown},
    )


def particles_of(
    chosen: TableColumns, rows: NDArray[np.float64], names: NDArray[Any] | None, facts: Mapping[str, str], flat: bool
) -> list[Localisations | str]:
    """Return the particles of a table, in the order in which they appear; or why one cannot be read.

    Parameters
    ----------
    chosen : TableColumns
    rows : float64 array (n, c)
        The columns ``chosen.numbers``.
    names : array (n,) or None
        The particle of each row.
    facts : mapping of str to str
        What to say of each particle.
    flat : bool
        Whether z is left out.
    """
    if chosen.has_outside and names is not None:
        rows, names, facts = _leave_out_outside(rows, names, facts)
    n_uncertainties = len(chosen.uncertainty)
    widths = rows[:, 2 : 2 + n_uncertainties]
    sigma = widths[:, 0] if n_uncertainties == 1 else np.sqrt(np.square(widths).mean(axis=1))
    points = np.column_stack([rows[:, :2], sigma])
    found: list[Localisations | str] = []
    for members in _members(names, len(rows)):
        try:
            more = {} if chosen.z is None else require_flat(rows[members, -1], flat)
        except ValueError as error:
            found.append(str(error))
        else:
            found.append(Localisations(points[members], {**facts, **chosen.facts, **more}))
    return found


def _leave_out_outside(
    rows: NDArray[np.float64], names: NDArray[Any], facts: Mapping[str, str]
) -> tuple[NDArray[np.float64], NDArray[Any], Mapping[str, str]]:
    """Leave out what lies in no site, which a table says by 0."""
    try:
        inside = names.astype(np.float64) != 0
    except ValueError:
        raise ValueError(f"its column {_SITES!r} holds something else than numbers of sites") from None
    if not inside.any():
        raise ValueError(f"its column {_SITES!r} is 0 everywhere: no localisation lies in a site")
    if inside.all():
        return rows, names, facts
    n_outside = np.count_nonzero(~inside)
    return rows[inside], names[inside], {**facts, "in no site": f"{n_outside:,} of {len(inside):,} localisations"}


def read_table(data: bytes, flat: bool) -> list[Localisations | str]:
    """Read a table of text in UTF-8: separated by commas, semicolons or tabs, with decimal points or commas.

    Raises
    ------
    ValueError
        If it is none, or which of its columns are meant is not clear.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is neither MAT, JSON, HDF5 nor a table in UTF-8 or UTF-16") from None
    if not text.strip():
        raise ValueError("it is empty; a CSV of points has a header: x,y,sigma")
    remarks, first = _skip_remarks(text)
    header = next(io.StringIO(text[first:]), "")
    separator = next((mark for mark in "\t;" if mark in header), ",")
    try:
        reader = csv.reader(_lines(text[first:], remarks), delimiter=separator, strict=True)
        rows = [(reader.line_num + remarks, row) for row in reader if row]
    except csv.Error as error:
        raise ValueError(f"it is not CSV: {error}") from None
    if not rows:
        raise ValueError("it has remarks and no header; a table of points has one: x,y,sigma")
    names = rows.pop(0)[1]
    chosen = choose_columns(names)
    if not rows:
        raise ValueError("it has a header and no points")
    try:
        values = np.column_stack([list(map(float, [row[place] for _, row in rows])) for place in chosen.numbers])
    except (ValueError, IndexError):  # a decimal comma, an uncertainty that is missing, or what is to be refused
        values = _read_numbers(chosen, rows, comma=separator != ",")
    unit = chosen.unit or _unit_of_decode(text[:first])
    facts = {"unit": _UNIT_NAMES[unit]} if unit else {}
    return particles_of(chosen, values, _names(chosen, names, rows), facts, flat)


def _column(place: int, shown: str) -> _TableColumn:
    shown = shown.strip()
    name = shown.lower()
    if name in _OF_SMAP:
        return _TableColumn(place, shown, *_OF_SMAP[name])
    unit = _UNIT.search(name)
    if unit is None:
        return _TableColumn(place, shown, name, "")
    return _TableColumn(place, shown, name[: unit.start()], _SAME_UNIT.get(unit[1], unit[1]))


def _only(columns: Sequence[_TableColumn], name: str) -> _TableColumn | None:
    """Return the column of a name, None where there is none; two of it are refused."""
    found = [column for column in columns if column.name == name]
    if len(found) > 1:
        raise _two(found[0].shown, found[1].shown, name)
    return found[0] if found else None


def _two(one: str, other: str, name: str) -> ValueError:
    return ValueError(f"{one[:60]!r} and {other[:60]!r} could both be meant by {name}; leave one of them out")


def _choose_uncertainty(columns: Sequence[_TableColumn]) -> list[_TableColumn]:
    """Return the columns of uncertainties, and refuse to take sigma for them where it may be the width of the spot."""
    found: list[list[_TableColumn]] = []
    for names in _UNCERTAINTY:
        there = [column for column in (_only(columns, name) for name in names) if column is not None]
        if len(there) == len(names):
            found.append(there)
        elif there:
            lacking = next(name for name in names if name != there[0].name)
            raise ValueError(f"it has {there[0].shown!r} without {lacking!r}; keep both, or name one 'uncertainty'")
    if len(found) > 1:
        raise _two(found[0][0].shown, found[1][0].shown, "the uncertainty")
    if found:
        return found[0]
    sigma = _only(columns, *_SIGMA)
    other = next((one for one in columns if _is_uncertainty(one)), None)
    rename = "rename the column that holds the uncertainty of x and y to 'uncertainty'"
    if sigma is not None and other is not None:
        raise ValueError(
            f"it has {sigma.shown!r}, which may be the width of the spot, and {other.shown[:60]!r}; {rename}"
        )
    spot = next((one for one in columns if one.name.startswith(_OF_SPOTS)), None)
    if sigma is not None and spot is not None:
        raise ValueError(
            f"{sigma.shown!r} beside {spot.shown!r} is the width of the spot, as ThunderSTORM writes it; export the "
            f"uncertainty, too, or {rename}"
        )
    if sigma is None:
        hint = f"; {other.shown[:60]!r} may be meant: {rename}" if other is not None else f"; {_EXPECTED}"
        listed = ", ".join(column.shown for column in columns[:6])
        raise ValueError(f"its first line is {listed[:80]!r}, without a column 'uncertainty' or 'sigma'{hint}")
    return [sigma]


def _is_uncertainty(column: _TableColumn) -> bool:
    return any(word in column.name for word in _OF_UNCERTAINTIES) and not column.name.startswith(_OF_Z)


def _require_one_unit(columns: Sequence[_TableColumn]) -> str:
    """Return the unit that columns say, "" where none does; those of Picasso are in pixels without saying so."""
    said = {column.unit or ("px" if column.name in ("lpx", "lpy") else "") for column in columns} - {""}
    if len(said) > 1:
        named = ", ".join(column.shown for column in columns)
        units = " and in ".join(_UNIT_NAMES[unit] for unit in sorted(said))
        raise ValueError(f"its columns {named} are in {units}; convert them to one unit")
    return said.pop() if said else ""


def _choose_particle(columns: Sequence[_TableColumn]) -> _TableColumn | None:
    """Return the column that names the particle of a localisation: ``particle``, or what a program writes."""
    found = [column for column in (_only(columns, name) for name in _PARTICLE) if column is not None]
    if len(found) > 1 and found[0].name != _PARTICLE[0]:
        raise _two(found[0].shown, found[1].shown, "the particle")
    return found[0] if found else None


def _members(names: NDArray[Any] | None, n: int) -> Iterator[Any]:
    """Yield the rows of each particle, in the order in which these appear."""
    if names is None:
        yield slice(0, n)
        return
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(inverse))[:-1])
    yield from (groups[at] for at in np.argsort(first))


def _names(
    chosen: TableColumns, header: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]]
) -> NDArray[np.str_] | None:
    """Return the particle of each row; None where all are one."""
    if chosen.particle is None:
        _refuse_repeated_ids(header, rows)
        return None
    names = [_cell(row, chosen.particle, line) for line, row in rows]
    empty = next(
        (line for (line, _), name in zip(rows, names, strict=True) if name.lower() in (*_MISSING, "nan")), None
    )
    if empty is not None:
        shown = header[chosen.particle].strip()
        raise ValueError(f"line {empty} has no value in the column {shown!r}; leave out what belongs to no particle")
    return np.array(names)


def _refuse_repeated_ids(header: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]]) -> None:
    """Refuse a column ``id`` whose values repeat: it numbers localisations, and each once, if it is ThunderSTORM's."""
    place = next((at for at, name in enumerate(header) if name.strip().lower() == "id"), None)
    if place is None:
        return
    values = {_cell(row, place, line) for line, row in rows}
    if 1 < len(values) < len(rows):
        raise ValueError(
            f"its column {header[place].strip()!r} repeats values ({len(values):,} in {len(rows):,} lines): rename it "
            "to 'particle' if it names particles; leave it out if it numbers localisations of tables that were joined, "
            "and add a column 'particle' then"
        )


def _skip_remarks(text: str) -> tuple[int, int]:
    """Return how many lines stand before the header, which begin with ``#`` or are empty, and its place."""
    n_lines = place = 0
    for line in io.StringIO(text, newline=""):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        n_lines, place = n_lines + 1, place + len(line)
    return n_lines, place


def _unit_of_decode(remarks: str) -> str:
    """Return the unit that DECODE says in its remarks, "" where it says none."""
    found = re.search(r'"xy_unit":\s*"(nm|px)"', remarks)
    return "" if found is None else found[1]


def _lines(text: str, before: int) -> Iterator[str]:
    """Yield the lines of a table; cells by the million are not points, and take much more memory than the file."""
    for number, line in enumerate(io.StringIO(text), before + 1):
        if len(line) > _MOST_LINE:
            raise ValueError(f"line {number} has {len(line):,} characters, above {_MOST_LINE:,}; write a line a point")
        yield line


def _cell(row: Sequence[str], place: int, line: int) -> str:
    if place >= len(row):
        raise ValueError(f"line {line} has {len(row)} values, fewer than the header")
    return row[place].strip()


def _read_numbers(
    chosen: TableColumns, rows: Sequence[tuple[int, Sequence[str]]], *, comma: bool
) -> NDArray[np.float64]:
    """Return the columns of numbers (n, c), cell by cell."""
    numbers = _Numbers(comma=comma)
    return np.array(
        [
            [numbers.read(_cell(row, place, line), line, place in chosen.uncertainty) for place in chosen.numbers]
            for line, row in rows
        ],
        np.float64,
    )


class _Numbers:
    """Numbers of a table, which are written with a decimal point or with a decimal comma, not with both."""

    def __init__(self, *, comma: bool) -> None:
        self._marks = ".," if comma else "."
        self._seen = ""

    def read(self, text: str, line: int, may_be_missing: bool) -> float:
        """Return a number; NaN where an uncertainty is missing."""
        mark = next((one for one in self._marks if one in text), "")
        if mark:
            self._seen = self._seen or mark
            if mark != self._seen or (mark == "." and "," in text):
                raise ValueError(
                    f"line {line}: {text[:40]!r} has a decimal {'comma' if mark == ',' else 'point'} where other "
                    "numbers have the other mark; write all with points, and no mark of thousands"
                )
        try:
            return float(text.replace(",", ".") if mark == "," else text)
        except ValueError:
            if may_be_missing and text.lower() in _MISSING:
                return float("nan")
            raise ValueError(f"line {line}: {text[:40]!r} is not a number") from None
