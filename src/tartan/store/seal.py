"""The seal of a run folder: it shows that this user made the folder on this machine.

``seal.json`` holds keyed checksums of the manifest, made with a key that only the user can read (base/keys.py).
A folder that comes from elsewhere, was copied by another user, or whose manifest was edited has no valid seal. It can
still be read: a seal is asked for only before something that the folder names is run (run/trust.py).

An extension writes the seal of its new manifest beside that of the old one, before the manifest: a kill leaves a folder
that is sealed, whichever of the two it has.
"""

from __future__ import annotations

import json
from pathlib import Path

from tartan.base.files import FileWriter, read_regular
from tartan.base.json_input import MOST_JSON_BYTES, parse_json
from tartan.base.keys import same_seal, seal, user_key
from tartan.errors import StoreError
from tartan.store.manifest import FILE_NAME as MANIFEST_NAME
from tartan.store.manifest import Manifest

FILE_NAME = "seal.json"
_PURPOSE = "manifest"
# By judgement: a seal is a few hundred bytes; a bound against strangers' folders. No benchmark.
_MOST_BYTES = 1 << 16


def write_seal(folder: Path, text: bytes, writer: FileWriter, *, beside: bool = False) -> None:
    """Seal the text of a manifest that will be written next; without a key there is no seal.

    Parameters
    ----------
    folder : Path
        The run folder.
    text : bytes
        The manifest to come.
    writer : FileWriter
    beside : bool
        Keep the seal of the manifest that is there.
    """
    key = user_key()
    if key is None:
        return
    seals = [seal(key, _PURPOSE, [text])]
    if beside:
        seals.append(seal(key, _PURPOSE, [read_regular(folder / MANIFEST_NAME, MOST_JSON_BYTES)]))
    writer.replace(folder / FILE_NAME, [json.dumps({"seals": seals}).encode() + b"\n"])


def is_sealed(folder: Path, manifest: Manifest) -> bool:
    """Whether this user made the folder on this machine, with this very manifest."""
    key = user_key(create=False)
    if key is None:
        return False
    try:
        text = read_regular(folder / MANIFEST_NAME, MOST_JSON_BYTES)
        if Manifest.from_json(text.decode(errors="replace"), folder / MANIFEST_NAME) != manifest:
            return False
    except (OSError, StoreError):
        return False
    expected = seal(key, _PURPOSE, [text])
    return any(same_seal(found, expected) for found in _seals(folder / FILE_NAME))


def _seals(path: Path) -> list[object]:
    """Return what claims to be a seal; whatever is not a list of seals holds none."""
    try:
        found = parse_json(read_regular(path, _MOST_BYTES))
    except (OSError, ValueError):
        return []
    seals = found.get("seals") if isinstance(found, dict) else None
    return seals if isinstance(seals, list) else []
