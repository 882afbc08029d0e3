"""The server of `tartan view`: whom it answers, what it answers, and what it never serves."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

import tartan
from support.in_threads import in_threads
from tartan import apps
from tartan.errors import ConfigError
from tartan.run.inspection import Inspector
from tartan.view.live import LiveRun
from tartan.view.server import Server

pytestmark = pytest.mark.slow

TOKEN = "a-token-of-this-test"
NAMES = ["one\x1b[31m.png", "two<b>.png", "three\u202e.png"]
SECRET = "the password is swordfish"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("photos")
    for k, name in enumerate(NAMES):
        pixels = np.random.default_rng(k).integers(0, 255, (64, 64, 3), np.uint8)
        Image.fromarray(pixels).save(folder / name)
    from tartan.apps.forensics.app import Forensics

    return tartan.allpairs(Forensics(), str(folder / "*.png"), out=folder / "r.tartan", workers=1)


@contextlib.contextmanager
def serving(run: Any, refusal: str = "") -> Iterator[Server]:
    live = LiveRun(lambda: tartan.open(run.path), lambda folder: Inspector(folder, apps, refusal))
    server = Server(live, token=TOKEN)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def ask(server: Server, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    named = {"Cookie": f"tartan-{server.port}={TOKEN}"} | {name.replace("_", "-"): v for name, v in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        sent = {name: value for name, value in named.items() if value != "none at all"}
        connection.request("GET", path, headers=sent)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def server(run: Any) -> Iterator[Server]:
    with serving(run) as server:
        yield server


def test_the_token_moves_from_the_address_to_a_cookie(server: Server) -> None:
    assert server.url == f"http://127.0.0.1:{server.port}/?token={TOKEN}"
    status, headers, _ = ask(server, f"/?token={TOKEN}", Cookie="none at all")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert ask(server, "/")[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/", "/state", "/body", "/beside", "/names/rows/0/9", "/item/0", "/tile/0/0/0.png", "/file/view.js", "/nothing"],
)
def test_without_the_token_nothing_is_said(server: Server, path: str) -> None:
    for cookie in ("none at all", f"tartan-{server.port}=guess", f"tartan-{server.port}="):
        status, _, body = ask(server, path, Cookie=cookie)
        assert status == 403
        assert b"png" not in body
    assert ask(server, f"{path}?token=guess", Cookie="none at all")[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost"])
def test_other_names_of_this_server_get_no_answer(server: Server, host: str) -> None:
    assert ask(server, "/state", Host=host.format(port=server.port))[0] == 403
    assert ask(server, f"/?token={TOKEN}", Host=host.format(port=server.port))[0] == 403
    assert ask(server, "/state", Host=f"localhost:{server.port}")[0] == 200


def test_other_sites_get_no_answer(server: Server) -> None:
    assert ask(server, "/item/0", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(server, "/item/0", Sec_Fetch_Site="same-site")[0] == 403  # another port of this machine
    assert ask(server, "/item/0", Sec_Fetch_Site="same-origin")[0] == 200


def test_every_answer_forbids_what_the_page_does_not_need(server: Server) -> None:
    for path in ("/", "/state", "/tile/0/0/0.png", "/drawing/0/0.png", "/nothing"):
        _, headers, _ = ask(server, path)
        assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


def test_state_items_pairs_and_pictures(server: Server, run: Any) -> None:
    state = json.loads(ask(server, "/state")[2])
    assert (state["finished"], state["share"], state["n_items"], state["levels"]) == (True, 1.0, 3, 1)
    assert state["said"] == "3 of 3 pairs"
    item = json.loads(ask(server, "/item/1")[2])
    indices, _ = run.neighbors(2)
    assert [near["item"] for near in item["neighbours"]] == indices[1].tolist()
    assert item["drawings"] == ["photo"]
    pair = json.loads(ask(server, "/pair/0/2")[2])
    assert float(pair["scores"]["scores"]) == pytest.approx(run.matrix()[0, 2], rel=1e-5)
    assert pair["ranks"][0]["of"] == 2
    for path in ("/tile/0/0/0.png", "/drawing/1/0.png"):
        status, headers, data = ask(server, path)
        assert (status, headers["content-type"]) == (200, "image/png")
        assert data.startswith(b"\x89PNG")
    found = json.loads(ask(server, "/find?text=two")[2])["items"]
    assert [item["key"] for item in found] == ["two<b>.png"]
    cell = json.loads(ask(server, "/cell/0/1")[2])
    assert {cell["a"]["item"], cell["b"]["item"]} < {0, 1, 2}
    assert cell["score"] is not None


def test_what_stands_beside_the_matrix(server: Server, run: Any) -> None:
    beside = json.loads(ask(server, "/beside")[2])
    assert beside["tree"].count("M") == 2  # two joints of three items
    rows, columns = (json.loads(ask(server, f"/names/{axis}/0/9")[2])["names"] for axis in ("rows", "columns"))
    assert rows == columns
    assert sorted(rows) == sorted(key.replace("\x1b", "\ufffd").replace("\u202e", "\ufffd") for key in run.keys)
    assert json.loads(ask(server, "/names/rows/1/1")[2])["names"] == rows[1:2]
    assert json.loads(ask(server, "/names/rows/7/3")[2])["names"] == []
    assert ask(server, "/names/planes/0/9")[0] == 404


@pytest.mark.parametrize(
    "path",
    ["/item/3", "/item/-1", "/item/x", "/pair/0/0", "/pair/0/9", "/tile/1/0/0.png", "/tile/0/1/0.png", "/cell/3/0",
     "/drawing/0/1.png", "/file/manifest.json", "/file/..%2f..%2fpage.py", "/manifest.json", "/tile/99/0/0.png"],
)  # fmt: skip
def test_what_is_not_there(server: Server, path: str) -> None:
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize("path", ["/item/{}", "/pair/0/{}", "/cell/{}/0", "/tile/0/0/{}.png", "/drawing/0/{}.png"])
@pytest.mark.parametrize("number", ["9" * 5000, "9" * 19, "\u0663", "1_0", "+1"])
def test_numbers_that_no_item_has_are_not_there(server: Server, path: str, number: str) -> None:
    status, headers, _ = ask(server, path.format(quote(number)))
    assert (status, "content-security-policy" in headers) == (404, True)


def test_control_characters_of_names_never_reach_the_page(server: Server) -> None:
    for path in (
        "/",
        "/state",
        "/body",
        "/item/0",
        "/item/2",
        "/pair/0/2",
        "/cell/0/0",
        "/find?text=png",
        "/names/rows/0/9",
    ):
        status, _, body = ask(server, path)
        text = body.decode()
        assert status == 200
        for character in ("\x1b", "\u202e", "\\u001b", "\\u202e"):
            assert character not in text, path
    assert b"two<b>" not in ask(server, "/body")[2]


def test_items_of_a_folder_from_elsewhere_are_not_opened(run: Any) -> None:
    with serving(run, "this folder is not trusted") as server:
        item = json.loads(ask(server, "/item/0")[2])
        assert item["problem"] == "this folder is not trusted"
        assert item["drawings"] == []
        assert ask(server, "/drawing/0/0.png")[0] == 404
        assert b"image/jpeg" not in ask(server, "/body")[2]


def test_a_private_file_is_never_served(tmp_path: Path) -> None:
    """A folder whose items are text that its user would not show: neither bytes nor a drawing of them leave."""
    private = tmp_path / "private"
    private.mkdir()
    for k in range(3):
        (private / f"{k}.txt").write_text(f"{SECRET} {k}")
    run = tartan.allpairs(len_apart, str(private / "*.txt"), out=tmp_path / "r", workers=1)
    with serving(run) as server:
        for path in ("/item/0", "/pair/0/1", "/body", "/state", "/drawing/0/0.png", "/cell/0/1"):
            assert b"swordfish" not in ask(server, path)[2]


def len_apart(a: bytes, b: bytes) -> float:
    return abs(len(a) - len(b))


def test_a_run_that_is_extended_is_opened_anew(tmp_path: Path) -> None:
    run = tartan.allpairs(in_threads(lambda a, b: abs(a - b)), [1.0, 2.0, 4.0], out=tmp_path / "r", workers=1)
    times = iter(range(100))
    live = LiveRun(lambda: tartan.open(run.path), lambda folder: Inspector(folder, apps), lambda: float(next(times)))
    assert live.state()["n_items"] == 3
    tartan.add(run.path, [8.0], app=in_threads(lambda a, b: abs(a - b)), previous=[1.0, 2.0, 4.0], workers=1)
    assert live.state()["n_items"] == 4
    assert live.item(3)["neighbours"][0]["item"] == 2
    assert live.tile(0, 0, 0).complete


def test_a_port_that_is_taken_is_named(server: Server, run: Any) -> None:
    live = LiveRun(lambda: run, lambda folder: Inspector(folder, apps))
    with pytest.raises(ConfigError, match=rf"port {server.port} cannot be used: .*; name another one \(--port\)"):
        Server(live, server.port)


def test_the_log_names_the_address_and_refusals_and_never_the_token(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="tartan.view")
    with serving(run) as server:
        assert ask(server, f"/?token={TOKEN}", Cookie="none at all")[0] == 303
        assert ask(server, "/state?x=%0a")[0] == 200
        assert ask(server, "/item/9%1b[31m")[0] == 404
        assert ask(server, "/item/0", Cookie="none at all")[0] == 403
    told = [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "tartan.view"]
    assert ("INFO", f"the page is served on http://127.0.0.1:{server.port}/") in told
    assert ("DEBUG", "GET / is answered with status 303") in told
    assert ("DEBUG", "GET /state is answered with status 200") in told
    assert ("DEBUG", "GET /item/9\\x1b[31m is answered with status 404") in told
    (refused,) = [line for level, line in told if level == "INFO" and " is refused: " in line]
    assert refused.startswith("GET /item/0 is refused: open the address")
    assert TOKEN not in caplog.text
