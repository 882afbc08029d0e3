"""Tell proteins from what else a FASTA file may hold: DNA, alignments, numbered lines."""

from __future__ import annotations

import gzip
import io
import re
import string
from typing import Final

_GZIP: Final = b"\x1f\x8b"
_PIECE: Final = 1 << 20
_BEFORE_HEADERS: Final = b"\xef\xbb\xbf \t"
_NO_LETTERS: Final = bytes(set(range(256)) - set(string.ascii_letters.encode()))
_BASES: Final = b"ACGTUNacgtun"
_ODD: Final = re.compile(rb"[-0-9]")
#: Share of A, C, G, T, U, N among the letters from which a file is DNA or RNA; in proteomes it is near 0.3.
_DNA: Final = 0.9


def find_no_protein(data: bytes) -> str | None:
    """Say why the sequences of a FASTA file, plain or gzip and known to be sound, are no proteins; None if they are."""
    letters = bases = n_lines = 0
    with gzip.GzipFile(fileobj=io.BytesIO(data)) if data.startswith(_GZIP) else io.BytesIO(data) as stream:
        while lines := stream.readlines(_PIECE):
            sequences = [b"" if line.lstrip(_BEFORE_HEADERS).startswith(b">") else line for line in lines]
            text = b"".join(sequences)
            if _ODD.search(text):
                return _describe_odd(sequences, n_lines)
            known = text.translate(None, _NO_LETTERS)
            letters += len(known)
            bases += len(known) - len(known.translate(None, _BASES))
            n_lines += len(lines)
    if bases == 0 or bases < _DNA * letters:
        return None
    return (
        f"{bases / letters:.0%} of its {letters:,} letters are A, C, G, T, U or N: this is DNA or RNA, and phylogeny "
        "compares proteins; give the proteins of its genes (translated, as gene finders such as Prodigal write them)"
    )


def _describe_odd(sequences: list[bytes], n_before: int) -> str:
    """Name the first character that is no letter of a protein."""
    line, found = next((at, odd[0]) for at, text in enumerate(sequences, n_before + 1) if (odd := _ODD.search(text)))
    kind = "a gap of an alignment" if found == b"-" else "a digit"
    return (
        f"line {line} holds {found.decode()!r}, {kind}, within a sequence; remove comments, gaps and digits: "
        "sed -e '/^;/d' -e '/^>/!s/[-0-9]//g' FILE > NEW (of a file in gzip, what zcat gives)"
    )
