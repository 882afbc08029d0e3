"""Templates: what is put in is escaped, what is missing is noticed."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from tartan.view.page import clip_text, mark_code, render, resource


def test_what_is_put_in_is_escaped() -> None:
    page = render("scene.html", title="<b>&\"'", hint="<i>", digest="d", data="{}", script="1 < 2")
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;&#34;&#39;" in page
    assert "&lt;i&gt;" in page
    assert "<script>1 < 2</script>" in page


def test_what_is_missing_is_noticed() -> None:
    with pytest.raises(UndefinedError, match="title"):
        render("scene.html", hint="", digest="", data="", script="")


@pytest.mark.parametrize(
    "name",
    [
        "report.html",
        "report_body.html",
        "report.css",
        "scene.html",
        "viewer.css",
        "viewer.js",
        "viewer_page.js",
        "view.html",
        "view.css",
        "view.js",
        "matrix.js",
        "beside.js",
        "problem.html",
        "matrix.svg",
        "tree.svg",
        "histogram.svg",
        "timeline.svg",
    ],
)
def test_the_files_of_pages_are_in_the_package(name: str) -> None:
    assert resource(name)


@pytest.mark.slow
def test_long_texts_are_shortened_and_control_characters_shown() -> None:
    assert clip_text("a" * 100 + "b" * 100, 20) == "a" * 10 + " … " + "b" * 10
    assert clip_text("x\x00\u202ey\u3000z") == "x\ufffd\ufffdy\u3000z"


def test_what_stands_between_backquotes_is_code() -> None:
    assert mark_code("`tartan <a>` finds <b>") == "<code>tartan &lt;a&gt;</code> finds &lt;b&gt;"
    assert mark_code("a ` alone") == "a ` alone"
