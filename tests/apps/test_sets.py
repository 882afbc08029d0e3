"""Sets: scores of few lines against sets of Python, every form of input, every kind of bad one."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import tartan
from tartan.apps.sets.app import Sets, fold_words
from tartan.cli.main import main
from tartan.errors import ConfigError, ItemError, RunFailedError

SETS: list[set[Any]] = [{1, 2, 3}, {2, 3, 4, 5}, {9}, {1, 2, 3, 4, 5}, {-1, 2**63, 0}]

DEFINITIONS = {
    "jaccard": lambda a, b: len(a & b) / len(a | b),
    "containment": lambda a, b: len(a & b) / min(len(a), len(b)),
    "within": lambda a, b: len(a & b) / len(a),
    "cosine": lambda a, b: len(a & b) / math.sqrt(len(a) * len(b)),
    "overlap": lambda a, b: len(a & b),
}


@pytest.mark.parametrize("score", DEFINITIONS)
@pytest.mark.parametrize("kind", [set, list, tuple, frozenset, lambda one: [str(member) for member in one]])
def test_scores_follow_their_definitions(score: str, kind: Any) -> None:
    app = Sets(score=score)
    items = [app.parse(str(i), kind(one)) for i, one in enumerate(SETS)]
    found = app.compare(items, items, np)[score]
    assert found.tolist() == [[DEFINITIONS[score](a, b) for b in SETS] for a in SETS]


def test_runs_take_sets_of_python() -> None:
    run = tartan.allpairs(Sets(), SETS)
    assert run.matrix()[0, 3] == 0.6
    one_way = tartan.allpairs(Sets(score="within"), SETS).matrix()
    assert (one_way[0, 3], one_way[3, 0]) == (1, 0.6)


def test_weights_give_cosines() -> None:
    app = Sets(score="cosine")
    items = [app.parse("a", {"x": 3, "y": 4.0, "z": 0}), app.parse("b", {"y": 2}), app.parse("c", ["x", "y"])]
    found = app.compare(items, items, np)["cosine"]
    assert found == pytest.approx(np.array([[1, 0.8, 0.98995], [0.8, 1, 0.70711], [0.98995, 0.70711, 1]]), abs=1e-5)
    assert (np.diag(found) <= 1).all()


def test_numbers_of_any_array_are_members() -> None:
    app = Sets(score="overlap")
    signed, unsigned = np.array([-1, 5, 5], np.int16), np.array([5, 2**64 - 1], np.uint64)
    items = [app.parse("a", one) for one in (signed, unsigned, [5, -1], np.array([5, -1], object))]
    assert app.compare(items, items, np)["overlap"].tolist() == [[2] * 4] * 4


TEXTS = ["The quick brown fox jumps over the lazy dog", "the quick, brown fox jumps: over the lazy cat!", "short"]


@given(st.text(st.characters(max_codepoint=255)))
def test_words_are_the_same_in_texts_of_any_letters(text: str) -> None:
    ascii_only = text.encode("ascii", "ignore").decode()
    for one in (text, ascii_only):
        assert fold_words(one).split() == re.findall(r"\w+", one.casefold())


def test_texts_become_shingles() -> None:
    app = Sets(shingle="3w")
    items = [app.parse(str(i), text) for i, text in enumerate(TEXTS)]
    # Seven shingles of nine words, of which six are shared.
    assert [len(one[0]) for one in items] == [7, 7, 1]
    assert app.compare(items, items, np)["jaccard"][0, 1] == 6 / 8
    letters = Sets(shingle="4c").parse("a", "a\u00df  CD")
    np.testing.assert_array_equal(letters[0], Sets(shingle="4c").parse("b", "ASS\ncd")[0])
    assert len(letters[0]) == 3


FILES: dict[str, bytes] = {
    "sets.txt": b"a b c\n\nb  c\td\r\n c b a a",
    "sets.jsonl": b'["a", "b", "c"]\n{"id": 7, "set": ["b", "c", "d"]}\n\n["c", "b", "a"]',
    "sets.json": b'[["a", "b", "c"], {"items": ["b", "c", "d"]}, ["a", "b", "c"]]',
    "sets.ndjson.gz": gzip.compress(b'["a", "b", "c"]\n["b", "c", "d"]\n["a", "b", "c"]\n'),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_holds_a_set_a_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    run = tartan.allpairs(Sets(), str(tmp_path / name))
    assert list(run.keys) == [f"{name}#{number}" for number in range(3)]
    assert run.matrix()[np.triu_indices(3, 1)].tolist() == [0.5, 1, 0.5]


def table(column: list[Any], kind: pa.DataType, name: str = "set") -> bytes:
    sink = pa.BufferOutputStream()
    ids = pa.array([f"id {number}" for number in range(len(column))])
    parquet.write_table(pa.table({"other": ids, name: pa.array(column, kind)}), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.list_(pa.uint64())])
def test_tables_hold_lists(tmp_path: Path, kind: pa.DataType) -> None:
    (tmp_path / "a.parquet").write_bytes(table([[1, 2, 3], [3, 2, 5, 5], None, [], [4, None]], kind))
    run = tartan.allpairs(Sets(), str(tmp_path / "a.parquet"))
    assert run.matrix()[0, 1] == 0.5
    reasons = [failure.reason for failure in run.failures]
    assert [failure.i for failure in run.failures] == [2, 3, 4]
    assert "NoneType is not a set" in reasons[0]
    assert "the set is empty" in reasons[1]
    assert "the member None is NoneType" in reasons[2]


def test_tables_and_objects_hold_texts(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(table(TEXTS, pa.string(), "text"))
    (tmp_path / "b.jsonl").write_bytes(b"\n".join(json.dumps({"n": 1, "text": text}).encode() for text in TEXTS))
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number}.txt").write_text(text)
    found = [
        tartan.allpairs(Sets(shingle="3w"), str(tmp_path / name)).matrix() for name in ("*.parquet", "*.jsonl", "*.txt")
    ]
    assert found[0][0, 1] == 0.75
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_fields_are_chosen(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": [1, 2], "set": [3]}\n{"a": [2], "set": [3]}\n')
    assert tartan.allpairs(Sets(field="a"), str(tmp_path / "a.jsonl")).matrix()[0, 1] == 0.5
    (tmp_path / "b.parquet").write_bytes(table([[1, 2], [2]], pa.list_(pa.int64()), "tags"))
    assert tartan.allpairs(Sets(field="tags"), str(tmp_path / "b.parquet")).matrix()[0, 1] == 0.5
    with pytest.raises(ItemError, match="no field 'b'; its fields are 'a', 'set'"):
        Sets(field="b").parse("x", b'{"a": [1, 2], "set": [3]}')
    with pytest.raises(ItemError, match=r"which field holds the set\? It has 'a', 'b'; say field=NAME"):
        Sets().parse("x", b'{"a": [1, 2], "b": "c"}')
    with pytest.raises(ValueError, match=r"which column holds the sets\? other, tags of them"):
        Sets().split("b.parquet", (tmp_path / "b.parquet").read_bytes())
    with pytest.raises(ValueError, match="no column 'x' of lists or texts; those are other, tags"):
        Sets(field="x").split("b.parquet", (tmp_path / "b.parquet").read_bytes())
    with pytest.raises(ValueError, match="the Parquet file cannot be read"):
        Sets().split("b.parquet", b"PAR1 and no more")


def test_files_that_cannot_be_split_fail(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,tags\n1,a b\n")
    (tmp_path / "b.parquet").write_bytes(table([[1, 2], [2]], pa.list_(pa.int64()))[:-50])
    (tmp_path / "c.json").write_text('[["a"], ')
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b'["a"]\n' * 99)[:-20])
    (tmp_path / "e.txt").write_text("a b\nb")
    run = tartan.allpairs(Sets(), str(tmp_path / "*"))
    reasons = {run.keys[failure.i]: failure.reason for failure in run.failures}
    assert list(reasons) == ["a.csv", "b.parquet", "c.json#0", "d.jsonl.gz"]
    for key, reason in zip(reasons, ["write its sets as JSON lines", "cannot be read", "it is not JSON", "end early"]):
        assert reason in reasons[key]


def jaccard(path: Path, **options: Any) -> float:
    score: float = tartan.allpairs(Sets(**options), str(path)).matrix()[0, 1]
    return score


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bom.jsonl", '\ufeff["a","b"]\n["a","b","c"]'),
        ("bom.txt", "\ufeffa b\na b c"),
        ("bom.json", '\ufeff[["a", "b"], ["a", "b", "c"]]'),
        ("lines.json", '["a", "b"]\n["a", "b", "c"]'),
        ("pretty.json", '[\n ["a",\n "b"],\n ["a", "b", "c"]\n]'),
        ("named.json", '{"x": ["a", "b"],\n "y/z": ["a", "b", "c"]}'),
        ("quotes.txt", '"a" [b]\n"a" [b] {c'),
        ("marks.txt", "PAR1 BZh\nBZh PAR1 C"),
        ("first.txt", "BZhang b\nBZhang b c"),
    ],
)
def test_a_file_is_what_its_name_says(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert jaccard(tmp_path / name) == 2 / 3


def test_sets_of_an_object_have_names(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"x": ["a", "b"],\n "y/z": ["a"]}')
    assert list(tartan.allpairs(Sets(), str(tmp_path / "a.json")).keys) == ["a.json#x", "a.json#y_z"]


@pytest.mark.parametrize(
    "text", ['"To be", he said', "[Illustration] A tale", "{\\rtf1", "null", "PAR1 protein is a", "BZh91 is a"]
)
def test_documents_may_begin_as_they_like(tmp_path: Path, text: str) -> None:
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text(text)
    assert jaccard(tmp_path / "*.txt", shingle="2w") == 1


def test_lines_that_look_like_json_are_text_under_the_name_that_is_advised(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("[1] a b\n[1] a b\n[")
    with pytest.raises(RunFailedError, match=r"it is not JSON: .*, or, if it is text, name the file \.txt"):
        tartan.allpairs(Sets(), str(tmp_path / "a.log"))
    (tmp_path / "a.log").rename(tmp_path / "a.txt")
    assert jaccard(tmp_path / "a.txt") == 1


def test_json_lines_hold_json(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('["a"]\n["a"]\nplain words\n5\n' + "[" * 100_000)
    run = tartan.allpairs(Sets(), str(tmp_path / "a.jsonl"))
    assert [failure.i for failure in run.failures] == [2, 3, 4]
    assert "it is not JSON" in run.failures[0].reason


@pytest.mark.parametrize(
    ("a", "b", "cosine"),
    [
        ({"x": 1, "y": 2}, {"y": 1e-200}, 0.894427191),
        ({"x": 1, "y": 2}, {"x": 1e200}, 0.447213595),
        ({"x": 1e200, "y": 1}, {"x": 1e200}, 1),
        ({"x": 1e-308, "y": 2e-308}, {"y": 1e308}, 0.894427191),
    ],
)
def test_weights_may_be_of_any_size(a: dict[str, float], b: dict[str, float], cosine: float) -> None:
    app = Sets(score="cosine")
    found = app.compare([app.parse("a", a)], [app.parse("b", b)], np)["cosine"]
    assert found[0, 0] == pytest.approx(cosine, abs=1e-8)


@pytest.mark.parametrize("kind", [pa.list_(pa.binary()), pa.list_(pa.date32())])
def test_columns_of_other_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match="has no column 'set' of lists or texts; those are other"):
        Sets(field="set").split("a.parquet", table([[], []], kind))


def test_tables_are_bounded() -> None:
    with pytest.raises(ValueError, match="more than the limit of 1000 bytes"):
        Sets(max_bytes=1000).split("a.parquet", table([[1] * 500], pa.list_(pa.int64())))


def test_numbers_have_no_shingles() -> None:
    for record in (np.array([1, 2]), {1, 2}, {"a": 1}):
        with pytest.raises(ItemError, match="is not text, and only texts have shingles"):
            Sets(shingle="2w").parse("x", record)


def test_packed_documents_are_described(tmp_path: Path) -> None:
    about = Sets(shingle="2w").describe_item("a.txt.gz", gzip.compress(b"A text of five words"))
    assert about == {"shingles": 4, "begins": "A text of five words"}


BAD: list[tuple[Any, str]] = [
    (set(), "the set is empty"),
    (b" \n", "the set is empty"),
    ([1.5], "the member 1.5 is float; members are integers"),
    ([True], "the member True is bool"),
    ([[1]], r"the member \[1\] is list"),
    (7, "int is not a set"),
    (None, "NoneType is not a set"),
    (np.zeros((2, 2), int), r"its shape is \(2, 2\)"),
    (np.zeros(2), "its members are float64"),
    ({"a": 1}, "it has weights, which jaccard does not know; say score=cosine"),
    (b"[1, 2", "it is not JSON: .*; write one set a line"),
    (b"\xff\xfe", "it is not text in UTF-8"),
    (b"null", "NoneType is not a set"),
]


@pytest.mark.parametrize(("data", "reason"), BAD)
def test_what_is_no_set_says_why(data: Any, reason: str) -> None:
    with pytest.raises(ItemError, match=f"^x: .*{reason}"):
        Sets().parse("x", data)


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ({"a": -1}, "the weight -1 of 'a' is not a number from 0 on"),
        ({"a": math.nan}, "the weight nan"),
        ({"a": math.inf}, "the weight inf"),
        ({"a": "b"}, "the weight 'b' of 'a' is not a number"),
        ({"a": True}, "the weight True of 'a' is not a number"),
        ({"a": 0}, "the set is empty"),
        ({1: 1, np.int64(1) + 0: 2, -(2**63): 1, 2**63: 2}, "it has one member under two types"),
    ],
)
def test_weights_are_checked(weights: Any, reason: str) -> None:
    with pytest.raises(ItemError, match=reason):
        Sets(score="cosine").parse("x", weights)


def test_lists_have_no_shingles() -> None:
    with pytest.raises(ItemError, match="list is not text, and only texts have shingles; leave shingle out"):
        Sets(shingle="2w").parse("x", ["a", "b"])


@pytest.mark.parametrize(
    "wrong", [{"score": "tanimoto"}, {"shingle": "5"}, {"shingle": "0w"}, {"shingle": "w5"}, {"max_bytes": 0}]
)
def test_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Sets(**wrong)


def test_sets_are_described() -> None:
    assert Sets().describe_item("a", b"red green red") == {"members": 2, "begins": "red green red"}
    assert Sets().describe_item("a", b"[1, 2, 3]") == {"members": 3, "begins": "1 2 3"}
    about = Sets(shingle="2w").describe_item("a", "A text  of\nfive words")
    assert about == {"shingles": 4, "begins": "A text of five words"}


def test_a_line_is_a_text_where_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["one two three four", "one two three five", "", "[six seven", "one two three four"]
    (tmp_path / "t.txt").write_text("\n".join(texts))
    words = ["run", "sets", str(tmp_path / "t.txt"), "--set", "shingle=2w"]
    assert main([*words, "-o", str(tmp_path / "one")]) == 2
    assert "each=line" in capsys.readouterr().err
    assert main([*words, "each=line", "-o", str(tmp_path / "r")]) == 0
    run = tartan.open(tmp_path / "r")
    assert list(run.keys) == ["t.txt#0", "t.txt#1", "t.txt#2", "t.txt#3"]
    np.testing.assert_allclose(run.matrix()[0, 1:], [0.5, 0, 1])
    (tmp_path / "a.txt").write_text("one two\nthree")
    (tmp_path / "b.txt").write_text("three one\ntwo four")
    whole = tartan.allpairs(Sets(each="file"), str(tmp_path / "[ab].txt"), quiet=True)
    np.testing.assert_allclose(whole.matrix()[0, 1], 0.75)
    assert "each" not in Sets().parameters()
    with pytest.raises(ConfigError, match="row"):
        Sets(each="row")
