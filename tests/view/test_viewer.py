"""The script of scene pages, run by Node.js where there is one: what a map that moves costs."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from tartan.view.page import resource

NODE = shutil.which("node")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(NODE is None, reason="needs node")]

SCENE = """
const float = (values) => Buffer.from(new Float32Array(values).buffer).toString("base64");
const whole = (values) => Buffer.from(new Uint32Array(values).buffer).toString("base64");
const scene = readScene({
  title: "t", n: 10, labels: [..."abcdefghij"], pointSize: 1, clusters: [{ label: "k", colour: [1, 2, 3, 255] }],
  maps: [0, 1].map((m) => ({ title: `${m}`, dim: 3, points: float(Array.from({ length: 30 }, (_, k) => k * k + m)) })),
  clusterOf: whole(new Array(10).fill(0)), edges: whole([0, 1]),
});
const pane = { left: 0, top: 0, width: 200, height: 100, map: 0, next: 1, mixed: 0.5 };
const view = { rotation: [1, 0, 0, 0, 1, 0, 0, 0, 1], zoom: 1, pan: [0, 0], ratio: 1 };
"""


def run(script: str, names: tuple[str, ...] = ("viewer.js", "viewer_page.js"), given: str = SCENE) -> Any:
    """Return what an expression of JavaScript gives after the script of the page."""
    source = "".join(resource(name) for name in names)
    text = f"{source}\n{given}\nconsole.log(JSON.stringify((() => {{ {script} }})()));"
    done = subprocess.run([str(NODE), "-"], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_slow_frames_thin_a_moving_map_and_quick_ones_fill_it() -> None:
    levels = run("""
      const pace = new Pace(), levels = [];
      for (const [milliseconds, times] of [[16, 50], [80, 2], [40, 90], [9000, 1], [16, 29], [16, 1], [16, 300]]) {
        for (let k = 0; k < times; k++) pace.took(milliseconds);
        levels.push(pace.level);
      }
      return levels;""")
    assert levels == [0, 2, 2, 4, 4, 3, 0]


@pytest.mark.parametrize("step", [1, 4, 16])
def test_a_thin_map_reads_only_what_is_in_the_buffers(step: int) -> None:
    calls = run(f"""
      const calls = {{ points: [], strides: [] }};
      const gl = new Proxy({{ canvas: {{ height: 100 }}, FLOAT: 1, UNSIGNED_BYTE: 2, POINTS: 3, LINES: 4 }}, {{
        get: (known, name) => known[name] ?? ({{
          getAttribLocation: () => 0,
          vertexAttribPointer: (place, length, kind, unit, stride) => calls.strides.push([length, kind, unit, stride]),
          drawArrays: (kind, first, count) => calls.points.push([kind, count]),
        }}[name] || (() => 1)),
      }});
      const painter = new GlPainter(gl, scene);
      painter.draw(pane, view, {{ paper: [1, 1, 1], ink: [0, 0, 0] }}, {{ edges: true, size: 3 }}, {step});
      return calls;""")
    count = -(-10 // step)
    assert calls["points"] == [[4, 2], [3, count]]
    assert (count - 1) * step < 10
    # Two ends and a size of the edges, then two places, the colour and the size of the points.
    assert calls["strides"] == [
        [3, 1, False, 12], [3, 1, False, 12], [1, 1, False, 4],
        [3, 1, False, 12 * step], [3, 1, False, 12 * step], [4, 2, True, 4 * step], [1, 1, False, 4 * step],
    ]  # fmt: skip
    assert 12 * step <= 255, "no browser takes more"


def test_places_of_some_points_are_those_of_all() -> None:
    whole, some, one = run("""
      const copy = (places) => ["x", "y", "depth"].map((name) => [...places[name]]);
      const whole = copy(placesOf(scene, pane, view));
      delete scene.places;
      const some = copy(placesOf(scene, pane, view, 4));
      delete scene.places;
      return [whole, some, copy(placesOf(scene, pane, view, 1, 7, 8))];""")
    for every, thin, single in zip(whole, some, one):
        assert thin[::4] == every[::4]
        assert not any(thin[1::4])
        assert single == [0] * 7 + [every[7]] + [0] * 2


def test_texts_do_not_cover_each_other() -> None:
    assert run("""
      const taken = new Set();
      return [takes(taken, 100, 50, 35), takes(taken, 120, 55, 49), takes(taken, 100, 90, 35),
        takes(taken, 170, 50, 42)];""") == [True, False, True, True]


def test_labels_stand_beside_points_and_within_the_map() -> None:
    written = run("""
      const page = Object.create(Viewer.prototype);
      const places = { x: [30, 60, 180, 30], y: [20, 20, 60, 80], depth: [0, 0, 0, 0] };
      Object.assign(page, {
        scene: { ...scene, n: 4, labels: ["one", "two", "three", "four"], places }, sizes: [1, 1, 1, 1],
        options: { size: 8 }, view, over: { measureText: (text) => ({ width: 7 * text.length }) },
      });
      placesOf = () => places;
      const written = [];
      page.drawLabels({ ...pane, map: 0, next: 0 }, (text, x) => written.push([text, x]), new Set(), 1);
      return written;""")
    # "one" has a point at its right, "three" the border: both stand at the left of their points.
    assert written == [["one", 2], ["two", 67], ["three", 138], ["four", 37]]


def test_names_that_do_not_fit_lose_what_they_share() -> None:
    script = """
      const pen = { measureText: (text) => ({ width: 10 * text.length }) };
      const names = ["sample 04 of river A", "sample 08 of river A", "sample 12 of river B"];
      const shared = countShared(names);
      return [shared, countShared(["one"]), countShared(["", "a"]), fitText(pen, names[0], 200, shared),
        fitText(pen, names[0], 150, shared), fitText(pen, names[1], 80, shared)];"""
    said = run(script, ("beside.js",), "")
    assert said == [7, 0, 0, "sample 04 of river A", "…04 of river A", "…08 …r A"]
