"""How complete and how contaminated genomes are, from tables such as those of CheckM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tartan.base.keys import stems
from tartan.base.text_table import read_cells
from tartan.errors import ConfigError, ItemError

# By format: of CheckM, CheckM2 and dRep, in lower case.
_COMPLETENESS, _CONTAMINATION = "completeness", "contamination"
# By arithmetic.
_PERCENT = 100.0


@dataclass(frozen=True)
class Quality:
    """What a table says of genomes.

    Attributes
    ----------
    path : str
    known : dict of str to (float, float)
        By name: which share of the genome is there, above 0 and at most 1, and which share of the file is foreign,
        below 1.
    """

    path: str
    known: dict[str, tuple[float, float]]

    def of(self, key: str) -> tuple[float, float]:
        """Return the completeness and contamination of a genome, which the table names with or without suffixes.

        Raises
        ------
        ItemError
            If it does not name it.
        """
        name = key.rpartition("/")[2]
        for called in (key, name, stems([name])[0]):
            if called in self.known:
                return self.known[called]
        raise ItemError(f"{self.path} has no line for it; add one, with 100 for a genome that is complete")


def read_quality(path: str) -> Quality:
    """Read a CSV or TSV file whose first column names genomes and which has a column Completeness, in percent.

    A column Contamination is read where there is one.

    Raises
    ------
    ConfigError
        If it cannot be read, has no such column, or a number is none or out of range; the line is named.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise ConfigError(f"completeness: {path} is not a file; a run reads it again when it is resumed")
    rows = read_cells(path, "completeness is a CSV or TSV file, as CheckM writes it")
    header = [name.strip().lower() for name in rows[0]] if rows else []
    if _COMPLETENESS not in header[1:]:
        raise ConfigError(f"{path} has no column Completeness; it has {', '.join(header) or 'none'}")
    complete_at = header.index(_COMPLETENESS, 1)
    foreign_at = header.index(_CONTAMINATION, 1) if _CONTAMINATION in header[1:] else None
    known = {}
    for number, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        complete = _read_percent(path, number, row, complete_at, "Completeness")
        foreign = 0.0 if foreign_at is None else _read_percent(path, number, row, foreign_at, "Contamination")
        if not 0 < complete <= 1:
            raise ConfigError(
                f"{path}, line {number}: a completeness of {complete * _PERCENT:g} % is not within 0..100"
            )
        # CheckM counts more than 100 % of genes that are there several times.
        known[row[0].strip()] = (complete, min(foreign, 1 - 1 / _PERCENT))
    if not known:
        raise ConfigError(f"{path} names no genomes")
    return Quality(path, known)


def _read_percent(path: str, number: int, row: list[str], at: int, column: str) -> float:
    cell = row[at].strip() if at < len(row) else ""
    try:
        value = float(cell) / _PERCENT
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise ConfigError(f"{path}, line {number}: {cell!r} in the column {column} is not a percentage")
    return value
