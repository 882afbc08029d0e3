"""What the specification names is what the code writes."""

from __future__ import annotations

import re
from dataclasses import fields

import msgspec
import pytest

from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, NOT_COMPUTED, OPENED, Failure
from tartan.store import maps, versions
from tartan.store.links import NAMES
from tartan.store.listed import BLOCK_PAIRS
from tartan.store.manifest import FEATURES, FORMAT_VERSION, KINDS, Manifest

from .plain import READER, SPEC

TEXT = (SPEC / "run-folder.md").read_text()


def table(heading: str) -> list[str]:
    """Return what the first column of a table has in code marks, by the head of that table."""
    rows = TEXT.split(f"| {heading} |", 1)[1].split("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def test_versions_agree() -> None:
    assert TEXT.startswith(f"# The run folder, version {FORMAT_VERSION}.")
    assert tuple(range(max(1, FORMAT_VERSION - 2), FORMAT_VERSION + 1)) == READER.FORMATS
    assert set(table("feature")) == FEATURES == READER.KNOWN - {kind for kinds in KINDS.values() for kind in kinds}
    assert READER.BLOCK_PAIRS == BLOCK_PAIRS
    assert {kind for kinds in KINDS.values() for kind in kinds} | FEATURES == READER.KNOWN


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_named(name: str) -> None:
    assert re.search(rf"`{re.escape(name)}(/|/NAME/)?`", TEXT.split("## The manifest")[0])


def test_keys_agree() -> None:
    assert table("key | value") == ["format", "features", *_manifest_keys(), "checksum"]
    for heading, struct in (("key of the head", versions.LogHead), ("key of a record", versions.Record)):
        assert table(f"{heading} | value") == [field.name for field in msgspec.structs.fields(struct)]
    for kinds in KINDS.values():
        assert all(kind in TEXT for kind in kinds)
    assert [f"`{field.name}`" in TEXT for field in fields(Failure)] == [True] * len(fields(Failure))
    assert f"`format` ({maps.FORMAT}; another is refused)" in TEXT
    codes = ("not computed", "done", "failed with an item", "failed by itself")
    assert f"{', '.join(f'{code} {said}' for code, said in enumerate(codes))}." in TEXT
    assert (NOT_COMPUTED, DONE, FAILED_ITEM, FAILED_PAIR) == (0, 1, 2, 3)
    assert f"{OPENED} opened" in TEXT
    assert (READER.DONE, READER.OPENED) == (DONE, OPENED)


def _manifest_keys() -> list[str]:
    order = ["application", "workload", "n_items", "generations", "grid", "reduce"]
    order += ["inputs", "options", "versions", "created"]
    assert {*order, "format", "features"} == {field.name for field in fields(Manifest)}
    return order
