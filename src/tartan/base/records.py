"""Records of FASTA files, as files of their own."""

from __future__ import annotations

import re

from tartan.base.keys import distinguish
from tartan.errors import ConfigError

#: What stands between the name of a file and that of an item in it.
PART = "#"
#: What one item of an application that reads sequences is.
EACH = ("file", "record")
_BEGIN = re.compile(rb"(?:\A|(?<=[\r\n]))[ \t]*>")
_MOST_NAME_BYTES = 200  # By judgement: more than any accession, less than a file name may have.


def check_each(each: str) -> None:
    """Refuse what is none of ``EACH``."""
    if each not in EACH:
        raise ConfigError(f"each: {each!r} is neither file nor record", context={"each": each})


def split_records(data: bytes) -> dict[str, bytes]:
    """Return the records of a FASTA text by name: the first word behind ``>``, numbered where it comes again.

    Parameters
    ----------
    data : bytes
        The text, not compressed.

    Raises
    ------
    ValueError
        If it is empty, or does not begin with a record.

    Examples
    --------
    >>> split_records(b">a one\\nACGT\\n>b\\nGG\\n>a\\nTT")
    {'a': b'>a one\\nACGT\\n', 'b': b'>b\\nGG\\n', 'a_2': b'>a\\nTT'}
    """
    text = data.removeprefix(b"\xef\xbb\xbf")
    starts = [found.start() for found in _BEGIN.finditer(text)]
    if not text.strip():
        raise ValueError("the file is empty")
    if not starts or text[: starts[0]].strip():
        raise ValueError("it does not begin with a '>' record, and only FASTA has records that are items")
    records = [text[start:end].lstrip(b" \t") for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    return dict(zip(distinguish(map(_read_name, records)), records, strict=True))


def _read_name(record: bytes) -> str:
    words = re.split(rb"[\r\n]", record, maxsplit=1)[0][1:].split()
    return words[0][:_MOST_NAME_BYTES].decode("utf-8", "backslashreplace") if words else ""
