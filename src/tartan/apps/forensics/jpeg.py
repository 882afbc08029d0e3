"""Decode JPEG files as cameras write them: those whose rows are all there are taken, those cut short are not.

libjpeg-turbo warns of things that cost no pixel (fields of the scan header that a firmware fills wrongly, bytes behind
the last block, a missing end) and of others that do (a scan that ends early, whose rest it fills with grey). Its
strict mode refuses all of them. Here the first kind is undone in the bytes, by what the file format says, and the
file is decoded in strict mode again: what still warns has lost pixels.
"""

from __future__ import annotations

import re

import numpy as np

# By format: ITU T.81, table B.1.
_BASELINE, _EXTENDED, _SCAN, _END = 0xC0, 0xC1, 0xDA, b"\xff\xd9"
# By judgement: a firmware makes one kind of mistake; each undoing leaves fewer.
_MOST_REPAIRS = 4
_EXTRANEOUS = re.compile(r"(\d+) extraneous bytes before marker 0xd9")


def decode_jpeg(data: bytes, colours: str) -> np.ndarray:
    """Decode a JPEG file in full.

    Parameters
    ----------
    data : bytes
        The file.
    colours : {"GRAY", "RGB"}
        What to decode to.

    Returns
    -------
    uint8 array (h, w, 1) or (h, w, 3)

    Raises
    ------
    ValueError
        With the words of libjpeg-turbo, if it is damaged, or pixels are missing.

    Notes
    -----
    Undone are: spectral selection other than 0 to 63 in the scan of a sequential file (some Samsung firmware), bytes
    between the last block and the end marker, and a missing end marker. A progressive file without its end may lack
    whole scans, which nobody can tell, and is refused.
    """
    import simplejpeg

    for _ in range(_MOST_REPAIRS):
        try:
            return np.asarray(simplejpeg.decode_jpeg(data, colours, strict=True))
        except ValueError as error:
            mended = _undo(data, str(error))
            if mended is None:
                raise
            data = mended
    return np.asarray(simplejpeg.decode_jpeg(data, colours, strict=True))


def _undo(data: bytes, warning: str) -> bytes | None:
    """Return the file without what a warning is about; None where that may have cost pixels."""
    if "Invalid SOS parameters" in warning:
        return _reset_selection(data)
    extraneous = _EXTRANEOUS.search(warning)
    if extraneous is not None:
        end = data.rfind(_END)
        return data[: end - int(extraneous[1])] + data[end:]
    if "Premature end of JPEG file" in warning and _find_scan(data) is not None:
        # Where rows are missing too, the decoder now meets the end within the scan, and says so.
        return data + _END if not data.endswith(_END) else None
    return None


def _reset_selection(data: bytes) -> bytes | None:
    """Set the spectral selection of the scan of a sequential file to all 64 coefficients, which it always means."""
    at = _find_scan(data)
    if at is None:
        return None
    last = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return data[: last - 3] + bytes([0, 63, 0]) + data[last:]


def _find_scan(data: bytes) -> int | None:
    """Return where the header of the only scan of a sequential file begins; None for other files."""
    at, sequential = 2, False
    while at + 4 <= len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        if kind == _SCAN:
            return at if sequential and data.find(b"\xff\xda", at + 2) < 0 else None
        sequential = sequential or kind in (_BASELINE, _EXTENDED)
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
