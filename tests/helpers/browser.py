"""A headless Chromium driven through its debugging pipe: opens pages, clicks, presses keys, reads what is there."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.helpers.patience import HANG

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--remote-debugging-pipe", "--window-size=1280,900",
)  # fmt: skip
KEYS = {
    "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9,
    "0": 48, "+": 187, "-": 189, "/": 191,
}  # fmt: skip


def chromium() -> str | None:
    """The browser's path: what ``TSTATIC_CHROMIUM`` says, or the first one that is installed."""
    named = os.environ.get("TSTATIC_CHROMIUM")
    if named:
        return named
    return next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)


class Browser:
    """One page in one browser. Commands are JSON that ends in a zero byte; the browser reads file 3 and writes file 4.

    Args:
        path: Of the browser.
        profile: A folder of its own.
        limit: Seconds to wait for any answer.
    """

    def __init__(self, path: str, profile: Path, limit: float = HANG) -> None:
        theirs_in, self._in = os.pipe()
        self._out, theirs_out = os.pipe()
        # A shell puts the pipes where the browser looks for them.
        command = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "browser", path]
        self._log = (profile.parent / f"{profile.name}.log").open("wb")
        self._process = subprocess.Popen(
            [*command, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self.limit = limit
        self.complaints: list[str] = []
        """Errors of the page's script, and what its security policy or the network refused."""
        self._buffer = b""
        self._count = 0
        self._loaded = 0
        self._session = ""
        try:
            target = self._page()
            self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.send(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                found: dict[str, Any] = answer["result"]
                return found

    def _page(self) -> str:
        """The first page; a browser that is just starting may have none yet."""
        end = time.monotonic() + self.limit
        while True:
            for one in self.send("Target.getTargets")["targetInfos"]:
                if one["type"] == "page":
                    page: str = one["targetId"]
                    return page
            assert time.monotonic() < end, f"the browser opened no page: see {self._log.name}"
            time.sleep(0.05)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + self.limit
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._out], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._out, 1 << 16) if ready else b""
            assert data, f"the browser {'ended' if ready else 'does not answer'}: see {self._log.name}"
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(head)
        kind, params = message.get("method"), message.get("params", {})
        if kind == "Page.loadEventFired":
            self._loaded += 1
        elif kind == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif kind == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        return message

    def open(self, url: str) -> None:
        """Opens a page and waits until it is loaded."""
        before = self._loaded
        self.send("Page.navigate", url=url)
        while self._loaded == before:
            self._next()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON has it."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, node: str) -> None:
        """Moves the mouse to the middle of a node (a JavaScript expression) and clicks; something else on top gets it."""
        place = f"(n => {{ n.scrollIntoView({{block: 'center', inline: 'center'}}); return n.getBoundingClientRect(); }})({node})"
        x, y = self.evaluate(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({place})")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def press(self, key: str) -> None:
        """Presses a key on what has the focus."""
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def press_on(self, node: str, key: str) -> None:
        """Gives a node the focus and presses a key."""
        self.evaluate(f"{node}.focus()")
        self.press(key)

    def type(self, text: str) -> None:
        """Types a text into what has the focus."""
        self.send("Input.insertText", text=text)

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Gives the page another size, and its reader's wish for light or dark."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        # Two frames: the page has then drawn itself anew.
        self.send(
            "Runtime.evaluate", awaitPromise=True,
            expression="new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))",
        )  # fmt: skip

    def screenshot(self) -> bytes:
        """What can be seen now, as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """Ends the browser."""
        self._process.kill()
        self._process.wait()
        for file in (self._in, self._out):
            with contextlib.suppress(OSError):
                os.close(file)
        self._log.close()


@contextlib.contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """A browser for a ``with`` block."""
    path = chromium()
    assert path is not None
    browser = Browser(path, profile)
    try:
        yield browser
    finally:
        browser.close()
