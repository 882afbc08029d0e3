"""Drive a headless Chromium by its DevTools protocol over a pair of pipes; nothing but the browser is needed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--mute-audio",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip


class Browser:
    """One page of a browser; a context manager.

    Everything that the page writes to its console as a warning or error, and every exception, is in ``complaints``.
    """

    def __init__(self, profile: Path, timeout: float = 60.0) -> None:
        self._timeout = timeout
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        self.complaints: list[str] = []
        self._requests: list[str] = []
        command_out, self._write = os.pipe()
        self._read, answer_in = os.pipe()
        words = [str(BROWSER), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        script = f'exec "$@" 3<&{command_out} 4>&{answer_in}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "browser", *words],
            pass_fds=(command_out, answer_in),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_out)
        os.close(answer_in)

    def __enter__(self) -> Browser:
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command; return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self._timeout
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def open(
        self,
        url: str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        touch: bool = False,
        paper: bool = False,
    ) -> None:
        """Open an address in a window of a size, or as it is printed, and wait until it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="print" if paper else "", features=[scheme])
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def leave(self) -> None:
        """Open nothing."""
        self.call("Page.navigate", url="about:blank")
        self.wait_for("location.href === 'about:blank'")

    def run(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Wait until an expression is true: the page itself looks at every frame; return its value."""
        script = (
            (
                "new Promise((resolve, reject) => { const end = performance.now() + MOST; const look = () => {"
                " const value = (() => { try { return ASKED; } catch { return null; } })();"
                " if (value) resolve(value); else if (performance.now() > end) reject(new Error('waited in vain'));"
                " else setTimeout(look, 30); }; look(); })"
            )
            .replace("MOST", str(800 * self._timeout))
            .replace("ASKED", expression)
        )
        return self.run(script)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key."""
        codes = {"Enter": 13, "Tab": 9, "ArrowRight": 39, "ArrowDown": 40, "ArrowLeft": 37, "ArrowUp": 38}
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        about = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0])), "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, x: float, y: float) -> None:
        """Click at a place of the window."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path, *, whole: bool = True) -> Path:
        """Save what is seen, or the whole page, as PNG."""
        shown = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shown["data"]))
        return path

    def processor_seconds(self) -> float:
        """Return the seconds of processors that the browser and all its processes have taken so far."""
        children: dict[int, list[tuple[int, int]]] = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                words = status.read_text().rpartition(")")[2].split()
                children.setdefault(int(words[1]), []).append(
                    (int(status.parent.name), int(words[11]) + int(words[12]))
                )
        ticks, parents = 0, [self._process.pid]
        for parent in parents:  # which grows
            for child, taken in children.get(parent, ()):
                ticks += taken
                parents.append(child)
        return ticks / os.sysconf("SC_CLK_TCK")

    def requested(self) -> list[str]:
        """Return the addresses that the page has asked for."""
        self.run("1")
        return list(self._requests)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._read], [], [], max(0.0, left))
            assert ready, "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self._requests.append(params["request"]["url"])
