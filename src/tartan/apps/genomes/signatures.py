"""Signatures of sourmash: read, and written so that it reads them.

A signature file is JSON, plain or gzip: a list of genomes, each with sketches of one or several k. A zip file holds
such files below ``signatures/``. Source: the formats that sourmash 4 writes.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import secrets
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.base.compressed import decompress
from tartan.base.files import whole_file
from tartan.base.keys import distinguish
from tartan.base.outputs import require_writable
from tartan.base.shared_counts import sort_hashes
from tartan.errors import ItemError

#: Files that signatures are written to.
SUFFIXES = (".sig", ".sig.gz", ".zip")
# By format of sourmash: columns of the table of a collection.
_MANIFEST = (
    "internal_location", "md5", "md5short", "ksize", "moltype", "num", "scaled", "n_hashes", "with_abundance", "name",
    "filename",
)  # fmt: skip
# By judgement: as in base/compressed.
_RATIO_FREE_BYTES = 16 << 20
_MINS = b'"mins"'
_BETWEEN = b", \t\r\n"
_DIGITS = b"0123456789" + _BETWEEN
#: Stands for hashes while JSON is read and written; no file has it.
_PLACE = secrets.token_hex(16).encode()
_ZIP_MARK = b"PK\x03\x04"
_HASH = "0.murmur64"
# By format: the version of signatures that sourmash 4 writes.
_VERSION = 0.4
#: What sketches are of where they are of DNA, in files of that version.
_DNA = ("dna", "DNA")
# By contract: the seed of sourmash, which other sketches cannot be compared with.
_SEED = 42


def max_hash(scaled: int) -> int:
    """Return the largest hash that a sketch keeps, one in ``scaled`` of all; computed in float64, as sourmash does."""
    return 2**64 - 1 if scaled == 1 else int(2.0**64 / scaled)


def is_signature(data: bytes) -> bool:
    """Whether a file holds signatures, by its first bytes."""
    return data.startswith(_ZIP_MARK) or data[:64].lstrip()[:1] in (b"[", b"{")


def open_signatures(data: bytes, k: int, scaled: int, max_bytes: int, max_ratio: int) -> dict[str, dict[str, Any]]:
    """Return the genomes of a file of signatures by name, as ``read_signature`` takes them.

    sourmash writes the sketches of one genome with several k as entries of one name: those that cannot be compared are
    left out where another one of the name can.

    Raises
    ------
    ValueError
        If the file is damaged or holds more than is allowed.
    """
    named: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for text in _texts(data, max_bytes, max_ratio):
        try:
            found = _load_json(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it begins like a file of signatures, and is not JSON: {error}") from error
        for one in found if isinstance(found, list) else [found]:
            if not isinstance(one, dict) or not isinstance(one.get("signatures"), list):
                raise ValueError("its JSON holds no signatures of sourmash")
            named.setdefault((str(one.get("name") or ""), str(one.get("filename") or "")), []).append(one)
    if not named:
        raise ValueError("it holds no signature of sourmash; unpack files of sequences first")
    genomes: list[tuple[str, dict[str, Any]]] = []
    for (name, filename), entries in named.items():
        whole = entries[0] | {"signatures": [sketch for one in entries for sketch in one["signatures"]]}
        fitting = [one for one in entries if _find_sketch(one, k, scaled)[0] is not None]
        genomes += [(name or filename, one) for one in fitting or [whole]]
    names = distinguish(name for name, _ in genomes)
    return {name: one for name, (_, one) in zip(names, genomes, strict=True)}


class _Hashes:
    """The text of the hashes of a sketch, between its brackets: JSON would make a Python number of each."""

    def __init__(self, text: bytes) -> None:
        self.text = text


def _load_json(text: bytes) -> Any:
    """Read JSON, with ``_Hashes`` for lists of digits that are called ``mins``."""
    # Within a text of JSON a quotation mark has a backslash before it: what is found is a name.
    pieces, found, at = [], list[bytes](), 0
    while (name := text.find(_MINS, at)) >= 0:
        begin = text.find(b"[", name)
        end = text.find(b"]", begin)
        if begin < 0 or end < 0:
            break
        hashes = text[begin + 1 : end]
        if text[name + len(_MINS) : begin].strip() == b":" and not hashes.translate(None, _DIGITS):
            pieces += [text[at:begin], b'"%s%d"' % (_PLACE, len(found))]
            found.append(hashes)
        else:
            pieces.append(text[at : end + 1])
        at = end + 1
    if not found:
        return json.loads(text)

    def put_back(entry: dict[str, Any]) -> dict[str, Any]:
        place = entry.get("mins")
        if isinstance(place, str) and place.startswith(_PLACE.decode()):
            entry["mins"] = _Hashes(found[int(place[len(_PLACE) :])])
        return entry

    pieces.append(text[at:])
    return json.loads(b"".join(pieces), object_hook=put_back)


def write_genome(genome: Mapping[str, Any]) -> bytes:
    """Return a genome of ``open_signatures`` as JSON."""
    found: list[bytes] = []

    def take(value: Any) -> str:
        assert isinstance(value, _Hashes)
        found.append(value.text)
        return f"{_PLACE.decode()}{len(found) - 1}"

    text = json.dumps(genome, default=take).encode()
    for place, hashes in enumerate(found):
        text = text.replace(b'"%s%d"' % (_PLACE, place), b"[%s]" % hashes, 1)
    return text


def _texts(data: bytes, max_bytes: int, max_ratio: int) -> Iterator[bytes]:
    """Yield the JSON texts of a file."""
    if not data.startswith(_ZIP_MARK):
        yield decompress(data, max_bytes, max_ratio)
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            left = max_bytes
            for name in archive.namelist():
                if not name.endswith((".sig", ".sig.gz")):
                    continue
                entry = archive.getinfo(name)
                if entry.file_size > max(_RATIO_FREE_BYTES, max_ratio * entry.compress_size):
                    raise ValueError(
                        f"{name} of the zip file holds {entry.file_size} bytes in {entry.compress_size}, above the "
                        f"ratio of {max_ratio} that is allowed; raise max_ratio if the file is genuine"
                    )
                with archive.open(entry) as file:
                    packed = file.read(left + 1)
                if len(packed) > left:
                    raise ValueError(f"it holds more than the limit of {max_bytes} bytes; raise max_bytes")
                text = decompress(packed, left, max_ratio)
                left -= len(text)
                yield text
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"the zip file is damaged: {error}; copy or download it again") from error


def read_signature(genome: Mapping[str, Any], k: int, scaled: int) -> NDArray[np.uint64]:
    """Return the hashes of the sketch with this k, those of a finer one up to ``scaled``.

    Parameters
    ----------
    genome : mapping
        One entry of a file of signatures.
    k, scaled : int
        Of the sketches that are compared.

    Returns
    -------
    array of shape (n,)
        uint64, in ascending order, each once.

    Raises
    ------
    ItemError
        If the genome has no such sketch; what it has is named.
    """
    sketch, reasons = _find_sketch(genome, k, scaled)
    if sketch is not None:
        return _hashes(sketch, max_hash(scaled))
    raise ItemError(
        f"no sketch with k={k} of DNA and scaled={scaled} or finer; it has {'; '.join(reasons) or 'none'}: set k and "
        "scaled to those, or sketch the genome anew"
    )


def _find_sketch(genome: Mapping[str, Any], k: int, scaled: int) -> tuple[Mapping[str, Any] | None, list[str]]:
    """Return the first sketch that can be compared, or why each of them cannot."""
    largest = max_hash(scaled)
    reasons = []
    for sketch in (one for one in genome["signatures"] if isinstance(one, dict)):
        molecule = str(sketch.get("molecule", "?"))
        own_max = sketch.get("max_hash", 0)
        about = f"k={sketch.get('ksize')}, {molecule}"
        if sketch.get("ksize") != k or molecule not in _DNA:
            reasons.append(about)
        elif sketch.get("seed", _SEED) != _SEED or genome.get("hash_function", _HASH) != _HASH:
            reasons.append(f"{about}, another hash function or seed")
        elif genome.get("version", _VERSION) != _VERSION:
            reasons.append(f"{about}, version {genome['version']} of the format in place of {_VERSION}")
        elif not isinstance(own_max, int) or own_max < largest:
            coarse = f"scaled={round(2.0**64 / own_max)}" if isinstance(own_max, int) and own_max > 0 else "num"
            reasons.append(f"{about}, {coarse}")
        else:
            return sketch, []
    return None, reasons


def _hashes(sketch: Mapping[str, Any], largest: int) -> NDArray[np.uint64]:
    mins = sketch.get("mins")
    try:
        hashes = _native.parse_hashes(mins.text if isinstance(mins, _Hashes) else json.dumps(mins)[1:-1].encode())
    except (TypeError, ValueError):
        hashes = None
    if hashes is None or not isinstance(mins, (_Hashes, list)):
        raise ItemError("the hashes of its sketch are not a list of whole numbers of 64 bits")
    ordered = bool((hashes[1:] > hashes[:-1]).all())
    if isinstance(mins, _Hashes) and ordered:
        text = mins.text.translate(None, _BETWEEN)
    else:
        text = "".join(map(str, np.sort(hashes).tolist())).encode()
    given = sketch.get("md5sum")
    if given is not None and given != _digest_text(text, int(sketch["ksize"])):
        raise ItemError(
            "the hashes of its sketch do not match its md5sum: the file was changed or damaged; take the one that "
            "sourmash wrote"
        )
    hashes = hashes if ordered else sort_hashes(hashes)
    return hashes[hashes <= np.uint64(largest)]


def write_signatures(genomes: Iterable[tuple[str, NDArray[np.uint64]]], k: int, scaled: int) -> bytes:
    """Return a file of signatures, JSON as sourmash writes it.

    Parameters
    ----------
    genomes : iterable of (str, array)
        Names, and hashes in ascending order.
    k, scaled : int
        Of the sketches.
    """
    return b"".join(_write_json(genomes, k, scaled))


def _write_json(genomes: Iterable[tuple[str, NDArray[np.uint64]]], k: int, scaled: int) -> Iterator[bytes]:
    before = b"["
    for name, hashes in genomes:
        yield before + json.dumps(_signature(name, hashes, k, scaled)).encode()
        before = b","
    yield b"]" if before == b"," else b"[]"


def save_signatures(
    path: Path, genomes: Iterable[tuple[str, NDArray[np.uint64]]], k: int, scaled: int, *, overwrite: bool = False
) -> Path:
    """Write genomes to a file of signatures, one after the other: ``.sig``, ``.sig.gz`` or ``.zip``.

    Parameters as of ``write_signatures``; the file is there when it is whole.

    Raises
    ------
    ConfigError
        If there is a file at ``path`` and ``overwrite`` is False, or it cannot be written.
    """
    require_writable(path, overwrite=overwrite)
    with whole_file(path) as unfinished:
        if path.suffix == ".zip":
            _save_zip(unfinished, genomes, k, scaled)
        else:
            with gzip.open(unfinished, "wb", 6) if path.suffix == ".gz" else unfinished.open("wb") as file:
                for text in _write_json(genomes, k, scaled):
                    file.write(text)
    return path


def _save_zip(path: Path, genomes: Iterable[tuple[str, NDArray[np.uint64]]], k: int, scaled: int) -> None:
    """Write a collection: a file for each signature, and the table by which sourmash finds them."""
    table = io.StringIO()
    table.write("# SOURMASH-MANIFEST-VERSION: 1.0\n")
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(_MANIFEST)
    written: set[str] = set()
    with zipfile.ZipFile(path, "w") as archive:
        for name, hashes in genomes:
            whole = _signature(name, hashes, k, scaled)
            md5 = whole["signatures"][0]["md5sum"]
            where = f"signatures/{md5}.sig.gz"
            if where in written:  # equal sketches of two genomes
                where = f"signatures/{md5}_{len(written)}.sig.gz"
            written.add(where)
            archive.writestr(where, gzip.compress(json.dumps([whole]).encode(), 6, mtime=0))
            rows.writerow([where, md5, md5[:8], k, "DNA", 0, scaled, len(hashes), False, name, name])
        archive.writestr("SOURMASH-MANIFEST.csv", table.getvalue())


def _signature(name: str, hashes: NDArray[np.uint64], k: int, scaled: int) -> dict[str, Any]:
    mins = hashes.tolist()
    sketch = {
        "num": 0,
        "ksize": k,
        "seed": _SEED,
        "max_hash": max_hash(scaled),
        "mins": mins,
        "md5sum": digest(mins, k),
        "molecule": "dna",
    }
    return {
        "class": "sourmash_signature",
        "email": "",
        "hash_function": _HASH,
        "filename": name,
        "name": name,
        "license": "CC0",
        "signatures": [sketch],
        "version": _VERSION,
    }


def digest(mins: Sequence[int], k: int) -> str:
    """Return the md5 by which sourmash names a sketch."""
    return _digest_text("".join(map(str, mins)).encode(), k)


def _digest_text(digits: bytes, k: int) -> str:
    """Return that md5 from the digits of the hashes, one after the other."""
    md5 = hashlib.md5(str(k).encode(), usedforsecurity=False)
    md5.update(digits)
    return md5.hexdigest()
