"""The disk level of an execution: where it is, how large it is, and what its items depend on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tartan.base.confined import make_private
from tartan.base.user_key import user_key
from tartan.devices.protocol import Device
from tartan.errors import ConfigError
from tartan.options import RunOptions, parse_bytes
from tartan.store.disk_cache import DiskCache
from tartan.store.folder import RunFolder
from tartan.workers.shipping import names_builtin

FREE_SHARE = 0.5
"""Part of the free disk that ``--cache-at`` may fill where no size is given."""


def open_disk_cache(folder: RunFolder, options: RunOptions) -> DiskCache | None:
    """Open the disk cache that the options ask for: in the run folder, or on the local disk that they name.

    Processes of one user share what lies there, also those of other runs: an item is found by all that it depends on.

    Raises
    ------
    ConfigError
        If the place cannot be used, or belongs to another user.
    StoreError
        If the place in the run folder is a link.
    """
    if options.cache_at is None:
        if options.disk_cache is None:
            return None
        capacity = parse_bytes(options.disk_cache, option="--disk-cache")
        return DiskCache(folder.path / "cache", capacity, root=folder.path)
    place = _own_folder(Path(options.cache_at))
    if options.disk_cache is not None:
        return DiskCache(place, parse_bytes(options.disk_cache, option="--disk-cache"))
    return DiskCache(place, max(1, int(shutil.disk_usage(place).free * FREE_SHARE)))


def _own_folder(parent: Path) -> Path:
    """Create a folder of this user alone in one that may be shared; nothing else in there is ever touched."""
    place = parent / f"tartan-cache-{os.getuid()}"
    try:
        if not parent.exists():
            parent.mkdir(parents=True, exist_ok=True)
        make_private(place, option="--cache-at")
    except OSError as error:
        message = f"--cache-at {parent}: {error.strerror}; name a folder on a local disk that can be written"
        raise ConfigError(message, context={"option": "--cache-at"}) from None
    return place


def cache_key(folder: RunFolder, options: RunOptions) -> bytes | None:
    """Return what seals pickled items in the disk cache; the items of built-in applications need no pickle."""
    builtin = names_builtin(str(folder.manifest.application["source"]))
    without = options.disk_cache is None and options.cache_at is None
    return None if builtin or without else user_key()


def digest_base(folder: RunFolder, devices: Sequence[Device]) -> bytes:
    """Return what preprocessed items depend on, besides themselves."""
    about = folder.manifest.application
    kinds = sorted({device.name.split(":")[0] for device in devices})
    text = json.dumps([about["source"], about["source_hash"], about["parameters"], kinds], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).digest()
