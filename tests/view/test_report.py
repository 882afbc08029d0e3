from __future__ import annotations

import re
import shlex
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

import tartan
from support.in_threads import in_threads
from tartan.core.pairs.ledger import Failure
from tartan.errors import ConfigError
from tartan.store.maps import StoredMap
from tartan.view.groups import groups_of
from tartan.view.overview import overview
from tartan.view.page import hash_script
from tartan.view.report import MAX_BYTES, write_report
from tartan.view.report_sections import Findings, again, histogram, stages
from tartan.view.thumbnails import photo_thumbnail, thumbnails_of

VOID = {"meta", "img", "link", "br", "hr", "input"}
NAME_SPACE = "http://www.w3.org/2000/svg"  # a name, and no address that is asked
STATS = {
    "loads": 70, "load_factor": 2.9, "load_factor_bound": 2.5, "wall_seconds": 12.5,
    "seconds_per_stage": {"read": 0.5, "parse": 3.0, "compare": 9.0}, "system_efficiency": 0.98,
}  # fmt: skip


class Page(HTMLParser):
    """Check that tags nest, and collect them with their attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words += data

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def assert_own_script(content: str, page: Page) -> None:
    """The page runs its own script, whose hash its policy has, and no other."""
    allowed = re.search(r"script-src 'sha256-([^']+)'", content)
    scripts = re.findall(r"<script>(.*?)</script>", content, re.DOTALL)
    assert allowed
    assert [hash_script(script) for script in scripts] == [allowed[1]]
    assert all(about == {} or about.get("type") == "application/json" for about in page.named("script"))


def _read(path) -> tuple[str, Page]:
    content = path.read_text(encoding="utf-8")
    return content, Page(content)


def test_page_says_what_it_must(make_run, tmp_path):
    run = make_run(24, 4, stats=STATS, failures=[Failure(3, None, "parse", "photo_0003.jpg: truncated")])
    _, page = _read(write_report(run, tmp_path / "r.html", title="My photos"))
    for said in ("My photos", "24", "276", "R = 2.9", "R_min = 2.5", "1.16", "98.0 %", "compare", "9 s",
                 "photo_0003.jpg: truncated", "1 failed item or pair", "tartan info photos.tartan --json",
                 "tartan run forensics 'photos/*.jpg' -o photos.tartan --set crop=512"):  # fmt: skip
        assert said in page.words
    assert [image["href"].split(",")[0] for image in page.named("image")] == ["data:image/png;base64"] * 2
    assert all(drawing["aria-label"] for drawing in page.named("svg"))
    assert page.named("html")[0]["lang"] == "en"
    assert all("scope" in head for head in page.named("th"))


def test_page_needs_nothing_else(make_run, tmp_path):
    content, page = _read(write_report(make_run(), tmp_path / "r.html"))
    asks = r"https?://|url\(|@import|<link|fetch\(|XMLHttp|WebSocket"
    assert not re.search(asks, content.replace(NAME_SPACE, ""))
    assert all(not name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_clusters_and_truth(make_run, tmp_path):
    run = make_run(24, 4)
    found = [i % 4 for i in range(24)]
    truth = [f"camera-{i % 4}" for i in range(24)]
    _, page = _read(write_report(run, tmp_path / "r.html", clusters=found, truth=truth))
    assert "All 24 items are in the right cluster." in page.words
    assert "6 of camera-3" in page.words
    found[0] = 1
    _, page = _read(write_report(run, tmp_path / "r.html", clusters=found, truth=truth))
    assert "23 of 24 items are in the right cluster, 1 is not." in page.words


def test_clusters_must_fit(make_run, tmp_path):
    with pytest.raises(ConfigError, match="3 clusters"):
        write_report(make_run(8), tmp_path / "r.html", clusters=[1, 2, 3])
    assert list(tmp_path.iterdir()) == []


def test_items_without_pictures_are_not_asked_for_long(make_run, tmp_path):
    asked = []
    found = [f"group {i % 20}" for i in range(200)]
    write_report(make_run(200, 20), tmp_path / "r.html", clusters=found, picture_of=asked.append)
    assert len(asked) == 12


def test_facts_of_items_stand_group_by_group(make_run, tmp_path):
    run = make_run(24, 4, stats=STATS, failures=[Failure(3, None, "parse", "truncated")])
    found = ["small" if i < 8 else "large" for i in range(24)]

    def facts_of(item):
        return {"letters": f"{1000 * item:,}", "N50": "12"} | ({"reads": "few <b>"} if item == 9 else {})

    content, _ = _read(write_report(run, tmp_path / "r.html", clusters=found, facts_of=facts_of))
    section = content[content.index("<h2>The items</h2>") :].partition("</section>")[0]
    assert re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', section) == ["Item", "Group", "letters", "N50", "reads"]
    rows = re.findall(
        r'<tr data-item="[0-9]+"><td class="key">([^<]*)</td><td class="group">([^<]*)</td>\s*'
        r'<td class="number">([^<]*)</td>',
        section,
    )
    assert rows[0] == (run.keys[8], "large", "8,000")
    assert [group for _, group, _ in rows] == ["large"] * 16 + ["small"] * 7
    assert "few &lt;b&gt;" in section
    assert run.keys[3] not in section


def test_items_without_facts_are_not_asked_for_long(make_run, tmp_path):
    asked = []

    def facts_of(item):
        asked.append(item)
        return {}

    content, _ = _read(write_report(make_run(200, 20), tmp_path / "r.html", facts_of=facts_of))
    assert len(asked) == 12
    assert "The items" not in content


def test_facts_of_many_items_are_cut_and_say_so(make_run, tmp_path):
    content, _ = _read(write_report(make_run(200, 20), tmp_path / "r.html", facts_of=lambda item: {"n": str(item)}))
    assert "the first 100 of 200" in content
    assert content.count('<td class="number">99</td>') == 1


def test_groups_come_by_size_and_what_is_in_none_comes_last(make_run, tmp_path):
    found = ["in no group"] * 9 + ["group 2"] * 7 + ["group 1"] * 8
    content, _ = _read(write_report(make_run(24, 4), tmp_path / "r.html", clusters=found))
    assert "<h2>2 groups; 9 items are in none</h2>" in content
    names = re.findall(r'<th scope="row"><span class="dot" style="[^"]*"></span>([^<]*)</th>', content)
    assert names == ["group 1", "group 2", "in no group"]


@pytest.mark.parametrize(("section", "reason"), [
    ("The groups", "nothing is analysed here"),
    ("The map", "this run has no map"),
    ("The tree", "this run has no tree"),
])  # fmt: skip
def test_a_page_says_what_it_leaves_out_and_why(make_run, tmp_path, section, reason):
    run = make_run(8, 2)
    run.manifest.meaning = lambda output=None: {"tree": True}
    page = " ".join(write_report(run, tmp_path / "r.html").read_text().split())
    assert f"<h2>{section}</h2> <p>Left out: {reason}</p>" in page


def test_a_page_says_that_it_looks_for_no_groups_of_many_items(make_run):
    run = make_run(3)
    run.n_items, run.n_pairs_left = 2001, 0
    found = groups_of(run)
    assert found is not None
    assert found.labels is None
    assert "up to 2,000 items" in found.said


HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'&\x00\u202e"


def test_hostile_text_stays_text(make_run, tmp_path):
    run = make_run(
        6,
        2,
        keys=[HOSTILE + str(i) for i in range(6)],
        failures=[Failure(0, 1, "compare", HOSTILE)],
        parameters={HOSTILE: HOSTILE},
        patterns=[HOSTILE],
        stats={**STATS, "seconds_per_stage": {HOSTILE: 1.0}},
        path=tmp_path / "x<script>y",
    )
    run.manifest.application["name"] = run.manifest.created = HOSTILE
    pictures = {0: b"not even a picture"}
    path = write_report(
        run,
        tmp_path / "r.html",
        title=HOSTILE,
        clusters=[HOSTILE] * 5 + ["x"],
        truth=[HOSTILE] * 6,
        picture_of=pictures.get,
        points=np.eye(6)[:, :2],
    )
    content, page = _read(path)
    assert_own_script(content, page)
    assert all(set(image) <= {"src", "alt", "title", "class", "data-item"} for image in page.named("img"))
    assert all(image["src"].startswith("data:image/") for image in page.named("img"))
    assert "\x00" not in content
    assert "\u202e" not in content


def test_the_map_shows_items_in_the_colours_of_their_clusters(make_run, tmp_path):
    points = np.random.default_rng(0).normal(size=(24, 3))
    points[5] = np.nan
    found = [f"group {i % 4}" for i in range(24)]
    content, page = _read(write_report(make_run(24, 4), tmp_path / "r.html", clusters=found, points=points))
    assert "seen from its widest side. 1 item has no place on it. Point at an item" in page.words
    drawn = content.partition('<figure class="map turns"')[2].partition("</figure>")[0]
    assert drawn.count("<title>") == 23
    assert "<title>photo_0007.jpg, group 3</title>" in content
    assert "photo_0005.jpg, group" not in content
    assert len({circle["fill"] for circle in page.named("circle")}) >= 4
    assert not re.search(r"https?://|url\(", content.replace(NAME_SPACE, ""))
    _, page = _read(write_report(make_run(24, 4), tmp_path / "r.html", points=np.full((24, 2), np.nan)))
    assert "No item has a place on the map." in page.words


def test_the_map_that_a_run_keeps_is_shown(make_run, tmp_path):
    run = make_run(24, 4)
    points, stress = np.random.default_rng(0).normal(size=(22, 2)), np.full(22, 0.25)
    run.map = StoredMap(points, stress, 20, "damds", "", {}, {})
    _, page = _read(write_report(run, tmp_path / "r.html"))
    assert (
        "2 items have no place on it. Made by damds; median stress of an item 0.25. 2 of the items were" in page.words
    )
    assert len(page.named("circle")) == 22


@pytest.mark.parametrize("shape", [(25, 2), (24,), (0, 2), (24, 0)])
def test_a_map_must_fit(make_run, tmp_path, shape):
    with pytest.raises(ConfigError, match=r"points has shape .* a row for each of the first items of photos\.tartan"):
        write_report(make_run(24), tmp_path / "r.html", points=np.zeros(shape))


@pytest.mark.slow
def test_large_run_stays_small(make_run, tmp_path):
    n = 2100
    failures = [Failure(i, None, "read", "x" * 5000) for i in range(1000)]
    run = make_run(n, 700, keys=["k" * 3000 + str(i) for i in range(n)], failures=failures)
    pictures = {i: np.random.default_rng(i).bytes(4000) for i in range(n)}
    points, clusters = np.random.default_rng(0).normal(size=(n, 2)), [f"{i % 700}" + "c" * 3000 for i in range(n)]
    path = write_report(run, tmp_path / "r.html", clusters=clusters, picture_of=pictures.get, points=points)
    assert path.stat().st_size < MAX_BYTES
    _, page = _read(path)
    assert "700 groups, the first 20 are shown" in page.words
    assert "1,000 failed items and pairs, the first 100 are shown" in page.words
    assert len(page.named("img")) > 2
    assert page.named("circle") == []  # too many items for a drawing with their names


def test_a_reduced_run_shows_what_it_keeps(make_run, tmp_path):
    run = make_run(8, 2, reduce={"kind": "top-k", "k": 3, "largest": True})
    _, page = _read(write_report(run, tmp_path / "r.html"))
    assert "The run keeps only a part of the scores; the others are hatched." in page.words
    assert "7 scores, the larger, the more similar." in page.words
    assert "The 7 nearest pairs" in page.words


def test_a_cut_is_drawn_into_the_histogram(make_run, tmp_path):
    run = make_run(24, 4)
    seen = overview(run, 100)
    findings = Findings(cut=0.015, cut_said="one camera from")
    drawing = histogram(run, findings, seen)["drawing"]
    assert "one camera from 0.015</text>" in drawing
    known = run.full[np.triu_indices(24, 1)]
    bars = re.findall(r'<rect class="(near|far)".*?: ([\d,]+) pairs</title>', drawing)
    assert sum(int(count) for side, count in bars if side == "near") == (known >= 0.015).sum()
    assert sum(int(count) for _, count in bars) == len(known)


@pytest.mark.slow
def test_the_nearest_pairs_come_first(make_run, tmp_path):
    run = make_run(2200, 40)
    upper = np.where(np.triu(np.ones_like(run.full, bool), 1), run.full, -1)
    best = np.argsort(-upper, axis=None)[:10]
    nearest = overview(run, 100).nearest
    assert [pair[:2] for pair in nearest] == [tuple(map(int, np.unravel_index(k, upper.shape))) for k in best]
    whole = overview(make_run(24, 4), 100)
    assert whole.nearest[0][2] == pytest.approx(float(np.nanmax(make_run(24, 4).full)))


@pytest.mark.slow
def test_many_items_are_ordered_by_the_tree_of_some(make_run):
    seen = overview(make_run(2200, 4), 100)
    groups = seen.order % 4
    assert sorted(seen.order) == list(range(2200))
    assert np.count_nonzero(np.diff(groups)) == 3  # each group lies together


def test_time_and_pauses_are_drawn(make_run, tmp_path):
    commits = [(1767323046.0 + second + 60 * (second > 20), 7) for second in range(39)]
    content, page = _read(write_report(make_run(24, 4, commits=commits), tmp_path / "r.html"))
    assert "Pairs over time" in page.words
    assert content.count('class="pause"') == 1


@pytest.mark.parametrize("n", [1, 2, 3])
def test_very_few_items(make_run, tmp_path, n):
    _, page = _read(write_report(make_run(n, 1), tmp_path / "r.html"))
    assert ("nearest pair" in page.words) == (n > 1)


def test_unfinished_empty_run(make_run, tmp_path):
    run = make_run(5, 1)
    run.full[:] = np.nan
    run.n_pairs_done = 0
    _, page = _read(write_report(run, tmp_path / "r.html"))
    assert "of 10 pairs done" in page.words


def test_thumbnails_of_photos(tmp_path):
    good, bad, gone = tmp_path / "a.jpg", tmp_path / "b.jpg", tmp_path / "c.jpg"
    Image.effect_noise((640, 480), 40).convert("RGB").save(good)
    bad.write_bytes(good.read_bytes()[:200])
    made = thumbnails_of([good, bad, gone])
    assert list(made) == [0]
    assert len(made[0]) < 12_000
    assert made[0][:3] == b"\xff\xd8\xff"


def test_thumbnail_of_a_bomb_is_refused(tmp_path):
    Image.new("RGB", (64, 64)).save(tmp_path / "a.jpg")
    assert photo_thumbnail(tmp_path / "a.jpg", max_pixels=64 * 64 - 1) is None
    assert photo_thumbnail(tmp_path / "a.jpg", max_pixels=64 * 64) is not None


def commands_of(run):
    return again(run)["commands"]


def test_the_command_that_makes_the_run_is_whole(make_run):
    run = make_run(5, 1)
    run.manifest.inputs["patterns"] = ["a b/*.jpg", "it's.jpg"]
    run.manifest.application["parameters"] = {"crop": 256}
    run.manifest.reduce = {"kind": "top-k", "k": 3, "largest": True}
    words = shlex.split(commands_of(run)[0])
    assert words[:5] == ["tartan", "run", "forensics", "a b/*.jpg", "it's.jpg"]
    assert words[5:] == ["-o", str(run.path), "--set", "crop=256", "--top-k", "3", "--largest"]


@pytest.mark.parametrize(
    "pattern",
    [
        "/data/" + "a" * 280 + "'" + "c" * 4000 + ";touch pwned;#" + "b" * 120,  # cut, its quotes would not match
        "photos\ntouch pwned",
        "photos\x1b[31m",
        "\u202egpj.exe",
        "--set",
    ],
)
def test_a_command_that_cannot_be_shown_whole_is_absent(make_run, pattern):
    run = make_run(5, 1)
    run.manifest.inputs["patterns"] = [pattern]
    assert [shlex.split(line)[:2] for line in commands_of(run)] == [["tartan", "info"], ["tartan", "export"]]


@pytest.mark.parametrize("change", [("workload", {"kind": "rectangle", "n_left": 2}), ("inputs", {"kind": "array"})])
def test_a_run_that_words_cannot_say_has_no_command(make_run, change):
    run = make_run(5, 1)
    setattr(run.manifest, *change)
    assert not any(line.startswith("tartan run") for line in commands_of(run))


@pytest.mark.parametrize("size", [0.0, 1.0, 1e-39])
def test_items_that_are_all_as_far_apart_have_a_tree_without_height(size, tmp_path):
    run = tartan.allpairs(in_threads(lambda a, b: size * (a != b)), list(range(8)), tmp_path / "r.tartan", workers=1)
    _, page = _read(write_report(run, tmp_path / "r.html"))
    drawn = [about["d"] or "" for tag, about in page.tags if tag == "path"]
    assert any(path.count("M") == 7 for path in drawn)
    assert not any(word in path for path in drawn for word in ("nan", "inf"))


@pytest.mark.slow
def test_scales_and_axes_of_a_report_say_what_they_measure(tmp_path):
    run = tartan.allpairs(in_threads(lambda a, b: abs(a - b)), [0, 10, 11, 30, 31.5], tmp_path / "r.tartan", workers=1)
    content, _ = _read(write_report(run, tmp_path / "r.html"))
    matrix = content[content.index("<h2>The matrix</h2>") :].partition("</section>")[0]
    assert re.search(r">different [\d.]+</text>", matrix)
    assert re.search(r">[\d.]+ similar</text>", matrix)
    assert ">score</text>" in matrix
    marks = re.findall(r'<text x="([\d.]+)" y="621(?:\.\d+)?">(\d+)</text>', matrix)
    assert [text for _, text in marks] == ["0", "10", "20"]
    assert float(marks[0][0]) > float(marks[1][0])  # the leaves, at 0, are at the right
    scores = content[content.index("<h2>The scores</h2>") :].partition("</section>")[0]
    assert "← similar" in scores
    assert "different →" in scores


def test_groups_of_the_items_stand_in_the_order_of_their_numbers(make_run, tmp_path):
    found = [f"group {i % 12 + 1}" for i in range(24)]
    content, _ = _read(
        write_report(make_run(24, 4), tmp_path / "r.html", clusters=found, facts_of=lambda item: {"pixels": "3"})
    )
    shown = re.findall(r'<td class="group">(group \d+)</td>', content)
    assert shown == [f"group {k}" for k in range(1, 13) for _ in range(2)]
    assert content.index("<h2>The matrix</h2>") < content.index("<h2>The items</h2>")


def test_long_facts_and_flat_maps_are_wider_than_a_phone(make_run, tmp_path):
    points = np.random.default_rng(0).normal(size=(24, 2))
    facts = {"pixels": "3", "begins": "a text of many words " * 3}
    content, _ = _read(write_report(make_run(24, 4), tmp_path / "r.html", points=points, facts_of=lambda item: facts))
    assert content.count('<td class="long">a text') == 24
    assert '<figure class="map wide" tabindex="0" aria-label="drawing: map">' in content


def test_a_map_of_kept_pairs_says_what_it_does_not_mean(make_run, tmp_path):
    rule = {"kind": "top-k", "k": 3, "largest": True}
    points = np.random.default_rng(0).normal(size=(24, 2))
    said = [
        "distance between them means nothing" in _read(write_report(run, tmp_path / "r.html", points=points))[1].words
        for run in (make_run(24, 4, reduce=rule), make_run(24, 4))
    ]
    assert said == [True, False]


def test_times_of_stages_have_sensible_digits() -> None:
    busy = {"read": 6.1e-05, "compare": 2.0}
    assert [(one["name"], one["time"]) for one in stages({"seconds_per_stage": busy})] == [
        ("read", "< 0.01 s"),
        ("compare", "2 s"),
    ]
