"""The manifest: round trip, damage, versions, and what counts as another run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.application import Meaning
from tartan.errors import ConfigError, CorruptResultError, RunNotFoundError, StoreError
from tartan.store.items import ItemTable
from tartan.store.manifest import Manifest, compare, refuse_differences

from .kit import describe, table

PATH = Path("run.tartan/manifest.json")


def test_round_trip() -> None:
    manifest = describe(parameters={"k": np.int64(5), "letters": {"b", "a"}, "root": Path("x")}, symmetric=False)
    again = Manifest.from_json(manifest.to_json(), PATH)
    assert again.application["parameters"] == {"k": 5, "letters": ["a", "b"], "root": "x"}
    assert (again.n_items, again.generations, again.chunk, again.symmetric) == (10, [10], 4, False)
    assert again.outputs == {"scores": np.dtype("float32")}
    assert Manifest.from_json(again.to_json(), PATH) == again


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"format": "1"}', '{"format": 1}', "\x00\xff"])
def test_garbage_is_named(text: str) -> None:
    with pytest.raises(CorruptResultError, match=r"manifest\.json"):
        Manifest.from_json(text, PATH)


def test_an_edited_manifest_is_refused() -> None:
    text = describe().to_json().replace('"k": 3', '"k": 4')
    with pytest.raises(CorruptResultError, match="checksum"):
        Manifest.from_json(text, PATH)


FORGED: list[tuple[dict[str, Any], str]] = [
    ({"application": None}, "application"),
    ({"application": {"name": "x", "kind": "builtin", "source": "builtin:x", "outputs": {}}}, "outputs"),
    ({"application": {"name": "x", "kind": "builtin", "source": "builtin:x", "outputs": {"s": "O"}}}, "no dtype"),
    ({"application": {"name": "x", "kind": "builtin", "source": "builtin:x", "outputs": {"s": "a,"}}}, "no dtype"),
    ({"workload": {"kind": 3}}, "workload"),
    ({"workload": {"kind": "rectangle"}}, "rectangle needs 'n_left'"),
    ({"workload": {"kind": "rectangle", "n_left": 11}}, "more items than there are"),
    ({"n_items": -1, "generations": [-1]}, "n_items"),
    ({"n_items": 11}, "do not follow from the generations"),
    ({"generations": [12, 10]}, "do not follow from the generations"),
    ({"grid": {"chunk": 0}}, "grid"),
    ({"grid": {"chunk": 2**70}}, "grid"),
    ({"grid": {"chunk": 16}}, "panel"),
    ({"grid": dict.fromkeys(("chunk", "panel", "strip", "span"), 10**6)}, "too large for 10 items"),
    ({"n_items": 0, "generations": [0]}, "n_items"),
    ({"reduce": {"kind": "top-k"}}, "top-k needs 'k'"),
    ({"reduce": {"kind": "top-k", "k": 2, "output": "other"}}, "no output 'other'"),
    ({"reduce": {"kind": "threshold", "threshold": "x"}}, "threshold"),
    ({"inputs": {"patterns": 3}}, "patterns"),
    ({"inputs": {"groups": [1]}}, "groups"),
    ({"inputs": {"parts": [{"groups": {"a": [["x"]]}}]}}, "length 2, got 1"),
    ({"inputs": {"groups": {"a": []}}}, "length >= 1"),
    ({"created": 5}, "created"),
]


@pytest.mark.parametrize(("changes", "words"), FORGED, ids=lambda one: str(one)[:40])
def test_a_forged_manifest_is_refused_although_its_checksum_fits(changes: dict[str, Any], words: str) -> None:
    text = replace(describe(), **changes).to_json()
    with pytest.raises(CorruptResultError, match=f"does not describe a run: .*{words}"):
        Manifest.from_json(text, PATH)


@pytest.mark.parametrize("entry", [{"groups": "x"}, {"cut": "x"}, {"unit": 3}, {"tree": "x"}], ids=str)
def test_a_forged_meaning_is_refused(entry: dict[str, Any]) -> None:
    manifest = describe()
    text = replace(manifest, application=manifest.application | {"meaning": {"scores": entry}}).to_json()
    with pytest.raises(CorruptResultError, match="does not describe a run: Expected"):
        Manifest.from_json(text, PATH)


def test_all_items_may_be_of_the_first_set() -> None:
    manifest = replace(describe(), workload={"kind": "rectangle", "n_left": 10})
    assert Manifest.from_json(manifest.to_json(), PATH).shape == (10, 0)


def test_everything_that_an_application_declares_of_its_scores_is_read() -> None:
    declared = {"scores": asdict(Meaning(distance="1-s", why="so it is", cut=0.5, tree=True))}
    manifest = describe()
    manifest.application["meaning"] = declared
    assert Manifest.from_json(manifest.to_json(), PATH).application["meaning"] == declared


def test_a_newer_format_is_refused() -> None:
    body = json.loads(describe().to_json()) | {"format": 3, "surprise": True}
    with pytest.raises(StoreError, match="newer Tartan") as caught:
        Manifest.from_json(json.dumps(body), PATH)
    assert caught.value.code == "newer-format"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"features": ["sparse-chunks", "clocks"]}, "feature 'clocks', feature 'sparse-chunks'"),
        ({"workload": {"kind": "quadruples"}}, "workload 'quadruples'"),
        ({"reduce": {"kind": "quantile", "q": 0.5}}, "reduce 'quantile'"),
    ],
)
def test_what_a_newer_tartan_wrote_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    text = _checked(json.loads(describe().to_json()) | changes)
    with pytest.raises(StoreError, match=f"does not know: {words}; use a newer Tartan") as caught:
        Manifest.from_json(text, PATH)
    assert caught.value.code == "newer-format"


def test_no_features_are_read_and_what_is_no_list_is_damage() -> None:
    body = json.loads(describe().to_json())
    assert Manifest.from_json(_checked(body | {"features": []}), PATH) == describe()
    for garbage in (3, {"a": 1}, [4], "all"):
        with pytest.raises(CorruptResultError, match="features that are not a list of names"):
            Manifest.from_json(_checked(body | {"features": garbage}), PATH)


def _checked(body: dict[str, Any]) -> str:
    """Return a manifest with the checksum that the specification gives it."""
    body = {name: value for name, value in body.items() if name != "checksum"}
    text = json.dumps(body, sort_keys=True)
    return json.dumps(body | {"checksum": hashlib.sha256(text.encode()).hexdigest()[:16]})


def test_bytes_that_are_no_text_are_corrupt(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CorruptResultError):
        Manifest.load(tmp_path)
    with pytest.raises(RunNotFoundError):
        Manifest.load(tmp_path / "absent")


def test_a_rectangle_has_no_mirror() -> None:
    assert not describe(workload={"kind": "rectangle", "n_left": 4}).symmetric


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"source_hash": "2"}, "input", "source of application 'test' has changed"),
        ({"name": "other"}, "option", "application: the run has 'test', now it is 'other'"),
        ({"parameters": {"k": 4}}, "option", "parameter k: the run has 3, now it is 4"),
        ({"parameters": {"k": 3, "x": 1}}, "option", "parameter x: the run has None, now it is 1"),
        ({"outputs": {"scores": "float64"}}, "option", "outputs"),
        ({"symmetric": False}, "option", "symmetric"),
        ({"options": {"tile": 8}}, "option", "tile: the run has 4, now it is 8"),
        ({"reduce": {"kind": "top-k", "k": 2}}, "option", "reduce"),
        ({"workload": {"kind": "rectangle", "n_left": 2}}, "option", "workload"),
        ({"inputs": {"kind": "array"}}, "input", "kind of input"),
    ],
)
def test_differences_are_named(changes: dict[str, Any], kind: str, words: str) -> None:
    (found,) = compare(describe(), describe(**changes))
    assert (found.kind, words in str(found)) == (kind, True), str(found)
    expected = ConfigError if kind == "option" else StoreError
    with pytest.raises(expected, match="not mixed") as caught:
        refuse_differences([found], Path("run"))
    assert caught.value.exit_status == 2
    assert caught.value.context["differences"] == [str(found)]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"options": {"tile": 4, "workers": 9, "host_cache": "1GB"}},
        {"options": {"tile": None}},
        {"similarity": True},
    ],
)
def test_what_changes_no_score_is_no_difference(changes: dict[str, Any]) -> None:
    old, new = describe(), describe(**changes)
    new.grid = {"chunk": 64, "panel": 3}  # chosen by the program, from the memory that happened to be free
    assert compare(old, new, table(10), table(10)) == []
    refuse_differences([], Path("run"))


def test_a_manifest_from_disk_equals_the_request_it_came_from() -> None:
    request = describe(parameters={"sizes": (1, 2), "k": np.int64(3)})
    assert compare(Manifest.from_json(request.to_json(), PATH), request) == []


def test_items_of_other_names_and_rows_of_another_form_are_named() -> None:
    renamed = ItemTable([*table(10).keys[:9], "other"])
    assert [str(d) for d in compare(describe(), describe(), table(10), renamed)] == ["other items: other"]
    old, new = (replace(describe(), inputs={"kind": "array", "shape": [10, side], "dtype": "<f4"}) for side in (3, 4))
    (found,) = compare(old, new)
    assert str(found) == "rows: the run has float32 of shape (3,), now they are float32 of shape (4,)"


def test_more_items_point_to_add() -> None:
    (found,) = compare(describe(10), describe(12), table(10), table(12))
    assert "tartan add" in str(found)
    (grown,) = compare(replace(describe(12), generations=[10, 12]), describe(10), table(12), table(10))
    assert str(grown).endswith("now there are 10; it has grown by `tartan add`: use `tartan resume`")
    found, gone = compare(describe(10), describe(9), table(10), table(9))
    assert "tartan add" not in str(found)
    assert str(gone) == "items that are gone: item-9"


def test_options_decide_the_class_of_the_error() -> None:
    differences = compare(describe(), describe(source_hash="2", parameters={"k": 9}))
    with pytest.raises(ConfigError):
        refuse_differences(differences, Path("run"))
