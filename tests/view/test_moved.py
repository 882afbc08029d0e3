"""What a report says of the changes since the one that it replaces."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tartan
from support.in_threads import in_threads
from tartan.view.moved import compare_labels, describe_moved, list_splits
from tartan.view.page_map import make_page_map
from tartan.view.page_record import MapFrame, PageRecord, match_items, read_record
from tartan.view.report import write_report
from tartan.view.scene import ASIDE

ALL = {at: at for at in range(6)}


@pytest.mark.parametrize(
    ("old", "new", "shared", "expected"),
    [
        ("aabbcc", "aabbcc", ALL, ([], [], [])),
        ("aabbcc", "xxyyzz", ALL, ([], [], [])),  # names do not matter
        ("aaabbb", "aabbbb", ALL, ([(2, "a", "b")], [], [])),
        ("aaaabb", "aaccbb", ALL, ([(2, "a", "c"), (3, "a", "c")], ["c"], [])),  # it was divided
        ("aaabbc", "aaaaac", ALL, ([(3, "b", "a"), (4, "b", "a")], [], ["b"])),
        ("aabbcc", "abbcc", {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}, ([], [], [])),
        ("aab", "aabcc", {0: 0, 1: 1, 2: 2}, ([], ["c"], [])),
    ],
)
def test_groups_are_matched_by_what_they_share(old: str, new: str, shared: Any, expected: Any) -> None:
    assert compare_labels(list(old), list(new), shared) == expected


def test_items_in_no_group_are_no_group() -> None:
    found = compare_labels([ASIDE, ASIDE, "a", "a"], ["a", ASIDE, "a", "a"], {at: at for at in range(4)})
    assert found == ([(0, ASIDE, "a")], [], [])


@pytest.mark.parametrize(
    "page",
    [
        "",
        "no page",
        '<meta name="tartan-report" content="{}">',
        '<meta name="tartan-report" content="[1]">',
        '<meta name="tartan-report" content="' + "[" * 3000 + '">',
        '<meta name="tartan-report" content="{&quot;version&quot;: true}">',
        "\0\xff" * 3000,
    ],
)
def test_pages_that_say_nothing(page: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(page.encode("latin-1"))
    assert read_record(tmp_path / "page.html") is None
    assert read_record(tmp_path / "nowhere.html") is None
    assert read_record(tmp_path) is None


@in_threads
def difference(a: Any, b: Any) -> float:
    return float(np.abs(a - b).sum())


@pytest.mark.slow
def test_a_report_says_what_moved(tmp_path: Path) -> None:
    # three groups; without its middle the long one falls apart
    places = [0.0, 0.1, 0.2, 10.0, 10.1, 20.0, 20.5, 21.0, 21.5, 22.0, 22.5, 23.0]
    points = np.array(places)[:, None]
    keys = [f"item<{at:02}>" for at in range(len(points))]
    path = tmp_path / "run.tartan"
    run = tartan.allpairs(difference, list(points), out=path, keys=keys, workers=1, quiet=True)
    page = tmp_path / "run.html"
    write_report(run, page)
    assert read_record(page) == PageRecord(run.manifest.created, 1, MapFrame())
    write_report(run, page)
    assert "Since version" not in page.read_text()
    changed = tartan.remove(path, [keys[3], keys[4]])
    write_report(changed, page)
    text = re.sub(r"<[^>]*>", " ", page.read_text().partition("Since version 1<")[2].partition("</section>")[0])
    said = html.unescape(text)
    from tartan.view.groups import groups_of

    old = groups_of(tartan.open(path, 1)).labels
    gone = {old[3], old[4]} - {label for at, label in enumerate(old) if at not in (3, 4)}
    assert f"{len(gone)} vanished" in said
    assert "0 items came and 2 went" in said
    record = read_record(page)
    assert record is not None
    assert (record.created, record.version) == (run.manifest.created, 2)
    assert record.frame not in (None, MapFrame())
    assert "The map lies in the frame of version 1: items of both moved by" in said
    tartan.expire(path)
    page.write_text(page.read_text().replace("version&#34;: 2", "version&#34;: 1"))
    write_report(tartan.open(path), page)
    assert "version 1 cannot be told: version 1 has expired" in " ".join(page.read_text().split())
    other = tartan.allpairs(difference, list(points[:5]), out=tmp_path / "other.tartan", workers=1, quiet=True)
    other.manifest.created = "2020-01-01T00:00:00+00:00"
    write_report(other, page)
    assert "Since version" not in page.read_text()


@pytest.mark.slow
def test_a_new_map_keeps_its_frame(tmp_path: Path) -> None:
    points = np.random.default_rng(4).normal(size=(14, 2))
    keys = [f"item{at:02}" for at in range(14)]
    path = tmp_path / "run.tartan"

    run = tartan.allpairs(distance, list(points), out=path, keys=keys, workers=1, quiet=True)
    run.embed("smacof", 2, keep=True, random_state=0)
    before = run.map.points
    changed = tartan.remove(path, keys[:3])
    free = changed.embed("smacof", 2, random_state=0).points
    made = changed.embed("smacof", 2, keep=True, random_state=0).points
    np.testing.assert_equal(changed.map.points, made)
    spread = float(np.linalg.norm(before - before.mean(axis=0)))
    assert np.linalg.norm(made - before[3:]) < 0.02 * spread  # distances of a plane: the map is exact but for its frame
    lengths = [np.linalg.norm(one[:, None] - one[None, :], axis=-1) for one in (free, made)]
    np.testing.assert_allclose(lengths[0], lengths[1], rtol=1e-9, atol=1e-12)
    mirrored = np.linalg.norm(free - before[3:])
    assert mirrored > 0.1 * spread  # without that it is turned


@in_threads
def distance(a: Any, b: Any) -> float:
    return float(np.linalg.norm(a - b))


@pytest.mark.slow
def test_the_map_that_a_page_makes_keeps_its_frame_over_versions(tmp_path: Path) -> None:
    points = np.random.default_rng(4).normal(size=(16, 2))
    keys = [f"item{at:02}" for at in range(16)]
    path = tmp_path / "run.tartan"
    run = tartan.allpairs(distance, list(points), out=path, keys=keys, workers=1, quiet=True)
    maps, record = [make_page_map(run, None)], PageRecord.of(run, MapFrame())
    for gone in (keys[:3], keys[7:9]):  # the second page follows the first as it was laid, not as it was made
        old = run
        run = tartan.remove(path, gone)
        found = make_page_map(run, record)
        assert found is not None
        shared = match_items(old, run)
        was = maps[-1].points[[shared[at] for at in range(run.n_items)]]
        assert np.linalg.norm(found.points - was) < 0.05 * np.linalg.norm(was - was.mean(axis=0))
        free = make_page_map(run, None)
        assert np.linalg.norm(free.points - was) > 0.2 * np.linalg.norm(was - was.mean(axis=0))  # it had been turned
        assert "items of both moved by" in found.said
        record = PageRecord.of(run, found.frame)
        again = make_page_map(run, record)  # of the page that takes the place of one of the same version
        np.testing.assert_array_equal(again.points, found.points)
        maps.append(found)


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {},
        {"turn": [1, 0, 0, 1]},
        {"turn": [2, 0, 0, 2], "shift": [0, 0]},
        {"turn": [1, 0, 0, float("nan")], "shift": [0, 0]},
        {"turn": [1, 0, 0, 1], "shift": [0, float("inf")]},
        {"turn": "abcd", "shift": [0, 0]},
        {"turn": [10**400, 0, 0, 1], "shift": [0, 0]},
    ],
)
def test_a_frame_that_a_page_forges_is_none(said: Any) -> None:
    assert MapFrame.read(said) is None
    assert MapFrame.read({"turn": [0, -1, 1, 0], "shift": [3, 4]}) == MapFrame((0.0, -1.0, 1.0, 0.0), (3.0, 4.0))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("((a,b),(c,d),e);", "((a,b),(c,d),e);", (set(), set())),
        ("((a,b),(c,d),e);", "(a,(b,((c,d),e)));", (set(), set())),  # where the root is does not matter
        ("((a,b),(c,d),e);", "((a,c),(b,d),e);", ({0b01010, 0b11010}, {0b01100, 0b11100})),
        ("((a,b),(c,d),e,x);", "(((a,b),y),(c,d),e);", (set(), set())),  # what one of both has does not count
    ],
)
def test_splits_of_trees_are_compared_by_the_leaves_of_both(old: str, new: str, expected: Any) -> None:
    from tartan.analytics import read_newick

    bits = {name: bit for bit, name in enumerate("abcde")}
    before, now = (list_splits(read_newick(text), bits) for text in (old, new))
    assert (now - before, before - now) == expected


class Numbers(tartan.Application):
    """Files of numbers, and their differences."""

    outputs: ClassVar = {"scores": "float64"}
    item_suffixes = (".txt",)
    releases_gil = True

    def parse(self, key: str, data: bytes) -> Any:
        return np.array([float(data)])

    def meaning(self, output: str, shape: Any) -> tartan.Meaning:
        return tartan.Meaning(tree=True)

    def compare_pair(self, a: Any, b: Any) -> float:
        return float(np.abs(a - b).sum())


@pytest.mark.slow
def test_a_report_says_which_clades_changed(tmp_path: Path) -> None:
    files = []
    for at, number in enumerate([0.0, 1.0, 5.0, 6.0, 20.0, 22.0]):
        files.append(tmp_path / f"{at}.txt")
        files[-1].write_text(str(number))
    path, ways = tmp_path / "run.tartan", {"workers": 1, "quiet": True}
    app = Numbers()
    tartan.allpairs(app, [str(file) for file in files], out=path, **ways)
    record = PageRecord.of(tartan.open(path))
    other = tmp_path / "other.txt"
    other.write_text("21")
    run = tartan.replace(path, "0.txt", str(other), app=app, **ways)  # it goes over to the other end
    found = describe_moved(run, None, record)
    assert found is not None
    assert found["tree"]["said"].startswith("Of the tree, of the 6 items that both have:")
    assert {"what": "gone", "items": "0.txt, 1.txt"} in found["tree"]["rows"]
    page = tmp_path / "run.html"
    write_report(tartan.open(path, 1), page)
    write_report(run, page)
    assert "clades are as before" in page.read_text()
